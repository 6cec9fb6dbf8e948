package main

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"

	"github.com/deadletter-dev/deadletter"
	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/internal/devstack/devtest"
)

// TestReconcile goes through the verb as an operator does: a report that writes nothing,
// the question, what was written, and nothing more to do.
func TestReconcile(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	address, namespace := devtest.Namespace(t)
	reconcile := func(in io.Reader, args ...string) result {
		return call(t, b.environ, in, append([]string{"reconcile", "--address", address, "--namespace", namespace}, args...)...)
	}
	require.Equal(t, exitUsage, reconcile(strings.NewReader("")).code, "without --since")
	require.Equal(t, exitUsage, reconcile(strings.NewReader(""), "--since", "1h").code, "nobody can answer")
	require.Equal(t, exitUsage, reconcile(strings.NewReader(""), "--since", "2999-01-01T00:00:00Z", "--dry-run").code, "in the future")

	plugin, err := deadletter.NewPlugin(deadletter.Options{Store: b.store, SweepInterval: -1, RetentionInterval: -1})
	require.NoError(t, err)
	c := devtest.Dial(t, client.Options{HostPort: address, Namespace: namespace, Logger: silent, Plugins: []client.Plugin{plugin}})
	run, err := deadletter.Enqueue(t.Context(), c, deadletter.Job{ID: "lost-1", Type: "Any", TaskQueue: "nobody"})
	require.NoError(t, err)
	require.NoError(t, c.TerminateWorkflow(t.Context(), run.GetID(), "", "a flood"))
	var report result
	require.Eventually(t, func() bool { // until the server lists it
		report = reconcile(strings.NewReader(""), "--since", "1h", "--dry-run")
		return report.code == exitOK && strings.Contains(report.out, "lost-1")
	}, time.Minute, 50*time.Millisecond)
	const shown = `^Closed since  20.*Z
Compared      1
Known         0, their dead letters are there or were removed
Not dead      0
Missing       1 dead letter
  CLOSED                REASON      WORKFLOW ID
  20.*Z  terminated  lost-1
`
	require.Regexp(t, shown+`$`, report.out)
	report = reconcile(person{strings.NewReader("n\n")}, "--since", "1h")
	require.Equal(t, exitFailed, report.code)
	require.Equal(t, "temporal-deadletter: nothing was written: the answer was not yes\n", report.errw)
	count, err := b.store.CountDeadLetters(t.Context(), namespace)
	require.NoError(t, err)
	require.Zero(t, count)

	dlq := worker.New(c, deadletter.DefaultTaskQueue, worker.Options{})
	require.NoError(t, dlq.Start())
	t.Cleanup(dlq.Stop)
	report = reconcile(person{strings.NewReader("y\n")}, "--since", "1h")
	require.Zero(t, report.code, report.errw)
	require.Regexp(t, shown+`Write 1 dead letter\? \[y/N\] Wrote 1 dead letter\.\n$`, report.out)
	_, err = b.store.Get(t.Context(), dlqstore.Key{Namespace: namespace, WorkflowID: run.GetID(), RunID: run.GetRunID()})
	require.NoError(t, err)
	report = reconcile(strings.NewReader(""), "--since", "1h", "--yes", "-o", "json")
	require.Zero(t, report.code, report.errw)
	require.Contains(t, report.out, `"known": 1`)
	require.Contains(t, report.out, `"missing_count": 0`)
}
