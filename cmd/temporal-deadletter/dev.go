package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
	"go.temporal.io/sdk/client"
	"golang.org/x/sync/errgroup"

	"github.com/deadletter-dev/deadletter"
	"github.com/deadletter-dev/deadletter/internal/connect"
	"github.com/deadletter-dev/deadletter/internal/demo"
	"github.com/deadletter-dev/deadletter/internal/devstack"
)

func (c *cli) devCommand() *cobra.Command {
	var once bool
	var uiPort int
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "See it all work, on servers that are started for it",
		Long: "Start a Temporal dev server with its UI, a throw-away Postgres and a worker; run jobs that\n" +
			"succeed, are retried and die; replay one of the dead; then stay up until Ctrl-C. The servers\n" +
			"and their data are removed at the end. If there is no temporal on your PATH, dev builds it\n" +
			"once and keeps it in your cache folder (on Linux ~/.cache/deadletter).\n\n" +
			"--address (or TEMPORAL_ADDRESS) and --database-url (or DEADLETTER_DATABASE_URL) use servers\n" +
			"that run already. There the closed workflows and the dead letters of the demo stay, on a\n" +
			"task queue that starts with demo-. If you name a Temporal server, dev uses a dead-letter task\n" +
			"queue of its own, so it does not handle the dead letters of your jobs; --task-queue names\n" +
			"another one. If you name only a database, dev writes its dead letters under a namespace of\n" +
			"their own; --namespace names another one.",
		Example: "  " + name + " dev\n" +
			"  " + name + " dev --once          # for scripts: exit 0 if every step went as expected\n" +
			"  " + name + " dev --address 127.0.0.1:7233 --database-url postgres://postgres@127.0.0.1/postgres",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if c.output != outputText {
				return usagef("dev is for people: it has no -o %s", c.output)
			}
			if uiPort < 0 || uiPort > 65535 {
				return usagef("--ui-port: %d is no port", uiPort)
			}
			config, err := c.config()
			if err != nil {
				return err
			}
			if cmd.Flags().Changed("ui-port") && config.TemporalNamed {
				return usagef("--ui-port is for a Temporal that dev starts, and %s is named", config.Temporal.HostPort)
			}
			if config.DatabaseNamed {
				if err := config.CheckDatabase(); err != nil {
					return err
				}
			}
			return c.dev(cmd.Context(), config, once, uiPort)
		},
	}
	cmd.Flags().BoolVar(&once, "once", false, "end after the demo; exit 0 only if each step had its expected outcome")
	cmd.Flags().IntVar(&uiPort, "ui-port", 0, "port of the Temporal UI (default: a free one)")
	return cmd
}

func (c *cli) dev(ctx context.Context, config *connect.Config, once bool, uiPort int) (err error) {
	servers, err := c.startServers(ctx, config, uiPort)
	defer func() {
		if left := servers.stop(); left != nil {
			// Said here, because Ctrl-C hides what a verb returns.
			fmt.Fprintf(c.errw, "%s: %s\n", name, oneLine(left.Error()))
			err = errors.Join(err, errors.New("a server may be left running"))
		}
	}()
	if err != nil {
		return err
	}
	if err := config.Migrate(ctx); err != nil {
		return err
	}
	s, err := c.open(ctx, config)
	if err != nil {
		return err
	}
	defer s.close()

	group, ctx := errgroup.WithContext(ctx)
	ctx, cancel := context.WithCancel(ctx)
	run := newDemonstration(c.out, s, c.overrides.TaskQueue)
	ready := make(chan struct{})
	group.Go(func() error { return serveDemo(ctx, s, run, ready) })
	// The worker must have ended before its connections close.
	defer func() {
		cancel()
		if broken := group.Wait(); broken != nil {
			err = fmt.Errorf("the worker broke: %w", broken)
		}
	}()
	select {
	case <-ready:
	case <-ctx.Done():
		return ctx.Err()
	}
	fmt.Fprintf(c.out, "Ready: schema %s, and a worker for queues %s and %s\n", config.Schema, run.deadLetters, run.queue)

	if err := run.play(ctx); err != nil || once {
		return err
	}
	c.printPlaces(servers, s, run)
	<-ctx.Done()
	fmt.Fprintln(c.out, "\nStopping.")
	return nil
}

// serveDemo runs the workers of the demo on connections of their own, as another
// process would.
func serveDemo(ctx context.Context, s *session, run *demonstration, ready chan<- struct{}) error {
	// On a server that is not ours, the operator workflow and the schedule would stay.
	plugin, err := deadletter.NewPlugin(deadletter.Options{Store: s.store, TaskQueue: run.deadLetters, NoUpkeep: s.config.TemporalNamed})
	if err != nil {
		return err
	}
	c, err := s.config.Dial(ctx, silent, plugin)
	if err != nil {
		return err
	}
	defer c.Close()
	queues := demo.Queues{DeadLetters: run.deadLetters, Jobs: run.queue}
	return demo.Serve(ctx, c, queues, &run.handlers, func() { close(ready) })
}

// servers are those that dev started itself.
type servers struct {
	temporal *devstack.Temporal
	postgres *devstack.Postgres
}

func (s *servers) stop() error {
	var errs [2]error
	if s.temporal != nil {
		errs[0] = s.temporal.Stop()
	}
	if s.postgres != nil {
		errs[1] = s.postgres.Stop()
	}
	return errors.Join(errs[:]...)
}

// startServers starts what the config does not name, and completes the config.
// What has started is returned also on an error.
func (c *cli) startServers(ctx context.Context, config *connect.Config, uiPort int) (*servers, error) {
	s := new(servers)
	var err error
	var named []string
	if config.TemporalNamed {
		named = append(named, fmt.Sprintf("Temporal at %s (namespace %s)", config.Temporal.HostPort, config.Temporal.Namespace))
	}
	if config.DatabaseNamed {
		named = append(named, fmt.Sprintf("Postgres at %s (schema %s)", config.Database(), config.Schema))
	}
	if len(named) > 0 {
		fmt.Fprintln(c.out, "Using "+printable(strings.Join(named, ", ")))
	}
	if !config.DatabaseNamed || !config.TemporalNamed {
		fmt.Fprintln(c.out, "Starting servers. To use your own: --address HOST:PORT and --database-url URL")
	}
	log := progress{c.out}
	// Postgres first: that it is not installed shows at once, while Temporal may
	// take minutes to build.
	if !config.DatabaseNamed {
		if s.postgres, err = devstack.StartPostgres(ctx, devstack.PostgresOptions{Log: log}); err != nil {
			return s, err
		}
		config.DatabaseURL = s.postgres.URL
	}
	if !config.TemporalNamed {
		if config.DatabaseNamed && c.overrides.Namespace == "" {
			// A namespace of real jobs may have replays in the database that wait for
			// their start. They must not start on a Temporal that goes away.
			config.Temporal.Namespace = demo.TaskQueue + "-" + uuid.NewString()[:8]
		}
		s.temporal, err = devstack.StartTemporal(ctx, devstack.TemporalOptions{
			Log: log, Namespace: config.Temporal.Namespace, UI: true, UIPort: uiPort,
		})
		if err != nil {
			return s, err
		}
		// Keys and certificates of the environment are for another server.
		config.Temporal = client.Options{HostPort: s.temporal.Address, Namespace: config.Temporal.Namespace}
	}
	return s, nil
}

// progress puts devstack's lines under a heading.
type progress struct{ w io.Writer }

func (p progress) Write(line []byte) (int, error) {
	_, err := fmt.Fprint(p.w, "  ", strings.TrimPrefix(string(line), "devstack: "))
	return len(line), err
}
