package testsuite_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"

	"github.com/deadletter-dev/deadletter"
	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/job"
)

// TestBulkTwoPlans proves that operations on the same dead letters at once leave one
// defined outcome for each: each ends, each member is done, or is skipped with the
// reason, a purged one is gone with its attempts, and none is replayed twice or after
// it was purged.
func TestBulkTwoPlans(t *testing.T) {
	t.Parallel()
	const members = 300
	w := newWorld(t)
	w.clones(members - 1)
	w.startDLQ(nil)
	fast := dlqstore.PlanParameters{BulkSettings: job.BulkSettings{Rate: -1}}
	replay := w.plan(dlqstore.PlanRequest{Verb: job.BulkReplay, All: true, Parameters: fast})
	purge := w.plan(dlqstore.PlanRequest{Verb: job.BulkPurge, All: true, Parameters: fast})
	require.EqualValues(t, members, purge.Report.Held, "the second plan says that there is a first")
	yes := "yes"
	retag, err := w.operator.CreateEditPlan(t.Context(), dlqstore.PlanRequest{Verb: job.BulkRetag, All: true, Actor: "ann", Parameters: fast},
		job.Edit{Tags: map[string]*string{"seen": &yes}})
	require.NoError(t, err)
	plans := []*dlqstore.Plan{replay, retag, purge}
	for _, plan := range plans {
		w.apply(plan)
	}
	for i, plan := range plans {
		plans[i] = w.ended(plan)
		require.Equal(t, job.PlanFinished, plans[i].State)
		require.EqualValues(t, members, plans[i].Done+plans[i].Skipped, "%s: %+v", plan.Verb, plans[i].Progress())
		skipped, err := w.operator.PlanItems(t.Context(), plan.ID, dlqstore.ItemSkipped, 0, 1000)
		require.NoError(t, err)
		for _, item := range skipped {
			require.Regexp(t, "is gone|not found|was edited|revision conflict|a replay of it is being started", item.Error)
		}
	}
	started, distinct := w.started()
	require.EqualValues(t, plans[0].Done, started)
	require.Equal(t, started, distinct)
	var gone, orphans, late int
	require.NoError(t, w.store.Pool().QueryRow(t.Context(), `
select
	(select count(*) from deadletter.plan_items i where i.plan_id = $1 and i.state = 'done' and not exists (
		select from deadletter.dead_letters d where (d.namespace, d.workflow_id, d.run_id) = (i.namespace, i.workflow_id, i.run_id))),
	(select count(*) from deadletter.attempts a where not exists (
		select from deadletter.dead_letters d where (d.namespace, d.workflow_id, d.run_id) = (a.namespace, a.workflow_id, a.run_id))),
	(select count(*) from deadletter.events r join deadletter.events p using (namespace, workflow_id, run_id)
		where r.verb = 'replay' and p.verb = 'purge' and r.id > p.id)`, purge.ID).Scan(&gone, &orphans, &late))
	require.EqualValues(t, plans[2].Done, gone, "a purged dead letter is there")
	require.Zero(t, orphans)
	require.Zero(t, late, "a dead letter was replayed after its purge")
}

// TestBulkPurgeAmongMoves proves that moves go on while a plan purges, and that all
// that are moved meanwhile stay.
func TestBulkPurgeAmongMoves(t *testing.T) {
	t.Parallel()
	const members = 3000
	w := newWorld(t)
	w.load(members)
	w.startDLQ(nil)
	plan := w.plan(dlqstore.PlanRequest{
		Verb: job.BulkPurge, Filter: dlqstore.Filter{JobType: "Old"}, Parameters: dlqstore.PlanParameters{BulkSettings: job.BulkSettings{Rate: -1}},
	})
	require.EqualValues(t, members, plan.Members)
	ctx, stop := context.WithCancel(t.Context())
	var moving sync.WaitGroup
	var moved, meanwhile int
	moving.Go(func() {
		for ctx.Err() == nil {
			key := dlqstore.Key{Namespace: w.namespace, WorkflowID: fmt.Sprint("late-", moved), RunID: "r"}
			_, err := w.store.Move(t.Context(), &dlqstore.DeadLetter{Key: key, JobType: "Old", Reason: job.ReasonFatalError, DeadAt: time.Now(), Payloads: []byte{}}, nil, "tester", nil)
			if err != nil {
				t.Error(err)
				return
			}
			moved++
		}
	})
	w.apply(plan)
	plan = w.ended(plan)
	stop()
	moving.Wait()
	require.Equal(t, job.BulkProgress{PlanID: plan.ID, State: job.PlanFinished, Members: members, Done: members}, plan.Progress())
	require.EqualValues(t, moved, w.count())
	require.NoError(t, w.store.Pool().QueryRow(t.Context(), `
select count(*) from deadletter.events
where verb = 'move' and id > (select min(id) from deadletter.events where verb = 'purge') and id < (select max(id) from deadletter.events where verb = 'purge')`).Scan(&meanwhile))
	require.Positive(t, meanwhile, "nothing moved meanwhile")
}

