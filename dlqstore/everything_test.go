package dlqstore_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/job"
)

// useEverything writes and reads every table of the store, with a text in every place
// that takes one, and leaves no dead letter.
func useEverything(t *testing.T, store *dlqstore.Store, text string) {
	t.Helper()
	ctx := t.Context()
	dl := letter(dlqstore.Key{Namespace: "default", WorkflowID: text, RunID: "run-" + text})
	for _, column := range []*string{
		&dl.FirstRunID, &dl.JobType, &dl.TaskQueue, &dl.WorkflowTaskQueue, &dl.ErrorType, &dl.ErrorMessage, &dl.ErrorStack,
		&dl.RetryState, &dl.WorkerIdentity, &dl.Fingerprint, dl.ReplayedFromWorkflowID, dl.ReplayedFromRunID,
	} {
		*column = text
	}
	dl.Tags = map[string]string{text: text}
	dl.PayloadJSON, _ = json.Marshal([]string{text})
	dl.Options, _ = json.Marshal(map[string]string{"type": text})
	key := dl.Key
	unmoved, err := store.Unmoved(ctx, []dlqstore.Key{key})
	require.NoError(t, err)
	require.Equal(t, []dlqstore.Key{key}, unmoved, "the caller's key")
	moved, err := store.Move(ctx, dl, []dlqstore.Attempt{{Attempt: 1, ErrorType: text, ErrorMessage: text, ErrorStack: text, WorkerIdentity: text}}, text, nil)
	require.NoError(t, err)
	require.True(t, moved)
	moved, err = store.Move(ctx, dl, nil, text, nil)
	require.NoError(t, err)
	require.False(t, moved, "it is the same job")
	unmoved, err = store.Unmoved(ctx, []dlqstore.Key{key})
	require.NoError(t, err)
	require.Empty(t, unmoved)

	for range 2 { // the same requests, which change nothing the second time
		_, revision, err := store.Edit(ctx, dlqstore.EditRequest{
			Key: key, Revision: 1, RequestID: "edit-" + text, Actor: text,
			Change: func(*dlqstore.DeadLetter) (dlqstore.Content, error) {
				return dlqstore.Content{
					Arguments: &dlqstore.Arguments{Payloads: []byte{7}, PayloadJSON: dl.PayloadJSON},
					Options:   &dlqstore.JobOptions{OptionsPayload: []byte{8}, Options: dl.Options, TaskQueue: text, Tags: dl.Tags},
				}, nil
			},
			Compare: func(_, _ *dlqstore.DeadLetter) dlqstore.Diff {
				after, _ := json.Marshal(text)
				return dlqstore.Diff{Changes: []dlqstore.Change{{Path: "/arguments/0", After: after}}}
			},
		})
		require.NoError(t, err)
		require.Equal(t, 2, revision.Revision)
		var after string
		require.NoError(t, json.Unmarshal(revision.Diff.Changes[0].After, &after))
		require.Equal(t, text, after, "json keeps every character")
		note, err := store.AddNote(ctx, dlqstore.NoteRequest{Key: key, Text: text, RequestID: "note-" + text, Actor: text})
		require.NoError(t, err)
		require.NotEmpty(t, note.Text)
		start, err := store.BeginReplay(ctx, dlqstore.ReplayRequest{Key: key, RequestID: "replay-" + text, Actor: text})
		require.NoError(t, err)
		require.Equal(t, 1, start.DeadLetter.ResurrectionCount)
		require.NoError(t, store.ConfirmReplay(ctx, start.Replay.RequestID, "new-run"))
	}
	_, err = store.AddNote(ctx, dlqstore.NoteRequest{Key: dlqstore.Key{Namespace: "default"}, Fingerprint: text, Text: text, Actor: text})
	require.NoError(t, err)
	start, err := store.BeginReplay(ctx, dlqstore.ReplayRequest{Key: key, Actor: text})
	require.NoError(t, err)
	require.NoError(t, store.RefuseReplay(ctx, start.Replay.RequestID, text))

	filter := dlqstore.Filter{
		Namespace: "default", WorkflowID: text, JobType: text, TaskQueue: text, Fingerprint: text, ErrorText: text, Tags: dl.Tags,
	}
	rows, _, err := store.List(ctx, filter, dlqstore.Page{})
	require.NoError(t, err)
	require.Len(t, rows, 1, "what was stored is found by the same text")
	groups, _, err := store.Groups(ctx, filter, 0)
	require.NoError(t, err)
	require.Len(t, groups, 1)
	require.EqualValues(t, 1, groups[0].Notes)
	found, err := store.Resolve(ctx, "default", text, "")
	require.NoError(t, err)
	got, err := store.Get(ctx, found)
	require.NoError(t, err)
	require.Equal(t, []byte{7}, got.Payloads)
	exported := 0
	for _, err := range store.Export(ctx, dlqstore.ExportRequest{Filter: filter, WithPayloads: true}) {
		require.NoError(t, err)
		exported++
	}
	require.Equal(t, 1, exported)
	events, _, err := store.ListEvents(ctx, dlqstore.EventFilter{WorkflowID: text, Actor: text}, dlqstore.EventPage{})
	require.NoError(t, err)
	require.Equal(t, []string{"replay_refused", "replay", "replay", "note", "edit", "move"}, verbsOf(events))

	request := dlqstore.PlanRequest{
		Verb: job.BulkEdit, Filter: filter, Actor: text, RequestID: "plan-" + text, Parameters: dlqstore.PlanParameters{Edit: `{"tags":{"a":` + string(dl.PayloadJSON[1:len(dl.PayloadJSON)-1]) + `}}`},
		Preview: func(*dlqstore.DeadLetter) (dlqstore.Diff, error) {
			after, _ := json.Marshal(text)
			return dlqstore.Diff{Changes: []dlqstore.Change{{Path: "/tags", After: after}}}, nil
		},
	}
	planned, err := store.CreatePlan(ctx, request)
	require.NoError(t, err)
	again, err := store.CreatePlan(ctx, request)
	require.NoError(t, err)
	require.Equal(t, planned.ID, again.ID)
	require.EqualValues(t, 1, planned.Members)
	var edit struct{ Tags map[string]string }
	require.NoError(t, json.Unmarshal([]byte(planned.Parameters.Edit), &edit))
	require.Equal(t, text, edit.Tags["a"], "an edit keeps every character until it is made")
	_, err = store.BeginPlan(ctx, "default", planned.ID, text, nil)
	require.NoError(t, err)
	_, err = store.MarkPlan(ctx, "default", planned.ID, job.PlanStopped, text, text)
	require.NoError(t, err)

	stored, err := store.SetRetention(ctx, dlqstore.RetentionPolicy{
		Namespace: "default", Name: "policy", JobType: text, TagKey: text, TagValue: text, KeepFor: time.Hour, Enabled: true,
	}, false, text)
	require.NoError(t, err)
	require.Equal(t, "policy", stored.Name)
	changed, err := store.Pin(ctx, key, text)
	require.NoError(t, err)
	require.True(t, changed)
	_, err = store.Unpin(ctx, key, text)
	require.NoError(t, err)
	require.NoError(t, store.Settle(ctx, dlqstore.SettleRequest{Key: key, FirstRunID: text, Outcome: job.OutcomeSucceeded, Actor: text}))
	run(t, store, `update `+pgx.Identifier{store.Schema()}.Sanitize()+`.replays set outcome = 'succeeded' where outcome is null`)
	pruned, err := store.Prune(ctx, dlqstore.PruneRequest{Namespace: "default", Actor: text})
	require.NoError(t, err)
	require.Equal(t, map[string]int64{"policy": 1}, pruned.ByPolicy, "a policy's texts are compared as they are stored")
	require.NoError(t, store.RemoveRetention(ctx, "default", "policy", text))
	second := letter(dlqstore.Key{Namespace: "default", WorkflowID: "second-" + text, RunID: text})
	second.JobType = text
	move(t, store, second)
	purged, err := store.PurgeMatching(ctx, dlqstore.PurgeRequest{Filter: dlqstore.Filter{JobType: text}, Actor: text})
	require.NoError(t, err)
	require.EqualValues(t, 1, purged)
	require.NoError(t, store.Compact(ctx))
	require.NoError(t, store.ForgetPlans(ctx))
	_, err = store.AdvanceSweep(ctx, "default", instant, nil)
	require.NoError(t, err)
	tallies, _, err := store.CountBy(ctx, "", dlqstore.ByJobType, 0)
	require.NoError(t, err)
	require.Empty(t, tallies)
}
