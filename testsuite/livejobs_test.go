package testsuite_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/deadletter-dev/deadletter"
	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/job"
	"github.com/deadletter-dev/deadletter/operator"
)

// atAttempt waits until the job waits for that attempt or a later one.
func (w *world) atAttempt(run client.WorkflowRun, attempt int32) {
	w.t.Helper()
	var pending *workflowpb.PendingActivityInfo
	if !assert.Eventually(w.t, func() bool {
		live, err := w.describe(run.GetID(), run.GetRunID())
		if err != nil || len(live.GetPendingActivities()) == 0 {
			return false
		}
		pending = live.GetPendingActivities()[0]
		return pending.GetAttempt() >= attempt && pending.GetNextAttemptScheduleTime() != nil
	}, patience, 20*time.Millisecond) {
		w.t.Fatalf("%s is at %v", run.GetID(), pending)
	}
}

func (w *world) retryNow(run client.WorkflowRun) (operator.RetriedNow, error) {
	w.t.Helper()
	return w.operator.RetryNow(w.t.Context(), operator.JobRequest{WorkflowID: run.GetID(), RunID: run.GetRunID(), Actor: "tester"})
}

// running waits until the server lists so many running jobs.
func (w *world) running(n int64) {
	w.t.Helper()
	require.Eventually(w.t, func() bool {
		count, err := w.client.CountWorkflow(w.t.Context(), &workflowservice.CountWorkflowExecutionsRequest{
			Namespace: w.namespace, Query: "WorkflowType = 'deadletter.Job' AND ExecutionStatus = 'Running'",
		})
		return err == nil && count.GetCount() == n
	}, patience, 20*time.Millisecond)
}

// TestRetryNowBackoff proves that a retry-now between two attempts starts the next
// one at once, spends it from the same budget, keeps the deadline, and is audited.
func TestRetryNowBackoff(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var attempts atomic.Int32
	w.startJobs(handlers{"Fail": func(ctx context.Context) error {
		attempts.Store(activity.GetInfo(ctx).Attempt)
		return errors.New("boom")
	}})
	w.startDLQ(nil)
	run := w.enqueue(deadletter.Job{Type: "Fail", Policy: deadletter.Policy{MaxAttempts: 3, BaseDelay: time.Hour, MaxJobAge: 9 * time.Hour}})
	w.atAttempt(run, 2)
	live, err := w.describe(run.GetID(), run.GetRunID())
	require.NoError(t, err)
	before := live.GetPendingActivities()[0]

	done, err := w.retryNow(run)
	require.NoError(t, err)
	require.Equal(t, operator.HowBackoff, done.How)
	require.Equal(t, w.key(run), done.Key)
	require.WithinDuration(t, time.Now().Add(time.Hour), *done.WouldBeAt, time.Minute)
	w.atAttempt(run, 3)
	require.EqualValues(t, 2, attempts.Load())
	live, err = w.describe(run.GetID(), run.GetRunID())
	require.NoError(t, err)
	after := live.GetPendingActivities()[0]
	require.EqualValues(t, 3, after.GetMaximumAttempts())
	require.Equal(t, before.GetExpirationTime().AsTime(), after.GetExpirationTime().AsTime())
	require.False(t, after.GetPaused())

	_, err = w.retryNow(run)
	require.NoError(t, err)
	require.ErrorContains(t, w.wait(run, nil), "max_retries_exceeded after 3 attempts: boom")
	dl := w.dead(run)
	require.Equal(t, 3, *dl.Attempts)
	list, err := w.store.Attempts(t.Context(), dl.Key)
	require.NoError(t, err)
	require.Len(t, list, 3)
	for _, a := range list {
		require.Equal(t, "boom", a.ErrorMessage)
	}
	require.Equal(t, []string{dlqstore.VerbJobRetryNow, dlqstore.VerbJobRetryNow, dlqstore.VerbMove}, w.verbs(dl.Key))
}

