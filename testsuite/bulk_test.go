package testsuite_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"golang.org/x/sync/errgroup"

	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/job"
	"github.com/deadletter-dev/deadletter/operator"
)

// cloneDead adds n dead letters that are as the one of a real job, under ids of
// their own behind a prefix, each a moment younger than the one before.
func (w *world) cloneDead(dead client.WorkflowRun, prefix string, n int) {
	w.t.Helper()
	_, err := w.store.Pool().Exec(w.t.Context(), `
insert into deadletter.dead_letters
select (json_populate_record(d, json_build_object(
	'workflow_id', $2::text || i, 'run_id', gen_random_uuid(), 'dead_at', d.dead_at + i * interval '1 ms', 'resurrection_count', 0))).*
from deadletter.dead_letters d, generate_series(1, $3::int) i
where d.workflow_id = $1`, dead.GetID(), prefix, n)
	require.NoError(w.t, err)
}

func (w *world) plan(request dlqstore.PlanRequest) *dlqstore.Plan {
	w.t.Helper()
	request.Actor = "ann"
	plan, err := w.operator.CreatePlan(w.t.Context(), request)
	require.NoError(w.t, err)
	return plan
}

func (w *world) apply(plan *dlqstore.Plan) {
	w.t.Helper()
	_, err := w.operator.Apply(w.t.Context(), operator.ApplyRequest{PlanID: plan.ID, Actor: "bob"})
	require.NoError(w.t, err)
}

// ended waits for the end of a plan's operation.
func (w *world) ended(plan *dlqstore.Plan) *dlqstore.Plan {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 2*patience)
	defer cancel()
	last := plan
	plan, err := w.operator.FollowPlan(ctx, plan.ID, func(p *dlqstore.Plan) { last = p })
	require.NoError(w.t, err, "the operation did not end: %+v", last.Progress())
	return plan
}

// started counts the replays that were confirmed, and their dead letters.
func (w *world) started() (started, distinct int) {
	w.t.Helper()
	err := w.store.Pool().QueryRow(w.t.Context(),
		`select count(*), count(distinct workflow_id) from deadletter.replays where new_run_id is not null`).Scan(&started, &distinct)
	require.NoError(w.t, err)
	return started, distinct
}

// requireJobs waits until visibility shows as many replays of clones, and no more.
func (w *world) requireJobs(want int) {
	w.t.Helper()
	visible := func() int {
		count, err := w.client.CountWorkflow(w.t.Context(), &workflowservice.CountWorkflowExecutionsRequest{
			Namespace: w.namespace, Query: "WorkflowType = 'deadletter.Job' AND WorkflowId STARTS_WITH 'bulk-'",
		})
		require.NoError(w.t, err)
		return int(count.GetCount())
	}
	w.grows(want, visible)
	require.Equal(w.t, want, visible())
}

// TestBulkFrozen proves that a plan replays what it showed, exactly: rows that come
// later are not swept in, and two who apply it at once get one replay each.
func TestBulkFrozen(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	stop := w.startJobs(handlers{"Fail": fail})
	w.startDLQ(nil)
	dead := w.deadJob()
	stop()
	w.cloneDead(dead, "bulk-a-", 99)
	plan := w.plan(dlqstore.PlanRequest{
		Verb: job.BulkReplay, Filter: dlqstore.Filter{JobType: "Fail"},
		Parameters: dlqstore.PlanParameters{BulkSettings: job.BulkSettings{Rate: -1}},
	})
	require.EqualValues(t, 100, plan.Pending())
	w.cloneDead(dead, "bulk-late-", 50)

	var terminals errgroup.Group
	for range 2 {
		terminals.Go(func() error {
			_, err := w.operator.Apply(t.Context(), operator.ApplyRequest{PlanID: plan.ID, Actor: "bob"})
			return err
		})
	}
	require.NoError(t, terminals.Wait())
	plan = w.ended(plan)
	require.Equal(t, job.BulkProgress{PlanID: plan.ID, State: job.PlanFinished, Members: 100, Done: 100}, plan.Progress())
	_, err := w.operator.Apply(t.Context(), operator.ApplyRequest{PlanID: plan.ID, Actor: "bob"})
	require.ErrorIs(t, err, dlqstore.ErrRefused, "an ended plan is applied again")
	w.requireJobs(99) // and the replay of the real one
	started, distinct := w.started()
	require.Equal(t, 100, started)
	require.Equal(t, 100, distinct)
	var result job.BulkProgress
	require.NoError(t, w.client.GetWorkflow(t.Context(), job.BulkWorkflowID(plan.ID), "").Get(t.Context(), &result))
	require.Equal(t, plan.Progress(), result)
	rows, err := w.store.Events(t.Context(), w.key(dead))
	require.NoError(t, err)
	require.Equal(t, "bob", rows[len(rows)-1].Actor)
}

