package testsuite_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/deadletter-dev/deadletter"
	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/job"
	"github.com/deadletter-dev/deadletter/operator"
)

// TestPurge proves that a purge is final: the count falls, a late duplicate move
// does not bring the row back, an empty filter is refused, and running jobs are
// not touched.
func TestPurge(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	hold := make(chan struct{})
	defer close(hold)
	w.startJobs(handlers{"Fail": fail, "Wait": func(context.Context) error { <-hold; return nil }})
	w.startDLQ(nil)
	running := w.enqueue(deadletter.Job{Type: "Wait"})
	first, second, third := w.deadJob(), w.deadJob(), w.deadJob()
	late := w.dead(first)

	_, err := w.operator.Purge(t.Context(), first.GetID(), "", "tester")
	require.NoError(t, err)
	require.EqualValues(t, 2, w.count())
	moved, err := w.store.Move(t.Context(), late, nil, "late", nil)
	require.NoError(t, err)
	require.False(t, moved)
	require.EqualValues(t, 2, w.count(), "a late move brought a purged dead letter back")
	require.Equal(t, []string{dlqstore.VerbMove, dlqstore.VerbPurge}, sorted(w.verbs(w.key(first))))
	_, err = w.operator.Purge(t.Context(), first.GetID(), "", "tester")
	require.ErrorIs(t, err, dlqstore.ErrNotFound)
	_, err = w.operator.Replay(t.Context(), operator.ReplayRequest{WorkflowID: first.GetID(), Actor: "tester"})
	require.ErrorIs(t, err, dlqstore.ErrNotFound)

	_, err = w.operator.PurgeMatching(t.Context(), dlqstore.PurgeRequest{Actor: "tester"})
	require.ErrorIs(t, err, dlqstore.ErrUnbounded)
	require.EqualValues(t, 2, w.count())
	purged, err := w.operator.PurgeMatching(t.Context(), dlqstore.PurgeRequest{
		Filter: dlqstore.Filter{WorkflowID: second.GetID()}, Actor: "tester",
	})
	require.NoError(t, err)
	require.EqualValues(t, 1, purged)
	_, err = w.store.Get(t.Context(), w.key(third))
	require.NoError(t, err)
	require.Equal(t, "Running", w.status(running).String())
}

func sorted(verbs []string) []string {
	if len(verbs) == 2 && verbs[0] > verbs[1] {
		return []string{verbs[1], verbs[0]}
	}
	return verbs
}

// TestStatsWhileDying proves that the dead_letter count is the table's at every
// moment while 200 jobs die, and that a look at one job, as often as it can be,
// never says both live and dead, never neither, and never takes dead back.
func TestStatsWhileDying(t *testing.T) {
	t.Parallel()
	const jobs = 200
	w := newWorld(t)
	w.startJobs(handlers{"Fail": fail})
	w.startDLQ(nil)
	runs := make([]client.WorkflowRun, jobs)
	for i := range runs {
		runs[i] = w.enqueue(deadletter.Job{Type: "Fail", Policy: quick(1)})
	}
	ctx, done := context.WithCancel(t.Context())
	defer done()
	var watchers sync.WaitGroup
	watchers.Go(func() { w.watchStats(ctx) })
	watched := []int{0, jobs / 2, jobs - 1}
	var dead atomic.Int32
	for _, i := range watched {
		watchers.Go(func() { w.watchJob(ctx, runs[i], &dead) })
	}
	for _, run := range runs {
		require.Error(t, w.wait(run, nil))
	}
	require.Eventually(t, func() bool { return int(dead.Load()) == len(watched) }, patience, 5*time.Millisecond, "a job was never seen dead")
	done()
	watchers.Wait()
	stats, err := w.operator.Stats(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, jobs, stats.DeadLetter)
	require.Eventually(t, func() bool { // visibility lags
		stats, err := w.operator.Stats(t.Context())
		require.NoError(t, err)
		return stats == operator.Stats{Total: jobs, DeadLetter: jobs}
	}, patience, 100*time.Millisecond)
}

func (w *world) watchStats(ctx context.Context) {
	for looks := 0; ; looks++ {
		before, err := w.store.CountDeadLetters(ctx, w.namespace)
		if ctx.Err() != nil {
			if looks == 0 {
				w.t.Error("nobody looked at the stats")
			}
			return
		}
		if err != nil {
			w.t.Errorf("count: %v", err)
			return
		}
		stats, err := w.operator.Stats(ctx)
		after, err2 := w.store.CountDeadLetters(ctx, w.namespace)
		if ctx.Err() != nil {
			return
		}
		if busy(err) {
			continue
		}
		if err != nil || err2 != nil || stats.DeadLetter < before || stats.DeadLetter > after {
			w.t.Errorf("stats %+v, %v; the table had %d before and %d after, %v", stats, err, before, after, err2)
		}
		if stats.Total != stats.Queued+stats.Processing+stats.Done+stats.Cancelled+stats.DeadLetter {
			w.t.Errorf("the total of %+v is not its sum", stats)
		}
	}
}

// busy reports whether the server had no time to answer, which says nothing of a job.
func busy(err error) bool {
	var unavailable *serviceerror.Unavailable
	var exhausted *serviceerror.ResourceExhausted
	var late *serviceerror.DeadlineExceeded
	return errors.As(err, &unavailable) || errors.As(err, &exhausted) || errors.As(err, &late)
}

