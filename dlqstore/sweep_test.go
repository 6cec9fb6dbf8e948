package dlqstore_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/deadletter-dev/deadletter/dlqstore"
)

// TestUnmoved proves that one question sorts out the jobs which were never moved,
// in the order they were given, that a purged one counts as moved, and that a key
// which differs in any part is another job.
func TestUnmoved(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	none, err := store.Unmoved(t.Context(), nil)
	require.NoError(t, err)
	require.Empty(t, none)

	moved, purged := keyOf("moved"), keyOf("purged")
	move(t, store, letter(moved))
	move(t, store, letter(purged))
	require.NoError(t, store.Purge(t.Context(), purged, "me"))
	otherRun, otherNamespace := moved, moved
	otherRun.RunID, otherNamespace.Namespace = "another", "another"
	bad := dlqstore.Key{Namespace: "default", WorkflowID: "nul \x00", RunID: "r"}

	unmoved, err := store.Unmoved(t.Context(), []dlqstore.Key{bad, otherRun, moved, keyOf("fresh"), purged, otherNamespace})
	require.NoError(t, err)
	require.Equal(t, []dlqstore.Key{otherRun, keyOf("fresh"), otherNamespace, bad}, unmoved)
}

// TestSweepWatermark proves that a watermark is kept per namespace, and that of
// any number of sweeps at once the furthest one stays, whichever ends last.
func TestSweepWatermark(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	first, err := store.SweepWatermark(t.Context(), "a")
	require.NoError(t, err)
	require.True(t, first.IsZero())

	const sweeps = 16
	for _, err := range concurrently(sweeps, func(i int) error {
		now, err := store.AdvanceSweep(t.Context(), "a", instant.Add(time.Duration(i)*time.Second), nil)
		if err == nil && now.Before(instant.Add(time.Duration(i)*time.Second)) {
			t.Errorf("sweep %d is ahead of the watermark %s", i, now)
		}
		return err
	}) {
		require.NoError(t, err)
	}
	furthest := instant.Add((sweeps - 1) * time.Second)
	now, err := store.AdvanceSweep(t.Context(), "a", instant, nil)
	require.NoError(t, err)
	require.Equal(t, furthest, now)
	kept, err := store.SweepWatermark(t.Context(), "a")
	require.NoError(t, err)
	require.Equal(t, furthest, kept)
	other, err := store.SweepWatermark(t.Context(), "b")
	require.NoError(t, err)
	require.True(t, other.IsZero())
}

// TestSweepWatermarkOfRestoredDatabase proves that a sweep which began before the
// database was restored does not move the watermark over what the database has lost.
func TestSweepWatermarkOfRestoredDatabase(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	dumped := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	advance := func(to time.Time, from *time.Time) time.Time {
		now, err := store.AdvanceSweep(t.Context(), "a", to, from)
		require.NoError(t, err)
		return now
	}
	advance(dumped, nil)
	passed := advance(dumped.Add(time.Hour), &dumped)
	require.Equal(t, dumped.Add(time.Hour), passed)

	run(t, store, `update deadletter.sweeps set watermark = $1`, dumped)
	require.Equal(t, dumped, advance(passed.Add(time.Minute), &passed))
	require.Equal(t, passed.Add(time.Minute), advance(passed.Add(time.Minute), &dumped))

	run(t, store, `delete from deadletter.sweeps`)
	require.Zero(t, advance(passed, &dumped), "the dump was older than the first sweep")
}

// TestLeftJobs proves that a job which was left is tried again after a wait that doubles
// up to an hour, and that one whose key Postgres cannot hold never is.
func TestLeftJobs(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	leave := func(key dlqstore.Key) dlqstore.LeftJob {
		require.NoError(t, store.LeaveJob(t.Context(), key, time.Now(), "why\x00"))
		left, err := store.LeftJobs(t.Context(), key.Namespace, key.RunID)
		require.NoError(t, err)
		require.Len(t, left, 1)
		return left[0]
	}
	key := keyOf("w")
	wait := 10 * time.Second
	for try := 1; try <= 14; try++ {
		left := leave(key)
		require.Equal(t, try, left.Tries)
		require.Equal(t, wait, left.NextAt.Sub(left.LastAt))
		wait = min(2*wait, time.Hour)
	}
	due := func() []dlqstore.LeftJob {
		due, err := store.DueLeft(t.Context(), key.Namespace, 10)
		require.NoError(t, err)
		return due
	}
	require.Empty(t, due())
	run(t, store, `update deadletter.sweep_left set next_at = now()`)
	require.Len(t, due(), 1)

	broken := dlqstore.Key{Namespace: key.Namespace, WorkflowID: "w\xff", RunID: "other"}
	require.Nil(t, leave(broken).NextAt)
	count, err := store.CountLeft(t.Context(), key.Namespace)
	require.NoError(t, err)
	require.EqualValues(t, 2, count)
	require.NoError(t, store.ForgetLeft(t.Context(), key.Namespace, key.RunID))
	require.Empty(t, due())
}
