package workflows

import (
	"time"

	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/deadletter-dev/deadletter/job"
)

// maxSweepHistory is when a sweep, or a retention run, goes on as a new run. A round of
// the two costs 11 events, so that one which has a round each minute does so 16 times
// a day.
const maxSweepHistory = 1000

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
// The one that the schedule has started stays and sweeps again, each time after the
// schedule's interval: so there are few closed ones in the namespace. It ends when the
// schedule is paused, changed to something else, or gone, and the schedule starts
// another as soon as it may, also after this one was terminated. Any other sweeps once.
//
// It fails when its activity keeps failing; one that stays goes on with its next round.
// The next sweep starts over from the watermark, which only a sweep that got to its end
// has moved.
func (w Workflows) Sweep(ctx workflow.Context, state job.SweepState) (job.SweepState, error) {
	// Plain JSON, as for the move: no worker of the queue needs a codec for it.
	pages := workflow.WithDataConverter(ctx, converter.GetDefaultDataConverter())
	pages = workflow.WithActivityOptions(pages, w.stretchOptions())
	for {
		if state.Until.IsZero() {
			// The server's clock, as the close times are.
			state.Until = workflow.Now(ctx).UTC()
		}
		begun := state.Until
		for !state.Done {
			if workflow.GetInfo(ctx).GetCurrentHistoryLength() >= maxSweepHistory {
				return state, workflow.NewContinueAsNewError(pages, job.SweepWorkflowType, state)
			}
			var next job.SweepState
			err := workflow.ExecuteActivity(pages, job.SweepPageActivityType, state).Get(pages, &next)
			if err != nil && (state.Every == 0 || ctx.Err() != nil) {
				return state, err
			}
			if err != nil {
				workflow.GetLogger(ctx).Error("deadletter: a sweep did not get to its end; the next one starts over", "error", err)
				break
			}
			state = next
		}
		if state.Left > 0 {
			workflow.GetLogger(ctx).Error("deadletter: a sweep could not write every dead letter; later ones try again",
				"left", state.Left, "error", state.LastError)
		}
		if state.Every == 0 {
			return state, nil
		}
		if err := restOf(ctx, begun, state.Every); err != nil {
			return state, err
		}
		state = job.SweepState{Again: true, Every: state.Every}
	}
}

// restOf waits until an interval that began then is over.
func restOf(ctx workflow.Context, begun time.Time, every time.Duration) error {
	if rest := begun.Add(every).Sub(workflow.Now(ctx)); rest > 0 {
		return workflow.Sleep(ctx, rest)
	}
	return nil
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
