package testsuite_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/worker"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/deadletter-dev/deadletter"
	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/job"
)

// killedAt applies the plan with a worker of its own, and kills that with kill -9
// when so many members are done.
func (w *world) killedAt(plan *dlqstore.Plan, done int64) {
	w.t.Helper()
	w.apply(plan)
	doomed := w.startProcess(roleDLQ, "never")
	require.Eventually(w.t, func() bool {
		now, err := w.operator.Plan(w.t.Context(), plan.ID)
		require.NoError(w.t, err)
		return now.Done >= done
	}, patience, 20*time.Millisecond)
	require.NoError(w.t, doomed.Process.Kill())
	_ = doomed.Wait()
}

// clones makes so many dead letters of one that died, whose jobs go on dying.
func (w *world) clones(n int) {
	w.t.Helper()
	w.startJobs(handlers{"Fail": fail})
	stop := w.startDLQ(nil)
	w.cloneDead(w.deadJob(), "bulk-", n)
	stop()
}

// TestBulkCanaryKilled proves that a canary is no larger when its worker is killed in
// the middle of it.
func TestBulkCanaryKilled(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.clones(29)
	plan := w.plan(dlqstore.PlanRequest{
		Verb: job.BulkReplay, All: true,
		Parameters: dlqstore.PlanParameters{BulkSettings: job.BulkSettings{Rate: 1, Canary: 6}}, // in chunks of two
	})
	w.killedAt(plan, 2)
	w.startDLQ(nil)
	plan = w.ended(plan)
	require.Equal(t, job.PlanStopped, plan.State)
	require.EqualValues(t, 6, plan.Done, "the canary grew")
	require.EqualValues(t, 24, plan.Pending())
	started, distinct := w.started()
	require.Equal(t, 6, started)
	require.Equal(t, 6, distinct)
}

// TestBulkPausedKilled proves that an operation whose worker is killed and which is
// told to pause before the server has noticed is paused, goes on when it is told to,
// pauses in its canary too, and ends.
func TestBulkPausedKilled(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.clones(9)
	plan := w.plan(dlqstore.PlanRequest{
		Verb: job.BulkReplay, All: true,
		Parameters: dlqstore.PlanParameters{BulkSettings: job.BulkSettings{Rate: 1}},
	})
	w.killedAt(plan, 2)
	require.NoError(t, w.operator.PausePlan(t.Context(), plan.ID, "carl"))
	w.startDLQ(nil)
	w.inState(plan, job.PlanPaused)
	require.NoError(t, w.operator.ResumePlan(t.Context(), plan.ID, "carl"))
	plan = w.ended(plan)
	require.Equal(t, job.BulkProgress{PlanID: plan.ID, State: job.PlanFinished, Members: 10, Done: 10}, plan.Progress())
	started, distinct := w.started()
	require.Equal(t, 10, started)
	require.Equal(t, 10, distinct)
}

// TestBulkOutage proves that a server which takes no start at all for a while is no
// fault of the members: none fails for it, and each is replayed once when it is back;
// and that a plan may be applied before there is a worker to carry it out.
func TestBulkOutage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.clones(19)
	plan := w.plan(dlqstore.PlanRequest{
		Verb: job.BulkReplay, All: true, Parameters: dlqstore.PlanParameters{BulkSettings: job.BulkSettings{Rate: -1}},
	})
	w.apply(plan)
	require.Equal(t, job.PlanPlanned, w.inState(plan, job.PlanPlanned).State, "nobody has taken it up")

	var up atomic.Bool
	plugin, err := deadletter.NewPlugin(deadletter.Options{Store: w.openStore(), NoUpkeep: true})
	require.NoError(t, err)
	options := w.options(plugin)
	options.ConnectionOptions.DialOptions = aroundCall("StartWorkflowExecution", func(call func() error) error {
		if up.Load() {
			return call()
		}
		return status.Error(codes.Unavailable, "the frontend is down")
	})
	w.start(worker.New(w.dialWith(options), deadletter.DefaultTaskQueue, worker.Options{}))
	require.Eventually(t, func() bool {
		description, err := w.describe(job.BulkWorkflowID(plan.ID), "")
		require.NoError(t, err)
		pending := description.GetPendingActivities()
		return len(pending) == 1 && pending[0].GetAttempt() >= 3
	}, patience, 50*time.Millisecond, "the chunk is not tried again as a whole")
	now, err := w.operator.Plan(t.Context(), plan.ID)
	require.NoError(t, err)
	require.Equal(t, job.BulkProgress{PlanID: plan.ID, State: job.PlanApplying, Members: 20, Pending: 20}, now.Progress())
	up.Store(true)
	plan = w.ended(plan)
	require.Equal(t, job.BulkProgress{PlanID: plan.ID, State: job.PlanFinished, Members: 20, Done: 20}, plan.Progress())
	started, distinct := w.started()
	require.Equal(t, 20, started)
	require.Equal(t, 20, distinct)
}

