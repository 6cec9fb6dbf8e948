package dlqstore_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/job"
)

// eventFilters has each field of an EventFilter alone, and all at once.
func eventFilters() map[string]dlqstore.EventFilter {
	return map[string]dlqstore.EventFilter{
		"nothing":     {},
		"namespace":   {Namespace: "default"},
		"workflow_id": {Namespace: "default", WorkflowID: "w7", RunID: "r"},
		"actor":       {Actor: "ada"},
		"verb":        {Verb: dlqstore.VerbPurge},
		"moves":       {Verb: dlqstore.VerbMove},
		"plan":        {PlanID: "plan-3"},
		"since":       {Since: ptr(instant)},
		"until":       {Until: ptr(instant)},
		"all": {
			Namespace: "default", WorkflowID: "w7", RunID: "r", Actor: "ada", Verb: dlqstore.VerbPurge, PlanID: "plan-3",
			Since: ptr(instant), Until: ptr(instant.Add(time.Hour)),
		},
	}
}

// TestListEventsIndexed proves that Postgres accepts the statement of each filter,
// and that a page of a large audit is read from an index.
func TestListEventsIndexed(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	run(t, store, `insert into deadletter.events (verb, actor, at, namespace, workflow_id, run_id, plan_id)
		select case when i % 50 = 0 then 'purge' else 'move' end, case when i % 100 = 0 then 'ada' else 'deadletter' end,
			$1::timestamptz + i * interval '1 second', 'default', 'w' || i, 'r', case when i % 1000 = 0 then 'plan-' || i / 1000 end
		from generate_series(1, 50000) i`, instant.Add(-25000*time.Second))
	run(t, store, `analyze deadletter.events`)
	for name, filter := range eventFilters() {
		for _, cursor := range []string{"", dlqstore.EventCursor(t, 40000)} {
			text, args, err := store.EventsQuery(filter, dlqstore.EventPage{Cursor: cursor})
			require.NoError(t, err)
			args["limit"] = 51
			rows, err := store.Pool().Query(t.Context(), "explain "+text, pgx.NamedArgs(args))
			require.NoError(t, err, name)
			plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
			require.NoError(t, err, name)
			require.NotContains(t, strings.Join(plan, "\n"), "Seq Scan", name)
			require.Contains(t, strings.Join(plan, "\n"), "Index", name)
		}
	}
}

// TestListEvents proves that pages are complete and in order while others write,
// that filters hold, and that a foreign cursor is refused.
func TestListEvents(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	for i := range 25 {
		move(t, store, letter(keyOf(fmt.Sprint("w", i))))
	}
	var ids []int64
	page := dlqstore.EventPage{Limit: 10}
	for {
		events, next, err := store.ListEvents(t.Context(), dlqstore.EventFilter{Namespace: "default"}, page)
		require.NoError(t, err)
		for _, event := range events {
			ids = append(ids, event.ID)
		}
		move(t, store, letter(keyOf(fmt.Sprint("later", len(ids)))))
		if page.Cursor = next; next == "" {
			break
		}
	}
	require.Len(t, ids, 25)
	for i := range ids[1:] {
		require.Less(t, ids[i+1], ids[i])
	}
	none, _, err := store.ListEvents(t.Context(), dlqstore.EventFilter{Namespace: "other"}, dlqstore.EventPage{})
	require.NoError(t, err)
	require.Empty(t, none)
	foreign, err := dlqstore.CursorAt(letter(keyOf("w")), false)
	require.NoError(t, err)
	for _, cursor := range []string{"nonsense!", foreign, "e30"} {
		_, _, err := store.ListEvents(t.Context(), dlqstore.EventFilter{}, dlqstore.EventPage{Cursor: cursor})
		require.ErrorIs(t, err, dlqstore.ErrBadCursor)
	}
	_, _, err = store.ListEvents(t.Context(), dlqstore.EventFilter{}, dlqstore.EventPage{Limit: 1001})
	require.ErrorContains(t, err, "1001")
}

// TestRefusalsHideNothing proves that the first error is returned although its
// event cannot be written, and that an outage leaves no event.
func TestRefusalsHideNothing(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	run(t, store, `create function fail() returns trigger language plpgsql as $$ begin raise exception 'no'; end $$`)
	run(t, store, `create trigger fail before insert on deadletter.events for each row execute function fail()`)
	require.ErrorIs(t, store.Purge(t.Context(), keyOf("w"), "me"), dlqstore.ErrNotFound)
	run(t, store, `drop trigger fail on deadletter.events`)
	require.Equal(t, dlqstore.ErrUnavailable, store.NoteRefusal(t.Context(), dlqstore.Asked{Verb: dlqstore.VerbPurge}, dlqstore.ErrUnavailable))
	require.NoError(t, store.NoteRefusal(t.Context(), dlqstore.Asked{Verb: dlqstore.VerbPurge}, nil))
	requireRows(t, store, 0, 0, 0)
	require.Zero(t, scalar[int](t, store, `select count(*)::int from deadletter.events`))

	_, err := store.ResolveFor(t.Context(), dlqstore.Asked{Verb: dlqstore.VerbReplay, Key: dlqstore.Key{Namespace: "default", WorkflowID: "w\x00"}, Actor: strings.Repeat("x", 2000)})
	require.ErrorIs(t, err, dlqstore.ErrNotFound)
	events, _, err := store.ListEvents(t.Context(), dlqstore.EventFilter{}, dlqstore.EventPage{})
	require.NoError(t, err)
	require.Len(t, events, 1)
	require.Equal(t, "w␀", events[0].WorkflowID)
	require.Less(t, len(events[0].Actor), 1001)
}

