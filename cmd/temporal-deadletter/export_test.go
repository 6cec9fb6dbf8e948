package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/csv"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/deadletter-dev/deadletter/dlqstore"
)

// many moves a count of dead letters, a minute apart, by one statement.
func (b *bench) many(count int) {
	b.t.Helper()
	_, err := b.store.Pool().Exec(b.t.Context(), `insert into deadletter.dead_letters (namespace, workflow_id, run_id, reason, payloads, dead_at)
		select 'default', 'job-' || i, 'r', 'timeout', '', $1::timestamptz + i * interval '1 minute' from generate_series(1, $2) i`, died, count)
	require.NoError(b.t, err)
}

// ids returns the workflow ids of JSON lines, each of which must be whole.
func ids(t *testing.T, lines string) []string {
	t.Helper()
	var found []string
	for line := range strings.Lines(lines) {
		var dl dlqstore.DeadLetter
		require.NoError(t, json.Unmarshal([]byte(line), &dl), line)
		found = append(found, dl.WorkflowID)
	}
	return found
}

// TestExport proves that an export has every row once, as list has it, in both
// orders, under a filter, and says what it did.
func TestExport(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r := b.call("export")
	require.Equal(t, result{0, "", "temporal-deadletter: no dead letters match\n"}, r)
	b.many(2500)
	b.move("order-1", func(dl *dlqstore.DeadLetter) { dl.ErrorMessage = "a < b & c" })
	b.move("elsewhere", func(dl *dlqstore.DeadLetter) { dl.Namespace = "another" })

	r = b.call("export", "--address", nowhere)
	require.Zero(t, r.code)
	require.Equal(t, "temporal-deadletter: 2501 dead letters exported\n", r.errw)
	found := ids(t, r.out)
	require.Len(t, found, 2501)
	require.Equal(t, "job-2500", found[0])
	require.Equal(t, "order-1", found[2500])
	require.True(t, strings.HasSuffix(r.out, b.succeed("list", "--type", "SendEmail", "-o", "jsonl")), "the row of list")
	require.Contains(t, r.out, `"price":1.10`)
	require.Contains(t, r.out, "a < b & c")

	slices.Reverse(found)
	r = b.call("export", "--oldest-first", "-o", "jsonl")
	require.Equal(t, found, ids(t, r.out))
	later := regexp.MustCompile(`^temporal-deadletter: 2501 dead letters exported; for those that come later: --cursor (\S+)\n$`).FindStringSubmatch(r.errw)
	require.NotNil(t, later, r.errw)
	b.move("late", func(dl *dlqstore.DeadLetter) { dl.DeadAt = time.Now() })
	require.Equal(t, []string{"late"}, ids(t, b.succeed("export", "--oldest-first", "--cursor", later[1])))
	require.Equal(t, []string{"order-1"}, ids(t, b.succeed("export", "--where", "args[0].price=1.1", "--dead-before", "2026-03-01T12:00:30Z")))

	r = b.call("export", "--cursor", later[1])
	require.Equal(t, exitUsage, r.code, "a cursor of the other order")
	require.Empty(t, r.out)
	for _, format := range []string{"jsonl", "csv"} {
		require.Equal(t, result{exitUsage, "", "temporal-deadletter: export: not a cursor of this list: it does not decode; start again without --cursor\n"},
			b.call("export", "--cursor", "xyz", "--format", format))
	}
}

// exportRows is how many dead letters TestExportFlat exports:
//
//	go test ./cmd/temporal-deadletter -run ExportFlat -export-rows 1000000
var exportRows = flag.Int("export-rows", 50_000, "dead letters that TestExportFlat exports")

// lineChecker takes JSON lines, keeps none, and looks at the heap now and then.
type lineChecker struct {
	t           *testing.T
	rest        []byte // of a line
	lines       int
	every       int
	first, most uint64
}

func (c *lineChecker) Write(data []byte) (int, error) {
	c.rest = append(c.rest, data...)
	for {
		end := bytes.IndexByte(c.rest, '\n')
		if end < 0 {
			return len(data), nil
		}
		require.True(c.t, json.Valid(c.rest[:end]), "%s", c.rest[:end])
		c.rest = append(c.rest[:0], c.rest[end+1:]...)
		if c.lines++; c.lines%c.every == 0 {
			runtime.GC()
			var stats runtime.MemStats
			runtime.ReadMemStats(&stats)
			if c.first == 0 {
				c.first = stats.HeapAlloc
			}
			c.most = max(c.most, stats.HeapAlloc)
		}
	}
}

