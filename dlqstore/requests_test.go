package dlqstore_test

import (
	"math"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/job"
)

// TestPlanOnce proves that one request id makes one plan, however often and however
// many at once ask for it, and that it cannot stand for another plan.
func TestPlanOnce(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	letters(t, store, 3)
	request := dlqstore.PlanRequest{
		Verb: job.BulkReplay, Filter: dlqstore.Filter{Namespace: "default", JobType: "SendEmail"}, RequestID: "once", Actor: "ann",
	}
	ids := make([]string, 8)
	var asking sync.WaitGroup
	for i := range ids {
		asking.Go(func() {
			if made, err := store.CreatePlan(t.Context(), request); err == nil {
				ids[i] = made.ID
			} else {
				t.Errorf("request %d: %v", i, err)
			}
		})
	}
	asking.Wait()
	move(t, store, letter(keyOf("later")))
	again, err := store.CreatePlan(t.Context(), request)
	require.NoError(t, err)
	require.EqualValues(t, 3, again.Members)
	for _, id := range ids {
		require.Equal(t, again.ID, id)
	}
	require.Equal(t, 1, scalar[int](t, store, `select count(*) from deadletter.plans`))
	require.Equal(t, 3, scalar[int](t, store, `select count(*) from deadletter.plan_items`))
	require.Equal(t, "once", scalar[string](t, store, `select request_id from deadletter.events where verb = 'plan'`))

	for name, change := range map[string]func(*dlqstore.PlanRequest){
		"another filter":    func(r *dlqstore.PlanRequest) { r.Filter.JobType = "Other" },
		"another verb":      func(r *dlqstore.PlanRequest) { r.Verb = job.BulkPurge },
		"another namespace": func(r *dlqstore.PlanRequest) { r.Filter.Namespace = "else" },
		"another rate":      func(r *dlqstore.PlanRequest) { r.Parameters.Rate = 7 },
		"another limit":     func(r *dlqstore.PlanRequest) { r.Limit = 1 },
	} {
		other := request
		change(&other)
		_, err := store.CreatePlan(t.Context(), other)
		require.ErrorIs(t, err, dlqstore.ErrRequestConflict, name)
	}
	// The same refusal of one request id has one event, in each namespace.
	require.Equal(t, 2, scalar[int](t, store, `select count(*) from deadletter.events
		where verb = 'plan_refused' and request_id = 'once' and detail->>'cause' = 'request_conflict'`))
	request.RequestID = strings.Repeat("r", 10_000)
	_, err = store.CreatePlan(t.Context(), request)
	require.ErrorIs(t, err, dlqstore.ErrRefused)
	for _, filter := range []dlqstore.Filter{{MinAttempts: new(math.MaxInt32 + 1)}, {MaxAttempts: new(math.MaxInt32 + 1)}, {Generation: new(math.MinInt32 - 1)}} {
		filter.Namespace = "default"
		_, err = store.CreatePlan(t.Context(), dlqstore.PlanRequest{Verb: job.BulkPurge, Filter: filter})
		require.ErrorIs(t, err, dlqstore.ErrRefused, "Postgres could not take the number")
	}
	request.RequestID = ""
	one := plan(t, store, request)
	require.NotEqual(t, one.ID, plan(t, store, request).ID)
}

// TestNoteOnce proves the same of notes, on a dead letter and on a fingerprint.
func TestNoteOnce(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	dl := letter(keyOf("w1"))
	dl.Fingerprint = "f1"
	move(t, store, dl)
	dl = letter(keyOf("w2"))
	dl.Fingerprint = "f2"
	move(t, store, dl)
	for name, request := range map[string]dlqstore.NoteRequest{
		"dead letter": {Key: keyOf("w1"), Text: "seen", RequestID: "one", Actor: "ann"},
		"fingerprint": {Key: dlqstore.Key{Namespace: "default"}, Fingerprint: "f1", Text: "seen", RequestID: "all", Actor: "ann"},
	} {
		t.Run(name, func(t *testing.T) {
			made := make([]*dlqstore.Note, 8)
			var asking sync.WaitGroup
			for i := range made {
				asking.Go(func() {
					var err error
					if made[i], err = store.AddNote(t.Context(), request); err != nil {
						t.Errorf("request %d: %v", i, err)
					}
				})
			}
			asking.Wait()
			require.False(t, t.Failed())
			for _, note := range made {
				require.Equal(t, made[0], note)
			}
			for what, change := range map[string]func(*dlqstore.NoteRequest){
				"text":        func(r *dlqstore.NoteRequest) { r.Text = "something else" },
				"dead letter": func(r *dlqstore.NoteRequest) { r.Key, r.Fingerprint = keyOf("w2"), "" },
				"fingerprint": func(r *dlqstore.NoteRequest) { r.Key, r.Fingerprint = dlqstore.Key{Namespace: "default"}, "f2" },
			} {
				other := request
				change(&other)
				_, err := store.AddNote(t.Context(), other)
				require.ErrorIs(t, err, dlqstore.ErrRequestConflict, what)
			}
			request.RequestID = strings.Repeat("r", 10_000)
			_, err := store.AddNote(t.Context(), request)
			require.ErrorIs(t, err, dlqstore.ErrRefused)
		})
	}
	require.Equal(t, 2, scalar[int](t, store, `select count(*) from deadletter.notes`))
	require.Equal(t, 2, scalar[int](t, store, `select count(*) from deadletter.events where verb = 'note' and request_id is not null`))
}

// TestNoteFindsItsRun proves that a repeated request for a note is the same one after
// another run of the job has died.
func TestNoteFindsItsRun(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	move(t, store, letter(keyOf("w")))
	asked := dlqstore.Asked{Verb: dlqstore.VerbNote, Key: dlqstore.Key{Namespace: "default", WorkflowID: "w"}, RequestID: "r"}
	key, err := store.ResolveFor(t.Context(), asked)
	require.NoError(t, err)
	_, err = store.AddNote(t.Context(), dlqstore.NoteRequest{Key: key, Text: "seen", RequestID: "r"})
	require.NoError(t, err)
	again := keyOf("w")
	again.RunID = "another-run"
	move(t, store, letter(again))
	found, err := store.ResolveFor(t.Context(), asked)
	require.NoError(t, err)
	require.Equal(t, key, found)
}

// TestPlanKeepsItsEdit proves that what an edit puts in is in the plan as it was
// asked for, characters included that jsonb takes in no text of its own.
func TestPlanKeepsItsEdit(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	letters(t, store, 1)
	const edit = `{"argument":{"0":{"z":"\u0000x","y":"\\u0000","w":"\\\u0000","n":1.10}}}`
	made := plan(t, store, dlqstore.PlanRequest{
		Verb: job.BulkEdit, All: true, Parameters: dlqstore.PlanParameters{Edit: edit},
		Preview: func(*dlqstore.DeadLetter) (dlqstore.Diff, error) { return dlqstore.Diff{}, nil },
	})
	require.Equal(t, edit, made.Parameters.Edit) //nolint:testifylint // the bytes are the point
}
