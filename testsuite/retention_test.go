package testsuite_test

import (
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"

	"github.com/deadletter-dev/deadletter"
	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/job"
	"github.com/deadletter-dev/deadletter/operator"
)

// load inserts dead letters that died two days ago.
func (w *world) load(n int) {
	w.t.Helper()
	_, err := w.store.Pool().Exec(w.t.Context(), `insert into deadletter.dead_letters (namespace, workflow_id, run_id, reason, job_type, payloads, dead_at)
		select $1, 'w' || i, 'r', 'fatal_error', 'Old', '', now() - interval '2 days' from generate_series(1, $2) i`, w.namespace, n)
	require.NoError(w.t, err)
}

func (w *world) keep(name string, age time.Duration) {
	w.t.Helper()
	_, err := w.operator.SetRetention(w.t.Context(), operator.RetentionRequest{
		Policy: dlqstore.RetentionPolicy{Name: name, KeepFor: age, Enabled: true}, All: true, Actor: "tester",
	})
	require.NoError(w.t, err)
}

// pruned counts the prune events, and proves that each is of another dead letter.
func (w *world) pruned() (events int) {
	w.t.Helper()
	var letters int
	err := w.store.Pool().QueryRow(w.t.Context(), `select count(*), count(distinct workflow_id) from deadletter.events where verb = 'prune'`).Scan(&events, &letters)
	require.NoError(w.t, err)
	require.Equal(w.t, letters, events)
	return events
}

func (w *world) startRetention() client.WorkflowRun {
	w.t.Helper()
	run, err := w.client.ExecuteWorkflow(w.t.Context(),
		client.StartWorkflowOptions{ID: "retention-" + uuid.NewString(), TaskQueue: deadletter.DefaultTaskQueue}, job.RetentionWorkflowType)
	require.NoError(w.t, err)
	return run
}

// TestRetentionSchedule proves that the dead-letter workers keep the schedule, that
// it does nothing without a policy and prunes by itself with one, that a pinned dead
// letter and one that died just now stay, and that a pruned job is not swept back.
func TestRetentionSchedule(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.startJobs(handlers{"Fail": fail})
	plugin, err := deadletter.NewPlugin(deadletter.Options{Store: w.openStore(), SweepInterval: -1, RetentionInterval: time.Second})
	require.NoError(t, err)
	w.start(worker.New(w.dial(plugin), deadletter.DefaultTaskQueue, worker.Options{}))
	w.load(700)
	changed, err := w.operator.Pin(t.Context(), "w7", "", "tester")
	require.NoError(t, err)
	require.True(t, changed)
	fresh, doomed := w.deadJob(), w.deadJob()
	_, err = w.store.Pool().Exec(t.Context(), `update deadletter.dead_letters set dead_at = now() - interval '3 days' where workflow_id = $1`, doomed.GetID())
	require.NoError(t, err)
	require.Eventually(t, func() bool { return w.rounds(job.RetentionWorkflowType) >= 2 }, patience, 50*time.Millisecond)
	require.Zero(t, w.pruned(), "something went without a policy")

	w.keep("a day", 24*time.Hour)
	require.Eventually(t, func() bool { return w.count() == 2 }, patience, 50*time.Millisecond)
	require.Equal(t, 700, w.pruned())
	w.dead(fresh)
	require.Equal(t, []string{dlqstore.VerbMove, dlqstore.VerbPrune}, w.verbs(w.key(doomed)))
	events, err := w.store.Events(t.Context(), w.key(doomed))
	require.NoError(t, err)
	require.Equal(t, "retention", events[1].Actor)
	require.Contains(t, string(events[1].Detail), `"policy": "a day"`)
	w.visible(2)
	require.Zero(t, w.sweep().Moved, "a pruned job came back")

	_, err = w.operator.Unpin(t.Context(), "w7", "", "tester")
	require.NoError(t, err)
	require.Eventually(t, func() bool { return w.count() == 1 }, patience, 50*time.Millisecond)

	_, err = deadletter.NewPlugin(deadletter.Options{RetentionInterval: time.Millisecond, SweepInterval: time.Millisecond})
	require.ErrorContains(t, err, "RetentionInterval 1ms")
	require.ErrorContains(t, err, "SweepInterval 1ms")
}

