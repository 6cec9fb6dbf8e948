package testsuite_test

import (
	"context"
	"errors"
	"os/exec"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/worker"
	"google.golang.org/grpc/status"

	"github.com/deadletter-dev/deadletter"
	"github.com/deadletter-dev/deadletter/job"
)

// killed waits until the process has been killed by its own handler.
func (w *world) killed(process *exec.Cmd) {
	w.t.Helper()
	exited := make(chan error, 1)
	go func() { exited <- process.Wait() }()
	var exit *exec.ExitError
	select {
	case err := <-exited:
		require.ErrorAs(w.t, err, &exit)
	case <-time.After(patience):
		require.Fail(w.t, "the handler was never called")
	}
	require.Equal(w.t, syscall.SIGKILL, exit.Sys().(syscall.WaitStatus).Signal())
}

// TestZombies kills workers with kill -9 in the middle of an attempt, and proves
// that the job is a zombie at once and its handler not run again, unless the policy
// retries zombies: then each death is an attempt, and the budget ends it.
func TestZombies(t *testing.T) {
	t.Parallel()
	policy := deadletter.Policy{BaseDelay: time.Millisecond, HeartbeatTimeout: 10 * time.Second}
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
			dl := w.dead(run)
			require.Equal(t, job.ReasonZombie, dl.Reason)
			require.NotEmpty(t, dl.LastHeartbeatDetails)
			var started, timedOut time.Time
			for _, event := range w.history(run) {
				switch event.GetEventType() {
				case enumspb.EVENT_TYPE_ACTIVITY_TASK_STARTED:
					started = event.GetEventTime().AsTime()
				case enumspb.EVENT_TYPE_ACTIVITY_TASK_TIMED_OUT:
					timedOut = event.GetEventTime().AsTime()
				default:
				}
			}
			// By the server's clock; the handler had some moments to be killed in.
			require.Less(t, timedOut.Sub(started), policy.HeartbeatTimeout+30*time.Second, "it was not noticed at once")
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
		w.startJobs(handlers{"Kill": func(ctx context.Context) (int32, error) { return activity.GetInfo(ctx).Attempt, nil }})
		var attempt int32
		require.NoError(t, w.wait(run, &attempt))
		require.EqualValues(t, 2, attempt)
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

// TestSilentHandler proves that a handler which never heartbeats by itself outlives
// its heartbeat timeout, and that a cancellation reaches it before that.
func TestSilentHandler(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	policy := deadletter.Policy{MaxAttempts: 1, HeartbeatTimeout: 20 * time.Second}
	var calls atomic.Int32
	interrupted, worked := make(chan struct{}), make(chan struct{})
	w.startJobs(handlers{
		"Long": func(ctx context.Context) error {
			calls.Add(1)
			select {
			case <-worked:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		},
		"Hang": func(ctx context.Context) error {
			defer close(interrupted)
			return hang(ctx)
		},
	})
	w.startDLQ(nil)
	long := w.enqueue(deadletter.Job{Type: "Long", Policy: policy})
	cancelled := w.cancelled(deadletter.Job{Type: "Hang", Policy: policy}, w.pendingIn(enumspb.PENDING_ACTIVITY_STATE_STARTED))
	require.Error(t, w.wait(cancelled, nil))
	require.Equal(t, job.ReasonCancelled, w.dead(cancelled).Reason)
	select {
	case <-interrupted:
	default:
		t.Error("the job ended before its handler knew")
	}
	// The server has seen it alive longer than its timeout after its start.
	require.Eventually(t, func() bool {
		description, err := w.describe(long.GetID(), long.GetRunID())
		if err != nil || len(description.GetPendingActivities()) != 1 {
			return false
		}
		handler := description.GetPendingActivities()[0]
		return handler.GetLastHeartbeatTime().AsTime().Sub(handler.GetLastStartedTime().AsTime()) > policy.HeartbeatTimeout
	}, patience, 100*time.Millisecond)
	close(worked)
	require.NoError(t, w.wait(long, nil))
	require.EqualValues(t, 1, calls.Load())
}

// TestLateReport proves that a worker which was taken for dead and reports after
// all is turned away and changes nothing: neither a zombie nor the attempt that
// follows with retry_zombies.
func TestLateReport(t *testing.T) {
	t.Parallel()
	policy := deadletter.Policy{MaxAttempts: 2, BaseDelay: time.Millisecond, HeartbeatTimeout: 2 * time.Second}
	t.Run("dead", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.startDLQ(nil)
		_, report := w.startCutOff()
		run := w.enqueue(deadletter.Job{Type: "Late", Policy: policy})
		require.ErrorContains(t, w.wait(run, nil), "dead-lettered: zombie after 1 attempts")
		before, length := w.dead(run), len(w.history(run))
		turnedAway(t, report())
		require.Equal(t, before, w.dead(run))
		require.Len(t, w.history(run), length)
		require.EqualValues(t, 1, w.count())
	})
	t.Run("retried", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.startDLQ(nil)
		started, report := w.startCutOff()
		policy := policy
		// Its second attempt must live while the first reports.
		policy.RetryZombies, policy.HeartbeatTimeout = true, 20*time.Second
		run := w.enqueue(deadletter.Job{Type: "Late", Policy: policy})
		<-started
		second, reported := make(chan struct{}), make(chan struct{})
		w.startJobs(handlers{"Late": func(context.Context) (string, error) {
			close(second)
			<-reported
			return "second", nil
		}})
		<-second
		turnedAway(t, report())
		close(reported)
		var result string
		require.NoError(t, w.wait(run, &result))
		require.Equal(t, "second", result)
		require.Zero(t, w.count())
	})
}

// turnedAway proves that the server knew of no such attempt any more.
func turnedAway(t *testing.T, reported error) {
	t.Helper()
	var unknown *serviceerror.NotFound
	require.ErrorAs(t, serviceerror.FromStatus(status.Convert(reported)), &unknown)
}

// startCutOff starts a worker whose heartbeats do not reach the server, for one
// attempt of "Late" at a time. It says when that has started; report lets it
// succeed, and returns the server's answer.
func (w *world) startCutOff() (started <-chan struct{}, report func() error) {
	w.t.Helper()
	plugin, err := deadletter.NewPlugin(deadletter.Options{})
	require.NoError(w.t, err)
	answers := make(chan error, 1)
	answer := aroundCall("RespondActivityTaskCompleted", func(call func() error) error {
		err := call()
		select {
		case answers <- err:
		default: // the SDK asks again
		}
		return err
	})
	cut := beforeCall("RecordActivityTaskHeartbeat", func() error { return errors.New("cut off") })
	options := w.options(plugin)
	options.ConnectionOptions.DialOptions = append(answer, cut...)
	c := w.dialWith(options)
	running, release := make(chan struct{}), make(chan struct{})
	w.t.Cleanup(sync.OnceFunc(func() { // else a failed test waits for the worker
		select {
		case <-release:
		default:
			close(release)
		}
	}))
	jobs := worker.New(c, w.queue, worker.Options{MaxConcurrentActivityExecutionSize: 1})
	jobs.RegisterActivityWithOptions(func(context.Context) (string, error) {
		close(running)
		<-release
		return "late", nil
	}, activity.RegisterOptions{Name: "Late"})
	w.start(jobs)
	return running, func() error {
		close(release)
		return <-answers
	}
}