// watchJob looks at a job until ctx ends, and adds it to those that it saw dead.
func (w *world) watchJob(ctx context.Context, run client.WorkflowRun, seen *atomic.Int32) {
	dead := false
	for {
		shown, err := w.operator.Show(ctx, run.GetID(), "")
		if ctx.Err() != nil {
			return
		}
		switch {
		case busy(err):
			continue
		case err != nil:
			w.t.Errorf("show: %v", err)
		case (shown.Status == nil) == (shown.DeadLetter == nil):
			w.t.Errorf("job %s: status %v, dead letter %v, closed as %q", run.GetID(), shown.Status, shown.DeadLetter, shown.ClosedAs)
		case dead && shown.DeadLetter == nil:
			w.t.Errorf("job %s came back to life", run.GetID())
		}
		if err != nil {
			return
		}
		if !dead && shown.DeadLetter != nil {
			dead = true
			seen.Add(1)
		}
	}
}

// TestStatsOfTheLiving proves the counts of jobs that wait, run, are done and are
// cancelled, and what a look at each says.
func TestStatsOfTheLiving(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	hold := make(chan struct{})
	w.startJobs(handlers{
		"Fail": fail,
		"Fine": func(context.Context) error { return nil },
		"Wait": func(context.Context) error { <-hold; return nil },
	})
	w.startDLQ(nil)
	defer close(hold)
	done := w.enqueue(deadletter.Job{Type: "Fine"})
	require.NoError(t, w.wait(done, nil))
	running := w.enqueue(deadletter.Job{Type: "Wait"})
	waiting := w.enqueue(deadletter.Job{Type: "Fail", Policy: deadletter.Policy{BaseDelay: time.Hour}})
	w.failedOnce(waiting)
	discarded := w.enqueue(deadletter.Job{Type: "Fail", StartDelay: time.Hour, Policy: deadletter.Policy{DiscardCancelled: true}})
	kept := w.enqueue(deadletter.Job{Type: "Fail", StartDelay: time.Hour})
	for _, run := range []client.WorkflowRun{discarded, kept} {
		require.NoError(t, w.client.CancelWorkflow(t.Context(), run.GetID(), ""))
		require.Error(t, w.wait(run, nil))
	}
	want := operator.Stats{Total: 5, Queued: 1, Processing: 1, Done: 1, Cancelled: 1, DeadLetter: 1}
	require.Eventually(t, func() bool { // visibility lags
		stats, err := w.operator.Stats(t.Context())
		require.NoError(t, err)
		return stats == want
	}, patience, 100*time.Millisecond)

	for run, status := range map[client.WorkflowRun]job.Status{
		done: job.StatusDone, running: job.StatusProcessing, waiting: job.StatusQueued, discarded: job.StatusCancelled,
	} {
		shown, err := w.operator.Show(t.Context(), run.GetID(), "")
		require.NoError(t, err)
		require.NotNil(t, shown.Status, status)
		require.Equal(t, status, *shown.Status)
	}
	// A dead letter that is gone makes no cancelled job of what was a dead one.
	purged := w.enqueue(deadletter.Job{Type: "Fail", StartDelay: time.Hour})
	require.NoError(t, w.client.CancelWorkflow(t.Context(), purged.GetID(), ""))
	require.Error(t, w.wait(purged, nil))
	require.NoError(t, w.store.Purge(t.Context(), w.key(purged), "tester"))
	w.visible(3)
	stats, err := w.operator.Stats(t.Context())
	require.NoError(t, err)
	require.Equal(t, want, stats)

	shown, err := w.operator.Show(t.Context(), kept.GetID(), "")
	require.NoError(t, err)
	require.NotNil(t, shown.DeadLetter)
	_, err = w.operator.Show(t.Context(), "no-such-job", "")
	require.ErrorIs(t, err, dlqstore.ErrNotFound)
}

// TestOtherStarts proves that a job needs nothing of ours on the client's side: a
// plain start by name, and a child workflow of a user's own.
func TestOtherStarts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.startJobs(handlers{"Fail": fail, "Add": func(_ context.Context, a, b int) (int, error) { return a + b, nil }})
	w.startDLQ(nil)
	options := map[string]any{"type": "Add", "policy": map[string]any{"max_attempts": 2, "base_delay": "10ms"}}
	run, err := w.client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{TaskQueue: w.queue}, "deadletter.Job", options, 40, 2)
	require.NoError(t, err)
	var sum int
	require.NoError(t, w.wait(run, &sum))
	require.Equal(t, 42, sum)
	require.Len(t, settled(w.history(run)), 11)

	plugin, err := deadletter.NewPlugin(deadletter.Options{})
	require.NoError(t, err)
	parent := worker.New(w.dial(plugin), "parents", worker.Options{})
	parent.RegisterWorkflowWithOptions(func(ctx workflow.Context, queue string) (string, error) {
		ctx = workflow.WithChildOptions(ctx, workflow.ChildWorkflowOptions{TaskQueue: queue})
		err := workflow.ExecuteChildWorkflow(ctx, deadletter.WorkflowType, deadletter.JobOptions{Type: "Fail", Policy: quick(1)}).Get(ctx, nil)
		details, ok := deadletter.AsDeadLettered(err)
		if !ok {
			return "", temporal.NewNonRetryableApplicationError("not dead-lettered", "", err)
		}
		return fmt.Sprint(details.Reason, *details.Attempts), nil
	}, workflow.RegisterOptions{Name: "Parent"})
	w.start(parent)
	run, err = w.client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{TaskQueue: "parents"}, "Parent", w.queue)
	require.NoError(t, err)
	var told string
	require.NoError(t, w.wait(run, &told))
	require.Equal(t, "max_retries_exceeded1", told)
}
