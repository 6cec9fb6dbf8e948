package testsuite_test

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"github.com/deadletter-dev/deadletter"
	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/job"
)

// tell runs an update of the operator workflow and waits for its answer.
func (w *world) tell(message string, in, out any) error {
	w.t.Helper()
	handle, err := w.client.UpdateWorkflow(w.t.Context(), client.UpdateWorkflowOptions{
		WorkflowID: deadletter.OperatorWorkflowID, UpdateName: message, UpdateID: uuid.NewString(), Args: []any{in},
		WaitForStage: client.WorkflowUpdateStageCompleted,
	})
	if err != nil {
		return err
	}
	return handle.Get(w.t.Context(), out)
}

// purged waits until there is no dead letter of the job.
func (w *world) purged(run client.WorkflowRun) {
	w.t.Helper()
	require.Eventually(w.t, func() bool {
		_, err := w.store.Get(w.t.Context(), w.key(run))
		return errors.Is(err, dlqstore.ErrNotFound)
	}, patience, 20*time.Millisecond, "%s is still there", run.GetID())
}

// TestOperatorDoors proves that edits and purges, too, can be asked for by signal
// and by update, that an update tells what came of it, and that each leaves an event.
func TestOperatorDoors(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.startJobs(handlers{"Fail": fail})
	w.startDLQ(nil)
	w.waitOperator()
	dead, other := w.deadJob(), w.deadJob()

	in := job.EditInput{WorkflowID: dead.GetID(), Revision: 1, Edit: job.Edit{Argument: map[int]json.RawMessage{0: json.RawMessage(`"mended"`)}}, Actor: "ann", Replay: true}
	var edited job.EditOutput
	require.NoError(t, w.tell(job.EditMessage, in, &edited))
	require.Equal(t, 2, edited.Revision)
	require.NotNil(t, edited.Replay)
	require.JSONEq(t, `["mended"]`, string(w.dead(dead).PayloadJSON))
	w.refuses(job.EditMessage, in, job.ConflictErrorType)
	w.refuses(job.EditMessage, job.EditInput{WorkflowID: dead.GetID(), Revision: 2}, job.RefusedErrorType)
	in.WorkflowID, in.Replay = other.GetID(), false
	require.NoError(t, w.client.SignalWorkflow(t.Context(), deadletter.OperatorWorkflowID, "", job.EditMessage, in))
	require.Eventually(t, func() bool { return w.dead(other).Revision == 2 }, patience, 20*time.Millisecond)

	require.NoError(t, w.tell(job.PurgeMessage, job.PurgeInput{WorkflowID: dead.GetID(), Actor: "ann"}, nil))
	w.purged(dead)
	w.refuses(job.PurgeMessage, job.PurgeInput{WorkflowID: dead.GetID()}, job.NotFoundErrorType)
	w.refuses(job.PurgeMessage, job.PurgeInput{}, job.RefusedErrorType)
	require.NoError(t, w.client.SignalWorkflow(t.Context(), deadletter.OperatorWorkflowID, "", job.PurgeMessage, job.PurgeInput{WorkflowID: other.GetID()}))
	w.purged(other)

	events, err := w.store.Events(t.Context(), w.key(other))
	require.NoError(t, err)
	actors := map[string]string{}
	for _, event := range events {
		actors[event.Verb] = event.Actor
	}
	require.Equal(t, "ann", actors[dlqstore.VerbEdit])
	require.Equal(t, "signal", actors[dlqstore.VerbPurge])
}

// refuses checks that an update fails with an error type.
func (w *world) refuses(message string, in any, errorType string) {
	w.t.Helper()
	requireErrorType(w.t, w.tell(message, in, nil), errorType)
}

// requireErrorType checks that an application error of the type is in the chain.
func requireErrorType(t testing.TB, err error, errorType string) {
	t.Helper()
	failure, ok := errors.AsType[*temporal.ApplicationError](err)
	for ok && failure.Type() != errorType {
		failure, ok = errors.AsType[*temporal.ApplicationError](errors.Unwrap(failure))
	}
	require.True(t, ok, "%s: %v", errorType, err)
}
