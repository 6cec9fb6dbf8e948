package dlqstore_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/deadletter-dev/deadletter/dlqstore"
)

// TestPurge proves that a purged dead letter is gone with its attempts, that its
// events and replays stay, and that no late move brings it back or runs a hook.
func TestPurge(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	key := keyOf("w")
	move(t, store, letter(key))
	begin(t, store, key, "r")
	require.ErrorIs(t, store.Purge(t.Context(), key, "oncall"), dlqstore.ErrBusy, "the start needs the row")
	purged, err := store.PurgeMatching(t.Context(), dlqstore.PurgeRequest{All: true, Actor: "oncall"})
	require.NoError(t, err)
	require.Zero(t, purged, "the start needs the row")
	require.NoError(t, store.ConfirmReplay(t.Context(), "r", "run"))
	require.NoError(t, store.Purge(t.Context(), key, "oncall"))
	_, err = store.Get(t.Context(), key)
	require.ErrorIs(t, err, dlqstore.ErrNotFound)
	require.ErrorIs(t, store.Purge(t.Context(), key, "oncall"), dlqstore.ErrNotFound)

	for _, err := range concurrently(4, func(int) error {
		moved, err := store.Move(t.Context(), letter(key), attempts(2), "late", func(context.Context, pgx.Tx, *dlqstore.DeadLetter) error {
			return errors.New("the hook ran")
		})
		if moved {
			return errors.New("moved again")
		}
		return err
	}) {
		require.NoError(t, err)
	}
	requireRows(t, store, 0, 3, 0)
	events, err := store.Events(t.Context(), key)
	require.NoError(t, err)
	require.Equal(t, []string{"move", "replay", "purge", "purge_refused"}, verbsOf(events))
	require.Equal(t, "oncall", events[2].Actor)
	require.Contains(t, string(events[2].Detail), `"reason": "max_retries_exceeded"`)
	replays, err := store.Replays(t.Context(), key)
	require.NoError(t, err)
	require.Len(t, replays, 1)
}

// TestPurgeTx proves that a purge belongs to the caller's transaction.
func TestPurgeTx(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	key := keyOf("w")
	move(t, store, letter(key))
	abandoned := errors.New("abandoned")
	require.ErrorIs(t, pgx.BeginFunc(t.Context(), store.Pool(), func(tx pgx.Tx) error {
		require.NoError(t, store.PurgeTx(t.Context(), tx, key, "me"))
		return abandoned
	}), abandoned)
	requireRows(t, store, 1, 1, 2)
}

// TestPurgeRequested proves that a request removes one dead letter and may be
// repeated, by eight at once and after another run died; and that another request,
// or one that never removed anything, is told that there is none.
func TestPurgeRequested(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	either := dlqstore.Key{Namespace: "default", WorkflowID: "w"}
	first, second := either, either
	first.RunID, second.RunID = "first", "second"
	for range 2 { // the second time as a retry of the first
		require.ErrorIs(t, store.PurgeRequested(t.Context(), either, "never", "oncall"), dlqstore.ErrNotFound)
	}
	move(t, store, letter(first))
	for _, err := range concurrently(8, func(int) error { return store.PurgeRequested(t.Context(), either, "r", "oncall") }) {
		require.NoError(t, err)
	}
	requireRows(t, store, 0, 2, 0)
	events, err := store.Events(t.Context(), first)
	require.NoError(t, err)
	require.Equal(t, "r", *events[1].RequestID)
	require.Equal(t, "oncall", events[1].Actor)
	require.ErrorIs(t, store.PurgeRequested(t.Context(), either, "other", "oncall"), dlqstore.ErrNotFound)
	require.ErrorIs(t, store.PurgeRequested(t.Context(), second, "r", "oncall"), dlqstore.ErrNotFound)

	move(t, store, letter(second))
	require.NoError(t, store.PurgeRequested(t.Context(), either, "r", "oncall"))
	_, err = store.Get(t.Context(), second)
	require.NoError(t, err, "a repetition removed another run")

	require.ErrorContains(t, store.PurgeRequested(t.Context(), second, "", "oncall"), "no request id")
	third := either
	third.RunID = "third"
	move(t, store, letter(third))
	require.ErrorIs(t, store.PurgeRequested(t.Context(), either, "new", "oncall"), dlqstore.ErrAmbiguous)
}

