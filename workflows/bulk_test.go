package workflows_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"github.com/deadletter-dev/deadletter/job"
	"github.com/deadletter-dev/deadletter/workflows"
)

// bulkWorld stands in for the activities of an operation of ten members, of which a
// stretch does one.
type bulkWorld struct {
	begun    int
	steps    []job.BulkStep
	marks    []job.BulkMark
	progress job.BulkProgress
	env      *testsuite.TestWorkflowEnvironment
	after    func(w *bulkWorld) // each stretch
}

func (w *bulkWorld) run(t *testing.T, in job.BulkInput) {
	t.Helper()
	var suite testsuite.WorkflowTestSuite
	w.env = suite.NewTestWorkflowEnvironment()
	w.env.RegisterWorkflowWithOptions(workflows.Workflows{TaskQueue: "dlq"}.BulkOperation, workflow.RegisterOptions{Name: job.BulkWorkflowType})
	register := func(name string, fn any) {
		w.env.RegisterActivityWithOptions(fn, activity.RegisterOptions{Name: name})
	}
	limit := 0.5
	register(job.BulkBeginActivityType, func(context.Context, job.BulkInput) (job.BulkPlan, error) {
		w.begun++
		w.progress = job.BulkProgress{PlanID: in.PlanID, State: job.PlanApplying, Members: 10, Pending: 10}
		return job.BulkPlan{Verb: job.BulkReplay, Settings: job.BulkSettings{Rate: 5, Canary: 4, MaxRefail: &limit}, Progress: w.progress}, nil
	})
	register(job.BulkStepActivityType, func(_ context.Context, step job.BulkStep) (job.BulkStepped, error) {
		w.steps = append(w.steps, step)
		w.progress.Done, w.progress.Pending = w.progress.Done+1, w.progress.Pending-1
		w.after(w)
		return job.BulkStepped{Taken: int(w.progress.Ended() - *step.Ended), Progress: w.progress}, nil
	})
	register(job.BulkWatchActivityType, func(context.Context, job.BulkWatch) (job.BulkOutcomes, error) {
		return job.BulkOutcomes{Replayed: w.progress.Done, Succeeded: w.progress.Done}, nil
	})
	register(job.BulkMarkActivityType, func(_ context.Context, mark job.BulkMark) (job.BulkProgress, error) {
		w.marks = append(w.marks, mark)
		w.progress.State = mark.State
		return w.progress, nil
	})
	w.env.ExecuteWorkflow(job.BulkWorkflowType, in)
	require.True(t, w.env.IsWorkflowCompleted())
}

// TestBulkGoesOn proves that a long operation goes on as a new run with all that it
// knows: the settings, how far its canary is, and its progress.
func TestBulkGoesOn(t *testing.T) {
	t.Parallel()
	w := &bulkWorld{after: func(w *bulkWorld) {
		if w.progress.Done == 3 {
			w.env.SetCurrentHistoryLength(10_000)
		}
	}}
	w.run(t, job.BulkInput{PlanID: "plan-1", Actor: "ann"})
	var next *workflow.ContinueAsNewError
	require.ErrorAs(t, w.env.GetWorkflowError(), &next)
	var in job.BulkInput
	require.NoError(t, converter.GetDefaultDataConverter().FromPayloads(next.Input, &in))
	require.Equal(t, "ann", in.Actor)
	require.Equal(t, 4, in.Carried.Step)
	require.Equal(t, 3, in.Carried.Taken)
	require.InDelta(t, 5, in.Carried.Settings.Rate, 0)
	require.Equal(t, w.progress, in.Carried.Progress)

	w.after = func(w *bulkWorld) {
		answer, err := w.env.QueryWorkflow(job.BulkProgressQuery)
		require.NoError(t, err)
		var told job.BulkProgress
		require.NoError(t, answer.Get(&told))
		require.Equal(t, job.PlanApplying, told.State, "a new run has forgotten its progress")
	}
	w.run(t, in)
	require.NoError(t, w.env.GetWorkflowError())
	require.Equal(t, 1, w.begun, "a run that goes on begins nothing")
	require.Equal(t, 1, w.steps[3].Limit, "of the canary of four one is left")
	require.EqualValues(t, 3, *w.steps[3].Ended)
	require.Equal(t, 8, w.steps[4].Limit, "the step behind the canary is longer")
	require.Len(t, w.steps, 10)
	require.Equal(t, []job.BulkMark{{PlanID: "plan-1", State: job.PlanFinished, Actor: "ann"}}, w.marks)
}
