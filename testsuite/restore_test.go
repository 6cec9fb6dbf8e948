package testsuite_test

import (
	"context"
	"errors"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"

	"github.com/deadletter-dev/deadletter"
	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/internal/devstack/devtest"
	"github.com/deadletter-dev/deadletter/job"
)

// backup dumps the schema, and returns what restores it to that time, while workers
// use it.
func (w *world) backup() (restore func()) {
	w.t.Helper()
	const install = "apt-get install postgresql-client"
	dump, psql := devtest.Require(w.t, "pg_dump", install), devtest.Require(w.t, "psql", install)
	file := filepath.Join(w.t.TempDir(), "deadletter.sql")
	out, err := exec.CommandContext(w.t.Context(), dump, "--dbname", w.database, "--schema", "deadletter", "--clean", "--if-exists", "--file", file).CombinedOutput()
	require.NoError(w.t, err, "%s", out)
	return func() {
		out, err := exec.CommandContext(w.t.Context(), psql, "--dbname", w.database, "--no-psqlrc", "--quiet", "--set", "ON_ERROR_STOP=1",
			"--single-transaction", "--command", "drop schema deadletter cascade", "--file", file).CombinedOutput()
		require.NoError(w.t, err, "%s", out)
	}
}

// doomed has jobs die in every way, and returns their final runs.
func (w *world) doomed() (runs []client.WorkflowRun) {
	w.t.Helper()
	add := func(run client.WorkflowRun) { runs = append(runs, run) }
	add(w.deadJob())
	add(w.enqueue(deadletter.Job{Type: "Retry", Policy: quick(3), Tags: map[string]string{"tenant": "acme"}}, "argument"))
	add(w.enqueue(deadletter.Job{Type: "Fatal"}))
	add(w.cancelled(deadletter.Job{Type: "Hang"}, w.pendingIn(enumspb.PENDING_ACTIVITY_STATE_STARTED)))
	add(w.cancelled(deadletter.Job{Type: "Any", StartDelay: time.Hour}, func(client.WorkflowRun) {}))
	for _, run := range runs {
		require.Error(w.t, w.wait(run, nil))
	}
	terminated := w.enqueue(deadletter.Job{Type: "Any", StartDelay: time.Hour})
	w.terminate(terminated, "a flood")
	return append(runs, terminated)
}

// TestRestoredDatabase proves that the sweep writes each dead letter again that a
// restored database has lost, as it was, also of jobs that Temporal has as failed and
// cancelled; that what was purged before the dump stays purged; that a discarded
// cancellation leaves no dead letter; and that a reconciliation finds and writes the same
// behind the sweep's watermark.
func TestRestoredDatabase(t *testing.T) {
	t.Parallel()
	started := time.Now().Add(-time.Minute)
	w := newWorld(t)
	w.startJobs(handlers{
		"Fail": fail, "Hang": hang,
		"Retry": func(context.Context, string) error { return errors.New("boom") },
		"Fatal": func(context.Context) error { return deadletter.Fatal(errors.New("no such customer")) },
	})
	w.startDLQ(nil)
	kept, purged := w.deadJob(), w.deadJob()
	require.NoError(t, w.store.Purge(t.Context(), w.key(purged), "tester"))
	discarded := w.cancelled(deadletter.Job{Type: "Any", StartDelay: time.Hour, Policy: deadletter.Policy{DiscardCancelled: true}}, func(client.WorkflowRun) {})
	require.Error(t, w.wait(discarded, nil))
	w.visible(3)
	require.Zero(t, w.sweep().Moved)
	restore := w.backup()

	lost := w.doomed()
	w.visible(3 + len(lost))
	require.Equal(t, 1, w.sweep().Moved)
	type letter struct {
		*dlqstore.DeadLetter
		attempts []dlqstore.Attempt
	}
	read := func(run client.WorkflowRun) letter {
		attempts, err := w.store.Attempts(t.Context(), w.key(run))
		require.NoError(t, err)
		return letter{w.dead(run), attempts}
	}
	var before []letter
	for _, run := range lost {
		before = append(before, read(run))
	}
	passed := w.watermark()

	restore()
	require.EqualValues(t, 1, w.count())
	require.True(t, w.watermark().Before(passed))
	require.Equal(t, len(lost), w.sweep().Moved)
	for i, run := range lost {
		require.Equal(t, before[i], read(run), "%s", before[i].Reason)
		require.Equal(t, []string{dlqstore.VerbMove}, w.verbs(w.key(run)))
	}
	reasons := map[job.Reason]int{}
	for _, l := range before {
		reasons[l.Reason]++
	}
	require.Equal(t, map[job.Reason]int{
		job.ReasonMaxRetriesExceeded: 2, job.ReasonFatalError: 1, job.ReasonCancelled: 2, job.ReasonTerminated: 1,
	}, reasons)
	w.dead(kept)
	w.noRow(discarded)
	_, err := w.store.Get(t.Context(), w.key(purged))
	require.ErrorIs(t, err, dlqstore.ErrNotFound, "a purged dead letter came back")
	require.Zero(t, w.sweep().Moved, "a row was written again")

	// Another time, and behind the watermark: as if the sweep had passed all of it.
	restore()
	_, err = w.store.AdvanceSweep(t.Context(), w.namespace, time.Now().Add(time.Hour), nil)
	require.NoError(t, err)
	require.Zero(t, w.sweep().Moved)
	found, err := w.operator.Reconcile(t.Context(), started)
	require.NoError(t, err)
	require.EqualValues(t, 3+len(lost), found.Compared)
	require.EqualValues(t, 2, found.Known)
	require.EqualValues(t, 1, found.NotDead)
	require.EqualValues(t, len(lost), found.MissingCount)
	missing := map[dlqstore.Key]job.Reason{}
	for _, m := range found.Missing {
		missing[m.Key] = m.Reason
	}
	for i, run := range lost {
		require.Equal(t, before[i].Reason, missing[w.key(run)])
	}
	require.EqualValues(t, 1, w.count(), "the comparison wrote something")
	state, err := w.operator.WriteMissing(t.Context(), started)
	require.NoError(t, err)
	require.Equal(t, len(lost), state.Moved)
	for i, run := range lost {
		require.Equal(t, before[i], read(run), "%s", before[i].Reason)
	}
	found, err = w.operator.Reconcile(t.Context(), started)
	require.NoError(t, err)
	require.Zero(t, found.MissingCount)
	_, err = w.store.Get(t.Context(), w.key(purged))
	require.ErrorIs(t, err, dlqstore.ErrNotFound, "a purged dead letter came back")
}
