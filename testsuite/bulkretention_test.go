package testsuite_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/worker"

	"github.com/deadletter-dev/deadletter"
	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/job"
)

// TestBulkHoldsOffRetention proves that retention, which runs all the time, takes
// nothing that a running or a paused plan has not done yet, takes at once what no plan
// holds, and what the plan held when it is over: each member is replayed once first.
func TestBulkHoldsOffRetention(t *testing.T) {
	t.Parallel()
	const members = 30
	w := newWorld(t)
	stopJobs, stopDLQ := w.startJobs(handlers{"Fail": fail}), w.startDLQ(nil)
	dead := w.deadJob()
	stopJobs()
	stopDLQ()
	w.cloneDead(dead, "bulk-", members)
	w.cloneDead(dead, "free-", members)
	_, err := w.store.Pool().Exec(t.Context(), `update deadletter.dead_letters set dead_at = dead_at - interval '2 days' where workflow_id <> $1`, dead.GetID())
	require.NoError(t, err)
	_, err = w.store.Pool().Exec(t.Context(), `update deadletter.dead_letters set tags = '{"plan": "yes"}' where workflow_id like 'bulk-%'`)
	require.NoError(t, err)
	plan := w.plan(dlqstore.PlanRequest{
		Verb: job.BulkReplay, Filter: dlqstore.Filter{Tags: map[string]string{"plan": "yes"}},
		Parameters: dlqstore.PlanParameters{BulkSettings: job.BulkSettings{Rate: 2}},
	})
	require.EqualValues(t, members, plan.Members)
	w.keep("a day", 24*time.Hour)
	plugin, err := deadletter.NewPlugin(deadletter.Options{Store: w.openStore(), SweepInterval: -1, RetentionInterval: time.Second})
	require.NoError(t, err)
	w.start(worker.New(w.dial(plugin), deadletter.DefaultTaskQueue, worker.Options{}))
	require.Eventually(t, func() bool { return w.countOf("free-%") == 0 }, patience, 50*time.Millisecond, "what no plan holds stays")
	require.Equal(t, members, w.countOf("bulk-%"), "a plan that can be applied does not hold its members")

	w.apply(plan)
	require.Eventually(t, func() bool { return w.pendingThere(plan) < members }, patience, 20*time.Millisecond)
	w.whileHeld(plan, "replays", w.operator.PausePlan)
	w.inState(plan, job.PlanPaused)
	left, rounds := w.pendingThere(plan), w.rounds(job.RetentionWorkflowType)
	require.Positive(t, left)
	require.Eventually(t, func() bool { return w.rounds(job.RetentionWorkflowType) >= rounds+3 }, patience, 50*time.Millisecond)
	require.Equal(t, left, w.pendingThere(plan))
	require.NoError(t, w.operator.ResumePlan(t.Context(), plan.ID, "carl"))
	plan = w.ended(plan)
	require.Equal(t, job.BulkProgress{PlanID: plan.ID, State: job.PlanFinished, Members: members, Done: members}, plan.Progress())
	started, distinct := w.started()
	require.Equal(t, members, started)
	require.Equal(t, members, distinct)
	require.Eventually(t, func() bool { return w.countOf("bulk-%") == 0 }, patience, 50*time.Millisecond, "the plan holds its members when it is over")
}

func (w *world) countOf(pattern string) (n int) {
	w.t.Helper()
	err := w.store.Pool().QueryRow(w.t.Context(), `select count(*) from deadletter.dead_letters where workflow_id like $1`, pattern).Scan(&n)
	require.NoError(w.t, err)
	return n
}

// pendingThere counts the pending members of a plan, and requires that each is there.
func (w *world) pendingThere(plan *dlqstore.Plan) (pending int) {
	w.t.Helper()
	there := 0
	err := w.store.Pool().QueryRow(w.t.Context(), `
select count(*), count(d.workflow_id)
from deadletter.plan_items i
left join deadletter.dead_letters d on (d.namespace, d.workflow_id, d.run_id) = (i.namespace, i.workflow_id, i.run_id)
where i.plan_id = $1 and i.state = 'pending'`, plan.ID).Scan(&pending, &there)
	require.NoError(w.t, err)
	require.Equal(w.t, pending, there, "a pending member was pruned")
	return pending
}