// TestBulkCanary proves that a replay with a canary stops when its first jobs die
// again, says so and leaves the rest alone, and that it goes through to the end
// when they succeed.
func TestBulkCanary(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var mended atomic.Bool
	w.startJobs(handlers{"Fail": func(ctx context.Context) error {
		if mended.Load() {
			return nil
		}
		return errors.New("still broken")
	}})
	w.startDLQ(nil)
	w.cloneDead(w.deadJob(), "bulk-", 59)
	request := dlqstore.PlanRequest{
		Verb: job.BulkReplay, Filter: dlqstore.Filter{JobType: "Fail"},
		Parameters: dlqstore.PlanParameters{BulkSettings: job.BulkSettings{Rate: -1, Canary: 10}},
	}
	plan := w.plan(request)
	w.apply(plan)
	plan = w.ended(plan)
	require.Equal(t, job.PlanStopped, plan.State)
	require.EqualValues(t, 10, plan.Done)
	require.EqualValues(t, 50, plan.Pending())
	require.Regexp(t, `^of 10 replayed jobs \d+ died again and .* and 0 did not start: more than the limit of 20 %$`, plan.StopCause)
	w.requireJobs(9)
	left, err := w.operator.PlanItems(t.Context(), plan.ID, dlqstore.ItemLeft, 0, 0)
	require.NoError(t, err)
	require.Len(t, left, 50)

	mended.Store(true)
	no, original := false, 0
	request.Filter.Replayed, request.Filter.Generation = &no, &original
	plan = w.plan(request)
	require.EqualValues(t, 50, plan.Members)
	w.apply(plan)
	plan = w.ended(plan)
	require.Equal(t, job.PlanFinished, plan.State)
	require.EqualValues(t, 50, plan.Done)
	require.Eventually(t, func() bool {
		items, err := w.operator.PlanItems(t.Context(), plan.ID, dlqstore.ItemDone, 0, 100)
		require.NoError(t, err)
		for _, item := range items {
			if item.Outcome == nil || *item.Outcome != job.OutcomeSucceeded {
				return false
			}
		}
		return len(items) == 50
	}, patience, 50*time.Millisecond, "the outcomes of the members")
}

// TestBulkInterrupted proves that a bulk replay of ten thousand, one in a hundred of
// which cannot start, goes on by itself when its worker is killed twice and nobody
// follows it: each is replayed once, and each failure is listed.
func TestBulkInterrupted(t *testing.T) {
	t.Parallel()
	const members, bad = 10_000, 100
	w := newWorld(t)
	stopJobs := w.startJobs(handlers{"Fail": fail})
	stopDLQ := w.startDLQ(nil)
	dead := w.deadJob()
	stopJobs()
	stopDLQ()
	w.cloneDead(dead, "bulk-", members)
	// No server takes a start on a queue of this name.
	_, err := w.store.Pool().Exec(t.Context(), `
update deadletter.dead_letters set workflow_task_queue = $1
where (namespace, workflow_id, run_id) in (
	select namespace, workflow_id, run_id from deadletter.dead_letters where workflow_id like 'bulk-%00')`, strings.Repeat("q", 2000))
	require.NoError(t, err)
	clonesFrom := w.dead(dead).DeadAt.Add(time.Microsecond)
	plan := w.plan(dlqstore.PlanRequest{
		Verb: job.BulkReplay, Filter: dlqstore.Filter{DeadAfter: &clonesFrom},
		Parameters: dlqstore.PlanParameters{BulkSettings: job.BulkSettings{Rate: -1, Concurrency: 16}},
	})
	require.EqualValues(t, members, plan.Members)
	w.apply(plan) // and nobody follows
	done := func() int {
		now, err := w.operator.Plan(t.Context(), plan.ID)
		require.NoError(t, err)
		return int(now.Done)
	}
	for _, killAt := range []int{2000, 5000} {
		doomed := w.startProcess(roleDLQ, "never")
		w.grows(killAt, done)
		require.NoError(t, doomed.Process.Kill())
		_ = doomed.Wait()
	}
	w.startDLQ(nil)
	w.grows(members-bad, done)
	plan = w.ended(plan)
	require.Equal(t, job.BulkProgress{PlanID: plan.ID, State: job.PlanFinished, Members: members, Done: members - bad, Failed: bad}, plan.Progress())
	started, distinct := w.started()
	require.Equal(t, members-bad, started)
	require.Equal(t, members-bad, distinct)
	w.requireJobs(members - bad)
	failed, err := w.operator.PlanItems(t.Context(), plan.ID, dlqstore.ItemFailed, 0, 1000)
	require.NoError(t, err)
	require.Len(t, failed, bad)
	for _, item := range failed {
		require.NotEmpty(t, item.Error)
	}
}

// TestBulkRefused proves that an operation which names no plan, bad settings, or runs
// under another id than its plan's, fails at once with the cause.
func TestBulkRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	stop := w.startJobs(handlers{"Fail": fail})
	w.startDLQ(nil)
	w.deadJob()
	stop()
	plan := w.plan(dlqstore.PlanRequest{Verb: job.BulkReplay, All: true})
	for name, test := range map[string]struct {
		id   string
		in   any
		want string
	}{
		"other id": {"elsewhere", job.BulkInput{PlanID: plan.ID, Actor: "ann"}, "must have workflow id deadletter-bulk-" + plan.ID},
		"no plan":  {job.BulkWorkflowID("plan-none"), job.BulkInput{PlanID: "plan-none", Actor: "ann"}, "not found"},
		"settings": {job.BulkWorkflowID(plan.ID), job.BulkInput{PlanID: plan.ID, Actor: "ann", Settings: &job.BulkSettings{Concurrency: 1000}}, "concurrency 1000"},
	} {
		run, err := w.client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: test.id, TaskQueue: job.DefaultTaskQueue}, job.BulkWorkflowType, test.in)
		require.NoError(t, err, name)
		require.ErrorContains(t, w.wait(run, nil), test.want, name)
	}
	require.EqualValues(t, 1, w.count())
	w.apply(plan)
	require.Equal(t, job.PlanFinished, w.ended(plan).State)
}
