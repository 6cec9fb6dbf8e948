package dlqstore_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/deadletter-dev/deadletter/dlqstore"
)

// change returns an edit that sets what is given.
func change(key dlqstore.Key, revision int, content dlqstore.Content) dlqstore.EditRequest {
	return dlqstore.EditRequest{
		Key: key, Revision: revision, Actor: "oncall",
		Change: func(*dlqstore.DeadLetter) (dlqstore.Content, error) { return content, nil },
		Compare: func(before, after *dlqstore.DeadLetter) dlqstore.Diff {
			return dlqstore.Diff{Changes: []dlqstore.Change{{
				Path:   "/arguments",
				Before: json.RawMessage(strconv.Quote(string(before.Reason))), After: json.RawMessage(`1e400`),
			}}}
		},
	}
}

func argumentsOf(text string) dlqstore.Content {
	return dlqstore.Content{Arguments: &dlqstore.Arguments{Payloads: []byte(text), PayloadJSON: json.RawMessage(`["` + text + `"]`)}}
}

func optionsOf(text string) dlqstore.Content {
	return dlqstore.Content{Options: &dlqstore.JobOptions{
		OptionsPayload: []byte(text), Options: json.RawMessage(`{"type":"` + text + `"}`), TaskQueue: text, Tags: map[string]string{"is": text}, MaxAttempts: ptr(7),
	}}
}

func events(t *testing.T, store *dlqstore.Store, key dlqstore.Key) []dlqstore.Event {
	t.Helper()
	all, err := store.Events(t.Context(), key)
	require.NoError(t, err)
	return all
}

// TestEdit proves that an edit changes what it says and nothing else, keeps what
// was before with its difference, and writes an event in the same transaction.
func TestEdit(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	key := keyOf("w")
	original := letter(key)
	original.Payloads, original.PayloadJSON = []byte("one"), json.RawMessage(`["one"]`)
	move(t, store, original)
	before, err := store.Get(t.Context(), key)
	require.NoError(t, err)

	request := change(key, 1, argumentsOf("two"))
	request.RequestID, request.PlanID = "ticket", "plan-1"
	edited, revision, err := store.Edit(t.Context(), request)
	require.NoError(t, err)
	want := *before
	want.Payloads, want.PayloadJSON, want.Revision = []byte("two"), json.RawMessage(`["two"]`), 2
	require.Equal(t, &want, edited)
	stored, err := store.Get(t.Context(), key)
	require.NoError(t, err)
	require.Equal(t, &want, stored)
	require.Equal(t, 2, revision.Revision)
	require.Equal(t, ptr("plan-1"), revision.PlanID)
	require.Equal(t, "1e400", string(revision.Diff.Changes[0].After), "the digits of the difference are as they were")

	edited, _, err = store.Edit(t.Context(), change(key, 2, optionsOf("other")))
	require.NoError(t, err)
	want.OptionsPayload, want.Options, want.TaskQueue = []byte("other"), json.RawMessage(`{"type": "other"}`), "other"
	want.Tags, want.MaxAttempts, want.Revision = map[string]string{"is": "other"}, ptr(7), 3
	require.Equal(t, &want, edited)
	edited, _, err = store.Edit(t.Context(), change(key, 3, dlqstore.Content{Priority: json.RawMessage(`{"priority_key":1}`)}))
	require.NoError(t, err)
	want.Priority, want.Revision = json.RawMessage(`{"priority_key": 1}`), 4
	require.Equal(t, &want, edited)

	revisions, err := store.Revisions(t.Context(), key)
	require.NoError(t, err)
	require.Len(t, revisions, 3)
	require.Equal(t, *revision, revisions[0])
	all := events(t, store, key)
	require.Equal(t, []string{"move", "edit", "edit", "edit"}, verbsOf(all))
	require.Equal(t, "oncall", all[1].Actor)
	require.Equal(t, ptr("ticket"), all[1].RequestID)
	require.Equal(t, ptr("plan-1"), all[1].PlanID)
	require.JSONEq(t, `{"revision":2,"changed":["arguments"]}`, string(all[1].Detail))

	// What was before each edit can be had again, and a purge takes all of it.
	back := change(key, 4, dlqstore.Content{})
	back.RevertTo = 1
	reverted, _, err := store.Edit(t.Context(), back)
	require.NoError(t, err)
	want = *before
	want.Revision = 5
	require.Equal(t, &want, reverted)
	back.Revision, back.RevertTo = 5, 3
	reverted, _, err = store.Edit(t.Context(), back)
	require.NoError(t, err)
	require.Equal(t, "two", string(reverted.Payloads))
	require.Equal(t, "other", reverted.TaskQueue)
	require.JSONEq(t, `{"priority_key":2}`, string(reverted.Priority))
	require.NoError(t, store.Purge(t.Context(), key, "oncall"))
	require.Zero(t, scalar[int](t, store, `select count(*)::int from deadletter.revisions`))
}

func verbsOf(all []dlqstore.Event) (verbs []string) {
	for _, event := range all {
		verbs = append(verbs, event.Verb)
	}
	return verbs
}

