package testsuite_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/deadletter-dev/deadletter"
	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/job"
)

// TestSweepOutage proves that a sweep which loses Temporal in the middle of a page
// leaves no job behind: it waits, with the watermark where it was, goes on when
// Temporal is back, and writes each dead letter once.
func TestSweepOutage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const jobs = 12
	var runs []client.WorkflowRun
	for range jobs {
		runs = append(runs, w.enqueue(deadletter.Job{Type: "Never", TaskQueue: "nobody"}))
	}
	for _, run := range runs {
		w.terminate(run, "cleaning up")
	}
	w.visible(jobs)

	var reads, refused atomic.Int32
	var up atomic.Bool
	plugin, err := deadletter.NewPlugin(deadletter.Options{Store: w.openStore(), SweepInterval: -1, RetentionInterval: -1})
	require.NoError(t, err)
	c, err := client.Dial(client.Options{
		HostPort: w.address, Namespace: w.namespace, Logger: quiet(), Plugins: []client.Plugin{plugin},
		ConnectionOptions: client.ConnectionOptions{DialOptions: beforeCall("GetWorkflowExecutionHistory", func() error {
			if up.Load() || reads.Add(1) <= jobs { // two or three of each job
				return nil
			}
			refused.Add(1)
			return status.Error(codes.Unavailable, "cut off")
		})},
	})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	w.start(worker.New(c, deadletter.DefaultTaskQueue, worker.Options{}))

	sweep := w.startSweep()
	// Four jobs are read at once, and the first of them that fails ends the page.
	require.Eventually(t, func() bool { return refused.Load() > 4 }, patience, 20*time.Millisecond, "the sweep did not try again")
	require.Less(t, w.count(), int64(jobs))
	require.True(t, w.watermark().IsZero(), "the watermark passed jobs that are not written")
	up.Store(true)
	var state job.SweepState
	require.NoError(t, w.wait(sweep, &state))
	require.Zero(t, state.Left, state.LastError)
	require.EqualValues(t, jobs, w.count())
	for _, run := range runs {
		require.Equal(t, job.ReasonTerminated, w.dead(run).Reason)
		require.Equal(t, []string{dlqstore.VerbMove}, w.verbs(w.key(run)))
	}
	require.False(t, w.watermark().IsZero())
}
