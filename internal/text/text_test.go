package text_test

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/deadletter-dev/deadletter/internal/text"
)

// TestBounded proves that what is left of a long text are its head and its tail,
// and that the marker counts what is missing.
func TestBounded(t *testing.T) {
	t.Parallel()
	require.Equal(t, strings.Repeat("x", 100), text.Bounded(strings.Repeat("x", 100), 100))
	given := "head" + strings.Repeat("x", 1000) + "tail"
	got := text.Bounded(given, 100)
	require.True(t, strings.HasPrefix(got, "headx"))
	require.True(t, strings.HasSuffix(got, "xtail"))
	head, rest, _ := strings.Cut(got, "\n… ")
	count, tail, _ := strings.Cut(rest, " bytes left out …\n")
	require.Equal(t, fmt.Sprint(len(given)-len(head)-len(tail)), count)
	require.Equal(t, "a␀b\uFFFDc", text.Holdable("a\x00b\xff\xfec"))
}

// FuzzBounded proves that any text becomes one that Postgres can hold, within its
// bound, and that a good short one is not touched.
func FuzzBounded(f *testing.F) {
	for _, seed := range []string{"", "plain", "\x00", "\xff\xfe", strings.Repeat("é", 100), strings.Repeat("\x00", 100), "\xf0\x9f\x98", strings.Repeat("😀\xf0", 40)} {
		f.Add(seed, 100)
	}
	f.Fuzz(func(t *testing.T, given string, limit int) {
		limit = 64 + (limit&0xffff)%4096
		got := text.Bounded(given, limit)
		require.True(t, utf8.ValidString(got))
		require.NotContains(t, got, "\x00")
		require.LessOrEqual(t, len(got), limit)
		held := text.Holdable(given)
		require.Equal(t, held, text.Holdable(held), "idempotent")
		if len(held) <= limit {
			require.Equal(t, held, got)
		} else {
			require.Greater(t, len(got), limit-8)
			require.Equal(t, held[:8], got[:8])
			require.Equal(t, held[len(held)-8:], got[len(got)-8:])
		}
	})
}
