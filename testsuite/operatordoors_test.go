package testsuite_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

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
	require.True(t, hasErrorType(err, errorType), "%s: %v", errorType, err)
}

func hasErrorType(err error, errorType string) bool {
	failure, ok := errors.AsType[*temporal.ApplicationError](err)
	for ok && failure.Type() != errorType {
		failure, ok = errors.AsType[*temporal.ApplicationError](errors.Unwrap(failure))
	}
	return ok
}

// refusals counts the events of a verb's refusals, of some actors or of all.
func (w *world) refusals(verb string, actors ...string) (n int) {
	w.t.Helper()
	require.NoError(w.t, w.store.Pool().QueryRow(w.t.Context(),
		`select count(*) from deadletter.events where verb = $1 and (cardinality($2::text[]) is null or actor = any($2))`, verb+"_refused", actors).Scan(&n))
	return n
}

// TestPlanDoor proves that a plan can be asked for by update, by signal and by an
// activity of a repair workflow, and be applied by any client: what was planned is
// done, what is wrong is refused with its faults, and one request is one plan.
func TestPlanDoor(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.startJobs(handlers{"Fail": fail})
	w.startDLQ(nil)
	w.waitOperator()
	dead := w.deadJob()
	w.cloneDead(dead, "clone-", 4)

	var plan dlqstore.Plan
	ask := map[string]any{
		"verb": "edit", "filter": map[string]any{"workflow_id": dead.GetID()}, "edit": map[string]any{"argument": map[string]any{"0": "mended"}},
		"rate": -1, "request_id": "mine", "actor": "ann",
	}
	require.NoError(t, w.tell(job.PlanMessage, ask, &plan))
	require.EqualValues(t, 1, plan.Members)
	var again dlqstore.Plan
	require.NoError(t, w.tell(job.PlanMessage, ask, &again))
	require.Equal(t, plan.ID, again.ID)
	run, err := w.client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: job.BulkWorkflowID(plan.ID), TaskQueue: deadletter.DefaultTaskQueue},
		job.BulkWorkflowType, map[string]any{"plan_id": plan.ID, "actor": "ann"})
	require.NoError(t, err)
	require.NoError(t, w.wait(run, nil))
	require.JSONEq(t, `["mended"]`, string(w.dead(dead).PayloadJSON))

	for name, refused := range map[string]map[string]any{
		"no filter":         {"verb": "purge"},
		"empty filter":      {"verb": "purge", "filter": map[string]any{}},
		"unknown selector":  {"verb": "purge", "all": true, "filter": map[string]any{"jobtype": "Fail"}},
		"misspelt key":      {"verb": "purge", "all": true, "filtre": map[string]any{}},
		"unknown reason":    {"verb": "purge", "filter": map[string]any{"reason": "tired"}},
		"another namespace": {"verb": "purge", "filter": map[string]any{"namespace": "else", "job_type": "Fail"}},
		"unknown verb":      {"verb": "bury", "all": true},
		"settings":          {"verb": "purge", "all": true, "canary": 3},
		"no edit":           {"verb": "edit", "all": true},
		"retag of more":     {"verb": "retag", "all": true, "edit": map[string]any{"task_queue": "q"}},
		"other plan":        {"verb": "purge", "all": true, "request_id": "mine"},
	} {
		t.Run(name, func(t *testing.T) {
			requireErrorType(t, w.tell(job.PlanMessage, refused, nil), job.RefusedErrorType)
		})
	}
	require.Equal(t, 11, w.refusals(dlqstore.VerbPlan), "each leaves an event")
	// By signal nobody is told, so the event must be there.
	require.NoError(t, w.client.SignalWorkflow(t.Context(), deadletter.OperatorWorkflowID, "", job.PurgeMessage,
		map[string]any{"workflow_id": dead.GetID(), "dry_run": true}))
	require.Eventually(t, func() bool { return w.refusals(dlqstore.VerbPurge) == 1 }, patience, 50*time.Millisecond)
	require.EqualValues(t, 5, w.count(), "a request with an unknown key was carried out")

	require.NoError(t, w.client.SignalWorkflow(t.Context(), deadletter.OperatorWorkflowID, "", job.PlanMessage,
		map[string]any{"verb": "retag", "filter": map[string]any{"job_type": "Fail"}, "edit": map[string]any{"tags": map[string]any{"seen": "yes"}}}))
	require.Eventually(t, func() bool {
		plans, err := w.store.Plans(t.Context(), w.namespace, 0)
		return err == nil && len(plans) == 2 && plans[0].Verb == job.BulkRetag && plans[0].Members == 5 && plans[0].Actor == "signal"
	}, patience, 50*time.Millisecond)

	// So does an activity, at once: no retry mends it.
	w.startRepair("misspelt", func(ctx workflow.Context) error {
		ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{TaskQueue: deadletter.DefaultTaskQueue, StartToCloseTimeout: patience})
		err := workflow.ExecuteActivity(ctx, job.PlanActivityType, map[string]any{"verb": "purge", "all": true, "filtre": 1}).Get(ctx, nil)
		if hasErrorType(err, job.RefusedErrorType) {
			return nil
		}
		return fmt.Errorf("not refused: %w", err)
	})
	// A repair workflow plans and applies.
	w.startRepair("repair", func(ctx workflow.Context) error {
		ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{TaskQueue: deadletter.DefaultTaskQueue, StartToCloseTimeout: patience})
		var plan dlqstore.Plan
		in := job.PlanInput{Verb: job.BulkPurge, Filter: json.RawMessage(`{"job_type": "Fail"}`), BulkSettings: job.BulkSettings{Rate: -1}}
		if err := workflow.ExecuteActivity(ctx, job.PlanActivityType, in).Get(ctx, &plan); err != nil {
			return err
		}
		ctx = workflow.WithChildOptions(ctx, workflow.ChildWorkflowOptions{WorkflowID: job.BulkWorkflowID(plan.ID), TaskQueue: deadletter.DefaultTaskQueue})
		return workflow.ExecuteChildWorkflow(ctx, job.BulkWorkflowType, job.BulkInput{PlanID: plan.ID, Actor: "repair"}).Get(ctx, nil)
	})
	require.Zero(t, w.count())
	plans, err := w.store.Plans(t.Context(), w.namespace, 0)
	require.NoError(t, err)
	require.Len(t, plans, 3)
	require.Equal(t, "workflow repair", plans[0].Actor)
	require.EqualValues(t, 5, plans[0].Done)
}

