package dlqstore_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/internal/devstack/devtest"
)

// TestMoveRoundTrip proves that every column that a move writes is read back as it
// was given, in each way that pgx talks to Postgres or to a pooler.
func TestMoveRoundTrip(t *testing.T) {
	t.Parallel()
	url := devtest.Postgres(t)
	for _, mode := range []string{"cache_statement", "cache_describe", "describe_exec", "exec", "simple_protocol"} {
		separator := "?"
		if strings.Contains(url, "?") {
			separator = "&"
		}
		store := openAt(t, url+separator+"default_query_exec_mode="+mode)
		want := letter(keyOf(mode))
		moved, err := store.Move(t.Context(), want, attempts(3), "worker", nil)
		require.NoError(t, err, mode)
		require.True(t, moved)

		got, err := store.Get(t.Context(), want.Key)
		require.NoError(t, err)
		require.Equal(t, want, got, mode)
		list, err := store.Attempts(t.Context(), want.Key)
		require.NoError(t, err)
		require.Equal(t, attempts(3), list)
		events, err := store.Events(t.Context(), want.Key)
		require.NoError(t, err)
		require.Len(t, events, 1)
		require.Equal(t, dlqstore.VerbMove, events[0].Verb)
		require.Equal(t, "worker", events[0].Actor)
		require.Equal(t, want.Key, events[0].Key)
		require.JSONEq(t, `{"reason":"max_retries_exceeded","job_type":"SendEmail","attempts":3}`, string(events[0].Detail))

		start, err := store.BeginReplay(t.Context(), dlqstore.ReplayRequest{Key: want.Key, RequestID: mode, Actor: "me"})
		require.NoError(t, err, mode)
		require.True(t, start.Fresh)
		require.NoError(t, store.ConfirmReplay(t.Context(), mode, "new"), mode)
		for name, filter := range allFilters() {
			_, _, err := store.List(t.Context(), filter, dlqstore.Page{})
			require.NoError(t, err, "%s %s", mode, name)
			_, err = store.PurgeMatching(t.Context(), dlqstore.PurgeRequest{Filter: filter, All: true})
			require.NoError(t, err, "%s %s", mode, name)
		}
	}
}

// TestMoveLeast proves that a dead letter of which nothing is known but its key
// and its reason is stored, with the defaults of the columns.
func TestMoveLeast(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	given := &dlqstore.DeadLetter{Key: keyOf("w"), Reason: "terminated", MaxAttempts: ptr(-1)}
	moved, err := store.Move(t.Context(), given, nil, "", func(_ context.Context, _ pgx.Tx, dl *dlqstore.DeadLetter) error {
		require.False(t, dl.DeadAt.IsZero())
		require.JSONEq(t, `{}`, string(dl.Priority))
		return nil
	})
	require.NoError(t, err)
	require.True(t, moved)
	require.Equal(t, &dlqstore.DeadLetter{Key: keyOf("w"), Reason: "terminated", MaxAttempts: ptr(-1)}, given, "the caller's value is not altered")

	got, err := store.Get(t.Context(), given.Key)
	require.NoError(t, err)
	require.WithinDuration(t, time.Now(), got.DeadAt, time.Minute)
	require.Equal(t, &dlqstore.DeadLetter{
		Key: given.Key, Reason: "terminated", Tags: map[string]string{}, Priority: json.RawMessage(`{}`), Revision: 1,
		Payloads: []byte{}, DeadAt: got.DeadAt,
	}, got)
	list, err := store.Attempts(t.Context(), given.Key)
	require.NoError(t, err)
	require.Empty(t, list)
}

// TestMoveBadKey proves that an incomplete or impossible key is refused before
// anything is written, and is found nowhere.
func TestMoveBadKey(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	for _, key := range []dlqstore.Key{{}, {Namespace: "n", WorkflowID: "w"}, {Namespace: "n", WorkflowID: "w\x00", RunID: "r"}, {Namespace: "n", WorkflowID: "\xff", RunID: "r"}} {
		_, err := store.Move(t.Context(), letter(key), nil, "worker", nil)
		require.ErrorContains(t, err, "key")
		_, err = store.Get(t.Context(), key)
		require.ErrorIs(t, err, dlqstore.ErrNotFound)
		require.ErrorIs(t, store.Purge(t.Context(), key, "me"), dlqstore.ErrNotFound)
		_, err = store.BeginReplay(t.Context(), dlqstore.ReplayRequest{Key: key})
		require.ErrorIs(t, err, dlqstore.ErrNotFound)
		_, err = store.Resolve(t.Context(), key.Namespace, key.WorkflowID, key.RunID)
		require.ErrorIs(t, err, dlqstore.ErrNotFound)
	}
	require.Equal(t, int64(8), scalar[int64](t, store, `select count(*) from deadletter.events where detail = '{"cause": "not_found"}'`))
	requireRows(t, store, 0, 0, 0)
}

// TestMoveTwice proves that a repeated move writes nothing and runs no hook, also
// when eight run at once.
func TestMoveTwice(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	var hooks, moves atomic.Int32
	for _, err := range concurrently(8, func(i int) error {
		dl := letter(keyOf("w"))
		dl.ErrorMessage = fmt.Sprint("from ", i)
		moved, err := store.Move(t.Context(), dl, attempts(3), "worker", func(context.Context, pgx.Tx, *dlqstore.DeadLetter) error {
			hooks.Add(1)
			return nil
		})
		if moved {
			moves.Add(1)
		}
		return err
	}) {
		require.NoError(t, err)
	}
	require.Equal(t, int32(1), moves.Load())
	require.Equal(t, int32(1), hooks.Load())
	requireRows(t, store, 1, 1, 3)

	first, err := store.Get(t.Context(), keyOf("w"))
	require.NoError(t, err)
	moved, err := store.Move(t.Context(), letter(keyOf("w")), attempts(5), "other", nil)
	require.NoError(t, err)
	require.False(t, moved)
	again, err := store.Get(t.Context(), keyOf("w"))
	require.NoError(t, err)
	require.Equal(t, first, again)
	requireRows(t, store, 1, 1, 3)
}

