package testsuite_test

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"google.golang.org/protobuf/proto"

	"github.com/deadletter-dev/deadletter"
	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/internal/edit"
	"github.com/deadletter-dev/deadletter/job"
	"github.com/deadletter-dev/deadletter/operator"
)

// delicate is a document that a careless pass through a decoder would alter.
const delicate = "{\n \"z\": 9007199254740993, \"price\" :1.10,\t\"huge\":1e400, \"name\":\"Zo\\u00eb é 日本\",\n \"unknown\": {\"deep\":[1, 2.50 ]} , \"customer\":{\"id\":7,\"state\":\"broken\"}}"

// mended is delicate after an edit of one field.
const mended = "{\n \"z\": 9007199254740993, \"price\" :1.10,\t\"huge\":1e400, \"name\":\"Zo\\u00eb é 日本\",\n \"unknown\": {\"deep\":[1, 2.50 ]} , \"customer\":{\"id\":7,\"state\":\"mended\"}}"

// picky is a handler that keeps what it got, and takes only what accept names.
type picky struct {
	mu     sync.Mutex
	accept string
	got    []*commonpb.Payload
}

func (p *picky) handle(_ context.Context, argument converter.RawValue) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.got = append(p.got, argument.Payload())
	if string(argument.Payload().GetData()) != p.accept {
		return errors.New("the argument is not as it should be")
	}
	return nil
}

func (p *picky) takes(accept string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.accept = accept
}

func (p *picky) last() *commonpb.Payload {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.got[len(p.got)-1]
}

// deadPicky returns a dead job with the delicate argument.
func (w *world) deadPicky() client.WorkflowRun {
	w.t.Helper()
	run := w.enqueue(deadletter.Job{Type: "Picky", Policy: quick(1), Tags: map[string]string{"tenant": "acme"}},
		converter.NewRawValue(&commonpb.Payload{
			Metadata: map[string][]byte{converter.MetadataEncoding: []byte(converter.MetadataEncodingJSON), "extra": []byte("kept")}, Data: []byte(delicate),
		}))
	require.ErrorContains(w.t, w.wait(run, nil), "max_retries_exceeded")
	return run
}

func (w *world) edit(dead client.WorkflowRun, revision int, e job.Edit) (*operator.Edited, error) {
	w.t.Helper()
	return w.operator.Edit(w.t.Context(), operator.EditRequest{WorkflowID: dead.GetID(), RunID: dead.GetRunID(), Revision: revision, Edit: e, Actor: "tester"})
}

// state is an edit of the one field of the delicate document.
func state(is string) job.Edit {
	return job.Edit{MergePatch: json.RawMessage(`{"customer":{"state":"` + is + `"}}`)}
}

// TestEditKeepsTheRest proves that big integers, decimals, unicode, the order of
// keys and unknown fields survive list, show, the edit of another field and a
// replay: the handler of the new job gets the same bytes but for that field, and
// the metadata.
func TestEditKeepsTheRest(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	handler := &picky{}
	w.startJobs(handlers{"Picky": handler.handle})
	w.startDLQ(nil)
	dead := w.deadPicky()

	listed, _, err := w.operator.List(t.Context(), dlqstore.Filter{JobType: "Picky"}, dlqstore.Page{})
	require.NoError(t, err)
	require.Len(t, listed, 1)
	shown, err := w.operator.Show(t.Context(), dead.GetID(), "")
	require.NoError(t, err)
	for _, argument := range []json.RawMessage{listed[0].PayloadJSON, shown.DeadLetter.PayloadJSON} {
		require.Contains(t, string(argument), "9007199254740993")
		require.Contains(t, string(argument), "1.10")
	}

	edited, err := w.edit(dead, shown.DeadLetter.Revision, state("mended"))
	require.NoError(t, err)
	require.Equal(t, []dlqstore.Change{{Path: "/arguments/0/customer/state", Before: json.RawMessage(`"broken"`), After: json.RawMessage(`"mended"`)}}, edited.Revision.Diff.Changes)
	handler.takes(mended)
	require.NoError(t, w.wait(w.replay(dead, ""), nil))
	require.True(t, proto.Equal(&commonpb.Payload{
		Metadata: map[string][]byte{converter.MetadataEncoding: []byte(converter.MetadataEncodingJSON), "extra": []byte("kept")}, Data: []byte(mended),
	}, handler.last()), "%v", handler.last())
}

