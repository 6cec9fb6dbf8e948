package testsuite_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/deadletter-dev/deadletter"
	"github.com/deadletter-dev/deadletter/job"
	"github.com/deadletter-dev/deadletter/workflows"
)

// runsOf lists the runs of a workflow type.
func (w *world) runsOf(workflowType string) []*workflowpb.WorkflowExecutionInfo {
	w.t.Helper()
	list, err := w.client.ListWorkflow(w.t.Context(), &workflowservice.ListWorkflowExecutionsRequest{
		Namespace: w.namespace, Query: "WorkflowType = '" + workflowType + "'",
	})
	require.NoError(w.t, err)
	return list.GetExecutions()
}

// rounds counts the activities that the runs of a workflow type have completed.
func (w *world) rounds(workflowType string) (n int) {
	w.t.Helper()
	for _, run := range w.runsOf(workflowType) {
		n += w.roundsIn(run)
	}
	return n
}

func (w *world) roundsIn(run *workflowpb.WorkflowExecutionInfo) (n int) {
	w.t.Helper()
	execution := run.GetExecution()
	for _, event := range w.history(w.client.GetWorkflow(w.t.Context(), execution.GetWorkflowId(), execution.GetRunId())) {
		if event.GetEventType() == enumspb.EVENT_TYPE_ACTIVITY_TASK_COMPLETED {
			n++
		}
	}
	return n
}

// TestMaintenanceLeavesFewWorkflows proves that the sweep and the retention together
// leave at most 50 closed workflows a day at their default intervals: it counts how
// many rounds a run has until it is closed and goes on as a new one.
func TestMaintenanceLeavesFewWorkflows(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	own := worker.New(w.client, "own", worker.Options{})
	maintenance := workflows.Workflows{TaskQueue: "own"}
	own.RegisterWorkflowWithOptions(maintenance.Sweep, workflow.RegisterOptions{Name: job.SweepWorkflowType})
	own.RegisterWorkflowWithOptions(maintenance.Retention, workflow.RegisterOptions{Name: job.RetentionWorkflowType})
	// A round that does nothing, and a wait that is over at once.
	const every = time.Millisecond
	own.RegisterActivityWithOptions(func(_ context.Context, s job.SweepState) (job.SweepState, error) {
		s.Begun, s.Done, s.Every = true, true, every
		return s, nil
	}, activity.RegisterOptions{Name: job.SweepPageActivityType})
	own.RegisterActivityWithOptions(func(_ context.Context, s job.PruneOutput) (job.PruneOutput, error) {
		return job.PruneOutput{Begun: true, Done: true, Every: every}, nil
	}, activity.RegisterOptions{Name: job.PruneActivityType})
	w.start(own)

	closedADay := 0.0
	for workflowType, interval := range map[string]time.Duration{
		job.SweepWorkflowType: deadletter.DefaultSweepInterval, job.RetentionWorkflowType: deadletter.DefaultRetentionInterval,
	} {
		run, err := w.client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: uuid.NewString(), TaskQueue: "own"}, workflowType)
		require.NoError(t, err)
		var first *workflowpb.WorkflowExecutionInfo
		require.Eventually(t, func() bool {
			description, err := w.describe(run.GetID(), run.GetRunID())
			first = description.GetWorkflowExecutionInfo()
			return err == nil && first.GetStatus() == enumspb.WORKFLOW_EXECUTION_STATUS_CONTINUED_AS_NEW
		}, patience, 50*time.Millisecond)
		// Rounds here have no wait, since they last longer than it. One with a wait has
		// five events more: the timer, its firing, and a workflow task.
		rounds, events := w.roundsIn(first), int(first.GetHistoryLength())
		waiting := float64(events) / (float64(events)/float64(rounds) + 5)
		closedADay += float64(24*time.Hour) / float64(interval) / waiting
		require.NoError(t, w.client.TerminateWorkflow(t.Context(), run.GetID(), "", ""))
	}
	t.Logf("%.1f closed workflows a day", closedADay)
	require.LessOrEqual(t, closedADay, 50.0)
}

// TestMaintenanceStays proves that the sweep and the retention of a schedule each stay
// one workflow over their rounds, that a pause ends it and its end begins another, and
// that another comes by itself for one that was terminated.
func TestMaintenanceStays(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	plugin, err := deadletter.NewPlugin(deadletter.Options{Store: w.openStore(), SweepInterval: time.Second, RetentionInterval: time.Second})
	require.NoError(t, err)
	w.start(worker.New(w.dial(plugin), deadletter.DefaultTaskQueue, worker.Options{}))
	for workflowType, scheduleID := range map[string]string{
		job.SweepWorkflowType: job.SweepScheduleID, job.RetentionWorkflowType: job.RetentionScheduleID,
	} {
		// staying waits for the n-th workflow to have had three rounds.
		staying := func(n int) *workflowpb.WorkflowExecutionInfo {
			var runs []*workflowpb.WorkflowExecutionInfo
			require.Eventually(t, func() bool {
				runs = w.runsOf(workflowType)
				return len(runs) == n && runs[0].GetStatus() == enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING && w.roundsIn(runs[0]) >= 3
			}, patience, 50*time.Millisecond)
			return runs[0] // the latest
		}
		becomes := func(run *workflowpb.WorkflowExecutionInfo, status enumspb.WorkflowExecutionStatus) {
			require.Eventually(t, func() bool {
				description, err := w.describe(run.GetExecution().GetWorkflowId(), run.GetExecution().GetRunId())
				return err == nil && description.GetWorkflowExecutionInfo().GetStatus() == status
			}, patience, 50*time.Millisecond)
		}
		handle := w.client.ScheduleClient().GetHandle(t.Context(), scheduleID)
		first := staying(1)
		require.NoError(t, handle.Pause(t.Context(), client.SchedulePauseOptions{}))
		becomes(first, enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED)
		require.NoError(t, handle.Unpause(t.Context(), client.ScheduleUnpauseOptions{}))
		second := staying(2)
		require.NoError(t, w.client.TerminateWorkflow(t.Context(), second.GetExecution().GetWorkflowId(), second.GetExecution().GetRunId(), ""))
		staying(3)
	}
}
