package testsuite_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"github.com/deadletter-dev/deadletter"
	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/job"
)

// TestWaits proves that the waits between attempts are the policy's: in their band,
// growing, at the cap exactly the cap, and that the server kept them; by default
// the first is three to four seconds.
func TestWaits(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.startJobs(handlers{"Fail": fail})
	w.startDLQ(nil)
	policy := deadletter.Policy{MaxAttempts: 4, BaseDelay: 2 * time.Second, BackoffMultiplier: 2, MaxDelay: 5 * time.Second, JitterMaxDelay: 500 * time.Millisecond}
	run := w.enqueue(deadletter.Job{Type: "Fail", Policy: policy})
	byDefault := w.enqueue(deadletter.Job{Type: "Fail", Policy: deadletter.Policy{MaxAttempts: 2}})
	type band struct{ least, most time.Duration }
	inBand := func(attempts []dlqstore.Attempt, bands ...band) {
		require.Len(t, attempts, len(bands)+1)
		for i, band := range bands {
			wait := attempts[i].Wait
			require.NotNil(t, wait)
			require.GreaterOrEqual(t, *wait, band.least)
			require.LessOrEqual(t, *wait, band.most)
			observed := attempts[i+1].StartedAt.Sub(*attempts[i].EndedAt)
			require.GreaterOrEqual(t, observed, *wait-100*time.Millisecond, "the server did not wait")
		}
	}
	require.Error(t, w.wait(run, nil))
	attempts := w.attempts(t, run)
	inBand(attempts, band{2 * time.Second, 2500 * time.Millisecond}, band{4 * time.Second, 4500 * time.Millisecond}, band{5 * time.Second, 5 * time.Second})
	require.Nil(t, attempts[3].Wait, "nothing follows the last attempt")
	require.Equal(t, attempts[0].StartedAt, w.dead(run).FirstAttemptAt)
	require.Equal(t, attempts[3].StartedAt, w.dead(run).LastAttemptAt)
	require.Error(t, w.wait(byDefault, nil))
	inBand(w.attempts(t, byDefault), band{3 * time.Second, 4 * time.Second})
}

// TestThrottle proves what a throttle costs and how long it waits, plain and
// wrapped, and the reason when it spends the budget or the age.
func TestThrottle(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	busy := errors.New("429")
	w.startJobs(handlers{
		"Long":   func(context.Context) error { return deadletter.Throttled(busy, 10*time.Hour) },
		"AtOnce": func(context.Context) error { return deadletter.Throttled(busy, 0) },
		"Wrapped": func(context.Context) error {
			return fmt.Errorf("a: %w", fmt.Errorf("b: %w", errors.Join(errors.New("c"), deadletter.Throttled(busy, time.Second))))
		},
		"Foreign": func(context.Context) error {
			// As a handler in another language raises it.
			return temporal.NewApplicationErrorWithOptions("429", "deadletter.Throttled", temporal.ApplicationErrorOptions{NextRetryDelay: time.Second})
		},
	})
	w.startDLQ(nil)
	policy := deadletter.Policy{MaxAttempts: 2, MaxDelay: 2 * time.Second}
	runs := map[string]client.WorkflowRun{}
	for _, jobType := range []string{"Long", "AtOnce", "Wrapped", "Foreign"} {
		runs[jobType] = w.enqueue(deadletter.Job{Type: jobType, Policy: policy})
	}
	tooOld := w.enqueue(deadletter.Job{Type: "Long", Policy: deadletter.Policy{MaxJobAge: 10 * time.Minute}})
	for jobType, wait := range map[string]time.Duration{"Long": 2 * time.Second, "AtOnce": time.Millisecond, "Wrapped": time.Second, "Foreign": time.Second} {
		require.ErrorContains(t, w.wait(runs[jobType], nil), "dead-lettered: throttled after 2 attempts: ", jobType)
		attempts := w.attempts(t, runs[jobType])
		require.Len(t, attempts, 2, jobType)
		require.Equal(t, wait, *attempts[0].Wait, jobType)
		require.Equal(t, job.ThrottledErrorType, attempts[0].ErrorType)
	}
	err := w.wait(tooOld, nil)
	require.ErrorContains(t, err, "retry_lifetime_expired after 1 attempts: 429")
	for _, says := range []string{"created ", "the next attempt was planned for ", "max_job_age 10m0s ended "} {
		require.ErrorContains(t, err, says)
		require.Contains(t, w.dead(tooOld).ErrorMessage, says)
	}
}