// TestPlanDoorKilled proves that an answer which is lost with its worker costs no
// second plan: the request is carried out once, and told.
func TestPlanDoorKilled(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.startJobs(handlers{"Fail": fail})
	stop := w.startDLQ(nil)
	w.waitOperator()
	dead := w.deadJob()
	stop()
	doomed := w.startProcess(roleDLQ, "RespondActivityTaskCompleted")
	told := make(chan error, 1)
	var plan dlqstore.Plan
	go func() {
		told <- w.tell(job.PlanMessage, map[string]any{"verb": "purge", "filter": map[string]any{"workflow_id": dead.GetID()}}, &plan)
	}()
	w.killed(doomed)
	plans, err := w.store.Plans(t.Context(), w.namespace, 0)
	require.NoError(t, err)
	require.Len(t, plans, 1, "it was killed before it had made the plan")
	w.startDLQ(nil)
	require.NoError(t, <-told)
	require.Equal(t, plans[0].ID, plan.ID)
	plans, err = w.store.Plans(t.Context(), w.namespace, 0)
	require.NoError(t, err)
	require.Len(t, plans, 1)
}

// TestMisshapenRequests proves that a request with a value of a wrong kind is refused
// by each door, at once and with an event, and that the door stays open.
func TestMisshapenRequests(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.startJobs(handlers{"Fail": fail})
	w.startDLQ(nil)
	w.waitOperator()
	dead := w.deadJob()
	doors := map[string]string{ // message to activity
		job.ReplayMessage: job.ReplayActivityType, job.PurgeMessage: job.PurgeActivityType, job.EditMessage: job.EditActivityType,
		job.PlanMessage: job.PlanActivityType, job.NoteMessage: job.NoteActivityType, job.PinMessage: job.PinActivityType,
	}
	wrong := map[string]any{"workflow_id": 5, "actor": "ann", "verb": 5, "filter": map[string]any{"job_type": "Fail"}}
	for message := range doors {
		w.refuses(message, wrong, job.RefusedErrorType)
		w.refuses(message, "not even an object", job.RefusedErrorType)
		require.NoError(t, w.client.SignalWorkflow(t.Context(), deadletter.OperatorWorkflowID, "", message, wrong))
	}
	w.startRepair("misshapen", func(ctx workflow.Context) error {
		ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{TaskQueue: deadletter.DefaultTaskQueue, StartToCloseTimeout: patience})
		for _, message := range workflow.DeterministicKeys(doors) {
			err := workflow.ExecuteActivity(ctx, doors[message], wrong).Get(ctx, nil)
			if !hasErrorType(err, job.RefusedErrorType) {
				return fmt.Errorf("%s is not refused: %w", message, err)
			}
		}
		return nil
	})
	for message := range doors {
		require.Eventually(t, func() bool { return w.refusals(message, "ann") == 3 }, patience, 20*time.Millisecond, "%s by update, signal and activity", message)
	}
	run, err := w.client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: "misshapen-bulk", TaskQueue: deadletter.DefaultTaskQueue},
		job.BulkWorkflowType, map[string]any{"plan_id": 5, "actor": "ann"})
	require.NoError(t, err)
	requireErrorType(t, w.wait(run, nil), job.RefusedErrorType)
	require.Equal(t, 1, w.refusals(dlqstore.VerbApply, "ann"))
	run, err = w.client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: "carried-bulk", TaskQueue: deadletter.DefaultTaskQueue},
		job.BulkWorkflowType, map[string]any{"plan_id": 5, "actor": "ann", "carried": map[string]any{}})
	require.NoError(t, err)
	requireErrorType(t, w.wait(run, nil), job.RefusedErrorType)
	require.Equal(t, 2, w.refusals(dlqstore.VerbApply, "ann"), "what it claims to carry spares it no check")

	// Six times as long when it is passed on, which would be more than the server takes.
	long := converter.NewRawValue(&commonpb.Payload{
		Metadata: map[string][]byte{converter.MetadataEncoding: []byte(converter.MetadataEncodingJSON)},
		Data:     []byte(`{"workflow_id": 5, "note": "` + strings.Repeat("<", 400_000) + `"}`),
	})
	for message := range doors {
		w.refuses(message, long, job.RefusedErrorType)
	}
	require.NoError(t, w.client.SignalWorkflow(t.Context(), deadletter.OperatorWorkflowID, "", job.NoteMessage, long))
	require.Eventually(t, func() bool { return w.refusals(dlqstore.VerbNote, "update", "signal") == 3 }, patience, 20*time.Millisecond, "each leaves an event, as the one that is no object")

	require.EqualValues(t, 1, w.count())
	require.NoError(t, w.tell(job.PurgeMessage, job.PurgeInput{WorkflowID: dead.GetID()}, nil))
	w.purged(dead)
}

