package dlqstore_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/job"
)

func begin(t *testing.T, store *dlqstore.Store, key dlqstore.Key, requestID string) *dlqstore.ReplayStart {
	t.Helper()
	start, err := store.BeginReplay(t.Context(), dlqstore.ReplayRequest{Key: key, RequestID: requestID, Actor: "oncall"})
	require.NoError(t, err)
	return start
}

func requireCount(t *testing.T, store *dlqstore.Store, key dlqstore.Key, want int) *dlqstore.DeadLetter {
	t.Helper()
	dl, err := store.Get(t.Context(), key)
	require.NoError(t, err)
	require.Equal(t, want, dl.ResurrectionCount)
	require.Equal(t, want > 0, dl.LastResurrectionAt != nil)
	return dl
}

// TestBeginReplay proves what one replay writes and returns.
func TestBeginReplay(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	key := keyOf("w")
	move(t, store, letter(key))
	start := begin(t, store, key, "r1")
	require.True(t, start.Fresh)
	require.Equal(t, requireCount(t, store, key, 1), start.DeadLetter)
	require.Equal(t, letter(key).Payloads, start.DeadLetter.Payloads)
	require.Equal(t, dlqstore.Replay{
		Key: key, RequestID: "r1", NewWorkflowID: start.Replay.NewWorkflowID, Actor: "oncall", RequestedAt: start.Replay.RequestedAt, Revision: ptr(1),
	}, start.Replay)
	require.Equal(t, start.Replay.RequestedAt, *start.DeadLetter.LastResurrectionAt)
	require.Regexp(t, `^w-replay-[a-z2-7]{12}$`, start.Replay.NewWorkflowID)

	events, err := store.Events(t.Context(), key)
	require.NoError(t, err)
	require.Len(t, events, 2)
	require.Equal(t, dlqstore.VerbReplay, events[1].Verb)
	require.Equal(t, "oncall", events[1].Actor)
	require.Equal(t, ptr("r1"), events[1].RequestID)
	require.JSONEq(t, fmt.Sprintf(`{"new_workflow_id":%q}`, start.Replay.NewWorkflowID), string(events[1].Detail))
}

// TestReplaySameRequest proves that fifty calls at once with one request id are one
// replay, and that a later call returns the same.
func TestReplaySameRequest(t *testing.T) {
	t.Parallel()
	store := openStore(t, dlqstore.WithTimeout(5*time.Minute)) // the last waits for all the others
	key := keyOf("w")
	move(t, store, letter(key))
	starts := make([]*dlqstore.ReplayStart, 50)
	for _, err := range concurrently(50, func(i int) (err error) {
		starts[i], err = store.BeginReplay(t.Context(), dlqstore.ReplayRequest{Key: key, RequestID: "r1", Actor: "oncall"})
		return err
	}) {
		require.NoError(t, err)
	}
	fresh := 0
	for _, start := range starts {
		if start.Fresh {
			fresh++
		}
		require.Equal(t, starts[0].Replay, start.Replay)
		require.Equal(t, starts[0].DeadLetter, start.DeadLetter)
	}
	require.Equal(t, 1, fresh)
	requireCount(t, store, key, 1)
	require.Equal(t, int64(1), scalar[int64](t, store, `select count(*) from deadletter.events where verb = 'replay'`))

	require.NoError(t, store.ConfirmReplay(t.Context(), "r1", "new-run"))
	again := begin(t, store, key, "r1")
	require.False(t, again.Fresh)
	require.Equal(t, ptr("new-run"), again.Replay.NewRunID)
	requireCount(t, store, key, 1)
}

// TestReplayTwice proves that two requests, with ids or without, are distinct jobs.
func TestReplayTwice(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	key := keyOf("w")
	move(t, store, letter(key))
	ids := map[string]bool{}
	for _, requestID := range []string{"r1", "r2", "", ""} {
		start := begin(t, store, key, requestID)
		require.True(t, start.Fresh)
		ids[start.Replay.NewWorkflowID] = true
	}
	require.Len(t, ids, 4)
	requireCount(t, store, key, 4)
	replays, err := store.Replays(t.Context(), key)
	require.NoError(t, err)
	require.Len(t, replays, 4)
}