// TestRetryNowWait proves that a retry-now ends a snooze and a start delay, costs no
// attempt, and leaves the next wait alone.
func TestRetryNowWait(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var calls atomic.Int32
	w.startJobs(handlers{
		"Snooze": func(context.Context) error {
			if calls.Add(1) <= 2 {
				return deadletter.Snooze(time.Hour, "not yet")
			}
			return nil
		},
		"Fine": func(context.Context) error { return nil },
	})
	w.startDLQ(nil)
	run := w.enqueue(deadletter.Job{Type: "Snooze", Policy: quick(1)})
	for nth := range int32(2) {
		require.Eventually(t, func() bool { return calls.Load() == nth+1 }, patience, 20*time.Millisecond)
		w.snoozing(run)
		done, err := w.retryNow(run)
		require.NoError(t, err)
		require.Equal(t, operator.HowWait, done.How)
	}
	require.NoError(t, w.wait(run, nil))
	require.EqualValues(t, 3, calls.Load())
	require.Equal(t, []string{dlqstore.VerbJobRetryNow, dlqstore.VerbJobRetryNow}, w.verbs(w.key(run)))

	delayed := w.enqueue(deadletter.Job{Type: "Fine", StartDelay: time.Hour})
	done, err := w.retryNow(delayed)
	require.NoError(t, err)
	require.WithinDuration(t, time.Now().Add(time.Hour), *done.WouldBeAt, time.Minute)
	require.NoError(t, w.wait(delayed, nil))
	events := w.history(delayed)
	require.Less(t, events[len(events)-1].GetEventId(), int64(20), "nothing but one attempt")
}

// TestRetryNowRefused proves that a job which does not wait for time is left alone,
// with a reason, and that the refusal is audited.
func TestRetryNowRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.startJobs(handlers{"Hang": hang, "Fail": fail, "Fine": func(context.Context) error { return nil }})
	refused := func(run client.WorkflowRun, cause string) {
		t.Helper()
		_, err := w.retryNow(run)
		require.ErrorIs(t, err, operator.ErrJobRefused)
		require.ErrorContains(t, err, cause)
		require.Equal(t, []string{dlqstore.VerbJobRetryNowRefused}, w.verbs(w.key(run)))
	}
	hanging := w.enqueue(deadletter.Job{Type: "Hang"})
	w.pendingIn(enumspb.PENDING_ACTIVITY_STATE_STARTED)(hanging)
	refused(hanging, "its attempt is running")
	queued := w.bare(client.StartWorkflowOptions{}, map[string]any{"type": "Fine", "task_queue": "nobody"})
	w.pendingIn(enumspb.PENDING_ACTIVITY_STATE_SCHEDULED)(queued)
	refused(queued, "it waits for a worker on task queue nobody")
	moving := w.enqueue(deadletter.Job{Type: "Fail", Policy: quick(1)})
	require.Eventually(t, func() bool { return w.pendingMove(moving) != nil }, patience, 20*time.Millisecond)
	refused(moving, "its dead letter is being written")
	done := w.enqueue(deadletter.Job{Type: "Fine"})
	require.NoError(t, w.wait(done, nil))
	refused(done, "it has closed as Completed")

	paused := w.enqueue(deadletter.Job{Type: "Fail", Policy: deadletter.Policy{BaseDelay: time.Hour}})
	w.atAttempt(paused, 2)
	pause := func(reason string) {
		_, err := w.client.WorkflowService().PauseActivity(t.Context(), &workflowservice.PauseActivityRequest{
			Namespace: w.namespace, Execution: &commonpb.WorkflowExecution{WorkflowId: paused.GetID()}, Reason: reason,
			Activity: &workflowservice.PauseActivityRequest_Type{Type: "Fail"},
		})
		require.NoError(t, err)
	}
	pause("by a person")
	refused(paused, "its activity is paused")

	// What a retry-now that was cut off has left is finished by the next.
	_, err := w.client.WorkflowService().UnpauseActivity(t.Context(), &workflowservice.UnpauseActivityRequest{
		Namespace: w.namespace, Execution: &commonpb.WorkflowExecution{WorkflowId: paused.GetID()},
		Activity: &workflowservice.UnpauseActivityRequest_Type{Type: "Fail"},
	})
	require.NoError(t, err)
	w.atAttempt(paused, 3)
	pause("deadletter retry-now")
	_, err = w.retryNow(paused)
	require.NoError(t, err)
	require.Eventually(t, func() bool { return w.pendingMove(paused) != nil }, patience, 20*time.Millisecond)

	_, err = w.operator.RetryNow(t.Context(), operator.JobRequest{WorkflowID: "nobody", Actor: "tester"})
	require.ErrorIs(t, err, dlqstore.ErrNotFound)
	_, err = w.operator.RetryNow(t.Context(), operator.JobRequest{WorkflowID: hanging.GetID()})
	require.ErrorIs(t, err, operator.ErrNoActor)

	foreign := worker.New(w.client, "foreign", worker.Options{})
	foreign.RegisterWorkflowWithOptions(func(ctx workflow.Context) error { return workflow.Sleep(ctx, time.Hour) }, workflow.RegisterOptions{Name: "Foreign"})
	w.start(foreign)
	other, err := w.client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{TaskQueue: "foreign"}, "Foreign")
	require.NoError(t, err)
	refused(other, "it is a workflow of type Foreign, not a job")
	_, err = w.operator.CancelJob(t.Context(), operator.JobRequest{WorkflowID: other.GetID(), Actor: "tester"})
	require.ErrorContains(t, err, "not a job")
}