// TestEditsAtOnce proves that of many edits of one revision at once exactly one is
// made, and that each other is told both revisions and who made the newer one.
func TestEditsAtOnce(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	key := keyOf("w")
	move(t, store, letter(key))
	won := 0
	for _, err := range concurrently(8, func(i int) error {
		request := change(key, 1, argumentsOf(fmt.Sprint("by ", i)))
		request.Actor = fmt.Sprint("person ", i)
		_, _, err := store.Edit(t.Context(), request)
		return err
	}) {
		if err == nil {
			won++
			continue
		}
		var conflict *dlqstore.ConflictError
		require.ErrorAs(t, err, &conflict)
		require.ErrorIs(t, err, dlqstore.ErrConflict)
		require.Equal(t, 1, conflict.Seen)
		require.Equal(t, 2, conflict.Current)
		require.Regexp(t, `the edit is of revision 1, and person \d made revision 2 at `, err.Error())
	}
	require.Equal(t, 1, won)
	require.Equal(t, 7, scalar[int](t, store, `select count(*)::int from deadletter.events where verb = 'edit_refused'
		and detail = '{"cause": "revision_conflict", "revision": 1, "newest": 2}'`))
	_, _, err := store.Edit(t.Context(), change(key, 9, argumentsOf("x")))
	require.ErrorContains(t, err, "revision 9, which does not exist; the newest is 2")
}

// TestEditSameRequest proves that fifty calls at once under one request id are one
// edit, also when they would do something else, and that the id stands for one
// dead letter.
func TestEditSameRequest(t *testing.T) {
	t.Parallel()
	store := openStore(t, dlqstore.WithTimeout(5*time.Minute)) // the last waits for all the others
	key, other := keyOf("w"), keyOf("other")
	move(t, store, letter(key))
	move(t, store, letter(other))
	for _, err := range concurrently(50, func(i int) error {
		request := change(key, 1, argumentsOf(fmt.Sprint("by ", i)))
		request.RequestID = "ticket"
		dl, revision, err := store.Edit(t.Context(), request)
		if err == nil && (dl.Revision != 2 || revision.Revision != 2) {
			return errors.New("edited twice")
		}
		return err
	}) {
		require.NoError(t, err)
	}
	request := change(other, 1, argumentsOf("x"))
	request.RequestID = "ticket"
	_, _, err := store.Edit(t.Context(), request)
	require.ErrorIs(t, err, dlqstore.ErrRequestConflict)
	request.RequestID = strings.Repeat("x", 1001)
	_, _, err = store.Edit(t.Context(), request)
	require.ErrorIs(t, err, dlqstore.ErrRefused)
}

// TestEditRefused proves that an edit which is refused changes nothing, and that
// an event of its own says so, without the words of the refusal.
func TestEditRefused(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	key := keyOf("w")
	move(t, store, letter(key))
	before, err := store.Get(t.Context(), key)
	require.NoError(t, err)

	secret := change(key, 1, dlqstore.Content{})
	secret.Change = func(*dlqstore.DeadLetter) (dlqstore.Content, error) {
		return dlqstore.Content{}, &dlqstore.EditError{Code: dlqstore.EditUnreadable, Cause: "geheim"}
	}
	nowhere := change(key, 1, dlqstore.Content{})
	nowhere.RevertTo = 2
	for _, test := range []struct {
		request dlqstore.EditRequest
		want    error
		cause   string
	}{
		{change(key, 1, dlqstore.Content{}), dlqstore.ErrRefused, `{"cause": "no_change"}`},
		{change(key, 1, dlqstore.Content{Arguments: &dlqstore.Arguments{Payloads: before.Payloads}}), dlqstore.ErrRefused, `{"cause": "no_change"}`},
		{secret, dlqstore.ErrRefused, `{"cause": "unreadable"}`},
		{nowhere, dlqstore.ErrRefused, `{"cause": "invalid"}`},
	} {
		count := len(events(t, store, key))
		_, _, err := store.Edit(t.Context(), test.request)
		require.ErrorIs(t, err, test.want)
		all := events(t, store, key)
		require.Len(t, all, count+1)
		require.Equal(t, dlqstore.VerbEditRefused, all[count].Verb)
		require.Equal(t, "oncall", all[count].Actor)
		require.JSONEq(t, test.cause, string(all[count].Detail))
	}
	after, err := store.Get(t.Context(), key)
	require.NoError(t, err)
	require.Equal(t, before, after)
	gone := keyOf("gone")
	_, _, err = store.Edit(t.Context(), change(gone, 1, argumentsOf("x")))
	require.ErrorIs(t, err, dlqstore.ErrNotFound)
	require.JSONEq(t, `{"cause": "not_found"}`, string(events(t, store, gone)[0].Detail))
	require.Zero(t, scalar[int](t, store, `select count(*)::int from deadletter.revisions`))
}

