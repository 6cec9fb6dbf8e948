package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"go.temporal.io/sdk/client"
	"golang.org/x/sync/errgroup"

	"github.com/deadletter-dev/deadletter"
	"github.com/deadletter-dev/deadletter/internal/connect"
	"github.com/deadletter-dev/deadletter/internal/demo"
	"github.com/deadletter-dev/deadletter/internal/devstack"
	"github.com/deadletter-dev/deadletter/job"
)

func (c *cli) devCommand() *cobra.Command {
	var once bool
	var uiPort int
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "See it all work, on servers that are started for it",
		Long: "Start a Temporal dev server with its UI, a throw-away Postgres and a worker; run jobs that\n" +
			"succeed, are retried and die; replay one of the dead; then stay up until Ctrl-C. Nothing is\n" +
			"left behind.\n\n" +
			"--address (or TEMPORAL_ADDRESS) and --database-url (or DEADLETTER_DATABASE_URL) use servers\n" +
			"that run already. There the closed workflows and the dead letters of the demo stay, on a\n" +
			"task queue that starts with demo-, and so does the workflow deadletter-operator.",
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
	s, err := open(ctx, config)
	if err != nil {
		return err
	}
	defer s.close()

	group, ctx := errgroup.WithContext(ctx)
	ctx, cancel := context.WithCancel(ctx)
	run := newDemonstration(c.out, s)
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
	fmt.Fprintf(c.out, "Ready: schema %s, and a worker for queues %s and %s\n", config.Schema, config.TaskQueue, run.queue)

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
	plugin, err := deadletter.NewPlugin(deadletter.Options{Store: s.store, TaskQueue: s.config.TaskQueue})
	if err != nil {
		return err
	}
	c, err := s.config.Dial(ctx, silent, plugin)
	if err != nil {
		return err
	}
	defer c.Close()
	queues := demo.Queues{DeadLetters: s.config.TaskQueue, Jobs: run.queue}
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

// printPlaces says where everything is, and what to try from another terminal.
func (c *cli) printPlaces(servers *servers, s *session, run *demonstration) {
	fmt.Fprintln(c.out, "\nAll of it stays up until Ctrl-C.")
	exports := []string{"TEMPORAL_ADDRESS=" + s.config.Temporal.HostPort, "TEMPORAL_NAMESPACE=" + s.config.Temporal.Namespace}
	var places [][2]string
	if servers.temporal != nil {
		places = append(places, [2]string{"Temporal UI", jobsPage(servers.temporal.UIURL, s.config.Temporal.Namespace)})
	}
	places = append(places, [2]string{"Temporal", s.config.Temporal.HostPort})
	if servers.postgres != nil {
		// Shown with its password: it is a throw-away one on this machine.
		places = append(places, [2]string{"Postgres", servers.postgres.URL})
		exports = append(exports, "DEADLETTER_DATABASE_URL='"+servers.postgres.URL+"'")
	} else {
		places = append(places, [2]string{"Postgres", s.config.Database()})
	}
	for _, place := range places {
		fmt.Fprintf(c.out, "  %-12s %s\n", place[0], place[1])
	}
	command := invokedAs()
	fmt.Fprintln(c.out, "\nTry in another terminal:")
	for _, line := range []string{
		"export " + strings.Join(exports, " "),
		command + " list",
		command + " show -w " + run.id(unknownName),
		command + " replay -w " + run.id(replayedName),
		command + " stats",
	} {
		fmt.Fprintln(c.out, "  "+line)
	}
}

// jobsPage is the UI's list of all job workflows.
func jobsPage(ui, namespace string) string {
	query := url.Values{"query": {`WorkflowType="` + job.WorkflowType + `"`}}
	return ui + "/namespaces/" + url.PathEscape(namespace) + "/workflows?" + query.Encode()
}

// invokedAs is the command by which a person runs this program here.
func invokedAs() string {
	if _, err := exec.LookPath(name); err == nil {
		return name
	}
	path, err := os.Executable()
	switch {
	case err != nil:
		return name
	case strings.Contains(path, string(filepath.Separator)+"go-build"):
		return "go run ./cmd/" + name
	default:
		return path
	}
}