// TestCancelJob proves that a job is cancelled on behalf of the actor, between
// attempts and in a snooze, and that asking twice is refused.
func TestCancelJob(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.startJobs(handlers{"Fail": fail, "Snooze": func(context.Context) error { return deadletter.Snooze(time.Hour, "not yet") }})
	backoff := w.enqueue(deadletter.Job{Type: "Fail", Policy: deadletter.Policy{BaseDelay: time.Hour}})
	w.atAttempt(backoff, 2)
	snoozing := w.enqueue(deadletter.Job{Type: "Snooze"})
	w.snoozing(snoozing)
	for _, run := range []client.WorkflowRun{backoff, snoozing} {
		request := operator.JobRequest{WorkflowID: run.GetID(), Actor: "tester"}
		_, err := w.operator.CancelJob(t.Context(), operator.JobRequest{WorkflowID: run.GetID()})
		require.ErrorIs(t, err, operator.ErrNoActor)
		key, err := w.operator.CancelJob(t.Context(), request)
		require.NoError(t, err)
		require.Equal(t, w.key(run), key)
		_, err = w.operator.CancelJob(t.Context(), request)
		require.ErrorIs(t, err, operator.ErrJobRefused)
		require.ErrorContains(t, err, "asked to stop already")
	}
	w.startDLQ(nil)
	for _, run := range []client.WorkflowRun{backoff, snoozing} {
		require.Error(t, w.wait(run, nil))
		require.Equal(t, enumspb.WORKFLOW_EXECUTION_STATUS_CANCELED, w.status(run))
		require.Equal(t, job.ReasonCancelled, w.dead(run).Reason)
		require.Equal(t, []string{dlqstore.VerbJobCancel, dlqstore.VerbJobCancelRefused, dlqstore.VerbMove}, w.verbs(w.key(run)))
	}
}

