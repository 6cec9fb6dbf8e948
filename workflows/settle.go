package workflows

import (
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/workflow"

	"github.com/deadletter-dev/deadletter/job"
)

// succeed returns the handler's result. A job that a dead letter stands for, a
// replayed or a reset one, tells the store first; no other job pays for that.
func (w Workflows) succeed(ctx workflow.Context, j running, result any) (any, error) {
	w.settle(ctx, j, job.OutcomeSucceeded)
	return result, nil
}

// settle notes the outcome of a replayed or reset job that leaves no dead letter.
func (w Workflows) settle(ctx workflow.Context, j running, outcome job.Outcome) {
	info := workflow.GetInfo(ctx)
	reset := info.OriginalRunID != info.WorkflowExecution.RunID
	if j.lineage.Generation == 0 && !reset {
		return
	}
	ctx, _ = workflow.NewDisconnectedContext(ctx)
	ctx = workflow.WithDataConverter(ctx, converter.GetDefaultDataConverter())
	ctx = workflow.WithActivityOptions(ctx, w.storeActivityOptions())
	input := job.SettleInput{Outcome: outcome, Replayed: j.lineage.Generation > 0, FirstRunID: info.FirstRunID}
	if err := workflow.ExecuteActivity(ctx, job.SettleActivityType, input).Get(ctx, nil); err != nil {
		// A person has ended it, or Postgres rejects it; the job's own end does not hang on it.
		workflow.GetLogger(ctx).Warn("deadletter: the outcome was not noted", "error", err)
	}
}