// TestAmbiguousKeys proves that a request with a key in another case, or with one twice,
// is refused by each door with an event, and acts on neither of the two jobs it may mean.
func TestAmbiguousKeys(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.startJobs(handlers{"Fail": fail})
	w.startDLQ(nil)
	w.waitOperator()
	first, second := w.deadJob(), w.deadJob()
	ambiguous := []json.RawMessage{}
	for _, keys := range []string{`{"workflow_id":%q,"Workflow_ID":%q,"actor":"ann"}`, `{"workflow_id":%q,"workflow_id":%q,"actor":"ann"}`} {
		ambiguous = append(ambiguous, json.RawMessage(fmt.Sprintf(keys, first.GetID(), second.GetID())))
	}
	for _, request := range ambiguous {
		w.refuses(job.PurgeMessage, request, job.RefusedErrorType)
		require.NoError(t, w.client.SignalWorkflow(t.Context(), deadletter.OperatorWorkflowID, "", job.PurgeMessage, request))
	}
	w.startRepair("ambiguous", func(ctx workflow.Context) error {
		ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{TaskQueue: deadletter.DefaultTaskQueue, StartToCloseTimeout: patience})
		for _, request := range ambiguous {
			if err := workflow.ExecuteActivity(ctx, job.PurgeActivityType, request).Get(ctx, nil); !hasErrorType(err, job.RefusedErrorType) {
				return fmt.Errorf("not refused: %w", err)
			}
		}
		return nil
	})
	require.Eventually(t, func() bool { return w.refusals(dlqstore.VerbPurge, "ann") == 6 }, patience, 20*time.Millisecond)
	for _, filter := range []string{`{"job_type":"Fail","Job_Type":"Fine"}`, `{"tags":{"a":"1","a":"2"}}`} {
		w.refuses(job.PlanMessage, json.RawMessage(`{"verb":"purge","filter":`+filter+`}`), job.RefusedErrorType)
	}
	for _, edit := range []string{`{"task_queue":"a","Task_Queue":"b"}`, `{"tags":{"a":"1","a":"2"}}`, `{"policy":{"max_attempts":1,"max_attempts":2}}`} {
		w.refuses(job.EditMessage, json.RawMessage(fmt.Sprintf(`{"workflow_id":%q,"revision":1,"edit":%s,"actor":"ann"}`, first.GetID(), edit)), job.RefusedErrorType)
	}
	require.Equal(t, 2, w.refusals(dlqstore.VerbPlan, "update"))
	require.Equal(t, 3, w.refusals(dlqstore.VerbEdit, "ann"))
	require.EqualValues(t, 2, w.count())
}

