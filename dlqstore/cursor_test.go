package dlqstore_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/deadletter-dev/deadletter/dlqstore"
)

// FuzzCursor proves that no text makes the decoder panic or pass on a position
// that Postgres would refuse, and that what it takes it can write again.
func FuzzCursor(f *testing.F) {
	seed, err := dlqstore.CursorAt(&dlqstore.DeadLetter{Key: keyOf("w"), DeadAt: instant}, true)
	require.NoError(f, err)
	for _, text := range []string{seed, "", "e30", "eyJ2IjoxfQ", "!!", seed + "=", seed[:len(seed)-2]} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		at, oldestFirst, err := dlqstore.ParseCursor(text)
		if err != nil {
			require.ErrorIs(t, err, dlqstore.ErrBadCursor)
			return
		}
		again, err := dlqstore.CursorAt(at, oldestFirst)
		require.NoError(t, err)
		back, _, err := dlqstore.ParseCursor(again)
		require.NoError(t, err)
		require.Equal(t, at, back)
	})
}

// TestCursor proves that a cursor gives back its row, to the microsecond.
func TestCursor(t *testing.T) {
	t.Parallel()
	row := &dlqstore.DeadLetter{Key: dlqstore.Key{Namespace: "n", WorkflowID: `w"/é`, RunID: "r"}, DeadAt: instant.Add(time.Microsecond)}
	text, err := dlqstore.CursorAt(row, false)
	require.NoError(t, err)
	at, oldestFirst, err := dlqstore.ParseCursor(text)
	require.NoError(t, err)
	require.False(t, oldestFirst)
	require.Equal(t, row.Key, at.Key)
	require.True(t, row.DeadAt.Equal(at.DeadAt))
}

// FuzzEventCursor proves that a cursor of the audit is refused or gives back its place.
func FuzzEventCursor(f *testing.F) {
	text, err := dlqstore.EventCursorAt(17)
	require.NoError(f, err)
	f.Add(text)
	f.Add("e30")
	f.Fuzz(func(t *testing.T, text string) {
		id, err := dlqstore.ParseEventCursor(text)
		if err != nil {
			require.ErrorIs(t, err, dlqstore.ErrBadCursor)
			return
		}
		again, err := dlqstore.EventCursorAt(id)
		require.NoError(t, err)
		back, err := dlqstore.ParseEventCursor(again)
		require.NoError(t, err)
		require.Equal(t, id, back)
	})
}
