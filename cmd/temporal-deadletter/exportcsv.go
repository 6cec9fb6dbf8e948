package main

import (
	"encoding/csv"
	"encoding/json"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/deadletter-dev/deadletter/dlqstore"
)

// csvColumns are the columns of table dead_letters that people can read, in its
// order. This is the header; it only grows at its end.
var csvColumns = []struct {
	name  string
	value func(dl *dlqstore.DeadLetter) string
}{
	{"namespace", func(dl *dlqstore.DeadLetter) string { return dl.Namespace }},
	{"workflow_id", func(dl *dlqstore.DeadLetter) string { return dl.WorkflowID }},
	{"run_id", func(dl *dlqstore.DeadLetter) string { return dl.RunID }},
	{"first_run_id", func(dl *dlqstore.DeadLetter) string { return dl.FirstRunID }},
	{"job_type", func(dl *dlqstore.DeadLetter) string { return dl.JobType }},
	{"task_queue", func(dl *dlqstore.DeadLetter) string { return dl.TaskQueue }},
	{"workflow_task_queue", func(dl *dlqstore.DeadLetter) string { return dl.WorkflowTaskQueue }},
	{"reason", func(dl *dlqstore.DeadLetter) string { return string(dl.Reason) }},
	{"attempts", func(dl *dlqstore.DeadLetter) string { return csvNumber(dl.Attempts) }},
	{"max_attempts", func(dl *dlqstore.DeadLetter) string { return csvNumber(dl.MaxAttempts) }},
	{"error_type", func(dl *dlqstore.DeadLetter) string { return dl.ErrorType }},
	{"error_message", func(dl *dlqstore.DeadLetter) string { return dl.ErrorMessage }},
	{"error_stack", func(dl *dlqstore.DeadLetter) string { return dl.ErrorStack }},
	{"retry_state", func(dl *dlqstore.DeadLetter) string { return dl.RetryState }},
	{"tags", func(dl *dlqstore.DeadLetter) string { return csvTags(dl.Tags) }},
	{"options", func(dl *dlqstore.DeadLetter) string { return string(dl.Options) }},
	{"payload_json", func(dl *dlqstore.DeadLetter) string { return string(dl.PayloadJSON) }},
	{"priority", func(dl *dlqstore.DeadLetter) string { return string(dl.Priority) }},
	{"worker_identity", func(dl *dlqstore.DeadLetter) string { return dl.WorkerIdentity }},
	{"enqueued_at", func(dl *dlqstore.DeadLetter) string { return csvTime(dl.EnqueuedAt) }},
	{"first_attempt_at", func(dl *dlqstore.DeadLetter) string { return csvTime(dl.FirstAttemptAt) }},
	{"last_attempt_at", func(dl *dlqstore.DeadLetter) string { return csvTime(dl.LastAttemptAt) }},
	{"dead_at", func(dl *dlqstore.DeadLetter) string { return csvTime(&dl.DeadAt) }},
	{"resurrection_count", func(dl *dlqstore.DeadLetter) string { return strconv.Itoa(dl.ResurrectionCount) }},
	{"last_resurrection_at", func(dl *dlqstore.DeadLetter) string { return csvTime(dl.LastResurrectionAt) }},
	{"generation", func(dl *dlqstore.DeadLetter) string { return strconv.Itoa(dl.Generation) }},
	{"replayed_from_workflow_id", func(dl *dlqstore.DeadLetter) string { return csvText(dl.ReplayedFromWorkflowID) }},
	{"replayed_from_run_id", func(dl *dlqstore.DeadLetter) string { return csvText(dl.ReplayedFromRunID) }},
	{"fingerprint", func(dl *dlqstore.DeadLetter) string { return dl.Fingerprint }},
	{"revision", func(dl *dlqstore.DeadLetter) string { return strconv.Itoa(dl.Revision) }},
	{"superseded_at", func(dl *dlqstore.DeadLetter) string { return csvTime(dl.SupersededAt) }},
	{"superseded_by_run_id", func(dl *dlqstore.DeadLetter) string { return csvText(dl.SupersededByRunID) }},
	{"pinned", func(dl *dlqstore.DeadLetter) string { return strconv.FormatBool(dl.Pinned) }},
	{"pinned_by", func(dl *dlqstore.DeadLetter) string { return csvText(dl.PinnedBy) }},
	{"pinned_at", func(dl *dlqstore.DeadLetter) string { return csvTime(dl.PinnedAt) }},
}

// csvRows quotes as RFC 4180 says: a line end or a quote in a value breaks no row.
type csvRows struct {
	writer *csv.Writer
	header bool // yet to be written
	raw    bool // cells as they are
}

func newCSVRows(w io.Writer, header, raw bool) *csvRows {
	return &csvRows{csv.NewWriter(w), header, raw}
}

func (c *csvRows) write(dl *dlqstore.DeadLetter) error {
	cells := make([]string, 0, len(csvColumns))
	for _, column := range csvColumns {
		cell := column.value(dl)
		if !c.raw {
			cell = harmless(cell)
		}
		cells = append(cells, cell)
	}
	if err := c.writeHeader(); err != nil {
		return err
	}
	return c.writer.Write(cells)
}

// formulaStarts are the characters with which a cell begins that a spreadsheet may run as
// a formula, the full-width ones included.
const formulaStarts = "=+-@\t\r\n＝＋－＠"

// harmless puts an apostrophe before what a spreadsheet may run as a formula, and replaces
// control characters other than tabs and line ends. A whole number stays one.
func harmless(cell string) string {
	first, _ := utf8.DecodeRuneInString(cell)
	_, err := strconv.Atoi(cell)
	formula := cell != "" && err != nil && strings.ContainsRune(formulaStarts, first)
	cell = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' {
			return unicode.ReplacementChar
		}
		return r
	}, strings.ReplaceAll(cell, "\r\n", "\n"))
	if formula {
		return "'" + cell
	}
	return cell
}

func (c *csvRows) writeHeader() error {
	if !c.header {
		return nil
	}
	c.header = false
	var names []string
	for _, column := range csvColumns {
		names = append(names, column.name)
	}
	return c.writer.Write(names)
}

// flush writes the header of an export without rows, too.
func (c *csvRows) flush() error {
	if err := c.writeHeader(); err != nil {
		return err
	}
	c.writer.Flush()
	return c.writer.Error()
}

func csvNumber(n *int) string {
	if n == nil {
		return ""
	}
	return strconv.Itoa(*n)
}

func csvText(text *string) string {
	if text == nil {
		return ""
	}
	return *text
}

func csvTime(t *time.Time) string {
	if t == nil {
		return ""
	}
	return t.Format(time.RFC3339Nano)
}

func csvTags(tags map[string]string) string {
	data, err := json.Marshal(tags)
	if err != nil {
		panic(err) // texts always encode
	}
	return string(data)
}