// TestReplayConflict proves that a request id stands for one dead letter, also when
// eight dead letters are asked for at once.
func TestReplayConflict(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	for i := range 8 {
		move(t, store, letter(keyOf(fmt.Sprint("w", i))))
	}
	won := 0
	for _, err := range concurrently(8, func(i int) error {
		_, err := store.BeginReplay(t.Context(), dlqstore.ReplayRequest{Key: keyOf(fmt.Sprint("w", i)), RequestID: "r"})
		return err
	}) {
		if err == nil {
			won++
		} else {
			require.ErrorIs(t, err, dlqstore.ErrRequestConflict)
		}
	}
	require.Equal(t, 1, won)
	require.Equal(t, int64(1), scalar[int64](t, store, `select sum(resurrection_count)::bigint from deadletter.dead_letters`))
}

// TestConfirmReplay proves that a start is confirmed once, with one run.
func TestConfirmReplay(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	key := keyOf("w")
	move(t, store, letter(key))
	begin(t, store, key, "r1")
	require.Error(t, store.ConfirmReplay(t.Context(), "r1", ""))
	require.NoError(t, store.ConfirmReplay(t.Context(), "r1", "run"))
	replays, err := store.Replays(t.Context(), key)
	require.NoError(t, err)
	require.Equal(t, ptr("run"), replays[0].NewRunID)
	require.Equal(t, ptr(job.StatusQueued), replays[0].Status)
	require.NotNil(t, replays[0].StartedAt)

	require.NoError(t, store.ConfirmReplay(t.Context(), "r1", "run"))
	require.ErrorIs(t, store.ConfirmReplay(t.Context(), "r1", "other"), dlqstore.ErrRequestConflict)
	require.ErrorIs(t, store.ConfirmReplay(t.Context(), "unknown", "run"), dlqstore.ErrNotFound)
	require.ErrorIs(t, store.RefuseReplay(t.Context(), "r1", "late"), dlqstore.ErrRequestConflict)
	again, err := store.Replays(t.Context(), key)
	require.NoError(t, err)
	require.Equal(t, replays, again)
	requireCount(t, store, key, 1)
}

// TestRefuseReplay proves that a refused start is not counted, is refused for good,
// and leaves the other replays' count and time as they were.
func TestRefuseReplay(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	key := keyOf("w")
	move(t, store, letter(key))
	begin(t, store, key, "r1")
	require.NoError(t, store.RefuseReplay(t.Context(), "r1", "too large\x00"))
	requireCount(t, store, key, 0)
	require.NoError(t, store.RefuseReplay(t.Context(), "r1", "again"), "idempotent")
	requireCount(t, store, key, 0)

	_, err := store.BeginReplay(t.Context(), dlqstore.ReplayRequest{Key: key, RequestID: "r1"})
	var refused *dlqstore.RefusedError
	require.ErrorAs(t, err, &refused)
	require.ErrorIs(t, err, dlqstore.ErrRefused)
	require.Equal(t, "too large␀", refused.Cause)
	require.ErrorIs(t, store.ConfirmReplay(t.Context(), "r1", "run"), dlqstore.ErrRefused)
	require.ErrorIs(t, store.RefuseReplay(t.Context(), "unknown", ""), dlqstore.ErrNotFound)

	kept := begin(t, store, key, "r2")
	begin(t, store, key, "r3")
	require.NoError(t, store.RefuseReplay(t.Context(), "r3", "no"))
	dl := requireCount(t, store, key, 1)
	require.Equal(t, kept.Replay.RequestedAt, *dl.LastResurrectionAt)

	events := events(t, store, key)
	require.Equal(t, []string{"move", "replay", "replay_refused", "replay_refused", "replay", "replay", "replay_refused"}, verbsOf(events))
	require.Equal(t, "oncall", events[2].Actor)

	_, err = store.BeginReplay(t.Context(), dlqstore.ReplayRequest{Key: key, RequestID: strings.Repeat("x", 1001)})
	require.ErrorIs(t, err, dlqstore.ErrRefused)
}

