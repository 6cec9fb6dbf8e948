package testsuite_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"github.com/deadletter-dev/deadletter"
	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/job"
)

// hang runs until its attempt is over.
func hang(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// TestEndings produces each reason for real and proves that the job is
// dead-lettered under it, closes as it should, and blocks no other job.
func TestEndings(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.startJobs(handlers{
		"Fail":  func(context.Context) error { return errors.New("boom") },
		"Fatal": func(context.Context) error { return deadletter.Fatal(errors.New("no such customer")) },
		"WrappedFatal": func(context.Context) error {
			return errors.Join(errors.New("context"), temporal.NewNonRetryableApplicationError("card expired", "CardExpired", nil))
		},
		"Hang":  hang,
		"Panic": func(context.Context) error { panic("index out of range") },
		"Fine":  func(context.Context) error { return nil },
	})
	w.startDLQ(nil)

	one, two, three := 1, 2, 3
	zero := 0
	type ending struct {
		name     string
		job      deadletter.Job
		reason   job.Reason
		attempts *int
		message  string
	}
	cases := []ending{
		{"budget spent", deadletter.Job{Type: "Fail", Policy: quick(2)}, job.ReasonMaxRetriesExceeded, &two, "boom"},
		{
			"budget spent and too old",
			deadletter.Job{Type: "Fail", Policy: deadletter.Policy{MaxAttempts: 1, BaseDelay: time.Hour, MaxJobAge: 10 * time.Minute}},
			job.ReasonMaxRetriesExceeded, &one, "boom",
		},
		{"fatal", deadletter.Job{Type: "Fatal", Policy: quick(3)}, job.ReasonFatalError, &one, "no such customer"},
		{"wrapped fatal", deadletter.Job{Type: "WrappedFatal", Policy: quick(3)}, job.ReasonFatalError, &one, "card expired"},
		{"panic", deadletter.Job{Type: "Panic", Policy: quick(2)}, job.ReasonMaxRetriesExceeded, &two, "index out of range"},
		{"unknown type", deadletter.Job{Type: "NoSuchHandler", Policy: noGrace(3)}, job.ReasonUnknownJobType, &three, "NoSuchHandler"},
		{
			"attempt timeout",
			deadletter.Job{Type: "Hang", Policy: deadletter.Policy{MaxAttempts: 2, BaseDelay: time.Millisecond, AttemptTimeout: time.Second}},
			job.ReasonTimeout, &two, "StartToClose",
		},
		{
			"attempt timeout not retried",
			deadletter.Job{Type: "Hang", Policy: deadletter.Policy{MaxAttempts: 3, AttemptTimeout: time.Second, DeadLetterTimeouts: true}},
			job.ReasonTimeout, &one, "StartToClose",
		},
		{
			"next wait passes the age",
			deadletter.Job{Type: "Fail", Policy: deadletter.Policy{MaxAttempts: 5, BaseDelay: time.Hour, MaxJobAge: 10 * time.Minute}},
			job.ReasonRetryLifetimeExpired, &one, "boom",
		},
		{
			"age runs out during an attempt",
			// Long enough for a busy machine to start the attempt.
			deadletter.Job{Type: "Hang", Policy: deadletter.Policy{MaxAttempts: 3, MaxJobAge: time.Minute}},
			job.ReasonRetryLifetimeExpired, &one, "ScheduleToClose",
		},
		{
			"handler never picked up",
			deadletter.Job{Type: "Fine", Policy: deadletter.Policy{MaxJobAge: 2 * time.Second}, TaskQueue: "nobody-polls-this"},
			job.ReasonRetryLifetimeExpired, &zero, "",
		},
	}
	tooOld := slices.IndexFunc(cases, func(c ending) bool { return c.name == "next wait passes the age" })
	panicked := slices.IndexFunc(cases, func(c ending) bool { return c.name == "panic" })
	runs := make([]client.WorkflowRun, len(cases))
	for i, c := range cases {
		if c.job.TaskQueue != "" {
			// The workflow itself must run: only the handler's queue is deserted.
			options := job.Options{Type: c.job.Type, TaskQueue: c.job.TaskQueue, Policy: c.job.Policy}
			run, err := w.client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{TaskQueue: w.queue}, deadletter.WorkflowType, options)
			require.NoError(t, err)
			runs[i] = run
			continue
		}
		runs[i] = w.enqueue(c.job)
	}
	for i, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			err := w.wait(runs[i], nil)
			require.ErrorContains(t, err, "dead-lettered: "+string(c.reason))
			require.Equal(t, enumspb.WORKFLOW_EXECUTION_STATUS_FAILED, w.status(runs[i]))
			dl := w.dead(runs[i])
			require.Equal(t, c.reason, dl.Reason)
			require.NotNil(t, dl.Attempts)
			require.Equal(t, *c.attempts, *dl.Attempts)
			require.Contains(t, dl.ErrorMessage, c.message)
			w.atMost(t, 17, runs[i])
		})
	}
	t.Run("others flow on", func(t *testing.T) {
		require.NoError(t, w.wait(w.enqueue(deadletter.Job{Type: "Fine"}), nil))
	})
	t.Run("too old at once, and it says why", func(t *testing.T) {
		dl := w.dead(runs[tooOld])
		require.Less(t, dl.DeadAt.Sub(*dl.EnqueuedAt), 5*time.Minute, "it waited until it was too old")
		for _, says := range []string{"boom", "(created ", ", due ", ", max_job_age 10m0s ended ", ", the next attempt was planned for "} {
			require.Contains(t, dl.ErrorMessage, says)
		}
	})
	t.Run("panic keeps its stack", func(t *testing.T) {
		require.Contains(t, w.dead(runs[panicked]).ErrorStack, "endings_test.go")
	})
}

