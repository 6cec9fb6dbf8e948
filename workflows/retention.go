package workflows

import (
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/workflow"

	"github.com/deadletter-dev/deadletter/job"
)

// Retention removes the dead letters that the retention policies let go: registered
// as job.RetentionWorkflowType, started by schedule job.RetentionScheduleID. Any
// number may run at once, and each may be killed anywhere. While no policy is
// enabled it looks and does nothing.
//
// It stays as Sweep does. Its argument and its result say what was pruned in this
// round; a run that goes on as a new one hands it over. It fails when its activity keeps
// failing; the next round finds what is left.
func (w Workflows) Retention(ctx workflow.Context, state job.PruneOutput) (job.PruneOutput, error) {
	// Plain JSON, as for the move: no worker of the queue needs a codec for it.
	stretches := workflow.WithDataConverter(ctx, converter.GetDefaultDataConverter())
	stretches = workflow.WithActivityOptions(stretches, w.stretchOptions())
	for {
		begun := workflow.Now(ctx)
		for !state.Done {
			if workflow.GetInfo(ctx).GetCurrentHistoryLength() >= maxSweepHistory {
				return state, workflow.NewContinueAsNewError(stretches, job.RetentionWorkflowType, state)
			}
			var out job.PruneOutput
			err := workflow.ExecuteActivity(stretches, job.PruneActivityType, state).Get(stretches, &out)
			if err != nil && (state.Every == 0 || ctx.Err() != nil) {
				return state, err
			}
			if err != nil {
				workflow.GetLogger(ctx).Error("deadletter: a retention run did not get to its end; the next one goes on", "error", err)
				break
			}
			state = state.Plus(out)
		}
		if state.Every == 0 {
			return state, nil
		}
		if err := restOf(ctx, begun, state.Every); err != nil {
			return state, err
		}
		state = job.PruneOutput{Again: true, Every: state.Every}
	}
}