// TestRetentionKilled proves that a retention run whose worker is killed between two
// batches goes on with another worker, beside a second run, and that each dead
// letter goes once.
func TestRetentionKilled(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const letters = 3000
	w.load(letters)
	w.keep("a day", 24*time.Hour)
	// The second batch waits here for its worker's death.
	_, err := w.store.Pool().Exec(t.Context(), `create function hold() returns trigger language plpgsql as $$ begin
		if (select count(*) from deadletter.events where verb = 'prune') >= 500 then perform pg_advisory_xact_lock_shared(4711); end if; return null; end $$`)
	require.NoError(t, err)
	_, err = w.store.Pool().Exec(t.Context(), `create trigger hold before delete on deadletter.dead_letters for each statement execute function hold()`)
	require.NoError(t, err)
	holder, err := w.store.Pool().Acquire(t.Context())
	require.NoError(t, err)
	defer holder.Release()
	_, err = holder.Exec(t.Context(), `select pg_advisory_lock(4711)`)
	require.NoError(t, err)

	doomed := w.startProcess(roleDLQ, "")
	run := w.startRetention()
	require.Eventually(t, func() bool {
		var waiting int
		err := w.store.Pool().QueryRow(t.Context(), `select count(*) from pg_locks where locktype = 'advisory' and not granted and objid = 4711`).Scan(&waiting)
		return err == nil && waiting == 1
	}, patience, 20*time.Millisecond)
	require.NoError(t, doomed.Process.Kill())
	var exit *exec.ExitError
	require.ErrorAs(t, doomed.Wait(), &exit)
	require.Equal(t, syscall.SIGKILL, exit.Sys().(syscall.WaitStatus).Signal())
	require.Equal(t, 500, w.pruned())
	_, err = holder.Exec(t.Context(), `select pg_advisory_unlock(4711)`)
	require.NoError(t, err)

	w.startDLQ(nil)
	second := w.startRetention()
	var sum int64
	for _, each := range []client.WorkflowRun{run, second} {
		var out job.PruneOutput
		require.NoError(t, w.wait(each, &out))
		require.True(t, out.Done)
		sum += out.Pruned["a day"]
	}
	require.Zero(t, w.count())
	require.Equal(t, letters, w.pruned())
	require.GreaterOrEqual(t, sum, int64(letters-1000), "more is uncounted than what the killed one did")
}

// TestRetentionVerbs proves that the operator's verbs need an actor, and what they
// return.
func TestRetentionVerbs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.load(3)
	policy := dlqstore.RetentionPolicy{Name: "last", KeepLast: 1, Enabled: true}
	_, unnamed := w.operator.SetRetention(t.Context(), operator.RetentionRequest{Policy: policy, All: true})
	_, unnamedPrune := w.operator.Prune(t.Context(), "")
	_, unnamedPin := w.operator.Pin(t.Context(), "w1", "", "")
	_, unnamedUnpin := w.operator.Unpin(t.Context(), "w1", "", "")
	for _, err := range []error{unnamed, unnamedPrune, unnamedPin, unnamedUnpin, w.operator.RemoveRetention(t.Context(), "last", "")} {
		require.ErrorIs(t, err, operator.ErrNoActor)
	}
	_, err := w.operator.SetRetention(t.Context(), operator.RetentionRequest{Policy: policy, Actor: "tester"})
	require.ErrorIs(t, err, dlqstore.ErrUnbounded)
	report, err := w.operator.PruneReport(t.Context(), policy)
	require.NoError(t, err)
	require.EqualValues(t, 2, report.WouldPrune)
	reports, err := w.operator.PruneReports(t.Context())
	require.NoError(t, err)
	require.Empty(t, reports)
	stored, err := w.operator.SetRetention(t.Context(), operator.RetentionRequest{Policy: policy, All: true, Actor: "tester"})
	require.NoError(t, err)
	policies, err := w.operator.RetentionPolicies(t.Context())
	require.NoError(t, err)
	require.Equal(t, []dlqstore.RetentionPolicy{stored}, policies)
	pruned, err := w.operator.Prune(t.Context(), "tester")
	require.NoError(t, err)
	require.Equal(t, dlqstore.Pruned{ByPolicy: map[string]int64{"last": 2}, Done: true}, pruned)
	require.NoError(t, w.operator.RemoveRetention(t.Context(), "last", "tester"))
	require.ErrorIs(t, w.operator.RemoveRetention(t.Context(), "last", "tester"), dlqstore.ErrNotFound)
	_, err = w.operator.Pin(t.Context(), "nobody", "", "tester")
	require.ErrorIs(t, err, dlqstore.ErrNotFound)
}
