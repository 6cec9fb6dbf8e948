package testsuite_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"

	"github.com/deadletter-dev/deadletter"
	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/job"
)

// TestNewTypeOutlivesOldWorkers proves that a job of a new type outlives the workers that do not
// know it, for any budget, while one that does is polling.
func TestNewTypeOutlivesOldWorkers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.startJobs(handlers{"Old": fail})
	w.startDLQ(nil)
	// While only the old worker is there, the server hands it the first attempt of each.
	policy := quick(1)
	runs := make([]client.WorkflowRun, 5)
	for i := range runs {
		runs[i] = w.enqueue(deadletter.Job{Type: "New", Policy: policy})
	}
	for _, run := range runs {
		w.unknownAt(run, 1)
	}
	w.startJobs(handlers{"Old": fail, "New": func(context.Context) error { return nil }})
	for _, run := range runs {
		require.NoError(t, w.wait(run, nil))
		w.replays("", run)
	}
}

// unknownAt waits until workers have so often not known the job's type.
func (w *world) unknownAt(run client.WorkflowRun, tries int) {
	w.t.Helper()
	require.Eventually(w.t, func() bool { return len(w.unknowns(run)) >= tries }, patience, 20*time.Millisecond)
}

// unknowns returns when the job's executions ended with an unknown type.
func (w *world) unknowns(run client.WorkflowRun) (ended []time.Time) {
	w.t.Helper()
	for _, event := range w.history(run) {
		failure := event.GetActivityTaskFailedEventAttributes().GetFailure()
		if job.IsUnknownType(failure.GetApplicationFailureInfo().GetType(), failure.GetMessage(), jobTypeOf(w, run)) {
			ended = append(ended, event.GetEventTime().AsTime())
		}
	}
	return ended
}

// jobTypeOf is the type of the job's handler, "" before it was scheduled.
func jobTypeOf(w *world, run client.WorkflowRun) string {
	for _, event := range w.history(run) {
		if scheduled := event.GetActivityTaskScheduledEventAttributes(); scheduled != nil {
			return scheduled.GetActivityType().GetName()
		}
	}
	return ""
}

// TestUnknownAttemptIsFree proves that of three attempts, of which the second lands
// on a worker of before the type, two are charged: a job with a budget of two
// succeeds on the third, or is dead after two.
func TestUnknownAttemptIsFree(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	started := make(chan struct{}, 2)
	stopNew := w.startJobs(handlers{"New": func(ctx context.Context, _ string) error {
		started <- struct{}{}
		<-activity.GetWorkerStopChannel(ctx) // so that the next attempt is not this worker's
		return errors.New("first")
	}})
	w.startDLQ(nil)
	good := w.enqueue(deadletter.Job{Type: "New", Policy: quick(2)}, "succeed")
	bad := w.enqueue(deadletter.Job{Type: "New", Policy: quick(2)}, "fail")
	<-started
	<-started
	stopNew()
	stopOld := w.startJobs(handlers{"Old": fail})
	w.unknownAt(good, 1)
	w.unknownAt(bad, 1)
	stopOld()
	w.startJobs(handlers{"New": func(_ context.Context, end string) error {
		if end == "succeed" {
			return nil
		}
		return errors.New("last")
	}})
	require.NoError(t, w.wait(good, nil))
	require.ErrorContains(t, w.wait(bad, nil), "max_retries_exceeded after 2 attempts: last")
	attempts := w.attempts(t, bad)
	require.Len(t, attempts, 2)
	require.Equal(t, "last", attempts[1].ErrorMessage)
	w.replays("", good)
	w.replays("", bad)
}

