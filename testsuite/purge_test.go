package testsuite_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/deadletter-dev/deadletter"
	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/job"
)

// TestPurgeActivity proves that a workflow which purges is told the truth by a later
// attempt: success when the attempt before removed the dead letter and was killed
// before it could say so, and that there is none when the attempts before met an
// outage, or when somebody else removed it.
func TestPurgeActivity(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.startJobs(handlers{"Fail": fail})
	stopDLQ := w.startDLQ(nil)
	dead := w.deadJob()
	stopDLQ()
	repairs := worker.New(w.client, "repairs", worker.Options{})
	repairs.RegisterWorkflowWithOptions(cleanUp, workflow.RegisterOptions{Name: "CleanUp"})
	w.start(repairs)
	start := func(id string) client.WorkflowRun {
		run, err := w.client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{TaskQueue: "repairs"}, "CleanUp", id)
		require.NoError(t, err)
		return run
	}
	absent := func(run client.WorkflowRun) {
		var failure *temporal.ApplicationError
		require.ErrorAs(t, w.wait(run, nil), &failure)
		require.Equal(t, job.NotFoundErrorType, failure.Type())
	}

	doomed := w.startProcess(roleDLQ, "RespondActivityTaskCompleted")
	purge := start(dead.GetID())
	w.killed(doomed)
	_, err := w.store.Get(t.Context(), w.key(dead))
	require.ErrorIs(t, err, dlqstore.ErrNotFound, "it was killed too early")

	locked, err := w.connect().Begin(t.Context())
	require.NoError(t, err)
	_, err = locked.Exec(t.Context(), `lock table deadletter.dead_letters in access exclusive mode`)
	require.NoError(t, err)
	w.startDLQ(nil)
	require.NoError(t, w.wait(purge, nil), "the attempt that was killed had removed it")
	never := start("no-such-job")
	require.Eventually(t, func() bool {
		description, err := w.describe(never.GetID(), "")
		return err == nil && len(description.GetPendingActivities()) == 1 && description.GetPendingActivities()[0].GetAttempt() >= 3
	}, patience, 20*time.Millisecond)
	require.NoError(t, locked.Rollback(t.Context()))
	absent(never)
	absent(start(dead.GetID()))
	require.Equal(t, []string{dlqstore.VerbMove, dlqstore.VerbPurge}, w.verbs(w.key(dead)))
}

// cleanUp is a user's workflow that purges a dead letter.
func cleanUp(ctx workflow.Context, id string) error {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue: deadletter.DefaultTaskQueue, StartToCloseTimeout: 3 * time.Second,
	})
	return workflow.ExecuteActivity(ctx, deadletter.PurgeActivityType, job.PurgeInput{WorkflowID: id}).Get(ctx, nil)
}
