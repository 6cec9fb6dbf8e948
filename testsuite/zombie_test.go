package testsuite_test

import (
	"context"
	"errors"
	"os/exec"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"

	"github.com/deadletter-dev/deadletter"
	"github.com/deadletter-dev/deadletter/job"
)

// killed waits until the process has been killed by its own handler.
func (w *world) killed(process *exec.Cmd) {
	w.t.Helper()
	var exit *exec.ExitError
	require.ErrorAs(w.t, process.Wait(), &exit)
	require.Equal(w.t, syscall.SIGKILL, exit.Sys().(syscall.WaitStatus).Signal())
}

// TestZombies kills workers with kill -9 in the middle of an attempt, and proves
// that the job is a zombie at once and its handler not run again, unless the policy
// retries zombies: then each death is an attempt, and the budget ends it.
func TestZombies(t *testing.T) {
	t.Parallel()
	policy := deadletter.Policy{BaseDelay: time.Millisecond, HeartbeatTimeout: 2 * time.Second}
	t.Run("dead at once", func(t *testing.T) {
		t.Parallel()
		for _, budget := range []int{3, 1} {
			w := newWorld(t)
			w.startDLQ(nil)
			policy := policy
			policy.MaxAttempts = budget
			process := w.startProcess(roleJobs, "never")
			run := w.enqueue(deadletter.Job{Type: "Kill", Policy: policy})
			w.killed(process)
			var again atomic.Int32
			w.startJobs(handlers{"Kill": func(context.Context) error { again.Add(1); return nil }})
			require.ErrorContains(t, w.wait(run, nil), "dead-lettered: zombie after 1 attempts")
			require.Zero(t, again.Load(), "a zombie's handler ran again")
			require.Equal(t, job.ReasonZombie, w.dead(run).Reason)
			require.NotEmpty(t, w.dead(run).LastHeartbeatDetails)
		}
	})
	t.Run("retried", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.startDLQ(nil)
		policy := policy
		policy.RetryZombies, policy.MaxAttempts = true, 3
		process := w.startProcess(roleJobs, "never")
		run := w.enqueue(deadletter.Job{Type: "Kill", Policy: policy})
		w.killed(process)
		w.startJobs(handlers{"Kill": func(context.Context) (string, error) { return "alive", nil }})
		var result string
		require.NoError(t, w.wait(run, &result))
		require.Equal(t, "alive", result)
	})
	t.Run("three die and no fourth", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.startDLQ(nil)
		policy := policy
		policy.RetryZombies, policy.MaxAttempts = true, 3
		first := w.startProcess(roleJobs, "never")
		run := w.enqueue(deadletter.Job{Type: "Kill", Policy: policy})
		w.killed(first)
		for range 2 {
			w.killed(w.startProcess(roleJobs, "never"))
		}
		var fourth atomic.Int32
		w.startJobs(handlers{"Kill": func(context.Context) error { fourth.Add(1); return nil }})
		require.ErrorContains(t, w.wait(run, nil), "dead-lettered: zombie after 3 attempts")
		require.Zero(t, fourth.Load())
		require.Len(t, w.attempts(t, run), 3)
	})
}

// TestLateReport proves that a worker which was taken for dead and reports after
// all changes nothing.
func TestLateReport(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.startDLQ(nil)
	plugin, err := deadletter.NewPlugin(deadletter.Options{})
	require.NoError(t, err)
	c, err := client.Dial(client.Options{
		HostPort: w.address, Namespace: w.namespace, Logger: quiet(), Plugins: []client.Plugin{plugin},
		ConnectionOptions: client.ConnectionOptions{DialOptions: beforeCall("RecordActivityTaskHeartbeat", func() error {
			return errors.New("cut off")
		})},
	})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	release, returned := make(chan struct{}), make(chan struct{})
	jobs := worker.New(c, w.queue, worker.Options{})
	jobs.RegisterActivityWithOptions(func(context.Context) (string, error) {
		<-release
		defer close(returned)
		return "late", nil
	}, activity.RegisterOptions{Name: "Late"})
	stop := w.start(jobs)

	run := w.enqueue(deadletter.Job{Type: "Late", Policy: deadletter.Policy{MaxAttempts: 3, HeartbeatTimeout: 2 * time.Second}})
	require.ErrorContains(t, w.wait(run, nil), "dead-lettered: zombie after 1 attempts")
	before, length := w.dead(run), len(w.history(run))
	close(release)
	<-returned
	stop() // waits for the report
	require.Equal(t, before, w.dead(run))
	require.Len(t, w.history(run), length)
	require.EqualValues(t, 1, w.count())
}