// TestEditAtOnce proves that of two edits of one revision one is made, and that
// the other is told both revisions.
func TestEditAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.startJobs(handlers{"Picky": (&picky{}).handle})
	w.startDLQ(nil)
	dead := w.deadPicky()
	errs := make([]error, 2)
	var both sync.WaitGroup
	for i, is := range []string{"one", "other"} {
		both.Go(func() { _, errs[i] = w.edit(dead, 1, state(is)) })
	}
	both.Wait()
	lost := errors.Join(errs...)
	require.NotEqual(t, errs[0] == nil, errs[1] == nil, "%v", lost)
	var conflict *dlqstore.ConflictError
	require.ErrorAs(t, lost, &conflict)
	require.Equal(t, 1, conflict.Seen)
	require.Equal(t, 2, conflict.Current)
	require.ErrorContains(t, lost, "the edit is of revision 1, and tester made revision 2 at ")
	require.Equal(t, []string{"move", "edit", "edit_refused"}, w.verbs(w.key(dead)))
}

// TestEditTwice proves of a job that is edited, dies again, is edited again and
// replayed, that both differences are kept, that each replay names its revision,
// and that the original can be had again byte for byte.
func TestEditTwice(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	handler := &picky{}
	w.startJobs(handlers{"Picky": handler.handle})
	w.startDLQ(nil)
	dead := w.deadPicky()
	original := w.dead(dead)

	_, err := w.edit(dead, 1, state("wrong"))
	require.NoError(t, err)
	again := w.replay(dead, "")
	require.Error(t, w.wait(again, nil))
	require.Equal(t, 1, w.dead(again).Revision, "the new dead letter is an original")
	require.Contains(t, string(w.dead(again).PayloadJSON), "wrong")

	four := 4
	change := state("mended")
	change.Policy, change.TaskQueue = json.RawMessage(`{"max_attempts":4}`), w.queue
	_, err = w.edit(dead, 2, change)
	require.NoError(t, err)
	handler.takes(mended)
	second := w.replay(dead, "")
	require.NoError(t, w.wait(second, nil))

	shown, err := w.operator.Show(t.Context(), dead.GetID(), dead.GetRunID())
	require.NoError(t, err)
	require.Equal(t, &four, shown.DeadLetter.MaxAttempts)
	require.Len(t, shown.Revisions, 2)
	require.JSONEq(t, `"wrong"`, string(shown.Revisions[0].Diff.Changes[0].After))
	require.JSONEq(t, `"wrong"`, string(shown.Revisions[1].Diff.Changes[0].Before))
	require.Equal(t, []int{2, 3}, []int{*shown.Replays[0].Revision, *shown.Replays[1].Revision})
	require.Len(t, shown.Lineage.Descendants, 2)
	heir, err := w.operator.Show(t.Context(), again.GetID(), again.GetRunID())
	require.NoError(t, err)
	require.Equal(t, w.key(dead), heir.Lineage.Ancestors[0].Key)
	require.NotEmpty(t, heir.Causes)

	back, err := w.operator.Edit(t.Context(), operator.EditRequest{WorkflowID: dead.GetID(), RunID: dead.GetRunID(), Revision: 3, RevertTo: 1, Actor: "tester"})
	require.NoError(t, err)
	require.Equal(t, original.Payloads, back.DeadLetter.Payloads)
	require.Equal(t, original.OptionsPayload, back.DeadLetter.OptionsPayload)
	require.Equal(t, original.Options, back.DeadLetter.Options)
	handler.takes(delicate)
	require.NoError(t, w.wait(w.replay(dead, ""), nil), "the original's bytes")
}

// TestEditAndReplayInterrupted proves that an edit with its replay, of a process
// which dies between the commit and the start, is finished once by the dead-letter
// workers, with what was committed, although it is edited again meanwhile.
func TestEditAndReplayInterrupted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	handler := &picky{}
	w.startJobs(handlers{"Picky": handler.handle})
	stop := w.startDLQ(nil)
	dead := w.deadPicky()
	stop() // nobody finishes it yet
	handler.takes(mended)

	request := edit.Request(dlqstore.EditRequest{Key: w.key(dead), Revision: 1, RequestID: "ticket", Actor: "tester"}, state("mended"))
	start, _, err := w.store.EditAndBeginReplay(t.Context(), request, false)
	require.NoError(t, err)
	_, err = w.edit(dead, 2, state("later"))
	require.NoError(t, err)
	w.startDLQ(nil)
	require.Eventually(t, func() bool { return len(w.replaysOf(dead)) == 1 }, patience, 50*time.Millisecond)
	require.NoError(t, w.wait(w.client.GetWorkflow(t.Context(), start.Replay.NewWorkflowID, ""), nil))

	out, err := w.operator.Edit(t.Context(), operator.EditRequest{
		WorkflowID: dead.GetID(), RunID: dead.GetRunID(), Revision: 1, Edit: state("mended"), Replay: true, RequestID: "ticket", Actor: "tester",
	})
	require.NoError(t, err)
	require.Equal(t, start.Replay.NewWorkflowID, out.Replay.WorkflowID)
	after := w.dead(dead)
	require.Equal(t, 1, after.ResurrectionCount)
	require.Equal(t, 3, after.Revision)
}

