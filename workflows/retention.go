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
// Its argument and its result say what was pruned; a run that goes on as a new one
// hands it over. It fails when its activity keeps failing; the schedule's next run
// finds what is left.
func (w Workflows) Retention(ctx workflow.Context, state job.PruneOutput) (job.PruneOutput, error) {
	// Plain JSON, as for the move: no worker of the queue needs a codec for it.
	stretches := workflow.WithDataConverter(ctx, converter.GetDefaultDataConverter())
	stretches = workflow.WithActivityOptions(stretches, w.stretchOptions())
	for !state.Done {
		if workflow.GetInfo(ctx).GetCurrentHistoryLength() >= maxSweepHistory {
			return state, workflow.NewContinueAsNewError(ctx, job.RetentionWorkflowType, state)
		}
		var out job.PruneOutput
		if err := workflow.ExecuteActivity(stretches, job.PruneActivityType).Get(stretches, &out); err != nil {
			return state, err
		}
		state = state.Plus(out)
	}
	return state, nil
}
