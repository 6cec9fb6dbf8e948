package main

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/deadletter-dev/deadletter/dlqstore"
)

// display is a terminal of a size.
type display struct {
	bytes.Buffer
	columns, rows int
}

func (*display) IsTerminal() bool { return true }

func (d *display) Size() (columns, rows int) { return d.columns, d.rows }

// TestListTable proves that a list is cut to a terminal's width on whole
// characters, the named columns first where it does not fit, and is left alone
// where it fits, where the width is not known, and where there is no terminal.
func TestListTable(t *testing.T) {
	t.Parallel()
	rows := [][]string{{"AT", "TYPE", "ERROR"}, {"noon", "Email", "ä€😀ä€😀"}, {"and 2 more"}}
	const whole = "AT    TYPE   ERROR\nnoon  Email  ä€😀ä€😀\nand 2 more\n"
	var piped bytes.Buffer
	require.NoError(t, listTable(&piped, rows, "ERROR"))
	require.Equal(t, whole, piped.String())
	for columns, want := range map[int]string{
		0:  whole,
		19: whole,
		18: "ERROR   AT    TYPE\nä€😀ä€😀  noon  Ema…\nand 2 more\n",
		8:  "ERROR  …\nä€😀ä€😀 …\nand 2 m…\n",
		4:  "ERR…\nä€😀…\nand…\n",
		1:  "…\n…\n…\n",
	} {
		terminal := &display{columns: columns}
		require.NoError(t, listTable(terminal, rows, "ERROR", "NONE"))
		require.Equal(t, want, terminal.String(), columns)
	}
	empty := &display{columns: 5}
	require.NoError(t, listTable(empty, nil, "ERROR"))
	require.Empty(t, empty.String())
}

// TestHugeCells proves that a cell of megabytes pads no table, and fills none, where
// there is no terminal.
func TestHugeCells(t *testing.T) {
	t.Parallel()
	huge := strings.Repeat("x", 1_900_000)
	rows := [][]string{{"BY", "WHAT"}, {huge, "a"}, {"ann", huge}}
	var list, plain bytes.Buffer
	require.NoError(t, table(&plain, rows))
	lines := strings.Split(plain.String(), "\n")
	require.Equal(t, strings.Repeat("x", maxCell-1)+"…  a", lines[1])
	require.Equal(t, huge, strings.TrimSpace(strings.TrimPrefix(lines[2], "ann")), "what nothing follows is whole outside of lists")
	require.Equal(t, huge, rows[1][0], "the caller's rows are as they were")

	require.NoError(t, listTable(&list, rows))
	lines = strings.Split(list.String(), "\n")
	require.Equal(t, strings.Repeat("x", maxCell-1)+"…  a", lines[1])
	require.Equal(t, strings.Repeat("x", maxLastCell-1)+"…", strings.TrimSpace(strings.TrimPrefix(lines[2], "ann")))
}

// TestListsFitTerminals proves that every list of dead letters, groups, events and
// policies keeps to the width of a terminal, with what matters most in sight.
func TestListsFitTerminals(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.move("order-0190a5d0-0000-7000-8000-000000000001", func(dl *dlqstore.DeadLetter) {
		dl.ErrorMessage, dl.Fingerprint = strings.Repeat("the mailbox is füll ", 9), "0123456789abcdef"
		dl.TaskQueue = strings.Repeat("a-long-queue-", 9)
	})
	b.succeed("retention", "set", "a-policy-with-a-long-name", "--type", strings.Repeat("LongType", 9), "--tag", "tenant=acme", "--keep", "30d", "--yes")
	for verb, sees := range map[string][]string{
		"list":           {"DEAD AT ", "WORKFLOW ID ", "ERROR ", "order-0190a5d0-0000-7000-8000-000000000001 ", " the mail"},
		"groups":         {"COUNT ", "FINGERPRINT ", "ERROR", " 0123456789abcdef ", " SMTPError: the mailbox"},
		"events":         {"AT ", "DETAIL", " order-0190a5d0-0000-7000-8000-000000000001 ", " move "},
		"retention list": {"NAME ", "a-policy-with-a-long-name "},
	} {
		terminal, errw := &display{columns: 120}, bytes.Buffer{}
		require.Zero(t, run(t.Context(), strings.Fields(verb), b.environ, strings.NewReader(""), terminal, &errw), errw.String())
		widest := 0
		for line := range strings.Lines(terminal.String()) {
			widest = max(widest, utf8.RuneCountInString(strings.TrimSuffix(line, "\n")))
		}
		require.Equal(t, 120, widest, "%s: something was cut\n%s", verb, terminal)
		for _, part := range sees {
			require.Contains(t, terminal.String(), part, verb)
		}
		whole := b.succeed(strings.Fields(verb)...)
		require.False(t, fits(whole, 120), "%s: whole where there is no terminal\n%s", verb, whole)
	}
}