// TestExportFlat proves that an export holds no more memory at its end than at its
// beginning, and that each line is JSON. It runs alone: others would allocate too.
func TestExportFlat(t *testing.T) { //nolint:paralleltest // it measures the heap of the process
	b := newBench(t)
	b.many(*exportRows)
	for _, args := range [][]string{{"export"}, {"export", "--with-payloads", "--oldest-first"}} {
		lines := lineChecker{t: t, every: *exportRows / 10}
		var errw bytes.Buffer
		require.Zero(t, run(t.Context(), args, b.environ, strings.NewReader(""), &lines, &errw), "%s", &errw)
		require.Equal(t, *exportRows, lines.lines)
		require.Empty(t, lines.rest)
		require.Less(t, lines.most, lines.first+4<<20, "the heap grew with the rows")
	}
}

// TestExportPayloads proves that the wire's bytes are there when asked for.
func TestExportPayloads(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.move("order-1")
	var row map[string]any
	b.decode(&row, "export", "--with-payloads")
	require.Equal(t, base64.StdEncoding.EncodeToString(deadLetter("").Payloads), row["payloads"])
	require.Contains(t, row, "failure")
	require.Equal(t, "order-1", row["workflow_id"])
	require.NotContains(t, b.succeed("export"), `"payloads"`)
}

// TestExportCSV proves that hostile texts stay in their cells, that the header has
// the names of the JSON, and that an export that goes on has none.
func TestExportCSV(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	const hostile = "a \"quoted\", comma\nand\r\nlines; 'x', \\\" \t=1+1"
	b.move("order-1", func(dl *dlqstore.DeadLetter) { dl.ErrorMessage, dl.Tags = hostile, map[string]string{"k": hostile} })
	b.move("order-2", func(dl *dlqstore.DeadLetter) {
		dl.DeadAt, dl.Attempts, dl.PayloadJSON = died.Add(time.Minute), nil, nil
	})
	r := b.call("export", "--format", "csv", "--oldest-first")
	require.Zero(t, r.code)
	rows, err := csv.NewReader(strings.NewReader(r.out)).ReadAll()
	require.NoError(t, err)
	require.Len(t, rows, 3)

	var asJSON map[string]json.RawMessage
	first, _, _ := strings.Cut(b.succeed("export", "--oldest-first"), "\n")
	require.NoError(t, json.Unmarshal([]byte(first), &asJSON))
	require.Len(t, rows[0], len(asJSON))
	cell := func(row int, column string) string { return rows[row][slices.Index(rows[0], column)] }
	for _, column := range rows[0] {
		require.Contains(t, asJSON, column)
	}
	require.Equal(t, strings.ReplaceAll(hostile, "\r\n", "\n"), cell(1, "error_message"))
	require.NotContains(t, r.out, "\r")
	require.JSONEq(t, string(asJSON["tags"]), cell(1, "tags"))
	require.JSONEq(t, "["+exactArgument+"]", cell(1, "payload_json"))
	require.Contains(t, cell(1, "payload_json"), "1.10")
	require.Equal(t, "2026-03-01T12:00:00Z", cell(1, "dead_at"))
	require.Empty(t, cell(2, "attempts"))
	require.Empty(t, cell(2, "payload_json"))

	cursor, err := dlqstore.CursorAfter(deadLetter("order-1"), true)
	require.NoError(t, err)
	rest := b.succeed("export", "--format", "csv", "--oldest-first", "--cursor", cursor)
	require.True(t, strings.HasSuffix(r.out, rest))
	require.True(t, strings.HasPrefix(rest, "default,order-2,"))
	require.Equal(t, strings.Join(rows[0], ",")+"\n", b.succeed("export", "--format", "csv", "--type", "None"), "no rows")
}

