package main

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/deadletter-dev/deadletter/dlqstore"
)

func numbered(kind string, count int) [][]string {
	var rows [][]string
	for i := range count {
		rows = append(rows, []string{fmt.Sprintf("%s-%02d", kind, i), "1"})
	}
	return rows
}

// TestWatchFits proves that the view fits a terminal of any size with its cursor,
// shows the counts on whatever has place for them, uses the place that there is,
// keeps the newest hours and the largest groups, and counts what is left out.
func TestWatchFits(t *testing.T) {
	t.Parallel()
	view := &watchView{
		counts: strings.Repeat("count  1\n", 6), trend: "Oldest dead letter  none\nLast 24 hours  +0\n",
		parts: []watchPart{
			{headings: []string{"HOUR", "DEAD"}, rows: numbered("hour", 24), newest: true},
			{headings: []string{"REASON", "DEAD LETTERS"}, rows: numbered("reason", 3), counted: true},
			{headings: []string{"TYPE", "DEAD LETTERS"}, rows: nil, counted: true},
			{headings: []string{"GROUP", "COUNT"}, rows: numbered("group", 20), more: 7, counted: true},
		},
	}
	const heading = "temporal-deadletter watch: namespace dëfault, Ctrl-C to leave\n"
	for rows := 7; rows < 90; rows++ {
		text, err := view.fitted(heading, 40, rows)
		require.NoError(t, err)
		height := strings.Count(text, "\n")
		require.Less(t, height, rows, text)
		require.Equal(t, 6, strings.Count(text, "count  1\n"), "%d rows", rows)
		for line := range strings.Lines(text) {
			require.LessOrEqual(t, utf8.RuneCountInString(strings.TrimSuffix(line, "\n")), 40)
		}
		if rows >= 24 && rows < 68 {
			require.GreaterOrEqual(t, height, rows-4, "the place is used: %d\n%s", rows, text)
		}
	}
	again, err := view.fitted(heading, 40, 37)
	require.NoError(t, err)
	unknown, err := view.fitted(heading, 0, 0)
	require.NoError(t, err)
	require.Equal(t, again, cutLines(unknown, 40), "a terminal that does not tell its size")
	require.Contains(t, unknown, heading)
	require.Contains(t, unknown, "hour-23  1\n")
	require.NotContains(t, unknown, "hour-00")
	require.Contains(t, unknown, "group-00  1\n")
	require.NotContains(t, unknown, "group-19")
	shown := strings.Count(unknown, "group-")
	require.Contains(t, unknown, fmt.Sprintf("and %d more\n", 27-shown))

	high, err := view.fitted(heading, 0, 200)
	require.NoError(t, err)
	require.Contains(t, high, "hour-00")
	require.Contains(t, high, "group-19  1\nand 7 more\n")
}

// sizedScreen is a screen that tells its size.
type sizedScreen struct {
	*screen
	columns, rows int
}

func (s *sizedScreen) Size() (columns, rows int) { return s.columns, s.rows }

// TestWatchResized proves that each view is drawn for the size that the terminal
// has by then.
func TestWatchResized(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for i := range 9 {
		b.move(fmt.Sprint("order-", i), func(dl *dlqstore.DeadLetter) { dl.Fingerprint = fmt.Sprint("f", i) })
	}
	ctx, leave := context.WithCancel(t.Context())
	display := &sizedScreen{screen: &screen{}, columns: 60, rows: 24}
	display.drawn = func(views int) {
		display.columns, display.rows = 100, 60
		if views == 2 {
			leave()
		}
	}
	var errw bytes.Buffer
	require.Zero(t, run(ctx, []string{"watch", "--interval", "100ms"}, append(b.environ, "TERM=xterm"), strings.NewReader(""), display, &errw), errw.String())
	for i, size := range [][2]int{{60, 24}, {100, 60}} {
		text := strings.TrimPrefix(display.views[i], clearScreen)
		require.Less(t, strings.Count(text, "\n"), size[1])
		require.Contains(t, text, "dead letters  ")
		for line := range strings.Lines(text) {
			require.LessOrEqual(t, utf8.RuneCountInString(line)-1, size[0])
		}
	}
	require.NotContains(t, display.views[0], "f8 ")
	require.Contains(t, display.views[1], "f8 ")
}
