package workflows

import (
	"time"

	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/deadletter-dev/deadletter/job"
)

// maxSweepHistory is when a sweep, or a retention run, goes on as a new run.
const maxSweepHistory = 500

// Bounds of one stretch, deadletter.SweepPage or deadletter.Prune. It ends by itself
// after some seconds, unless a hook or Postgres keeps it waiting.
const (
	stretchTimeout   = time.Hour
	stretchHeartbeat = 20 * time.Second
	stretchAttempts  = 20
)

// Sweep writes the dead letters of jobs that closed without one: registered as
// job.SweepWorkflowType, started by schedule job.SweepScheduleID. Any number may
// run at once, and each may be killed anywhere.
//
// It fails when its activity keeps failing; the schedule's next sweep starts over
// from the watermark, which only a sweep that got to its end has moved.
func (w Workflows) Sweep(ctx workflow.Context, state job.SweepState) (job.SweepState, error) {
	if state.Until.IsZero() {
		// The server's clock, as the close times are.
		state.Until = workflow.Now(ctx).UTC()
	}
	// Plain JSON, as for the move: no worker of the queue needs a codec for it.
	pages := workflow.WithDataConverter(ctx, converter.GetDefaultDataConverter())
	pages = workflow.WithActivityOptions(pages, w.stretchOptions())
	for !state.Done {
		if workflow.GetInfo(ctx).GetCurrentHistoryLength() >= maxSweepHistory {
			return state, workflow.NewContinueAsNewError(ctx, job.SweepWorkflowType, state)
		}
		var next job.SweepState
		if err := workflow.ExecuteActivity(pages, job.SweepPageActivityType, state).Get(pages, &next); err != nil {
			return state, err
		}
		state = next
	}
	if state.Left > 0 {
		workflow.GetLogger(ctx).Error("deadletter: a sweep could not write every dead letter; the next one tries again",
			"left", state.Left, "oldest", state.OldestLeft, "error", state.LastError)
	}
	return state, nil
}

func (w Workflows) stretchOptions() workflow.ActivityOptions {
	return workflow.ActivityOptions{
		TaskQueue:           w.TaskQueue,
		StartToCloseTimeout: stretchTimeout,
		HeartbeatTimeout:    stretchHeartbeat,
		RetryPolicy: &temporal.RetryPolicy{
			InitialInterval:    time.Second,
			BackoffCoefficient: 2,
			MaximumInterval:    30 * time.Second,
			MaximumAttempts:    stretchAttempts,
		},
	}
}