// TestResolveForAmbiguous proves that a request id names its dead letter where
// there are several, and that without one the refusal is in the audit.
func TestResolveForAmbiguous(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	first, second := keyOf("w"), keyOf("w")
	second.RunID = "second"
	move(t, store, letter(first))
	edited := change(first, 1, argumentsOf("two"))
	edited.RequestID = "edit"
	_, _, err := store.Edit(t.Context(), edited)
	require.NoError(t, err)
	begin(t, store, first, "replay")
	move(t, store, letter(second))
	asked := dlqstore.Asked{Verb: dlqstore.VerbEdit, Key: dlqstore.Key{Namespace: "default", WorkflowID: "w"}, Actor: "me"}
	for _, id := range []string{"edit", "replay"} {
		asked.RequestID = id
		key, err := store.ResolveFor(t.Context(), asked)
		require.NoError(t, err)
		require.Equal(t, first, key)
	}
	asked.RequestID = "fresh"
	_, err = store.ResolveFor(t.Context(), asked)
	require.ErrorIs(t, err, dlqstore.ErrAmbiguous)
	require.Equal(t, 1, scalar[int](t, store, `select count(*)::int from deadletter.events where verb = 'edit_refused' and detail = '{"cause": "ambiguous", "runs": 2}'`))
}

// TestNotes proves that notes are on a dead letter or on its fingerprint, in
// order, that the first go with it, and that events tell of them without the text.
func TestNotes(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	key := keyOf("w")
	move(t, store, letter(key))
	other := letter(keyOf("other"))
	other.Fingerprint = ""
	move(t, store, other)

	own, err := store.AddNote(t.Context(), dlqstore.NoteRequest{Key: key, Text: "geheim\x00", Actor: "ada"})
	require.NoError(t, err)
	require.Equal(t, "geheim␀", own.Text)
	group, err := store.AddNote(t.Context(), dlqstore.NoteRequest{Key: dlqstore.Key{Namespace: "default"}, Fingerprint: "f1", Text: "all of them", Actor: "bob"})
	require.NoError(t, err)
	notes, err := store.Notes(t.Context(), key, "f1")
	require.NoError(t, err)
	require.Equal(t, []dlqstore.Note{*own, *group}, notes)
	notes, err = store.Notes(t.Context(), other.Key, "")
	require.NoError(t, err)
	require.Empty(t, notes)

	for _, request := range []dlqstore.NoteRequest{
		{Key: keyOf("nobody"), Text: "x"},
		{Key: dlqstore.Key{Namespace: "default"}, Fingerprint: "f2", Text: "x"},
		{Key: dlqstore.Key{Namespace: "default"}, Text: "x"},
		{Key: key, Text: " \n"},
		{Key: key, Text: strings.Repeat("x", dlqstore.MaxNote+1)},
		{Key: key, Fingerprint: "f1", Text: "x"},
	} {
		_, err := store.AddNote(t.Context(), request)
		require.Error(t, err)
	}
	require.Equal(t, []string{"move", "note", "note_refused", "note_refused"}, verbsOf(events(t, store, key)))
	require.NotContains(t, scalar[string](t, store, `select string_agg(detail::text, '') from deadletter.events`), "geheim")
	require.NoError(t, store.Purge(t.Context(), key, "me"))
	require.Equal(t, "all of them", scalar[string](t, store, `select string_agg(note, '') from deadletter.notes`))
}

// TestLineage proves that a line is followed both ways, over purged ancestors no
// further than known, and that it is bounded.
func TestLineage(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	const length = dlqstore.MaxAncestors + 10
	keys := []dlqstore.Key{keyOf("w0")}
	first := letter(keys[0])
	first.Generation, first.ReplayedFromWorkflowID, first.ReplayedFromRunID = 0, nil, nil
	move(t, store, first)
	for i := 1; i < length; i++ {
		parent := keys[i-1]
		start := begin(t, store, parent, fmt.Sprint("r", i))
		key := keyOf(start.Replay.NewWorkflowID)
		child := letter(key)
		child.Generation, child.ReplayedFromWorkflowID, child.ReplayedFromRunID = i, &parent.WorkflowID, &parent.RunID
		move(t, store, child)
		keys = append(keys, key)
	}
	line, err := store.Lineage(t.Context(), keys[3])
	require.NoError(t, err)
	require.Len(t, line.Ancestors, 3)
	for i, ancestor := range line.Ancestors {
		require.Equal(t, keys[2-i], ancestor.Key)
		require.Equal(t, ptr(job.ReasonMaxRetriesExceeded), ancestor.Reason)
		require.Equal(t, ptr(2-i), ancestor.Generation)
	}
	require.Len(t, line.Descendants, 50)
	require.Equal(t, 1, line.Descendants[0].Depth)
	require.Equal(t, keys[4].WorkflowID, line.Descendants[0].NewWorkflowID)
	require.Equal(t, ptr(job.OutcomeDeadLettered), line.Descendants[0].Outcome)
	line, err = store.Lineage(t.Context(), keys[length-1])
	require.NoError(t, err)
	require.Len(t, line.Ancestors, dlqstore.MaxAncestors)
	require.Empty(t, line.Descendants)

	require.NoError(t, store.Purge(t.Context(), keys[1], "me"))
	line, err = store.Lineage(t.Context(), keys[3])
	require.NoError(t, err)
	require.Len(t, line.Ancestors, 2)
	require.Equal(t, keys[1], line.Ancestors[1].Key)
	require.Nil(t, line.Ancestors[1].Reason)
	encoded, err := json.Marshal(line.Ancestors[1])
	require.NoError(t, err)
	require.Contains(t, string(encoded), `"reason":null`)
}
