package main

import (
	"bytes"
	"context"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"

	"github.com/deadletter-dev/deadletter"
	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/internal/demo"
	"github.com/deadletter-dev/deadletter/internal/devstack/devtest"
)

func TestMain(m *testing.M) { devtest.Main(m) }

var quiet = slog.New(slog.DiscardHandler)

func environ(address, database string) []string {
	return []string{
		"TEMPORAL_CONFIG_FILE=/nonexistent/temporal.toml", "TEMPORAL_ADDRESS=" + address, "DEADLETTER_DATABASE_URL=" + database,
	}
}

// TestWorker proves that the worker makes its schema, serves the sample handlers
// and the dead-letter queue, and ends without an error when it is told to stop.
func TestWorker(t *testing.T) {
	t.Parallel()
	address, _ := devtest.Temporal(t)
	database := devtest.Postgres(t)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, quiet, environ(address, database), "true") }()

	c := devtest.Dial(t, client.Options{HostPort: address, Logger: log.NewStructuredLogger(quiet)})
	good, err := deadletter.Enqueue(ctx, c, deadletter.Job{Type: demo.SendEmail, TaskQueue: demo.TaskQueue}, demo.Email{To: "ada@example.com"})
	require.NoError(t, err)
	var result string
	require.NoError(t, good.Get(ctx, &result))
	require.Equal(t, "sent to ada@example.com", result)
	bad, err := deadletter.Enqueue(ctx, c, deadletter.Job{Type: demo.ImportInvoice, TaskQueue: demo.TaskQueue}, "2026-0042")
	require.NoError(t, err)
	_, dead := deadletter.AsDeadLettered(bad.Get(ctx, nil))
	require.True(t, dead)

	store, err := dlqstore.Open(ctx, database)
	require.NoError(t, err)
	defer store.Close()
	n, err := store.CountDeadLetters(ctx, "")
	require.NoError(t, err)
	require.EqualValues(t, 1, n)

	stop()
	require.NoError(t, <-ended)
}

// TestArguments proves that the worker does not start with an argument, and that
// its help names every setting.
func TestArguments(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		args      []string
		code      int
		ends      bool
		out, errw string
	}{
		{nil, 0, false, "", ""},
		{[]string{"-h"}, 0, true, usage, ""},
		{[]string{"--help"}, 0, true, usage, ""},
		{[]string{"--version"}, 2, true, "", "worker: it takes no arguments, and \"--version\" is one; see worker --help\n"},
		{[]string{"start"}, 2, true, "", "worker: it takes no arguments, and \"start\" is one; see worker --help\n"},
	} {
		var out, errw bytes.Buffer
		code, ends := answer(test.args, &out, &errw)
		require.Equal(t, test.code, code)
		require.Equal(t, test.ends, ends)
		require.Equal(t, test.out, out.String())
		require.Equal(t, test.errw, errw.String())
	}
	for _, variable := range []string{"DEADLETTER_DATABASE_URL", "DATABASE_URL", "DEADLETTER_SCHEMA", "DEADLETTER_TASK_QUEUE", "DEADLETTER_MIGRATE"} {
		require.Contains(t, usage, variable)
	}
}

// TestWorkerRefuses proves that the worker does not make a schema unasked, and
// that it says what is wrong.
func TestWorkerRefuses(t *testing.T) {
	t.Parallel()
	require.EqualError(t, run(t.Context(), quiet, []string{"TEMPORAL_CONFIG_FILE=/nonexistent/temporal.toml"}, ""),
		"no database is named: set DEADLETTER_DATABASE_URL (or DATABASE_URL)")
	database := devtest.Postgres(t)
	for _, unasked := range []string{"", "false"} {
		require.ErrorIs(t, run(t.Context(), quiet, environ("127.0.0.1:1", database), unasked), dlqstore.ErrSchema)
	}
	require.ErrorContains(t, run(t.Context(), quiet, environ("127.0.0.1:1", database), "perhaps"), `DEADLETTER_MIGRATE: "perhaps"`)
	require.ErrorContains(t, run(t.Context(), quiet, environ("127.0.0.1:1", database), "true"), "cannot reach Temporal at 127.0.0.1:1")
}
