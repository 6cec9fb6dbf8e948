package dlqstore_test

import (
	"context"
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/internal/devstack/devtest"
)

// hostileSchema has a function and an operator of Postgres' own names and types, which
// win where the schema is ahead of pg_catalog in the search path.
const hostileSchema = `
create schema hostile;
create function hostile.now() returns timestamptz language sql as $$ select timestamptz '2001-02-03 04:05:06Z' $$;
create function hostile.differ(text, text) returns boolean language sql as $$ select false $$;
create operator hostile.= (leftarg = text, rightarg = text, function = hostile.differ);`

const hostilePath = `hostile, public, pg_catalog`

// TestHostileSearchPath proves that the search path of the database changes nothing,
// directly and through a pooler, from the first migration on; and that a hook has it.
func TestHostileSearchPath(t *testing.T) {
	t.Parallel()
	for _, way := range []string{"direct", "pooler"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			direct := devtest.Postgres(t)
			through := direct
			if way == "pooler" {
				through = devtest.Pooler(t, direct)
			}
			makeHostile(t, direct)
			for _, mode := range execModes {
				checkOwnPath(t, openAt(t, inMode(through, mode)), "in "+mode)
			}
		})
	}
}

// TestHostileSearchPathOfURL proves the same of the search path that the URL has.
func TestHostileSearchPathOfURL(t *testing.T) {
	t.Parallel()
	direct := devtest.Postgres(t)
	makeHostile(t, direct)
	checkOwnPath(t, openAt(t, direct+"&search_path="+url.PathEscape(hostilePath)), "w")
}

// makeHostile gives new sessions of the database the hostile path.
func makeHostile(t *testing.T, databaseURL string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), databaseURL)
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close(context.WithoutCancel(t.Context()))) }()
	_, err = conn.Exec(t.Context(), hostileSchema)
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), fmt.Sprintf(`alter database %s set search_path = %s`, pgx.Identifier{conn.Config().Database}.Sanitize(), hostilePath))
	require.NoError(t, err)
}

// checkOwnPath moves and replays a job on a store whose sessions have the hostile path.
func checkOwnPath(t *testing.T, store *dlqstore.Store, workflowID string) {
	t.Helper()
	require.Equal(t, hostilePath, scalar[string](t, store, `show search_path`), "of statements that are not ours")
	require.Equal(t, 2001, scalar[time.Time](t, store, `select now()`).UTC().Year())

	before := scalar[time.Time](t, store, `select pg_catalog.now()`)
	dl := letter(keyOf(workflowID))
	dl.DeadAt = time.Time{} // Postgres' clock, then
	var pathOfHook string
	moved, err := store.Move(t.Context(), dl, attempts(2), "worker", func(ctx context.Context, tx pgx.Tx, _ *dlqstore.DeadLetter) error {
		return tx.QueryRow(ctx, `show search_path`).Scan(&pathOfHook)
	})
	require.NoError(t, err)
	require.True(t, moved)
	require.Equal(t, hostilePath, pathOfHook)

	stored, err := store.Get(t.Context(), dl.Key)
	require.NoError(t, err)
	require.False(t, stored.DeadAt.Before(before), stored.DeadAt)
	request := dlqstore.ReplayRequest{Key: dl.Key, RequestID: "replay " + workflowID, Actor: "me"}
	_, err = store.BeginReplay(t.Context(), request)
	require.NoError(t, err)
	require.NoError(t, store.ConfirmReplay(t.Context(), request.RequestID, "new-run"))
	replays, err := store.Replays(t.Context(), dl.Key)
	require.NoError(t, err)
	require.Len(t, replays, 1)
	require.False(t, replays[0].RequestedAt.Before(before), replays[0].RequestedAt)
	require.False(t, replays[0].StartedAt.Before(before), replays[0].StartedAt)

	trend, err := store.Trend(t.Context(), dl.Namespace)
	require.NoError(t, err)
	var dead, replayed int64
	for _, hour := range trend.Hours {
		dead += hour.Dead
		replayed += hour.Replayed
	}
	require.Equal(t, trend.DeadLetter, dead)
	require.Equal(t, dead, replayed)
	require.NoError(t, store.Compact(t.Context()))
	groups, _, err := store.Groups(t.Context(), dlqstore.Filter{Namespace: dl.Namespace, JobType: dl.JobType}, 0)
	require.NoError(t, err)
	require.Len(t, groups, 1)
	require.Equal(t, trend.DeadLetter, groups[0].Count)
}