// TestBulkPausesSoon proves that an operation that is told to pause, or to end, does
// so within seconds: it ends the members in hand, and takes few others, if any.
func TestBulkPausesSoon(t *testing.T) {
	t.Parallel()
	const rate = 20
	w := newWorld(t)
	w.clones(599)
	w.startDLQ(nil)
	yes := "yes"
	plan, err := w.operator.CreateEditPlan(t.Context(), dlqstore.PlanRequest{
		Verb: job.BulkRetag, All: true, Actor: "ann", Parameters: dlqstore.PlanParameters{BulkSettings: job.BulkSettings{Rate: rate}},
	}, job.Edit{Tags: map[string]*string{"seen": &yes}})
	require.NoError(t, err)
	w.apply(plan)
	done := func() int64 {
		now, err := w.operator.Plan(t.Context(), plan.ID)
		require.NoError(t, err)
		return now.Done
	}
	stops := func(tell func(context.Context, string, string) error, want job.PlanState) {
		before := done()
		require.Eventually(t, func() bool { return done() > before }, patience, 20*time.Millisecond)
		told := w.whileHeld(plan, "revisions", tell)
		require.LessOrEqual(t, w.inState(plan, want).Done-told, int64(2*rate), "members done before it was %s", want)
	}
	stops(w.operator.PausePlan, job.PlanPaused)
	require.NoError(t, w.operator.ResumePlan(t.Context(), plan.ID, "carl"))
	w.inState(plan, job.PlanApplying)
	stops(w.operator.CancelPlan, job.PlanCancelled)
}

// whileHeld tells an operation to stop while the members that it has in hand wait to
// be inserted into a table, and lets them go on when it has heard. It returns how many
// were done when it was told: however slow the machine is, it was no more.
func (w *world) whileHeld(plan *dlqstore.Plan, table string, tell func(context.Context, string, string) error) (done int64) {
	w.t.Helper()
	ctx := w.t.Context()
	db := w.connect()
	exec := func(statement string) {
		_, err := db.Exec(ctx, statement)
		require.NoError(w.t, err)
	}
	exec(`create or replace function public.hold() returns trigger language plpgsql as $$
		begin perform pg_advisory_xact_lock_shared(4712); return null; end $$`)
	exec(`create or replace trigger hold before insert on deadletter.` + table + ` for each statement execute function public.hold()`)
	exec(`select pg_advisory_lock(4712)`)
	require.Eventually(w.t, func() bool {
		var waiting int
		err := db.QueryRow(ctx, `select count(*) from pg_locks where locktype = 'advisory' and not granted and objid = 4712`).Scan(&waiting)
		return err == nil && waiting > 0
	}, patience, 20*time.Millisecond, "the operation inserts nothing")
	now, err := w.operator.Plan(ctx, plan.ID)
	require.NoError(w.t, err)

	require.NoError(w.t, tell(ctx, plan.ID, "carl"))
	run := w.client.GetWorkflow(ctx, job.BulkWorkflowID(plan.ID), "")
	require.Eventually(w.t, func() bool {
		description, err := w.describe(run.GetID(), "")
		if err != nil || len(description.GetPendingActivities()) != 1 {
			return false
		}
		step := description.GetPendingActivities()[0]
		if step.GetState() != enumspb.PENDING_ACTIVITY_STATE_CANCEL_REQUESTED {
			return false
		}
		var asked time.Time
		for _, event := range w.history(run) {
			if event.GetEventType() == enumspb.EVENT_TYPE_ACTIVITY_TASK_CANCEL_REQUESTED {
				asked = event.GetEventTime().AsTime()
			}
		}
		return step.GetLastHeartbeatTime().AsTime().After(asked) // and its answer said so
	}, patience, 20*time.Millisecond, "the operation does not heed")
	exec(`select pg_advisory_unlock(4712)`)
	return now.Done
}

// inState waits until the plan is in a state.
func (w *world) inState(plan *dlqstore.Plan, want job.PlanState) *dlqstore.Plan {
	w.t.Helper()
	last := plan
	require.Eventually(w.t, func() bool {
		var err error
		last, err = w.operator.Plan(w.t.Context(), plan.ID)
		require.NoError(w.t, err)
		return last.State == want
	}, patience, 50*time.Millisecond, "the plan is not %s", want)
	return last
}
