package workflows_test

import (
	"context"
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

// bulk stands in for the activities of an operation on ten members.
type bulk struct {
	env   *testsuite.TestWorkflowEnvironment
	begin job.BulkPlan
	step  func() (job.BulkStepped, error)
	watch func() (job.BulkOutcomes, error)
	marks []job.PlanState
}

func newBulk(t *testing.T) *bulk {
	t.Helper()
	var suite testsuite.WorkflowTestSuite
	b := &bulk{env: suite.NewTestWorkflowEnvironment()}
	b.env.SetTestTimeout(time.Minute) // of the 3 seconds that it has, a busy machine can take all
	b.begin = job.BulkPlan{Verb: job.BulkReplay, Progress: progress(job.PlanApplying, 0)}
	for name, fn := range map[string]any{
		job.BulkBeginActivityType: func(context.Context, job.BulkInput) (job.BulkPlan, error) { return b.begin, nil },
		job.BulkStepActivityType:  func(context.Context, job.BulkStep) (job.BulkStepped, error) { return b.step() },
		job.BulkWatchActivityType: func(context.Context, job.BulkWatch) (job.BulkOutcomes, error) { return b.watch() },
		job.BulkMarkActivityType: func(_ context.Context, in job.BulkMark) (job.BulkProgress, error) {
			b.marks = append(b.marks, in.State)
			return progress(in.State, 10), nil
		},
	} {
		b.env.RegisterActivityWithOptions(fn, activity.RegisterOptions{Name: name})
	}
	b.env.RegisterWorkflowWithOptions(workflows.Workflows{TaskQueue: "dlq"}.BulkOperation, workflow.RegisterOptions{Name: job.BulkWorkflowType})
	return b
}

func progress(state job.PlanState, done int64) job.BulkProgress {
	return job.BulkProgress{PlanID: "plan-a", State: state, Members: 10, Done: done, Pending: 10 - done}
}

func (b *bulk) run(t *testing.T, in job.BulkInput) error {
	t.Helper()
	in.PlanID, in.Actor = "plan-a", "ann"
	b.env.ExecuteWorkflow(job.BulkWorkflowType, in)
	require.True(t, b.env.IsWorkflowCompleted())
	return b.env.GetWorkflowError()
}

// signal sends one after a time.
func (b *bulk) signal(after time.Duration, name string) {
	b.env.RegisterDelayedCallback(func() { b.env.SignalWorkflow(name, job.BulkControl{Actor: "bob"}) }, after)
}

// TestBulkHeardBeforeGoingOn proves that a cancellation which comes while the history
// is long enough for a new run takes effect, and is not lost with the run.
func TestBulkHeardBeforeGoingOn(t *testing.T) {
	t.Parallel()
	b := newBulk(t)
	b.step = func() (job.BulkStepped, error) {
		b.env.SetCurrentHistoryLength(5000)
		b.env.SignalWorkflow(job.BulkCancelMessage, job.BulkControl{Actor: "bob"})
		return job.BulkStepped{Taken: 2, Progress: progress(job.PlanApplying, 2)}, nil
	}
	require.NoError(t, b.run(t, job.BulkInput{}))
	require.Equal(t, []job.PlanState{job.PlanCancelled}, b.marks)
}

// TestBulkHeedsMisshapen proves that a cancellation takes effect also when its argument
// cannot be read, but not in a run of before, which has dropped it.
func TestBulkHeedsMisshapen(t *testing.T) {
	t.Parallel()
	for i := range 4 {
		earlier, sent := i%2 == 1, any(map[string]any{"actor": 5})
		if i > 1 {
			sent = []byte("not even JSON")
		}
		b := newBulk(t)
		steps := 0
		b.step = func() (job.BulkStepped, error) {
			if steps++; steps > 1 {
				return job.BulkStepped{Taken: 8, Progress: progress(job.PlanApplying, 10)}, nil
			}
			b.env.SignalWorkflow(job.BulkCancelMessage, sent)
			return job.BulkStepped{Taken: 2, Progress: progress(job.PlanApplying, 2)}, nil
		}
		want := job.PlanCancelled
		if earlier {
			b.env.OnGetVersion("heed-misshapen-signals", workflow.DefaultVersion, workflow.Version(1)).Return(workflow.DefaultVersion)
			want = job.PlanFinished
		}
		require.NoError(t, b.run(t, job.BulkInput{}))
		require.Equal(t, []job.PlanState{want}, b.marks, "earlier: %t, sent: %v", earlier, sent)
	}
}

// TestBulkGoesOn proves that a long operation goes on as a new run with its step, its
// progress, and its pause.
func TestBulkGoesOn(t *testing.T) {
	t.Parallel()
	b := newBulk(t)
	b.env.SetCurrentHistoryLength(5000)
	carried := &job.BulkCarried{
		Verb: job.BulkReplay, Settings: job.BulkSettings{Canary: 5}, Step: 5, Taken: 2, Paused: true, PausedBy: "bob", Progress: progress(job.PlanPaused, 2),
	}
	b.env.SetContinuedExecutionRunID("the run before")
	var next *workflow.ContinueAsNewError
	require.ErrorAs(t, b.run(t, job.BulkInput{Carried: carried}), &next)
	var in job.BulkInput
	require.NoError(t, converter.GetDefaultDataConverter().FromPayloads(next.Input, &in))
	require.Equal(t, carried, in.Carried)
	require.Empty(t, b.marks)
}

// TestBulkJudgedAfterPause proves that a pause in the wait for the outcomes of the
// last members neither ends the operation nor spares it the verdict.
func TestBulkJudgedAfterPause(t *testing.T) {
	t.Parallel()
	b := newBulk(t)
	b.begin.Settings = job.BulkSettings{Canary: 10}
	b.step = func() (job.BulkStepped, error) {
		return job.BulkStepped{Taken: 10, Progress: progress(job.PlanApplying, 10)}, nil
	}
	watches := 0
	b.watch = func() (job.BulkOutcomes, error) {
		if watches++; watches > 1 {
			return job.BulkOutcomes{Replayed: 10, Open: 7, Refailed: 3}, nil
		}
		b.env.SignalWorkflow(job.BulkPauseMessage, job.BulkControl{Actor: "bob"})
		return job.BulkOutcomes{}, temporal.NewCanceledError() // as it ends when it is told to
	}
	b.signal(time.Minute, job.BulkResumeMessage)
	require.NoError(t, b.run(t, job.BulkInput{}))
	require.Equal(t, []job.PlanState{job.PlanPaused, job.PlanApplying, job.PlanStopped}, b.marks,
		"three of ten died, which no outcome of the other seven can mend")
}

// TestBulkEndedElsewhere proves that an operation whose plan has ended in the store
// ends too.
func TestBulkEndedElsewhere(t *testing.T) {
	t.Parallel()
	b := newBulk(t)
	b.step = func() (job.BulkStepped, error) {
		return job.BulkStepped{Progress: progress(job.PlanCancelled, 4)}, nil
	}
	require.NoError(t, b.run(t, job.BulkInput{}))
	require.Empty(t, b.marks)
}