// startRepair runs a workflow of the user's own, to its end.
func (w *world) startRepair(id string, repair func(workflow.Context) error) {
	w.t.Helper()
	mine := worker.New(w.client, "repairs", worker.Options{})
	mine.RegisterWorkflowWithOptions(repair, workflow.RegisterOptions{Name: "Repair"})
	require.NoError(w.t, mine.Start())
	defer mine.Stop()
	run, err := w.client.ExecuteWorkflow(w.t.Context(), client.StartWorkflowOptions{ID: id, TaskQueue: "repairs"}, "Repair")
	require.NoError(w.t, err)
	require.NoError(w.t, w.wait(run, nil))
}

// TestNoteAndPinDoors proves that notes and pins, too, can be asked for by update, by
// signal and by an activity, with the audit telling who did.
func TestNoteAndPinDoors(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.startJobs(handlers{"Fail": fail})
	w.startDLQ(nil)
	w.waitOperator()
	dead := w.deadJob()
	pinned := func() bool { return w.dead(dead).Pinned }
	notes := func() (texts []string) {
		found, err := w.store.Notes(t.Context(), w.key(dead), w.dead(dead).Fingerprint)
		require.NoError(t, err)
		for _, note := range found {
			texts = append(texts, note.Text)
		}
		return texts
	}

	require.NoError(t, w.tell(job.NoteMessage, job.NoteInput{WorkflowID: dead.GetID(), Text: "by update", Actor: "ann"}, nil))
	require.NoError(t, w.tell(job.PinMessage, job.PinInput{WorkflowID: dead.GetID(), Actor: "ann"}, nil))
	require.True(t, pinned())
	require.NoError(t, w.tell(job.PinMessage, job.PinInput{WorkflowID: dead.GetID(), Actor: "ann"}, nil), "a pin may be repeated")
	w.refuses(job.NoteMessage, job.NoteInput{WorkflowID: dead.GetID(), Fingerprint: "both", Text: "x"}, job.RefusedErrorType)
	w.refuses(job.NoteMessage, job.NoteInput{WorkflowID: dead.GetID()}, job.RefusedErrorType)
	w.refuses(job.NoteMessage, job.NoteInput{WorkflowID: "none", Text: "x"}, job.NotFoundErrorType)
	w.refuses(job.NoteMessage, job.NoteInput{Fingerprint: "none", Text: "x"}, job.NotFoundErrorType)
	w.refuses(job.PinMessage, job.PinInput{}, job.RefusedErrorType)
	w.refuses(job.PinMessage, job.PinInput{WorkflowID: "none"}, job.NotFoundErrorType)

	require.NoError(t, w.client.SignalWorkflow(t.Context(), deadletter.OperatorWorkflowID, "", job.NoteMessage,
		job.NoteInput{Fingerprint: w.dead(dead).Fingerprint, Text: "by signal"}))
	require.NoError(t, w.client.SignalWorkflow(t.Context(), deadletter.OperatorWorkflowID, "", job.PinMessage,
		job.PinInput{WorkflowID: dead.GetID(), Unpin: true}))
	require.Eventually(t, func() bool { return !pinned() && len(notes()) == 2 }, patience, 20*time.Millisecond)
	w.startRepair("repair", func(ctx workflow.Context) error {
		ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{TaskQueue: deadletter.DefaultTaskQueue, StartToCloseTimeout: patience})
		return errors.Join(
			workflow.ExecuteActivity(ctx, job.NoteActivityType, job.NoteInput{WorkflowID: dead.GetID(), Text: "by activity"}).Get(ctx, nil),
			workflow.ExecuteActivity(ctx, job.PinActivityType, job.PinInput{WorkflowID: dead.GetID()}).Get(ctx, nil),
		)
	})
	require.True(t, pinned())
	require.Equal(t, []string{"by update", "by signal", "by activity"}, notes())

	events, err := w.store.Events(t.Context(), w.key(dead))
	require.NoError(t, err)
	var told []string
	for _, event := range events[1:] { // after the move
		told = append(told, event.Verb+" by "+event.Actor)
	}
	require.Equal(t, []string{"note by ann", "pin by ann", "unpin by signal", "note by workflow repair", "pin by workflow repair"}, told)
}
