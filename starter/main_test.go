package main

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/log"

	"github.com/deadletter-dev/deadletter"
	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/internal/connect"
	"github.com/deadletter-dev/deadletter/internal/demo"
	"github.com/deadletter-dev/deadletter/internal/devstack/devtest"
)

func TestMain(m *testing.M) { devtest.Main(m) }

func start(t *testing.T, environ []string, args ...string) (code int, out, errw string) {
	t.Helper()
	var o, e bytes.Buffer
	code = run(t.Context(), args, environ, &o, &e)
	return code, o.String(), e.String()
}

// TestStarter proves that it starts as many jobs as asked, prints their ids,
// waits for them, and exits 1 when one is dead-lettered; and that arguments and
// policy arrive as they were given.
func TestStarter(t *testing.T) {
	t.Parallel()
	address, _ := devtest.Temporal(t)
	database := devtest.Postgres(t)
	environ := []string{"TEMPORAL_CONFIG_FILE=/nonexistent/temporal.toml", "TEMPORAL_ADDRESS=" + address, "DEADLETTER_DATABASE_URL=" + database}
	config, err := connect.Load(environ, connect.Overrides{})
	require.NoError(t, err)
	require.NoError(t, config.Migrate(t.Context()))
	store, err := config.OpenStore(t.Context())
	require.NoError(t, err)
	defer store.Close()
	serve(t, config, store)

	code, out, errw := start(t, environ, "--type", demo.SendEmail, "--arg", `{"to": "ada@example.com"}`, "-n", "3", "--wait")
	require.Zero(t, code, errw)
	require.Regexp(t, `^(\S+ \S+\n){3}$`, out)

	code, out, errw = start(t, environ, "--id", "invoice", "-n", "2", "--type", demo.ImportInvoice, "--tag", "tenant=acme",
		"--arg", `"2026-0042"`, "--arg", `{"id": 9007199254740993, "price": 1.10}`, "--max-attempts", "7", "--base-delay", "5s", "--wait")
	require.Equal(t, 1, code)
	require.Equal(t, "starter: 2 of 2 jobs failed\n", errw)
	require.Regexp(t, `(?m)^invoice-1 \S+\ninvoice-2 \S+\ninvoice-1 failed: `, out)
	rows, _, err := store.List(t.Context(), dlqstore.Filter{Tags: map[string]string{"tenant": "acme"}}, dlqstore.Page{})
	require.NoError(t, err)
	require.Len(t, rows, 2)
	require.Equal(t, `["2026-0042", {"id": 9007199254740993, "price": 1.10}]`, string(rows[0].PayloadJSON))
	require.Equal(t, 7, *rows[0].MaxAttempts)
	require.Contains(t, string(rows[0].Options), `"base_delay": "5s"`)
}

func serve(t *testing.T, config *connect.Config, store *dlqstore.Store) {
	t.Helper()
	plugin, err := deadletter.NewPlugin(deadletter.Options{Store: store})
	require.NoError(t, err)
	c, err := config.Dial(t.Context(), log.NewStructuredLogger(slog.New(slog.DiscardHandler)), plugin)
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() {
		ended <- demo.Serve(ctx, c, demo.Queues{DeadLetters: config.TaskQueue, Jobs: demo.TaskQueue}, new(demo.Handlers), nil)
	}()
	t.Cleanup(func() {
		stop()
		require.NoError(t, <-ended)
		c.Close()
	})
}

// TestWrongUsage proves that a wrong command line exits 2 before any server is
// asked, and that help is no fault.
func TestWrongUsage(t *testing.T) {
	t.Parallel()
	for args, says := range map[string]string{
		"--frob":             "flag provided but not defined",
		"--arg {":            "it is not JSON",
		"--tag acme":         "it does not look like key=value",
		"-n 0":               "-n: 0 is not a positive number",
		"--base-delay 3":     "parse error",
		"--max-attempts two": "parse error",
		"extra":              `"extra" is no flag`,
	} {
		code, out, errw := start(t, nil, strings.Fields(args)...)
		require.Equal(t, 2, code, args)
		require.Empty(t, out)
		require.Contains(t, errw, says)
		require.Regexp(t, `^starter: .*; see starter --help\n$`, errw, "one line")
	}
	code, _, errw := start(t, nil, "--help")
	require.Zero(t, code)
	require.Contains(t, errw, "-max-attempts")
	require.Contains(t, errw, "Exit codes: 0 done; 1 failed")
}

// TestRefusedPolicy proves that a policy that the library refuses starts nothing,
// and that all of its faults are told on one line.
func TestRefusedPolicy(t *testing.T) {
	t.Parallel()
	address, _ := devtest.Temporal(t)
	code, out, errw := start(t, []string{"TEMPORAL_CONFIG_FILE=/nonexistent/temporal.toml"}, "--address", address, "--backoff-multiplier", "0.5", "--type", "")
	require.Equal(t, 2, code)
	require.Empty(t, out)
	require.Contains(t, errw, "backoff_multiplier")
	require.Equal(t, 1, strings.Count(errw, "\n"), errw)
}
