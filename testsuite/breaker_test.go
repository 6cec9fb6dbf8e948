package testsuite_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"

	"github.com/deadletter-dev/deadletter"
	"github.com/deadletter-dev/deadletter/job"
)

// startGuarded is startJobs with circuit breakers.
func (w *world) startGuarded(config deadletter.CircuitBreaker, h handlers) (stop func()) {
	w.t.Helper()
	plugin, err := deadletter.NewPlugin(deadletter.Options{CircuitBreaker: config})
	require.NoError(w.t, err)
	jobs := worker.New(w.dial(plugin), w.queue, worker.Options{})
	for name, fn := range h {
		jobs.RegisterActivityWithOptions(fn, activity.RegisterOptions{Name: name})
	}
	return w.start(jobs)
}

// TestCircuitBreaker proves that failures open a breaker, that it is per type and
// blind to fatal errors, that a probe closes it, and the reason when the age would
// end while it refuses.
func TestCircuitBreaker(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var mu sync.Mutex
	var changes []string
	var flaky, broken atomic.Int32
	w.startGuarded(deadletter.CircuitBreaker{
		Threshold: 2, Window: time.Hour, OpenTime: time.Second,
		PerType: map[string]deadletter.CircuitBreaker{"Broken": {Threshold: 1, OpenTime: time.Hour}},
		OnStateChange: func(jobType, from, to string) {
			mu.Lock()
			defer mu.Unlock()
			changes = append(changes, jobType+": "+from+" to "+to)
		},
	}, handlers{
		"Flaky": func(context.Context) error {
			if flaky.Add(1) <= 2 {
				return errors.New("down")
			}
			return nil
		},
		"Broken": func(context.Context) error { broken.Add(1); return errors.New("down") },
		"Fatal":  func(context.Context) error { return deadletter.Fatal(errors.New("no")) },
		"Fine":   func(context.Context) error { return nil },
	})
	w.startDLQ(nil)

	// Two failures open it; the third call is the probe, and closes it.
	policy := quick(3)
	policy.CircuitBreakerDelay = 200 * time.Millisecond
	require.NoError(t, w.wait(w.enqueue(deadletter.Job{Type: "Flaky", Policy: policy}), nil))
	require.EqualValues(t, 3, flaky.Load())
	mu.Lock()
	require.Equal(t, []string{"Flaky: closed to open", "Flaky: open to half-open", "Flaky: half-open to closed"}, changes)
	mu.Unlock()

	// An open one for ever: the age ends it, with the one attempt that was made. It
	// would end in the wait that follows the first refusal, so no clock decides.
	old := policy
	old.CircuitBreakerDelay, old.MaxJobAge = time.Hour, 10*time.Minute
	run := w.enqueue(deadletter.Job{Type: "Broken", Policy: old})
	require.ErrorContains(t, w.wait(run, nil), "dead-lettered: circuit_breaker_open after 1 attempts")
	require.EqualValues(t, 1, broken.Load())
	require.Equal(t, job.ReasonCircuitBreakerOpen, w.dead(run).Reason)

	for range 5 {
		require.ErrorContains(t, w.wait(w.enqueue(deadletter.Job{Type: "Fatal", Policy: policy}), nil), "fatal_error")
	}
	require.NoError(t, w.wait(w.enqueue(deadletter.Job{Type: "Fine"}), nil))
	mu.Lock()
	defer mu.Unlock()
	require.NotContains(t, strings.Join(changes, "\n"), "Fatal")
}

// TestRefusalIsFree proves that an open breaker keeps the handler from being called
// without a charge: three attempts suffice for two failures, a refusal and a success
// on another worker, which has breakers of its own.
func TestRefusalIsFree(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var calls atomic.Int32
	stop := w.startGuarded(deadletter.CircuitBreaker{Threshold: 2, Window: time.Hour, OpenTime: time.Hour}, handlers{
		"Flaky": func(context.Context) error { calls.Add(1); return errors.New("down") },
	})
	policy := quick(3)
	policy.CircuitBreakerDelay = time.Hour // it waits while the workers change
	run := w.enqueue(deadletter.Job{Type: "Flaky", Policy: policy})
	w.snoozing(run)
	require.Equal(t, []time.Duration{policy.CircuitBreakerDelay}, w.timers(run))
	require.EqualValues(t, 2, calls.Load(), "the handler was called although the breaker was open")
	stop()
	w.startJobs(handlers{"Flaky": func(context.Context) error { calls.Add(1); return nil }})
	require.NoError(t, w.client.SignalWorkflow(t.Context(), run.GetID(), run.GetRunID(), job.RetryNowSignal, nil))
	require.NoError(t, w.wait(run, nil))
	require.EqualValues(t, 3, calls.Load())
}

// timers returns what the job has waited between executions of its handler.
func (w *world) timers(run client.WorkflowRun) (waits []time.Duration) {
	w.t.Helper()
	for _, event := range w.history(run) {
		if timer := event.GetTimerStartedEventAttributes(); timer != nil {
			waits = append(waits, timer.GetStartToFireTimeout().AsDuration())
		}
	}
	return waits
}

// TestHalfOpen proves that a breaker which is half-open lets exactly the configured
// probes through, however many jobs wait for it, and all of them when it is closed.
func TestHalfOpen(t *testing.T) {
	t.Parallel()
	const jobs, probes = 6, 2
	w := newWorld(t)
	var calls, inside atomic.Int32
	opened, mended := make(chan struct{}), make(chan struct{})
	var once sync.Once
	w.startGuarded(deadletter.CircuitBreaker{
		Threshold: 1, OpenTime: time.Second, HalfOpenProbes: probes,
		OnStateChange: func(string, string, string) { once.Do(func() { close(opened) }) },
	}, handlers{"Probed": func(context.Context) error {
		if calls.Add(1) == 1 {
			return errors.New("down")
		}
		inside.Add(1)
		<-mended
		return nil
	}})
	w.startDLQ(nil)

	policy := quick(2)
	policy.CircuitBreakerDelay = 200 * time.Millisecond
	runs := []client.WorkflowRun{w.enqueue(deadletter.Job{Type: "Probed", Policy: policy})}
	select {
	case <-opened: // only now may other jobs come: a closed breaker refuses none
	case <-time.After(patience):
		require.Fail(t, "the breaker never opened")
	}
	for range jobs - 1 {
		runs = append(runs, w.enqueue(deadletter.Job{Type: "Probed", Policy: policy}))
	}
	require.Eventually(t, func() bool { return inside.Load() == probes }, patience, 10*time.Millisecond)
	// Every other job asks twice more while the probes are out.
	refusals := func() (waits int) {
		for _, run := range runs {
			waits += len(w.timers(run))
		}
		return waits
	}
	before := refusals()
	require.Eventually(t, func() bool { return refusals() >= before+2*(jobs-probes) }, patience, 50*time.Millisecond)
	require.EqualValues(t, probes, inside.Load())
	close(mended)
	for _, run := range runs {
		require.NoError(t, w.wait(run, nil))
	}
	require.EqualValues(t, jobs+1, calls.Load(), "a refusal cost an attempt")
}
