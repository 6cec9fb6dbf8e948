package main

import (
	"bytes"
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/deadletter-dev/deadletter/dlqstore"
)

// screen is a terminal that calls back with each view that is drawn on it.
type screen struct {
	mu    sync.Mutex
	views []string
	drawn func(views int)
}

func (*screen) IsTerminal() bool { return true }

func (s *screen) Write(view []byte) (int, error) {
	s.mu.Lock()
	s.views = append(s.views, string(view))
	count := len(s.views)
	s.mu.Unlock()
	s.drawn(count)
	return len(view), nil
}

// TestWatch proves that the view shows everything, is refreshed with what changed,
// cannot be acted on by the texts of jobs, and ends with exit code 0; and that a
// dumb terminal gets no commands.
func TestWatch(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.move("order-1", func(dl *dlqstore.DeadLetter) { dl.ErrorMessage, dl.Fingerprint = "bad \x1b]0;title\a", "f99" })
	for _, kind := range []string{"xterm", "dumb"} {
		ctx, leave := context.WithCancel(t.Context())
		display := &screen{drawn: func(views int) {
			switch views {
			case 1:
				b.move("order-of-" + kind)
			case 3:
				leave()
			}
		}}
		var errw bytes.Buffer
		environ := append(b.environ, "TERM="+kind)
		require.Zero(t, run(ctx, []string{"watch", "--interval", "100ms"}, environ, strings.NewReader(""), display, &errw), errw.String())
		require.Empty(t, errw.String())
		before, found := strings.CutPrefix(display.views[0], clearScreen)
		require.Equal(t, kind == "xterm", found)
		after, _ := strings.CutPrefix(display.views[2], clearScreen)
		for _, view := range []string{before, after} {
			require.NotContains(t, view, "\x1b")
			for _, said := range []string{
				"temporal-deadletter watch: namespace default at ", "every 100ms, Ctrl-C to leave", "\ndead letters  ", "Oldest dead letter  2026-03-01 12:00:00Z, order-1",
				"Last 24 hours", "HOUR ", "REASON ", "TYPE ", "GROUP ", "SMTPError: bad \ufffd]0;title\ufffd",
			} {
				require.Contains(t, view, said)
			}
			require.LessOrEqual(t, strings.Count(view, "\n"), 40)
		}
		require.NotEqual(t, after[strings.Index(after, "queued"):], before[strings.Index(before, "queued"):])
	}
}

// TestWatchGoesOn proves that the view outlives a failure and says so, and that a
// watch which never worked fails.
func TestWatchGoesOn(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.move("order-1")
	ctx, leave := context.WithCancel(t.Context())
	rename := func(from, to string) {
		_, err := b.store.Pool().Exec(t.Context(), `alter table deadletter.`+from+` rename to `+to)
		require.NoError(t, err)
	}
	failed := false
	display := &screen{}
	display.drawn = func(views int) {
		view := display.views[views-1]
		switch refused := strings.Contains(view, "Not refreshed: "); {
		case views == 1:
			rename("dead_letter_counts", "hidden")
		case refused && !failed:
			failed = true
			rename("hidden", "dead_letter_counts")
		case !refused && failed:
			leave()
		}
	}
	var errw bytes.Buffer
	require.Zero(t, run(ctx, []string{"stats", "--watch", "--interval", "100ms"}, b.environ, strings.NewReader(""), display, &errw), errw.String())
	require.True(t, failed)

	r := run(t.Context(), []string{"watch", "--address", nowhere}, b.environ, strings.NewReader(""), display, &errw)
	require.Equal(t, exitFailed, r)
	require.Contains(t, errw.String(), "cannot reach Temporal")
}
