package testsuite_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"google.golang.org/grpc"

	"github.com/deadletter-dev/deadletter"
	"github.com/deadletter-dev/deadletter/operator"
)

// TestEveryDyingJobIsSeen proves, for jobs that are all alive when the watch
// begins, what TestStatsWhileDying proves for the last of them.
func TestEveryDyingJobIsSeen(t *testing.T) {
	t.Parallel()
	const jobs, watched = 200, 8
	w := newWorld(t)
	w.startJobs(handlers{"Fail": fail})
	runs := make([]client.WorkflowRun, jobs)
	for i := range runs {
		runs[i] = w.enqueue(deadletter.Job{Type: "Fail", Policy: quick(1)})
	}
	ctx, done := context.WithCancel(t.Context())
	defer done()
	var alive, dead [watched]atomic.Int32
	var watchers sync.WaitGroup
	for i := range watched {
		run := runs[i*jobs/watched]
		watchers.Go(func() {
			for ctx.Err() == nil {
				shown, err := w.operator.Show(ctx, run.GetID(), "")
				switch {
				case ctx.Err() != nil:
					return
				case busy(err):
				case err != nil:
					t.Errorf("show: %v", err)
					return
				case (shown.Status == nil) == (shown.DeadLetter == nil):
					t.Errorf("job %s: status %v, dead letter %v, closed as %q", run.GetID(), shown.Status, shown.DeadLetter, shown.ClosedAs)
				case shown.Status != nil && dead[i].Load() > 0:
					t.Errorf("job %s came back to life", run.GetID())
				case shown.Status != nil:
					alive[i].Add(1)
				default:
					dead[i].Add(1)
				}
			}
		})
	}
	watchers.Go(func() { w.watchStats(ctx) })
	require.Eventually(t, func() bool {
		for i := range alive {
			if alive[i].Load() == 0 {
				return false
			}
		}
		return true
	}, patience, 5*time.Millisecond)
	w.startDLQ(nil) // only now can any job die
	for _, run := range runs {
		require.Error(t, w.wait(run, nil))
	}
	require.Eventually(t, func() bool {
		for i := range dead {
			if dead[i].Load() == 0 {
				return false
			}
		}
		return true
	}, patience, 5*time.Millisecond)
	done()
	watchers.Wait()
	require.EqualValues(t, jobs, w.count())
}

// TestShowOrder proves that a look at a job is never neither live nor dead, at the
// two moments where it could be: the job dies whole right before, and right after,
// Temporal is asked.
func TestShowOrder(t *testing.T) {
	t.Parallel()
	const method = "DescribeWorkflowExecution"
	for name, hooked := range map[string]func(string, func() error) []grpc.DialOption{"before": beforeCall, "after": afterCall} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.startJobs(handlers{"Fail": fail})
			run := w.enqueue(deadletter.Job{Type: "Fail", Policy: quick(1)})
			require.Eventually(t, func() bool { return w.pendingMove(run) != nil }, patience, 10*time.Millisecond)
			var once sync.Once
			die := func() error {
				once.Do(func() {
					w.startDLQ(nil)
					_ = w.wait(run, nil)
				})
				return nil
			}
			options := w.options()
			options.ConnectionOptions.DialOptions = hooked(method, die)
			verbs, err := operator.New(operator.Config{Store: w.store, Client: w.dialWith(options), Namespace: w.namespace})
			require.NoError(t, err)
			ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
			defer cancel()
			shown, err := verbs.Show(ctx, run.GetID(), "")
			require.NoError(t, err)
			require.Nil(t, shown.Status)
			require.NotNil(t, shown.DeadLetter)
		})
	}
}