// TestExportCSVHarmless proves that no cell of a CSV export is one that a spreadsheet runs,
// and that none has control characters, unless --raw is given.
func TestExportCSVHarmless(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	const formula = "=HYPERLINK(\"http://evil\")\x1b[2J\x07"
	b.move("@order-1", func(dl *dlqstore.DeadLetter) {
		dl.ErrorMessage, dl.WorkerIdentity, dl.TaskQueue = formula, "-1+cmd|' /C calc'!A0", "\t=1"
	})
	read := func(flags ...string) func(column string) string {
		out := b.succeed(append([]string{"export", "--format", "csv"}, flags...)...)
		rows, err := csv.NewReader(strings.NewReader(out)).ReadAll()
		require.NoError(t, err)
		return func(column string) string { return rows[1][slices.Index(rows[0], column)] }
	}
	cell := read()
	require.Equal(t, "'=HYPERLINK(\"http://evil\")\ufffd[2J\ufffd", cell("error_message"))
	require.Equal(t, "'-1+cmd|' /C calc'!A0", cell("worker_identity"))
	require.Equal(t, "'\t=1", cell("task_queue"))
	require.Equal(t, "'@order-1", cell("workflow_id"))
	cell = read("--raw")
	require.Equal(t, formula, cell("error_message"))
	require.Equal(t, "@order-1", cell("workflow_id"))

	for text, want := range map[string]string{
		"": "", "plain": "plain", "+1": "+1", "-1": "-1", "+1 2": "'+1 2", "\r=1": "'\ufffd=1", "\r\n=1": "'\n=1", "＝1+1": "'＝1+1", "a\tb\r\nc\x00\u009b": "a\tb\nc\ufffd\ufffd",
	} {
		require.Equal(t, want, harmless(text))
	}
}

// limitedWriter does something after so many bytes.
type limitedWriter struct {
	bytes.Buffer
	limit int
	then  func() error
}

func (w *limitedWriter) Write(data []byte) (int, error) {
	if w.Len() > w.limit {
		if err := w.then(); err != nil {
			return 0, err
		}
	}
	return w.Buffer.Write(data)
}

// TestExportGoesOn proves that an export which is interrupted, or whose output
// fails, says from which cursor to go on, and that what is written and the rest are
// all of it.
func TestExportGoesOn(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	const total = 8000
	b.many(total)
	whole := ids(t, b.succeed("export"))
	require.Len(t, whole, total)
	goesOn := regexp.MustCompile(`temporal-deadletter: (\d+) dead letters exported, and the rest is missing: go on with --cursor (\S+)\n`)

	ctx, interrupt := context.WithCancel(t.Context())
	out, errw := limitedWriter{limit: 1 << 20, then: func() error { interrupt(); return nil }}, bytes.Buffer{}
	require.Equal(t, exitFailed, run(ctx, []string{"export"}, b.environ, strings.NewReader(""), &out, &errw))
	said := goesOn.FindStringSubmatch(errw.String())
	require.NotNil(t, said, errw.String())
	require.Contains(t, errw.String(), "temporal-deadletter: interrupted\n")
	before := ids(t, out.String())
	require.Equal(t, said[1], fmt.Sprint(len(before)))
	require.Less(t, len(before), total)
	require.Equal(t, whole, append(before, ids(t, b.succeed("export", "--cursor", said[2]))...))

	full := limitedWriter{limit: 1 << 20, then: func() error { return errors.New("no space left") }}
	errw.Reset()
	require.Equal(t, exitFailed, run(t.Context(), []string{"export"}, b.environ, strings.NewReader(""), &full, &errw))
	require.Contains(t, errw.String(), "temporal-deadletter: export: no space left\n")
	said = goesOn.FindStringSubmatch(errw.String())
	require.NotNil(t, said, errw.String())
	var safe int
	_, err := fmt.Sscan(said[1], &safe)
	require.NoError(t, err)
	require.Positive(t, safe)
	lines := strings.SplitAfter(full.String(), "\n")
	require.GreaterOrEqual(t, len(lines), safe)
	require.Equal(t, whole, append(ids(t, strings.Join(lines[:safe], "")), ids(t, b.succeed("export", "--cursor", said[2]))...))
}

// TestExportLate proves that a database that fails before the first row is one
// error and no cursor.
func TestExportLate(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.many(10)
	_, err := b.store.Pool().Exec(t.Context(), `alter table deadletter.dead_letters rename column memo to memory`)
	require.NoError(t, err)
	r := b.call("export", "--with-payloads")
	require.Equal(t, exitFailed, r.code)
	require.Empty(t, r.out)
	require.True(t, strings.HasPrefix(r.errw, "temporal-deadletter: nothing is exported\ntemporal-deadletter: export:"), r.errw)
}
