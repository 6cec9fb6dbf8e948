package testsuite_test

import (
	"context"
	"errors"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/deadletter-dev/deadletter"
)

// TestGracefulShutdown stops a worker process with SIGTERM in the middle of the only
// attempt of a job, and proves that the job is not dead, runs again after the
// restart, once, and is not charged for what was interrupted.
func TestGracefulShutdown(t *testing.T) {
	t.Parallel()
	for _, end := range []string{"succeed", "fail"} {
		t.Run(end, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.startDLQ(nil)
			process := w.startProcess(roleJobs, "never")
			run := w.enqueue(deadletter.Job{Type: "Stay", Policy: quick(1)}, end)
			require.Eventually(t, func() bool { // the handler runs, not only its task
				description, err := w.describe(run.GetID(), "")
				return err == nil && len(description.GetPendingActivities()) == 1 &&
					len(description.GetPendingActivities()[0].GetHeartbeatDetails().GetPayloads()) > 0
			}, patience, 10*time.Millisecond)
			require.NoError(t, process.Process.Signal(syscall.SIGTERM))
			require.NoError(t, process.Wait(), "it was not stopped but killed")
			require.Zero(t, w.count(), "a job that never failed is dead")

			var calls atomic.Int32
			w.startJobs(handlers{"Stay": func(_ context.Context, end string) error {
				calls.Add(1)
				if end == "fail" {
					return errors.New("boom")
				}
				return nil
			}})
			err := w.wait(run, nil)
			require.EqualValues(t, 1, calls.Load())
			if end == "succeed" {
				require.NoError(t, err)
				require.Zero(t, w.count())
				return
			}
			require.ErrorContains(t, err, "max_retries_exceeded after 1 attempts: boom")
			attempts := w.attempts(t, run)
			require.Len(t, attempts, 1, "the interrupted attempt was charged")
			require.Equal(t, "boom", attempts[0].ErrorMessage)
			require.Equal(t, 1, *w.dead(run).Attempts)
		})
	}
}

// TestRollingDeploy proves that a job whose type the old workers do not know runs
// when a new one comes up before the budget is spent, without a grace too.
func TestRollingDeploy(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	stop := w.startJobs(handlers{"Old": fail})
	policy := quick(100)
	policy.UnknownTypeGrace = -1
	// A task that the server hands to the worker that stops is lost: see TestWorkerRestarts.
	policy.HeartbeatTimeout, policy.RetryZombies = 20*time.Second, true
	run := w.enqueue(deadletter.Job{Type: "New", Policy: policy})
	w.failedOnce(run)
	w.startJobs(handlers{"Old": fail, "New": func(context.Context) (string, error) { return "ran", nil }})
	stop()
	var result string
	require.NoError(t, w.wait(run, &result))
	require.Equal(t, "ran", result)
}