// TestJobs proves that running jobs are listed by how close they are to death, with
// their attempts, last error, next try and age limit, whatever they wait for.
func TestJobs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var snoozed atomic.Int32
	w.startJobs(handlers{
		"Fail": fail, "Hang": hang,
		"Late": func(ctx context.Context) error { // attempt 3 snoozes
			if activity.GetInfo(ctx).Attempt < 3 {
				return errors.New("boom")
			}
			snoozed.Add(1)
			return deadletter.Snooze(time.Hour, "busy")
		},
	})
	hour := func(attempts int, age time.Duration) deadletter.Policy {
		return deadletter.Policy{MaxAttempts: attempts, BaseDelay: time.Hour, MaxJobAge: age}
	}
	moving := w.enqueue(deadletter.Job{ID: "moving", Type: "Fail", Policy: quick(1)})
	old := w.enqueue(deadletter.Job{ID: "old", Type: "Fail", Policy: hour(9, 3*time.Hour)})
	young := w.enqueue(deadletter.Job{ID: "young", Type: "Fail", Policy: hour(9, 30*time.Hour)})
	last := w.enqueue(deadletter.Job{ID: "last", Type: "Fail", Policy: hour(2, -1)})
	late := w.enqueue(deadletter.Job{ID: "late", Type: "Late", Policy: deadletter.Policy{MaxAttempts: 5, BaseDelay: time.Millisecond, BackoffMultiplier: 1, MaxJobAge: 5 * time.Hour}})
	forever := w.enqueue(deadletter.Job{ID: "forever", Type: "Fail", Policy: hour(-1, -1)})
	w.pendingIn(enumspb.PENDING_ACTIVITY_STATE_STARTED)(w.enqueue(deadletter.Job{ID: "well", Type: "Hang"}))
	w.enqueue(deadletter.Job{ID: "unseen", Type: "Other", TaskQueue: "nobody", Policy: hour(4, time.Hour)})
	w.enqueue(deadletter.Job{ID: "not due", Type: "Fail", StartDelay: time.Hour})
	for _, run := range []client.WorkflowRun{old, young, last, forever} {
		w.atAttempt(run, 2)
	}
	w.snoozing(late)
	require.Eventually(t, func() bool { return w.pendingMove(moving) != nil }, patience, 20*time.Millisecond)
	w.running(9)

	ids := func(found operator.Jobs) (ids []string) {
		for _, j := range found.Jobs {
			ids = append(ids, j.WorkflowID)
		}
		return ids
	}
	jobs := func(request operator.JobsRequest) operator.Jobs {
		t.Helper()
		found, err := w.operator.Jobs(t.Context(), request)
		require.NoError(t, err)
		require.EqualValues(t, 8, found.Running)
		return found
	}
	found := jobs(operator.JobsRequest{})
	require.Equal(t, []string{"moving", "last", "late", "old", "young", "forever"}, ids(found))
	require.Equal(t, 8, found.Looked)
	require.Equal(t, 6, found.Matched)
	require.False(t, found.Bounded)
	byID := map[string]operator.LiveJob{}
	for _, j := range found.Jobs {
		byID[j.WorkflowID] = j
		require.Empty(t, j.URL)
		require.NotEmpty(t, j.RunID)
		require.Equal(t, w.queue, j.TaskQueue)
	}
	inHours := func(at *time.Time, hours int) {
		t.Helper()
		require.NotNil(t, at)
		require.WithinDuration(t, time.Now().Add(time.Duration(hours)*time.Hour), *at, 2*time.Minute)
	}
	require.Equal(t, "moving", byID["moving"].State)
	require.Equal(t, "Fail", byID["moving"].JobType)
	j := byID["old"]
	require.Equal(t, []any{"scheduled", "Fail", 2, 9, "", "boom"}, []any{j.State, j.JobType, j.Attempt, *j.MaxAttempts, j.LastErrorType, j.LastError})
	inHours(j.NextAttemptAt, 1)
	inHours(j.AgeLimitAt, 3)
	j = byID["late"]
	require.Equal(t, []any{"waiting", "Late", 3, 5, job.SnoozeErrorType, "snoozed: busy"}, []any{j.State, j.JobType, j.Attempt, *j.MaxAttempts, j.LastErrorType, j.LastError})
	inHours(j.NextAttemptAt, 1)
	inHours(j.AgeLimitAt, 5)
	require.Nil(t, byID["last"].AgeLimitAt)
	require.Nil(t, byID["forever"].MaxAttempts)

	all := jobs(operator.JobsRequest{MinAttempt: 1})
	require.ElementsMatch(t, []string{"moving", "last", "late", "well", "unseen", "old", "young", "forever"}, ids(all))
	for _, j := range all.Jobs {
		switch j.WorkflowID {
		case "well":
			require.Equal(t, []any{"started", 1, ""}, []any{j.State, j.Attempt, j.LastError})
			require.Nil(t, j.NextAttemptAt)
		case "unseen":
			require.Equal(t, []any{"unscheduled", "Other", "nobody", 1, 4}, []any{j.State, j.JobType, j.TaskQueue, j.Attempt, *j.MaxAttempts})
			inHours(j.AgeLimitAt, 1)
		}
	}
	require.Equal(t, []string{"moving", "late"}, ids(jobs(operator.JobsRequest{MinAttempt: 3})))
	require.Equal(t, []string{"late"}, ids(jobs(operator.JobsRequest{Type: "Late"})))
	require.Empty(t, ids(jobs(operator.JobsRequest{Queue: "nobody"})))
	require.Equal(t, []string{"unseen"}, ids(jobs(operator.JobsRequest{Queue: "nobody", MinAttempt: 1})))
	few := jobs(operator.JobsRequest{Limit: 2})
	require.Equal(t, []string{"moving", "last"}, ids(few))
	require.Equal(t, 6, few.Matched)

	// The scan is bounded, says so, and takes those that have been due for the longest.
	bounded := jobs(operator.JobsRequest{Scan: 3, MinAttempt: 1})
	require.True(t, bounded.Bounded)
	require.Equal(t, 3, bounded.Looked)
	require.ElementsMatch(t, []string{"moving", "old", "young"}, ids(bounded))

	linked, err := operator.New(operator.Config{Store: w.store, Client: w.client, Namespace: w.namespace, UIURL: "http://ui:8233/"})
	require.NoError(t, err)
	found, err = linked.Jobs(t.Context(), operator.JobsRequest{Limit: 1})
	require.NoError(t, err)
	require.Equal(t, "http://ui:8233/namespaces/"+w.namespace+"/workflows/moving/"+moving.GetRunID()+"/history", found.Jobs[0].URL)

	for _, request := range []operator.JobsRequest{{Limit: -1}, {Limit: 1001}, {Scan: -1}, {Scan: 20_001}, {MinAttempt: -1}} {
		_, err := w.operator.Jobs(t.Context(), request)
		require.True(t, err != nil && strings.HasPrefix(err.Error(), "operator: jobs: "), "%v", err)
	}
}