// TestPurgeMatching proves that a purge by filter removes what matches and nothing
// else, writes an event for each, refuses an empty filter, and does nothing at all
// when more match than its limit.
func TestPurgeMatching(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	run(t, store, `insert into deadletter.dead_letters (namespace, workflow_id, run_id, reason, job_type, payloads)
		select 'default', 'w' || i, 'r', 'fatal_error', case when i <= 1234 then 'Old' else 'New' end, '' from generate_series(1, 1300) i`)
	old := dlqstore.Filter{Namespace: "default", JobType: "Old"}

	for _, refused := range []dlqstore.Filter{{}, {Namespace: "default"}} {
		_, err := store.PurgeMatching(t.Context(), dlqstore.PurgeRequest{Filter: refused, Actor: "me"})
		require.ErrorIs(t, err, dlqstore.ErrUnbounded)
	}
	_, err := store.PurgeMatching(t.Context(), dlqstore.PurgeRequest{Filter: old, Actor: "me"})
	var tooMany *dlqstore.CapError
	require.ErrorAs(t, err, &tooMany)
	require.Equal(t, dlqstore.CapError{Matched: 1234, Limit: 1000}, *tooMany)
	_, err = store.PurgeMatching(t.Context(), dlqstore.PurgeRequest{Filter: old, Limit: -1})
	require.ErrorContains(t, err, "negative")
	requireRows(t, store, 1300, 0, 0)
	require.Equal(t, int64(2), scalar[int64](t, store, `select count(*) from deadletter.events
		where verb = 'purge_refused' and actor = 'me' and workflow_id = '' and detail = '{"cause": "unbounded_filter"}'`))
	require.Equal(t, int64(1), scalar[int64](t, store, `select count(*) from deadletter.events
		where verb = 'purge_refused' and namespace = 'default' and detail = '{"cause": "cap_exceeded", "matched": 1234, "limit": 1000}'`))

	purged, err := store.PurgeMatching(t.Context(), dlqstore.PurgeRequest{Filter: old, Limit: 1234, Actor: "me"})
	require.NoError(t, err)
	require.Equal(t, int64(1234), purged)
	requireRows(t, store, 66, 1234, 0)
	require.Equal(t, int64(1234), scalar[int64](t, store, `select count(distinct workflow_id) from deadletter.events where verb = 'purge' and actor = 'me'`))

	purged, err = store.PurgeMatching(t.Context(), dlqstore.PurgeRequest{Filter: old, Actor: "me"})
	require.NoError(t, err)
	require.Zero(t, purged)
	purged, err = store.PurgeMatching(t.Context(), dlqstore.PurgeRequest{All: true, Actor: "me"})
	require.NoError(t, err)
	require.Equal(t, int64(66), purged)
}

// TestPurgeMatchingTogether proves that purges which overlap remove each dead
// letter once, without a deadlock.
func TestPurgeMatchingTogether(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	for i := range 40 {
		dl := letter(keyOf(fmt.Sprint("w", i)))
		dl.Tags = map[string]string{"half": fmt.Sprint(i % 2)}
		move(t, store, dl)
	}
	total := make([]int64, 6)
	for _, err := range concurrently(6, func(i int) (err error) {
		filter := dlqstore.Filter{JobType: "SendEmail"}
		if i%2 == 0 {
			filter = dlqstore.Filter{Tags: map[string]string{"half": "1"}}
		}
		total[i], err = store.PurgeMatching(t.Context(), dlqstore.PurgeRequest{Filter: filter, Actor: "me"})
		return err
	}) {
		require.NoError(t, err)
	}
	var sum int64
	for _, purged := range total {
		sum += purged
	}
	require.Equal(t, int64(40), sum)
	requireRows(t, store, 0, 80, 0)
}
