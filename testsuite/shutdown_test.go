package testsuite_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/deadletter-dev/deadletter"
)

// TestGracefulShutdown proves that a handler which its worker's stop interrupts is
// run again, once, without a charge, even on the last attempt of a budget of one.
func TestGracefulShutdown(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var calls atomic.Int32
	h := handlers{"Slow": func(ctx context.Context, end string) error {
		if calls.Add(1) == 1 {
			return hang(ctx)
		}
		if end == "fail" {
			return errors.New("boom")
		}
		return nil
	}}
	w.startDLQ(nil)
	for _, end := range []string{"succeed", "fail"} {
		calls.Store(0)
		stop := w.startJobs(h)
		run := w.enqueue(deadletter.Job{Type: "Slow", Policy: quick(1)}, end)
		require.Eventually(t, func() bool { return calls.Load() == 1 }, patience, 10*time.Millisecond)
		stop()
		stop = w.startJobs(h)
		err := w.wait(run, nil)
		if end == "succeed" {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, "max_retries_exceeded after 1 attempts: boom")
		}
		require.EqualValues(t, 2, calls.Load())
		stop()
	}
}

// TestRollingDeploy proves that a job whose type the old workers do not know runs
// when a new one comes up before the budget is spent.
func TestRollingDeploy(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	stop := w.startJobs(handlers{"Old": fail})
	policy := quick(-1)
	run := w.enqueue(deadletter.Job{Type: "New", Policy: policy})
	w.failedOnce(run)
	w.startJobs(handlers{"Old": fail, "New": func(context.Context) (string, error) { return "ran", nil }})
	stop()
	var result string
	require.NoError(t, w.wait(run, &result))
	require.Equal(t, "ran", result)
}