// TestPolicyOnTheServer proves that every knob of the policy reaches the server as
// the README's table says: attempts, base delay, multiplier, cap, attempt timeout,
// heartbeat timeout, what is not retried, and the age that is left.
func TestPolicyOnTheServer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.startJobs(handlers{"Fine": func(context.Context) error { return nil }})
	run := w.enqueue(deadletter.Job{Type: "Fine", Policy: deadletter.Policy{
		MaxAttempts: 7, BaseDelay: 2 * time.Second, BackoffMultiplier: 3, MaxDelay: 11 * time.Second, AttemptTimeout: 113 * time.Second,
		HeartbeatTimeout: 55 * time.Second, MaxJobAge: 17 * time.Minute, DeadLetterTimeouts: true,
	}})
	require.NoError(t, w.wait(run, nil))
	scheduled := settled(w.history(run))[4].GetActivityTaskScheduledEventAttributes()
	require.NotNil(t, scheduled)
	retry := scheduled.GetRetryPolicy()
	require.EqualValues(t, 7, retry.GetMaximumAttempts())
	require.Equal(t, 2*time.Second, retry.GetInitialInterval().AsDuration())
	require.InDelta(t, 3, retry.GetBackoffCoefficient(), 0)
	require.Equal(t, 11*time.Second, retry.GetMaximumInterval().AsDuration())
	require.ElementsMatch(t, append(job.FreeErrorTypes(), job.GoUnknownType, "TemporalTimeout:Heartbeat", "TemporalTimeout:StartToClose"), retry.GetNonRetryableErrorTypes())
	require.Equal(t, 113*time.Second, scheduled.GetStartToCloseTimeout().AsDuration())
	require.Equal(t, 55*time.Second, scheduled.GetHeartbeatTimeout().AsDuration())
	age := scheduled.GetScheduleToCloseTimeout().AsDuration()
	require.LessOrEqual(t, age, 17*time.Minute)
	require.Greater(t, age, 15*time.Minute)

	bare := w.bare(client.StartWorkflowOptions{}, map[string]any{"type": "Fine"})
	require.NoError(t, w.wait(bare, nil))
	scheduled = settled(w.history(bare))[4].GetActivityTaskScheduledEventAttributes()
	require.EqualValues(t, 3, scheduled.GetRetryPolicy().GetMaximumAttempts())
	require.Equal(t, 3*time.Second, scheduled.GetRetryPolicy().GetInitialInterval().AsDuration())
	require.InDelta(t, 2, scheduled.GetRetryPolicy().GetBackoffCoefficient(), 0)
	require.Equal(t, time.Hour, scheduled.GetRetryPolicy().GetMaximumInterval().AsDuration())
	require.Equal(t, 15*time.Minute, scheduled.GetStartToCloseTimeout().AsDuration())
	require.Zero(t, scheduled.GetHeartbeatTimeout().AsDuration(), "a bare start has no heartbeat timeout")
}

// TestAgeLeft proves that the handler gets what is left of the job's age, counted
// from when the job was due, to the millisecond: the waiting before the first task
// is taken off, and a start delay is not. It holds on a machine of any speed.
func TestAgeLeft(t *testing.T) {
	t.Parallel()
	const age = 10 * time.Minute
	w := newWorld(t)
	policy := deadletter.Policy{MaxJobAge: age}
	plain := w.enqueue(deadletter.Job{Type: "Fine", Policy: policy})
	delayed := w.enqueue(deadletter.Job{Type: "Fine", Policy: policy, StartDelay: 3 * time.Second})
	enqueued := time.Now()
	require.Eventually(t, func() bool { return time.Since(enqueued) > 2*time.Second }, patience, 50*time.Millisecond)
	w.startJobs(handlers{"Fine": func(context.Context) error { return nil }})
	for run, delay := range map[client.WorkflowRun]time.Duration{plain: 0, delayed: 3 * time.Second} {
		require.NoError(t, w.wait(run, nil))
		var firstTask time.Time
		for _, event := range w.history(run) {
			switch event.GetEventType() {
			case enumspb.EVENT_TYPE_WORKFLOW_TASK_STARTED:
				firstTask = event.GetEventTime().AsTime()
			case enumspb.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
				due := w.history(run)[0].GetEventTime().AsTime().Add(delay)
				left := event.GetActivityTaskScheduledEventAttributes().GetScheduleToCloseTimeout().AsDuration()
				require.InDelta(t, float64(age-firstTask.Sub(due)), float64(left), float64(100*time.Millisecond))
			default:
			}
		}
	}
}