// TestReplayTakesItsRevision proves that a replay which is not yet started keeps
// the content that it was made from, whatever is edited meanwhile, and that a new
// replay takes the edited one.
func TestReplayTakesItsRevision(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	key := keyOf("w")
	move(t, store, letter(key))
	original := begin(t, store, key, "r1")
	require.Equal(t, ptr(1), original.Replay.Revision)
	_, _, err := store.Edit(t.Context(), change(key, 1, argumentsOf("two")))
	require.NoError(t, err)
	_, _, err = store.Edit(t.Context(), change(key, 2, optionsOf("other")))
	require.NoError(t, err)

	again := begin(t, store, key, "r1")
	require.Equal(t, original.Replay, again.Replay)
	again.DeadLetter.ResurrectionCount = original.DeadLetter.ResurrectionCount
	require.Equal(t, original.DeadLetter, again.DeadLetter)
	fresh := begin(t, store, key, "r2")
	require.Equal(t, ptr(3), fresh.Replay.Revision)
	require.Equal(t, "two", string(fresh.DeadLetter.Payloads))
	require.Equal(t, "other", string(fresh.DeadLetter.OptionsPayload))

	pending, err := store.PendingReplays(t.Context(), "", 0, 0, 0)
	require.NoError(t, err)
	require.Len(t, pending, 2)
	require.Equal(t, original.DeadLetter.Payloads, pending[0].DeadLetter.Payloads)
	require.Equal(t, original.DeadLetter.OptionsPayload, pending[0].DeadLetter.OptionsPayload)
	require.Equal(t, "two", string(pending[1].DeadLetter.Payloads))
}

// TestEditAndBeginReplay proves that both are one: a failure of either undoes
// both, and a repeated call returns the same, also after an edit and a purge.
func TestEditAndBeginReplay(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	key := keyOf("w")
	move(t, store, letter(key))
	request := change(key, 1, argumentsOf("two"))
	request.RequestID = "ticket"

	run(t, store, `create function fail() returns trigger language plpgsql as $$ begin raise exception 'no'; end $$`)
	run(t, store, `create trigger fail before insert on deadletter.replays execute function fail()`)
	_, _, err := store.EditAndBeginReplay(t.Context(), request, false)
	require.Error(t, err)
	requireCount(t, store, key, 0)
	require.Zero(t, scalar[int](t, store, `select count(*)::int from deadletter.revisions`))
	run(t, store, `drop trigger fail on deadletter.replays`)

	starts := make([]*dlqstore.ReplayStart, 20)
	for _, err := range concurrently(20, func(i int) (err error) {
		starts[i], _, err = store.EditAndBeginReplay(t.Context(), request, false)
		return err
	}) {
		require.NoError(t, err)
	}
	for _, start := range starts {
		require.Equal(t, starts[0].Replay, start.Replay)
		require.Equal(t, "two", string(start.DeadLetter.Payloads))
	}
	require.Equal(t, ptr(2), starts[0].Replay.Revision)
	requireCount(t, store, key, 1)

	_, _, err = store.Edit(t.Context(), change(key, 2, argumentsOf("three")))
	require.NoError(t, err)
	again, _, err := store.EditAndBeginReplay(t.Context(), request, false)
	require.NoError(t, err)
	require.Equal(t, starts[0].Replay, again.Replay)
	require.Equal(t, "two", string(again.DeadLetter.Payloads))

	require.NoError(t, store.ConfirmReplay(t.Context(), "ticket", "new-run"))
	require.NoError(t, store.Purge(t.Context(), key, "me"))
	again, revision, err := store.EditAndBeginReplay(t.Context(), request, false)
	require.NoError(t, err)
	require.Nil(t, revision)
	require.Equal(t, ptr("new-run"), again.Replay.NewRunID)
	request.RequestID = "other"
	_, _, err = store.EditAndBeginReplay(t.Context(), request, false)
	require.ErrorIs(t, err, dlqstore.ErrNotFound)
}

// TestSuperseded proves that the dead letter of a job which succeeded after all is
// replayed only by who says so, and that the refusal is noted.
func TestSuperseded(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	key := keyOf("w")
	move(t, store, letter(key))
	begin(t, store, key, "before")
	run(t, store, `update deadletter.dead_letters set superseded_at = now(), superseded_by_run_id = 'later'`)

	_, err := store.BeginReplay(t.Context(), dlqstore.ReplayRequest{Key: key, Actor: "oncall"})
	require.ErrorIs(t, err, dlqstore.ErrSuperseded)
	require.ErrorIs(t, err, dlqstore.ErrRefused)
	require.ErrorContains(t, err, "as run later")
	request := change(key, 1, argumentsOf("two"))
	_, _, err = store.EditAndBeginReplay(t.Context(), request, false)
	require.ErrorIs(t, err, dlqstore.ErrSuperseded)
	require.Equal(t, []string{"move", "replay", "replay_refused", "edit_refused"}, verbsOf(events(t, store, key)))
	require.JSONEq(t, `{"cause":"superseded"}`, string(events(t, store, key)[2].Detail))

	begin(t, store, key, "before") // what was begun is finished
	start, _, err := store.EditAndBeginReplay(t.Context(), request, true)
	require.NoError(t, err)
	require.Equal(t, ptr(2), start.Replay.Revision)
	_, err = store.BeginReplay(t.Context(), dlqstore.ReplayRequest{Key: key, AllowSuperseded: true})
	require.NoError(t, err)
}
