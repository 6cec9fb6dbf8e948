package workflows_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"github.com/deadletter-dev/deadletter/job"
	"github.com/deadletter-dev/deadletter/workflows"
)

// retaining runs the workflow with stretch as its activity.
func retaining(t *testing.T, history int, state job.PruneOutput, stretch func() (job.PruneOutput, error)) *testsuite.TestWorkflowEnvironment {
	t.Helper()
	var suite testsuite.WorkflowTestSuite
	env := suite.NewTestWorkflowEnvironment()
	env.SetTestTimeout(time.Minute) // of the 3 seconds that it has, a busy machine can take all
	env.SetCurrentHistoryLength(history)
	env.RegisterWorkflowWithOptions(workflows.Workflows{TaskQueue: "dlq"}.Retention, workflow.RegisterOptions{Name: job.RetentionWorkflowType})
	env.RegisterActivityWithOptions(func(context.Context) (job.PruneOutput, error) { return stretch() }, activity.RegisterOptions{Name: job.PruneActivityType})
	env.ExecuteWorkflow(job.RetentionWorkflowType, state)
	require.True(t, env.IsWorkflowCompleted())
	return env
}

// TestRetention proves that a retention run goes on until a stretch says that it is
// done, and returns the sum of them.
func TestRetention(t *testing.T) {
	t.Parallel()
	stretches := 0
	env := retaining(t, 0, job.PruneOutput{}, func() (job.PruneOutput, error) {
		stretches++
		return job.PruneOutput{Pruned: map[string]int64{"a": 10, "b": int64(stretches)}, Done: stretches == 3}, nil
	})
	require.NoError(t, env.GetWorkflowError())
	var result job.PruneOutput
	require.NoError(t, env.GetWorkflowResult(&result))
	require.Equal(t, job.PruneOutput{Pruned: map[string]int64{"a": 30, "b": 6}, Done: true}, result)
}

// TestRetentionGoesOn proves that a long run goes on as a new one with what it has
// counted.
func TestRetentionGoesOn(t *testing.T) {
	t.Parallel()
	state := job.PruneOutput{Pruned: map[string]int64{"a": 7}}
	env := retaining(t, 10_000, state, func() (job.PruneOutput, error) { return state, errors.New("not in this run") })
	var next *workflow.ContinueAsNewError
	require.ErrorAs(t, env.GetWorkflowError(), &next)
	require.Equal(t, job.RetentionWorkflowType, next.WorkflowType.Name)
	var carried job.PruneOutput
	require.NoError(t, converter.GetDefaultDataConverter().FromPayloads(next.Input, &carried))
	require.Equal(t, state, carried)
}

// TestRetentionGivesUp proves that a run whose activity cannot go on fails, for the
// schedule's next one to find the rest.
func TestRetentionGivesUp(t *testing.T) {
	t.Parallel()
	env := retaining(t, 0, job.PruneOutput{}, func() (job.PruneOutput, error) {
		return job.PruneOutput{}, temporal.NewNonRetryableApplicationError("no such table", job.RefusedErrorType, nil)
	})
	require.ErrorContains(t, env.GetWorkflowError(), "no such table")
}