// TestUnknownForever proves that a job whose type nobody knows waits with its backoff
// until the grace is over, then spends its budget and is dead, that its age and a
// cancellation hold meanwhile, that a terminated one was charged nothing, and that a
// grace of nobody's asking leaves the history alone.
func TestUnknownForever(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.startJobs(handlers{"Fine": func(context.Context) error { return nil }})
	w.startDLQ(nil)
	policy := func(grace time.Duration) deadletter.Policy {
		return deadletter.Policy{MaxAttempts: 2, BaseDelay: time.Second, BackoffMultiplier: 2, JitterMaxDelay: -1, UnknownTypeGrace: grace}
	}
	aged := policy(time.Hour)
	aged.BaseDelay, aged.MaxJobAge = 20*time.Second, 10*time.Second
	waiting := policy(0)
	waiting.BaseDelay = time.Hour
	dead := w.enqueue(deadletter.Job{Type: "NoSuch", Policy: policy(5 * time.Second)})
	none := w.enqueue(deadletter.Job{Type: "NoSuch", Policy: policy(-1)})
	old := w.enqueue(deadletter.Job{Type: "NoSuch", Policy: aged})
	cancelled := w.cancelled(deadletter.Job{Type: "NoSuch", Policy: waiting}, w.snoozing)
	terminated := w.enqueue(deadletter.Job{Type: "NoSuch", Policy: waiting})
	w.snoozing(terminated)
	require.Equal(t, []time.Duration{job.DefaultUnknownTypeGrace}, w.timers(terminated), "the wait passes the grace")
	w.terminate(terminated, "")

	require.ErrorContains(t, w.wait(dead, nil), "unknown_job_type after 2 attempts: unable to find activityType=NoSuch")
	dl := w.dead(dead)
	require.Equal(t, job.ReasonUnknownJobType, dl.Reason)
	require.Equal(t, 2, *dl.Attempts)
	require.Len(t, w.attempts(t, dead), 2)
	waits, ended := w.timers(dead), w.unknowns(dead)
	require.Equal(t, []time.Duration{time.Second, 2 * time.Second}, waits[:2])
	require.Len(t, ended, len(waits)+1, "each try of the grace, and the last of the budget")
	require.Regexp(t, fmt.Sprintf(`\(free tries: %d, from %s to the end of unknown_type_grace 5s\)$`,
		len(waits), `\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`), dl.ErrorMessage)
	last := ended[len(ended)-1]
	require.GreaterOrEqual(t, last.Sub(ended[0]), 6*time.Second, "the budget of two, a second apart, comes after the grace")
	w.replays("", dead)

	require.ErrorContains(t, w.wait(none, nil), "unknown_job_type after 2 attempts")
	w.atMost(t, 17, none)
	require.NotContains(t, w.dead(none).ErrorMessage, "unknown_type_grace")

	require.ErrorContains(t, w.wait(old, nil), "retry_lifetime_expired after 0 attempts")
	require.Equal(t, job.GoUnknownType, w.dead(old).ErrorType)

	require.Error(t, w.wait(cancelled, nil))
	require.Equal(t, enumspb.WORKFLOW_EXECUTION_STATUS_CANCELED, w.status(cancelled))
	require.Equal(t, job.ReasonCancelled, w.dead(cancelled).Reason)
	require.Zero(t, *w.dead(cancelled).Attempts)

	require.Eventually(t, func() bool { // visibility lags
		w.sweep()
		_, err := w.store.Get(t.Context(), w.key(terminated))
		return !errors.Is(err, dlqstore.ErrNotFound)
	}, patience, 200*time.Millisecond)
	require.Zero(t, *w.dead(terminated).Attempts)
}

// TestUnknownToOtherSDKs proves the grace for the answer that workers in other
// languages give, which is told by its message: a handler's own error of that type is
// retried by the server like any other, for no event more.
func TestUnknownToOtherSDKs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var calls atomic.Int32
	foreign := worker.New(w.client, "foreign", worker.Options{})
	notFound := func(message string) error { return temporal.NewApplicationError(message, "NotFoundError") }
	foreign.RegisterActivityWithOptions(func(context.Context) error {
		if calls.Add(1) <= 3 {
			return notFound("Activity function New is not registered on this Worker, available activities: []")
		}
		return nil
	}, activity.RegisterOptions{Name: "New"})
	foreign.RegisterActivityWithOptions(func(context.Context) error { return notFound("customer 7 is not registered") },
		activity.RegisterOptions{Name: "Find"})
	foreign.RegisterActivityWithOptions(func(context.Context) error {
		return notFound("Activity function Never is not registered on this Worker, available activities: []")
	}, activity.RegisterOptions{Name: "Never"})
	w.start(foreign)
	w.startJobs(nil)
	w.startDLQ(nil)
	start := func(jobType string) client.WorkflowRun {
		return w.bare(client.StartWorkflowOptions{}, map[string]any{"type": jobType, "task_queue": "foreign", "policy": map[string]any{
			"max_attempts": 2, "base_delay": "1s", "unknown_type_grace": map[bool]string{true: "2s", false: "1h"}[jobType == "Never"],
		}})
	}
	run, own, never := start("New"), start("Find"), start("Never")
	// Two of the server's attempts, one of the grace, and the one that succeeds.
	require.NoError(t, w.wait(run, nil))
	require.EqualValues(t, 4, calls.Load())
	w.replays("", run)
	require.ErrorContains(t, w.wait(own, nil), "max_retries_exceeded after 2 attempts: customer 7 is not registered")
	w.atMost(t, 17, own)
	require.ErrorContains(t, w.wait(never, nil), "unknown_job_type after 2 attempts")
}

// TestUnknownAnswerAfterGrace proves that a try which began within the grace and ended
// after it is free too: the budget is spent by executions that begin after the grace.
func TestUnknownAnswerAfterGrace(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var calls atomic.Int32
	slow := worker.New(w.client, "slow", worker.Options{})
	slow.RegisterActivityWithOptions(func(context.Context) error {
		if calls.Add(1) == 2 {
			<-time.After(3 * time.Second) // as long as a backlog, say
		}
		return temporal.NewApplicationError("unable to find activityType=Late", job.GoUnknownType)
	}, activity.RegisterOptions{Name: "Late"})
	w.start(slow)
	w.startJobs(nil)
	w.startDLQ(nil)
	run := w.bare(client.StartWorkflowOptions{}, map[string]any{"type": "Late", "task_queue": "slow", "policy": map[string]any{
		"max_attempts": 2, "base_delay": "1s", "unknown_type_grace": "3s",
	}})
	require.ErrorContains(t, w.wait(run, nil), "unknown_job_type after 2 attempts")
	require.EqualValues(t, 4, calls.Load(), "two tries of the grace, two of the budget")
	require.Len(t, w.attempts(t, run), 2)
	w.replays("", run)
}