// TestBulkCanaryPaused proves that an operation can be paused while it waits for the
// outcome of its canary, that nothing more is started then, and that it goes on to
// judge that canary when it is told to.
func TestBulkCanaryPaused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	stopJobs, stopDLQ := w.startJobs(handlers{"Fail": fail}), w.startDLQ(nil)
	w.cloneDead(w.deadJob(), "bulk-", 29)
	stopJobs() // the canary waits for a worker
	stopDLQ()
	w.startDLQ(nil)
	plan := w.plan(dlqstore.PlanRequest{
		Verb: job.BulkReplay, All: true, Parameters: dlqstore.PlanParameters{BulkSettings: job.BulkSettings{Rate: -1, Canary: 4}},
	})
	w.apply(plan)
	require.Eventually(t, func() bool { started, _ := w.started(); return started == 4 }, patience, 50*time.Millisecond)
	require.NoError(t, w.operator.PausePlan(t.Context(), plan.ID, "carl"))
	w.inState(plan, job.PlanPaused)
	w.startJobs(handlers{"Fail": func(context.Context) error { return nil }})
	require.Eventually(t, func() bool {
		outcomes, err := w.store.Outcomes(t.Context(), plan.ID)
		require.NoError(t, err)
		return outcomes.Succeeded == 4
	}, patience, 50*time.Millisecond)
	require.EqualValues(t, 4, w.inState(plan, job.PlanPaused).Done, "it went on although it is paused")
	require.NoError(t, w.operator.ResumePlan(t.Context(), plan.ID, "carl"))
	plan = w.ended(plan)
	require.Equal(t, job.BulkProgress{PlanID: plan.ID, State: job.PlanFinished, Members: 30, Done: 30}, plan.Progress())
}

// TestBulkByHand proves that an operation whose workflow is started by other means
// than the operator is the same, and that the audit names an actor for each step.
func TestBulkByHand(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.load(3)
	w.startDLQ(nil)
	plan := w.plan(dlqstore.PlanRequest{Verb: job.BulkPurge, All: true})
	run, err := w.client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{
		ID: job.BulkWorkflowID(plan.ID), TaskQueue: deadletter.DefaultTaskQueue,
	}, job.BulkWorkflowType, map[string]any{"plan_id": plan.ID})
	require.NoError(t, err)
	var result job.BulkProgress
	require.NoError(t, w.wait(run, &result))
	require.Equal(t, job.BulkProgress{PlanID: plan.ID, State: job.PlanFinished, Members: 3, Done: 3}, result)
	var actors []string
	require.NoError(t, w.store.Pool().QueryRow(t.Context(),
		`select array_agg(distinct actor) from deadletter.events where plan_id = $1 and verb <> 'plan'`, plan.ID).Scan(&actors))
	require.Equal(t, []string{"workflow"}, actors)
}

// TestBulkCancelledBeforeItBegan proves that a plan which was applied and cancelled
// before any worker took it up does nothing, and is over.
func TestBulkCancelledBeforeItBegan(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.load(3)
	plan := w.plan(dlqstore.PlanRequest{Verb: job.BulkPurge, All: true})
	w.apply(plan)
	require.NoError(t, w.operator.CancelPlan(t.Context(), plan.ID, "carl"))
	w.startDLQ(nil)
	plan = w.ended(plan)
	require.Equal(t, job.BulkProgress{PlanID: plan.ID, State: job.PlanCancelled, Members: 3, Pending: 3}, plan.Progress())
	require.EqualValues(t, 3, w.count())
}
