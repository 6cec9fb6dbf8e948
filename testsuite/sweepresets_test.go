package testsuite_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"github.com/deadletter-dev/deadletter"
	"github.com/deadletter-dev/deadletter/job"
)

// resetToStart starts the run anew from its first workflow task, as the Temporal UI does.
func (w *world) resetToStart(run client.WorkflowRun) client.WorkflowRun {
	w.t.Helper()
	events := w.history(run)
	first := slices.IndexFunc(events, func(e *historypb.HistoryEvent) bool {
		return e.GetEventType() == enumspb.EVENT_TYPE_WORKFLOW_TASK_COMPLETED
	})
	require.GreaterOrEqual(w.t, first, 0)
	out, err := w.client.ResetWorkflowExecution(w.t.Context(), &workflowservice.ResetWorkflowExecutionRequest{
		Namespace:         w.namespace,
		WorkflowExecution: &commonpb.WorkflowExecution{WorkflowId: run.GetID(), RunId: run.GetRunID()},
		Reason:            "a person", WorkflowTaskFinishEventId: events[first].GetEventId(), RequestId: uuid.NewString(),
	})
	require.NoError(w.t, err)
	return w.client.GetWorkflow(w.t.Context(), run.GetID(), out.GetRunId())
}

// TestSweepAndResets proves that a run which a reset ended is not taken for dead
// as its job lives on, whichever run the reset went back to, and that a run made
// by a reset dies like any other.
func TestSweepAndResets(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var mended atomic.Bool
	w.startJobs(handlers{"Hang": func(ctx context.Context) error {
		if mended.Load() {
			return nil
		}
		return hang(ctx)
	}})
	w.startDLQ(nil)
	policy := deadletter.Policy{HeartbeatTimeout: time.Minute, BaseDelay: time.Hour}
	start := func() client.WorkflowRun {
		run := w.enqueue(deadletter.Job{Type: "Hang", Policy: policy})
		w.pendingIn(enumspb.PENDING_ACTIVITY_STATE_STARTED)(run)
		return run
	}

	// Twice from the same run: the second reset ends a run that it does not go back to.
	base := start()
	middle := w.resetToStart(base)
	w.pendingIn(enumspb.PENDING_ACTIVITY_STATE_STARTED)(middle)
	last := w.resetToStart(base)
	w.pendingIn(enumspb.PENDING_ACTIVITY_STATE_STARTED)(last)
	w.visible(2)
	require.Zero(t, w.sweep().Moved)

	// That one is terminated: dead, and its line is known.
	w.terminate(last, "enough")
	w.visible(3)
	require.Equal(t, 1, w.sweep().Moved)
	w.noRow(base)
	w.noRow(middle)
	dl := w.dead(last)
	require.Equal(t, base.GetRunID(), dl.FirstRunID)
	require.Equal(t, "terminated by testsuite: enough", dl.ErrorMessage)

	// Terminated, then reset before a sweep saw it.
	saved := start()
	w.terminate(saved, "by mistake")
	w.visible(4)
	mended.Store(true)
	require.NoError(t, w.wait(w.resetToStart(saved), nil))
	require.Zero(t, w.sweep().Moved)
	w.noRow(saved)
	// A new job under the same id is no reset: the one that it replaced is dead.
	mended.Store(false)
	replaced := start()
	w.terminate(replaced, "")
	mended.Store(true)
	require.NoError(t, w.wait(w.enqueue(deadletter.Job{ID: replaced.GetID(), Type: "Hang"}), nil))
	w.visible(5)
	require.Equal(t, 1, w.sweep().Moved)
	w.dead(replaced)
	require.NoError(t, w.wait(w.replay(last, ""), nil))
}

// TestSweepAndSuccessors proves that a run which a retry or cron policy follows
// up is not taken for dead, and that the last of them is.
func TestSweepAndSuccessors(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.startJobs(handlers{"Hang": hang})
	w.startDLQ(nil)
	options := job.Options{Type: "Hang", Policy: deadletter.Policy{HeartbeatTimeout: -1}}
	retried := w.bare(client.StartWorkflowOptions{
		WorkflowRunTimeout: time.Second, RetryPolicy: &temporal.RetryPolicy{InitialInterval: time.Millisecond, MaximumAttempts: 2},
	}, options)
	require.Error(t, w.wait(w.client.GetWorkflow(t.Context(), retried.GetID(), ""), nil))
	w.visible(2)
	require.Equal(t, 1, w.sweep().Moved)
	w.noRow(retried)
	latest, err := w.describe(retried.GetID(), "")
	require.NoError(t, err)
	final := w.client.GetWorkflow(t.Context(), retried.GetID(), latest.GetWorkflowExecutionInfo().GetExecution().GetRunId())
	dl := w.dead(final)
	require.Equal(t, retried.GetRunID(), dl.FirstRunID)
	require.Equal(t, "TemporalTimeout:WorkflowRun", dl.ErrorType)

	cron := w.bare(client.StartWorkflowOptions{WorkflowRunTimeout: time.Second, CronSchedule: "@every 1s"}, options)
	require.Eventually(t, func() bool {
		latest, err := w.describe(cron.GetID(), "")
		return err == nil && latest.GetWorkflowExecutionInfo().GetExecution().GetRunId() != cron.GetRunID()
	}, patience, 20*time.Millisecond)
	require.NoError(t, w.client.TerminateWorkflow(t.Context(), cron.GetID(), "", "no more"))
	latest, err = w.describe(cron.GetID(), "")
	require.NoError(t, err)
	require.Eventually(t, func() bool { w.sweep(); return w.count() == 2 }, patience, 20*time.Millisecond)
	w.noRow(cron)
	require.Contains(t, w.dead(w.client.GetWorkflow(t.Context(), cron.GetID(), latest.GetWorkflowExecutionInfo().GetExecution().GetRunId())).ErrorMessage, "no more")
}