// TestNeverStarted proves that a job which waited for any worker longer than its
// age is dead-lettered without a call of its handler, and that a start delay does
// not count as waiting, whoever started the job.
func TestNeverStarted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	policy := deadletter.Policy{MaxJobAge: 40 * time.Second} // which the delayed ones have, from when they are due
	late := w.enqueue(deadletter.Job{Type: "Fine", Policy: policy})
	delayed := w.enqueue(deadletter.Job{Type: "Fine", Policy: policy, StartDelay: 41 * time.Second})
	bare, err := w.client.ExecuteWorkflow(t.Context(),
		client.StartWorkflowOptions{TaskQueue: w.queue, StartDelay: 41 * time.Second},
		deadletter.WorkflowType, job.Options{Type: "Fine", Policy: policy})
	require.NoError(t, err)
	started := time.Now()
	require.Eventually(t, func() bool { return time.Since(started) > policy.MaxJobAge }, patience, 50*time.Millisecond)

	var calls atomic.Int32
	w.startJobs(handlers{"Fine": func(context.Context) error { calls.Add(1); return nil }})
	w.startDLQ(nil)
	require.ErrorContains(t, w.wait(late, nil), "retry_lifetime_expired after 0 attempts")
	require.Zero(t, *w.dead(late).Attempts)
	require.NoError(t, w.wait(delayed, nil))
	require.NoError(t, w.wait(bare, nil))
	require.EqualValues(t, 2, calls.Load())
	require.EqualValues(t, 1, w.count())
}

// TestCancelled proves that a cancelled job closes as Canceled and leaves a dead
// letter with reason cancelled, whenever it is cancelled, or none with
// discard_cancelled.
func TestCancelled(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	running := make(chan string, 10)
	var calls atomic.Int32
	w.startJobs(handlers{
		"Hang": func(ctx context.Context) error {
			calls.Add(1)
			running <- activity.GetInfo(ctx).WorkflowExecution.ID
			return hang(ctx)
		},
		"Fail": func(ctx context.Context) error {
			running <- activity.GetInfo(ctx).WorkflowExecution.ID
			return errors.New("boom")
		},
	})
	w.startDLQ(nil)
	slow := deadletter.Policy{MaxAttempts: 3, BaseDelay: time.Hour, HeartbeatTimeout: 20 * time.Second}
	deaf := deadletter.Policy{MaxAttempts: 3, HeartbeatTimeout: -1, AttemptTimeout: 10 * time.Minute}

	cases := []struct {
		name     string
		job      deadletter.Job
		reached  func(run client.WorkflowRun) // waits until the job is where it should be
		attempts *int
	}{
		{"before the first attempt", deadletter.Job{Type: "Hang", StartDelay: time.Hour}, func(client.WorkflowRun) {}, ptr(0)},
		{"in the queue", deadletter.Job{Type: "Hang", Policy: slow, TaskQueue: "nobody-polls-this-either"}, w.pendingIn(enumspb.PENDING_ACTIVITY_STATE_SCHEDULED), nil},
		{"while running", deadletter.Job{Type: "Hang", Policy: slow}, w.pendingIn(enumspb.PENDING_ACTIVITY_STATE_STARTED), ptr(1)},
		{"while running, deaf", deadletter.Job{Type: "Hang", Policy: deaf}, w.pendingIn(enumspb.PENDING_ACTIVITY_STATE_STARTED), ptr(1)},
		{"while waiting to retry", deadletter.Job{Type: "Fail", Policy: slow}, w.failedOnce, nil},
	}
	for _, c := range cases {
		for _, discard := range []bool{false, true} {
			name := c.name
			if discard {
				name += ", discarded"
			}
			t.Run(name, func(t *testing.T) {
				j := c.job
				j.Policy.DiscardCancelled = discard
				options := client.StartWorkflowOptions{TaskQueue: w.queue, StartDelay: j.StartDelay}
				run, err := w.client.ExecuteWorkflow(t.Context(), options, deadletter.WorkflowType,
					job.Options{Type: j.Type, TaskQueue: j.TaskQueue, Policy: j.Policy})
				require.NoError(t, err)
				c.reached(run)
				require.NoError(t, w.client.CancelWorkflow(t.Context(), run.GetID(), run.GetRunID()))
				var canceled *temporal.CanceledError
				require.ErrorAs(t, w.wait(run, nil), &canceled)
				require.Equal(t, enumspb.WORKFLOW_EXECUTION_STATUS_CANCELED, w.status(run))
				dl, err := w.store.Get(t.Context(), w.key(run))
				if discard {
					require.ErrorIs(t, err, dlqstore.ErrNotFound)
					return
				}
				require.NoError(t, err)
				require.Equal(t, job.ReasonCancelled, dl.Reason)
				require.Equal(t, c.attempts, dl.Attempts)
			})
		}
	}
}

