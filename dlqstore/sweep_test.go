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