// requireRows counts no events of refusals.
func requireRows(t *testing.T, store *dlqstore.Store, deadLetters, events, attempts int64) {
	t.Helper()
	require.Equal(t, deadLetters, scalar[int64](t, store, `select count(*) from deadletter.dead_letters`), "dead letters")
	require.Equal(t, events, scalar[int64](t, store, `select count(*) from deadletter.events where verb not like '%refused'`), "events")
	require.Equal(t, attempts, scalar[int64](t, store, `select count(*) from deadletter.attempts`), "attempts")
}

// TestMoveAfterPrunedEvent proves that a row whose move event was pruned against
// the rules is neither doubled nor an error.
func TestMoveAfterPrunedEvent(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	move(t, store, letter(keyOf("w")))
	run(t, store, `delete from deadletter.events`)
	moved, err := store.Move(t.Context(), letter(keyOf("w")), attempts(5), "worker", nil)
	require.NoError(t, err)
	require.False(t, moved)
	requireRows(t, store, 1, 1, 2)
}

// TestMoveFaults proves that a fault at any statement, or in the hook, leaves
// nothing visible, and that the move succeeds once the fault is gone.
func TestMoveFaults(t *testing.T) {
	t.Parallel()
	for _, table := range []string{"events", "dead_letters", "attempts"} {
		t.Run(table, func(t *testing.T) {
			t.Parallel()
			store := openStore(t)
			run(t, store, `create table legacy (id text)`)
			run(t, store, `insert into legacy values ('w')`)
			run(t, store, `create function fault() returns trigger language plpgsql as $$ begin raise exception 'injected'; end $$`)
			run(t, store, `create trigger fault after insert on deadletter.`+table+` for each row execute function fault()`)
			moved, err := store.Move(t.Context(), letter(keyOf("w")), attempts(2), "worker", deleteLegacy)
			require.ErrorContains(t, err, "injected")
			require.False(t, moved)
			requireRows(t, store, 0, 0, 0)
			require.Equal(t, int64(1), scalar[int64](t, store, `select count(*) from legacy`))

			run(t, store, `drop trigger fault on deadletter.`+table)
			moved, err = store.Move(t.Context(), letter(keyOf("w")), attempts(2), "worker", deleteLegacy)
			require.NoError(t, err)
			require.True(t, moved)
			requireRows(t, store, 1, 1, 2)
			require.Equal(t, int64(0), scalar[int64](t, store, `select count(*) from legacy`))
		})
	}
}

// deleteLegacy names a table of the user's search path.
func deleteLegacy(ctx context.Context, tx pgx.Tx, dl *dlqstore.DeadLetter) error {
	_, err := tx.Exec(ctx, `delete from legacy where id = $1`, dl.WorkflowID)
	return err
}

// TestMoveHook proves that the hook's writes and the dead letter are there
// together or not at all: when the hook fails after writing, when it swallows an
// error of Postgres, and when it panics.
func TestMoveHook(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	run(t, store, `create table legacy (id text)`)
	run(t, store, `insert into legacy values ('w')`)
	fault := errors.New("no such order")
	for name, hook := range map[string]dlqstore.Hook{
		"error": func(ctx context.Context, tx pgx.Tx, dl *dlqstore.DeadLetter) error {
			require.NoError(t, deleteLegacy(ctx, tx, dl))
			return fault
		},
		"swallowed error": func(ctx context.Context, tx pgx.Tx, dl *dlqstore.DeadLetter) error {
			require.NoError(t, deleteLegacy(ctx, tx, dl))
			_, err := tx.Exec(ctx, `select 1/0`)
			require.Error(t, err)
			return nil
		},
		"panic": func(ctx context.Context, tx pgx.Tx, dl *dlqstore.DeadLetter) error {
			require.NoError(t, deleteLegacy(ctx, tx, dl))
			panic("hook")
		},
	} {
		try := func() (err error) {
			defer func() {
				if recover() != nil {
					err = fault
				}
			}()
			moved, err := store.Move(t.Context(), letter(keyOf("w")), attempts(2), "worker", hook)
			require.False(t, moved, name)
			return err
		}
		err := try()
		require.Error(t, err, name)
		if name == "error" {
			require.ErrorIs(t, err, fault)
		}
		requireRows(t, store, 0, 0, 0)
		require.Equal(t, int64(1), scalar[int64](t, store, `select count(*) from legacy`), name)
	}
}

// TestMoveTx proves that a move belongs to the caller's transaction.
func TestMoveTx(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	abandoned := errors.New("abandoned")
	for _, want := range []error{abandoned, nil} {
		err := pgx.BeginFunc(t.Context(), store.Pool(), func(tx pgx.Tx) error {
			moved, err := store.MoveTx(t.Context(), tx, letter(keyOf("w")), attempts(1), "worker", nil)
			require.NoError(t, err)
			require.True(t, moved)
			return want
		})
		require.ErrorIs(t, err, want)
		if want != nil {
			requireRows(t, store, 0, 0, 0)
		}
	}
	requireRows(t, store, 1, 1, 1)
}
