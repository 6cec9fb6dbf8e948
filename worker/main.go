// Command worker is the reference worker: it serves the dead-letter queue, and
// the sample handlers on task queue demo. It takes no arguments. Beside the
// settings of temporal-deadletter it reads DEADLETTER_MIGRATE: "true" creates or
// upgrades the database schema first, for which the role needs the rights; by
// default a schema that does not fit ends the worker. SIGTERM stops it in order.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strconv"
	"syscall"

	"go.temporal.io/sdk/log"

	"github.com/deadletter-dev/deadletter"
	"github.com/deadletter-dev/deadletter/internal/connect"
	"github.com/deadletter-dev/deadletter/internal/demo"
)

func main() {
	if code, ends := answer(os.Args[1:], os.Stdout, os.Stderr); ends {
		os.Exit(code)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	logger := slog.New(slog.NewJSONHandler(os.Stderr, nil))
	err := run(ctx, logger, os.Environ(), os.Getenv("DEADLETTER_MIGRATE"))
	stop()
	if err != nil {
		logger.Error("the worker ended", "error", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, logger *slog.Logger, environ []string, migrate string) error {
	config, err := connect.Load(environ, connect.Overrides{})
	if err != nil {
		return err
	}
	config.NoFlags = true
	if migrate != "" {
		wanted, err := strconv.ParseBool(migrate)
		if err != nil {
			return fmt.Errorf("DEADLETTER_MIGRATE: %q is neither true nor false", migrate)
		}
		if wanted {
			if err := config.Migrate(ctx); err != nil {
				return err
			}
		}
	}
	store, err := config.OpenStore(ctx)
	if err != nil {
		return err
	}
	defer store.Close()
	plugin, err := deadletter.NewPlugin(deadletter.Options{Store: store, TaskQueue: config.TaskQueue})
	if err != nil {
		return err
	}
	c, err := config.Dial(ctx, log.NewStructuredLogger(logger), plugin)
	if err != nil {
		return err
	}
	defer c.Close()
	queues := demo.Queues{DeadLetters: config.TaskQueue, Jobs: demo.TaskQueue}
	return demo.Serve(ctx, c, queues, new(demo.Handlers), func() {
		logger.Info("serving", "dead_letters", queues.DeadLetters, "jobs", queues.Jobs, "database", config.Database())
	})
}
