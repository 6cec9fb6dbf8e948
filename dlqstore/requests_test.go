package dlqstore_test

import (
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
	} {
		other := request
		change(&other)
		_, err := store.CreatePlan(t.Context(), other)
		require.ErrorIs(t, err, dlqstore.ErrRequestConflict, name)
	}
	require.Equal(t, 4, scalar[int](t, store, `select count(*) from deadletter.events
		where verb = 'plan_refused' and request_id = 'once' and detail->>'cause' = 'request_conflict'`))
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
			request.Text = "something else"
			_, err := store.AddNote(t.Context(), request)
			require.ErrorIs(t, err, dlqstore.ErrRequestConflict)
		})
	}
	require.Equal(t, 2, scalar[int](t, store, `select count(*) from deadletter.notes`))
	require.Equal(t, 2, scalar[int](t, store, `select count(*) from deadletter.events where verb = 'note' and request_id is not null`))
}