// TestRefuseWhileReplaying proves that counts stay true when refusals and new
// requests for one dead letter cross.
func TestRefuseWhileReplaying(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	key := keyOf("w")
	move(t, store, letter(key))
	for _, err := range concurrently(20, func(i int) error {
		requestID := fmt.Sprint("r", i)
		_, err := store.BeginReplay(t.Context(), dlqstore.ReplayRequest{Key: key, RequestID: requestID})
		if err == nil && i%2 == 0 {
			err = errors.Join(store.RefuseReplay(t.Context(), requestID, "no"), store.RefuseReplay(t.Context(), requestID, "no"))
		}
		return err
	}) {
		require.NoError(t, err)
	}
	dl := requireCount(t, store, key, 10)
	require.Equal(t, scalar[time.Time](t, store, `select max(requested_at) from deadletter.replays where outcome is null`).UTC(), *dl.LastResurrectionAt)
}

// TestPendingReplays proves that exactly the replays which nobody finished are
// returned, with all that is needed to start them.
func TestPendingReplays(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	pending := func(namespace string, minAge, maxAge time.Duration, limit int) []string {
		starts, err := store.PendingReplays(t.Context(), namespace, minAge, maxAge, limit)
		require.NoError(t, err)
		var ids []string
		for _, start := range starts {
			ids = append(ids, start.Replay.RequestID)
			require.False(t, start.Fresh)
			require.Equal(t, letter(start.Replay.Key).Payloads, start.DeadLetter.Payloads)
			require.Equal(t, start.Replay.Key, start.DeadLetter.Key)
		}
		return ids
	}
	other := keyOf("other")
	other.Namespace = "elsewhere"
	for _, key := range []dlqstore.Key{keyOf("w"), keyOf("purged"), other} {
		move(t, store, letter(key))
	}
	for _, requestID := range []string{"open", "confirmed", "refused", "young"} {
		begin(t, store, keyOf("w"), requestID)
	}
	begin(t, store, keyOf("purged"), "orphan")
	begin(t, store, other, "elsewhere")
	require.NoError(t, store.ConfirmReplay(t.Context(), "confirmed", "run"))
	require.NoError(t, store.RefuseReplay(t.Context(), "refused", "no"))
	run(t, store, `delete from deadletter.dead_letters where workflow_id = 'purged'`) // by hand: a purge would wait
	run(t, store, `update deadletter.replays set requested_at = requested_at - interval '1 hour' where request_id <> 'young'`)

	require.Equal(t, []string{"open"}, pending("default", time.Minute, 0, 0))
	require.Equal(t, []string{"open", "elsewhere"}, pending("", time.Minute, 0, 0))
	require.Equal(t, []string{"open"}, pending("", time.Minute, 0, 1))
	require.Equal(t, []string{"open", "young"}, pending("default", 0, 0, 5))
	require.Equal(t, []string{"young"}, pending("default", 0, time.Minute, 5), "too old to be started safely")
}

// TestReplayAfterPurge proves what a request finds when the dead letter is gone: a
// confirmed replay is still that, and nothing new begins.
func TestReplayAfterPurge(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	key := keyOf("w")
	move(t, store, letter(key))
	confirmed := begin(t, store, key, "confirmed")
	begin(t, store, key, "open")
	require.NoError(t, store.ConfirmReplay(t.Context(), "confirmed", "run"))
	require.ErrorIs(t, store.Purge(t.Context(), key, "me"), dlqstore.ErrBusy)
	run(t, store, `update deadletter.replays set requested_at = requested_at - interval '25 hours' where request_id = 'open'`)
	require.NoError(t, store.Purge(t.Context(), key, "me"), "a start that old is never repeated")

	again := begin(t, store, key, "confirmed")
	require.Nil(t, again.DeadLetter)
	require.False(t, again.Fresh)
	require.Equal(t, confirmed.Replay.NewWorkflowID, again.Replay.NewWorkflowID)
	for _, requestID := range []string{"open", "new", ""} {
		_, err := store.BeginReplay(t.Context(), dlqstore.ReplayRequest{Key: key, RequestID: requestID})
		require.ErrorIs(t, err, dlqstore.ErrNotFound, requestID)
	}
	require.NoError(t, store.ConfirmReplay(t.Context(), "open", "run"), "its starter may have been on the way")
}

