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

// sweeping runs the workflow with pages as its activity.
func sweeping(t *testing.T, history int, state job.SweepState, pages func(job.SweepState) (job.SweepState, error)) *testsuite.TestWorkflowEnvironment {
	t.Helper()
	var suite testsuite.WorkflowTestSuite
	env := suite.NewTestWorkflowEnvironment()
	env.SetTestTimeout(time.Minute) // of the 3 seconds that it has, a busy machine can take all
	env.SetCurrentHistoryLength(history)
	env.RegisterWorkflowWithOptions(workflows.Workflows{TaskQueue: "dlq"}.Sweep, workflow.RegisterOptions{Name: job.SweepWorkflowType})
	env.RegisterActivityWithOptions(func(_ context.Context, s job.SweepState) (job.SweepState, error) { return pages(s) },
		activity.RegisterOptions{Name: job.SweepPageActivityType})
	env.ExecuteWorkflow(job.SweepWorkflowType, state)
	require.True(t, env.IsWorkflowCompleted())
	return env
}

// TestSweep proves that a sweep hands each stretch where the last one stopped, and
// when it began, until one says that it is the last.
func TestSweep(t *testing.T) {
	t.Parallel()
	var got []job.SweepState
	env := sweeping(t, 0, job.SweepState{}, func(s job.SweepState) (job.SweepState, error) {
		got = append(got, s)
		s.Begun, s.PageToken, s.Moved, s.Done = true, append(s.PageToken, 'x'), s.Moved+1, len(got) == 3
		return s, nil
	})
	require.NoError(t, env.GetWorkflowError())
	require.Len(t, got, 3)
	require.Equal(t, "xx", string(got[2].PageToken))
	require.False(t, got[0].Until.IsZero())
	require.Equal(t, got[0].Until, got[2].Until)
	var result job.SweepState
	require.NoError(t, env.GetWorkflowResult(&result))
	require.Equal(t, 3, result.Moved)
}

// TestSweepGoesOn proves that a long sweep goes on as a new run with all that it
// knows, so that its history stays bounded.
func TestSweepGoesOn(t *testing.T) {
	t.Parallel()
	oldest := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	state := job.SweepState{
		Until: oldest.Add(time.Hour), From: &oldest, Begun: true, PageToken: []byte{0, 255}, Moved: 7, Left: 2, OldestLeft: &oldest, LastError: "why",
	}
	env := sweeping(t, 10_000, state, func(s job.SweepState) (job.SweepState, error) { return s, errors.New("not in this run") })
	var next *workflow.ContinueAsNewError
	require.ErrorAs(t, env.GetWorkflowError(), &next)
	require.Equal(t, job.SweepWorkflowType, next.WorkflowType.Name)
	var carried job.SweepState
	require.NoError(t, converter.GetDefaultDataConverter().FromPayloads(next.Input, &carried))
	require.Equal(t, state, carried)
}

// TestSweepGivesUp proves that a sweep whose activity cannot go on fails, for the
// schedule to start another from the watermark.
func TestSweepGivesUp(t *testing.T) {
	t.Parallel()
	env := sweeping(t, 0, job.SweepState{}, func(s job.SweepState) (job.SweepState, error) {
		return s, temporal.NewNonRetryableApplicationError("no such page", job.RefusedErrorType, nil)
	})
	require.ErrorContains(t, env.GetWorkflowError(), "no such page")
}
