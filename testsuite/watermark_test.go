package testsuite_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"

	"github.com/deadletter-dev/deadletter"
	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/job"
)

func (w *world) watermark() time.Time {
	w.t.Helper()
	watermark, err := w.store.SweepWatermark(w.t.Context(), w.namespace)
	require.NoError(w.t, err)
	return watermark
}

// TestSweepLeaves proves that a job whose hook fails holds neither the watermark nor
// any other job, that it is told of, and that a later sweep writes it by itself, also
// when the watermark has long passed it.
func TestSweepLeaves(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var broken atomic.Pointer[string]
	w.startDLQ(func(_ context.Context, _ pgx.Tx, dl *dlqstore.DeadLetter) error {
		if id := broken.Load(); id != nil && *id == dl.WorkflowID {
			return errors.New("no such order")
		}
		return nil
	})
	var runs []client.WorkflowRun
	for i := range 5 {
		run := w.enqueue(deadletter.Job{Type: "Any"}, i)
		w.terminate(run, "")
		runs = append(runs, run)
	}
	bad := runs[2]
	id := bad.GetID()
	broken.Store(&id)
	w.visible(len(runs))
	for i := range 2 {
		state := w.sweep()
		require.Equal(t, []int{4, 0}[i], state.Moved)
		require.Contains(t, state.LastError, "no such order")
		require.WithinDuration(t, state.Until, w.watermark(), time.Microsecond, "it holds the watermark")
	}
	require.EqualValues(t, len(runs)-1, w.count())
	w.noRow(bad)

	shown, err := w.operator.Show(t.Context(), bad.GetID(), "")
	require.NoError(t, err)
	require.NotNil(t, shown.Left)
	require.Equal(t, w.key(bad), shown.Left.Key)
	require.GreaterOrEqual(t, shown.Left.Tries, 2)
	require.Contains(t, shown.Left.Error, "no such order")
	require.WithinDuration(t, time.Now().Add(time.Minute), *shown.Left.NextAt, time.Minute)
	stats, err := w.operator.Stats(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 1, stats.Left)

	broken.Store(nil)
	// As if an hour had passed: no sweep lists the job any more.
	_, err = w.store.AdvanceSweep(t.Context(), w.namespace, time.Now().Add(time.Hour), nil)
	require.NoError(t, err)
	_, err = w.store.Pool().Exec(t.Context(), `update deadletter.sweep_left set next_at = now()`)
	require.NoError(t, err)
	require.Equal(t, 1, w.sweep().Moved)
	w.dead(bad)
	left, err := w.operator.Left(t.Context())
	require.NoError(t, err)
	require.Empty(t, left)
}

// TestSweepLooksBack proves that a job which became visible only minutes after it
// closed, when the watermark had passed it, is found all the same.
func TestSweepLooksBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.startDLQ(nil)
	run := w.enqueue(deadletter.Job{Type: "Any"})
	w.terminate(run, "")
	w.visible(1)
	closed, err := w.describe(run.GetID(), run.GetRunID())
	require.NoError(t, err)
	passed, err := w.store.AdvanceSweep(t.Context(), w.namespace, closed.GetWorkflowExecutionInfo().GetCloseTime().AsTime().Add(4*time.Minute), nil)
	require.NoError(t, err)
	require.Equal(t, 1, w.sweep().Moved)
	w.dead(run)
	require.Equal(t, passed, w.watermark(), "the watermark went back")
}

// TestSweepWaits proves that a sweep waits for a store that is away, instead of
// leaving one job after the other.
func TestSweepWaits(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var tries atomic.Int32
	w.startDLQ(func(context.Context, pgx.Tx, *dlqstore.DeadLetter) error {
		if tries.Add(1) <= 3 {
			return fmt.Errorf("as if: %w", dlqstore.ErrUnavailable)
		}
		return nil
	})
	for range 6 {
		w.terminate(w.enqueue(deadletter.Job{Type: "Any"}), "")
	}
	w.visible(6)
	state := w.sweep()
	require.Zero(t, state.Left)
	require.EqualValues(t, 6, w.count())
	require.WithinDuration(t, state.Until, w.watermark(), time.Microsecond)
}

// TestSweepPages proves that a sweep over more than one page of the server's list
// misses none, and costs a constant number of history events.
func TestSweepPages(t *testing.T) {
	t.Parallel()
	const jobs = 210 // of which a page holds 200
	w := newWorld(t)
	var starts sync.WaitGroup
	for part := range 5 {
		starts.Go(func() {
			for i := part; i < jobs; i += 5 {
				run, err := deadletter.Enqueue(t.Context(), w.client, deadletter.Job{ID: fmt.Sprint("job-", i), Type: "Any", TaskQueue: w.queue}, i)
				if err == nil {
					err = w.client.TerminateWorkflow(t.Context(), run.GetID(), run.GetRunID(), "")
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	starts.Wait()
	w.visible(jobs)
	w.startDLQ(nil)
	run := w.startSweep()
	var state job.SweepState
	require.NoError(t, w.wait(run, &state))
	require.Equal(t, jobs, state.Moved)
	require.EqualValues(t, jobs, w.count())
	w.atMost(t, 23, run) // 11, and 6 for every further 20 seconds of a slow machine
}