// TestPurgeRacesReplay proves that of a purge and a replay of one dead letter at
// once one wins: the replay finds nothing, or the purge is told to wait for it.
func TestPurgeRacesReplay(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	for i := range 20 {
		key := keyOf(fmt.Sprint("w", i))
		move(t, store, letter(key))
		var start *dlqstore.ReplayStart
		errs := concurrently(2, func(who int) (err error) {
			if who == 0 {
				return store.Purge(t.Context(), key, "me")
			}
			start, err = store.BeginReplay(t.Context(), dlqstore.ReplayRequest{Key: key, RequestID: key.WorkflowID})
			return err
		})
		replays, err := store.Replays(t.Context(), key)
		require.NoError(t, err)
		_, gone := store.Get(t.Context(), key)
		if errs[1] == nil {
			require.ErrorIs(t, errs[0], dlqstore.ErrBusy)
			require.NotNil(t, start.DeadLetter)
			require.Len(t, replays, 1)
			require.NoError(t, gone)
		} else {
			require.NoError(t, errs[0])
			require.ErrorIs(t, errs[1], dlqstore.ErrNotFound)
			require.Empty(t, replays)
			require.ErrorIs(t, gone, dlqstore.ErrNotFound)
		}
	}
}

// TestReplayFaults proves that a replay whose transaction fails at any statement
// leaves neither a count nor a row.
func TestReplayFaults(t *testing.T) {
	t.Parallel()
	for table, event := range map[string]string{"replays": "insert", "dead_letters": "update", "events": "insert"} {
		t.Run(table, func(t *testing.T) {
			t.Parallel()
			store := openStore(t)
			key := keyOf("w")
			move(t, store, letter(key))
			run(t, store, `create function fault() returns trigger language plpgsql as $$ begin raise exception 'injected'; end $$`)
			run(t, store, `create trigger fault after `+event+` on deadletter.`+table+` for each row execute function fault()`)
			_, err := store.BeginReplay(t.Context(), dlqstore.ReplayRequest{Key: key, RequestID: "r"})
			require.ErrorContains(t, err, "injected")
			requireCount(t, store, key, 0)
			require.Equal(t, int64(0), scalar[int64](t, store, `select count(*) from deadletter.replays`))
			require.Equal(t, int64(1), scalar[int64](t, store, `select count(*) from deadletter.events`))
			run(t, store, `drop trigger fault on deadletter.`+table)
			require.True(t, begin(t, store, key, "r").Fresh)
			requireCount(t, store, key, 1)
		})
	}
}

// TestStatusIsClosed proves that a replay's status cannot be dead_letter, and that
// a cancelled context is reported as such.
func TestStatusIsClosed(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	key := keyOf("w")
	move(t, store, letter(key))
	begin(t, store, key, "r")
	_, err := store.Pool().Exec(t.Context(), `update deadletter.replays set status = 'dead_letter'`)
	require.ErrorContains(t, err, "22P02")
	_, err = store.Pool().Exec(t.Context(), `update deadletter.replays set status = $1`, job.Status("dead_letter"))
	require.ErrorContains(t, err, "dead_letter is not a status")

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = store.Get(ctx, key)
	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorIs(t, err, dlqstore.ErrUnavailable)
}

// TestNewWorkflowID proves that ids do not grow from replay to replay, stay within
// the server's limit, and are such that a client in Go can route calls by them.
func TestNewWorkflowID(t *testing.T) {
	t.Parallel()
	suffix := regexp.MustCompile(`-replay-[a-z2-7]{12}$`)
	id := "order-7"
	for range 3 {
		id = dlqstore.NewWorkflowID(id)
		require.Equal(t, "order-7", suffix.ReplaceAllString(id, ""))
	}
	require.Equal(t, "x-replay-short", suffix.ReplaceAllString(dlqstore.NewWorkflowID("x-replay-short"), ""))
	long := dlqstore.NewWorkflowID("a" + strings.Repeat("é", 499))
	require.True(t, utf8.ValidString(long))
	require.Equal(t, "a"+strings.Repeat("_", 449), suffix.ReplaceAllString(long, ""))
}