// TestRetryNowTooLate proves that a job which ends while a retry-now is under way is a
// refusal with its cause and an event, and not a failure.
func TestRetryNowTooLate(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.startJobs(handlers{"Fail": fail})
	for method, doomed := range map[string]deadletter.Job{
		"PauseActivity":                    {Type: "Fail", Policy: deadletter.Policy{MaxAttempts: 3, BaseDelay: time.Hour}},
		"SignalWithStartWorkflowExecution": {Type: "Fail", StartDelay: time.Hour},
	} {
		t.Run(method, func(t *testing.T) {
			run := w.enqueue(doomed)
			if doomed.StartDelay == 0 {
				w.atAttempt(run, 2)
			}
			options := w.options()
			options.ConnectionOptions.DialOptions = beforeCall(method, func() error {
				return w.client.TerminateWorkflow(t.Context(), run.GetID(), run.GetRunID(), "")
			})
			late, err := operator.New(operator.Config{Store: w.store, Client: w.dialWith(options), Namespace: w.namespace})
			require.NoError(t, err)
			_, err = late.RetryNow(t.Context(), operator.JobRequest{WorkflowID: run.GetID(), Actor: "ann"})
			require.ErrorIs(t, err, operator.ErrJobRefused)
			require.ErrorContains(t, err, "it went on, or closed, in this moment")
			require.Equal(t, []string{dlqstore.VerbJobRetryNowRefused}, w.verbs(w.key(run)))
		})
	}
}
