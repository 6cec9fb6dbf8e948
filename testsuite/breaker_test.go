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

// TestCircuitBreaker proves that an open breaker keeps the handler from being
// called without a charge, that it is per type and blind to fatal errors, that
// probes close it, and the reason when the age ends while it refuses.
func TestCircuitBreaker(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var mu sync.Mutex
	var changes []string
	plugin, err := deadletter.NewPlugin(deadletter.Options{CircuitBreaker: deadletter.CircuitBreaker{
		Threshold: 2, OpenTime: 4 * time.Second, // longer than any wait of the policy
		PerType: map[string]deadletter.CircuitBreaker{"Broken": {Threshold: 1, OpenTime: time.Hour}},
		OnStateChange: func(jobType, from, to string) {
			mu.Lock()
			defer mu.Unlock()
			changes = append(changes, jobType+": "+from+" to "+to)
		},
	}})
	require.NoError(t, err)
	var flaky, broken atomic.Int32
	jobs := worker.New(w.dial(plugin), w.queue, worker.Options{})
	for name, fn := range (handlers{
		"Flaky": func(context.Context) error {
			if flaky.Add(1) <= 2 {
				return errors.New("down")
			}
			return nil
		},
		"Broken": func(context.Context) error { broken.Add(1); return errors.New("down") },
		"Fatal":  func(context.Context) error { return deadletter.Fatal(errors.New("no")) },
		"Fine":   func(context.Context) error { return nil },
	}) {
		jobs.RegisterActivityWithOptions(fn, activity.RegisterOptions{Name: name})
	}
	w.start(jobs)
	w.startDLQ(nil)

	// Two failures open it; the third attempt is refused at least once, then a probe
	// closes it. Three attempts suffice only if refusals cost none.
	policy := quick(3)
	policy.CircuitBreakerDelay = 200 * time.Millisecond
	refused := w.enqueue(deadletter.Job{Type: "Flaky", Policy: policy})
	require.NoError(t, w.wait(refused, nil))
	require.EqualValues(t, 3, flaky.Load())
	require.NotEmpty(t, w.timers(refused))
	for _, wait := range w.timers(refused) {
		require.Equal(t, policy.CircuitBreakerDelay, wait)
	}
	mu.Lock()
	require.Equal(t, []string{"Flaky: closed to open", "Flaky: open to half-open", "Flaky: half-open to closed"}, changes)
	mu.Unlock()

	// An open one for ever: the age ends it, with the one attempt that was made.
	old := policy
	old.MaxJobAge = 6 * time.Second
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
	plugin, err := deadletter.NewPlugin(deadletter.Options{CircuitBreaker: deadletter.CircuitBreaker{
		Threshold: 1, OpenTime: time.Second, HalfOpenProbes: probes,
	}})
	require.NoError(t, err)
	var calls, inside atomic.Int32
	mended := make(chan struct{})
	running := worker.New(w.dial(plugin), w.queue, worker.Options{})
	running.RegisterActivityWithOptions(func(context.Context) error {
		if calls.Add(1) == 1 {
			return errors.New("down")
		}
		inside.Add(1)
		<-mended
		return nil
	}, activity.RegisterOptions{Name: "Probed"})
	w.start(running)
	w.startDLQ(nil)

	policy := quick(2)
	policy.CircuitBreakerDelay = 200 * time.Millisecond
	runs := []client.WorkflowRun{w.enqueue(deadletter.Job{Type: "Probed", Policy: policy})}
	require.Eventually(t, func() bool { return calls.Load() == 1 }, patience, time.Millisecond)
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