// atMost bounds the history of a job.
func (w *world) atMost(t *testing.T, limit int, run client.WorkflowRun) {
	t.Helper()
	var types []string
	for _, event := range settled(w.history(run)) {
		types = append(types, event.GetEventType().String())
	}
	require.LessOrEqual(t, len(types), limit, "%v", types)
}

// settled leaves out what a starved machine adds to a history: workflow tasks that
// timed out, with their scheduling and start.
func settled(events []*historypb.HistoryEvent) []*historypb.HistoryEvent {
	var kept []*historypb.HistoryEvent
	for _, event := range events {
		kept = append(kept, event)
		if event.GetEventType() == enumspb.EVENT_TYPE_WORKFLOW_TASK_TIMED_OUT {
			timedOut := event.GetWorkflowTaskTimedOutEventAttributes()
			kept = slices.DeleteFunc(kept, func(e *historypb.HistoryEvent) bool {
				return e == event || e.GetEventId() == timedOut.GetScheduledEventId() || e.GetEventId() == timedOut.GetStartedEventId()
			})
		}
	}
	return kept
}

func ptr[V any](v V) *V { return &v }

// pendingIn returns a wait for the handler's state.
func (w *world) pendingIn(state enumspb.PendingActivityState) func(client.WorkflowRun) {
	return func(run client.WorkflowRun) {
		require.Eventually(w.t, func() bool {
			description, err := w.describe(run.GetID(), run.GetRunID())
			return err == nil && len(description.GetPendingActivities()) == 1 && description.GetPendingActivities()[0].GetState() == state
		}, patience, 10*time.Millisecond)
	}
}

func (w *world) failedOnce(run client.WorkflowRun) {
	require.Eventually(w.t, func() bool {
		description, err := w.describe(run.GetID(), run.GetRunID())
		return err == nil && len(description.GetPendingActivities()) == 1 && description.GetPendingActivities()[0].GetLastFailure() != nil
	}, patience, 10*time.Millisecond)
}

// TestRefusedJobs proves that a job which is refused is dead-lettered at once
// with every fault in one error, its arguments kept, and hangs nobody.
func TestRefusedJobs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var calls atomic.Int32
	w.startJobs(handlers{"Count": func(context.Context) error { calls.Add(1); return nil }})
	w.startDLQ(nil)
	nine := []any{map[string]any{"type": "Count"}, 1, 2, 3, 4, 5, 6, 7, 8, 9}

	for _, c := range []struct {
		name  string
		input []any
		says  []string
	}{
		{
			"invalid policy",
			[]any{map[string]any{"type": "Count", "policy": map[string]any{
				"max_attempts": 0.5, "base_delay": "soon", "backoff_multiplier": 0.1, "max_dealy": "1h", "retry_zombies": "yes",
			}}, "kept"},
			[]string{"max_attempts: 0.5", `base_delay: "soon"`, "backoff_multiplier: 0.1", "max_dealy: the policy has no such field", `retry_zombies: "yes"`},
		},
		{"nine arguments", nine, []string{"more than 8 arguments"}},
		{"no options", nil, []string{"the options object, is missing"}},
		{"no type", []any{map[string]any{"task_queue": "x"}}, []string{"type: missing"}},
		{"options of a wrong kind", []any{[]int{1}}, []string{"must be a JSON object"}},
		{"options in another encoding", []any{[]byte{1, 2}}, []string{`encoding "binary/plain"`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			run, err := w.client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{TaskQueue: w.queue}, deadletter.WorkflowType, c.input...)
			require.NoError(t, err)
			err = w.wait(run, nil)
			require.ErrorContains(t, err, "dead-lettered: fatal_error after 0 attempts")
			dl := w.dead(run)
			require.Equal(t, job.ReasonFatalError, dl.Reason)
			require.Equal(t, job.InvalidJobErrorType, dl.ErrorType)
			for _, says := range c.says {
				require.Contains(t, dl.ErrorMessage, says)
			}
			require.Zero(t, *dl.Attempts)
			if len(c.input) > 1 {
				require.Equal(t, len(c.input)-2, strings.Count(string(dl.PayloadJSON), ","), "arguments were lost: %s", dl.PayloadJSON)
			}
		})
	}
	require.Zero(t, calls.Load())
	require.NoError(t, w.wait(w.enqueue(deadletter.Job{Type: "Count"}), nil))
}