// TestEditFromWorkflow proves that a repair workflow edits and replays in one
// activity, and acts on a conflict and on a refusal by their types.
func TestEditFromWorkflow(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	handler := &picky{}
	w.startJobs(handlers{"Picky": handler.handle})
	w.startDLQ(nil)
	dead := w.deadPicky()
	handler.takes(mended)
	repairs := worker.New(w.client, "repairs", worker.Options{})
	repairs.RegisterWorkflowWithOptions(func(ctx workflow.Context, in job.EditInput) (out job.EditOutput, err error) {
		ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{TaskQueue: deadletter.DefaultTaskQueue, StartToCloseTimeout: time.Minute})
		return out, workflow.ExecuteActivity(ctx, deadletter.EditActivityType, in).Get(ctx, &out)
	}, workflow.RegisterOptions{Name: "Mend"})
	w.start(repairs)
	ask := func(in job.EditInput) (out job.EditOutput, err error) {
		run, err := w.client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{TaskQueue: "repairs"}, "Mend", in)
		require.NoError(t, err)
		return out, w.wait(run, &out)
	}

	in := job.EditInput{WorkflowID: dead.GetID(), Revision: 1, Edit: state("mended"), Replay: true}
	out, err := ask(in)
	require.NoError(t, err)
	require.NotNil(t, out.Replay)
	require.NoError(t, w.wait(w.client.GetWorkflow(t.Context(), out.Replay.WorkflowID, out.Replay.RunID), nil))
	for kind, asked := range map[string]job.EditInput{
		job.ConflictErrorType: in,
		job.RefusedErrorType:  {WorkflowID: dead.GetID(), Revision: 2, Edit: job.Edit{MergePatch: json.RawMessage(`[{},{"a":1}]`)}},
		job.NotFoundErrorType: {WorkflowID: "nobody", Revision: 1, Edit: state("x")},
	} {
		_, err := ask(asked)
		requireErrorType(t, err, kind)
	}
	shown, err := w.operator.Show(t.Context(), dead.GetID(), dead.GetRunID())
	require.NoError(t, err)
	require.Equal(t, 2, shown.DeadLetter.Revision)
	require.Regexp(t, "^workflow ", shown.Revisions[0].Actor)
}

// TestReplaySuperseded proves that a job which a person reset, and which then
// succeeded, is not done again by a replay, unless it is allowed.
func TestReplaySuperseded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	handler := &picky{}
	w.startJobs(handlers{"Picky": handler.handle})
	w.startDLQ(nil)
	dead := w.deadPicky()
	handler.takes(delicate)
	require.NoError(t, w.wait(w.resetToStart(dead), nil))
	require.Eventually(t, func() bool { return w.dead(dead).SupersededAt != nil }, patience, 50*time.Millisecond)

	request := operator.ReplayRequest{WorkflowID: dead.GetID(), RunID: dead.GetRunID(), Actor: "tester"}
	_, err := w.operator.Replay(t.Context(), request)
	require.ErrorIs(t, err, dlqstore.ErrSuperseded)
	w.waitOperator()
	err = w.update(job.ReplayInput{WorkflowID: dead.GetID(), RunID: dead.GetRunID()}).Get(t.Context(), nil)
	require.ErrorContains(t, err, "superseded")
	require.Zero(t, w.dead(dead).ResurrectionCount)
	request.AllowSuperseded = true
	out, err := w.operator.Replay(t.Context(), request)
	require.NoError(t, err)
	require.NoError(t, w.wait(w.client.GetWorkflow(t.Context(), out.WorkflowID, out.RunID), nil))
	require.Equal(t, []string{"move", "supersede", "replay_refused", "replay_refused", "replay", "settle"}, w.verbs(w.key(dead)))
}
