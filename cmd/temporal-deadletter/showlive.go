package main

import (
	"fmt"
	"io"
	"strconv"

	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/operator"
)

type liveJSON struct {
	dlqstore.Key
	Status   *string                  `json:"status"`
	ClosedAs string                   `json:"closed_as,omitempty"`
	Pending  *operator.PendingAttempt `json:"pending,omitempty"`
	Live     *operator.LiveJob        `json:"live,omitempty"` // as the verb jobs has it
	Removed  *operator.Removal        `json:"removed,omitempty"`
	Left     *dlqstore.LeftJob        `json:"left,omitempty"`    // the sweep could not write its dead letter
	Trouble  string                   `json:"trouble,omitempty"` // why it makes no progress
	DeadRuns []string                 `json:"dead_runs,omitempty"`
	UI       string                   `json:"ui,omitempty"`
}

func printLive(w io.Writer, shown *operator.Shown, page string) error {
	rows := [][]string{
		{"Workflow id", printable(shown.WorkflowID)},
		{"Run id", printable(shown.RunID)},
		{"Namespace", printable(shown.Namespace)},
	}
	switch {
	case shown.Status != nil:
		rows = append(rows, []string{"Status", string(*shown.Status)})
	case shown.ClosedAs != "" && shown.Removed == nil:
		rows = append(rows, []string{"Closed as", printable(shown.ClosedAs) + ", without a dead letter"})
	case shown.ClosedAs != "":
		rows = append(rows, []string{"Closed as", printable(shown.ClosedAs)})
	}
	if shown.Removed != nil {
		rows = append(rows, removedRows(shown.Removed)...)
	}
	if shown.Left != nil {
		rows = append(rows, leftRows(shown.Left)...)
	}
	if shown.Trouble != "" {
		rows = append(rows, []string{"Trouble", printable(shown.Trouble)})
	}
	switch {
	case shown.Pending != nil:
		rows = append(rows, pendingRows(shown.Pending)...)
		if shown.Live != nil && !shown.Pending.Moving {
			rows = append(rows, ageRows(shown.Live)...)
		}
	case shown.Live != nil:
		rows = append(rows, waitingRows(shown.Live)...)
	}
	if shown.Live != nil && shown.Live.Waiting != nil {
		rows = append(rows, []string{"Why it waits", printable(shown.Live.Waiting.Text)})
	}
	return table(w, append(append(rows, deadRunRows(shown)...), pageRows(page)...))
}

// leftRows tell of a dead letter that the sweep could not write.
func leftRows(left *dlqstore.LeftJob) [][]string {
	next := "never"
	if left.NextAt != nil {
		next = timeText(left.NextAt)
	}
	return [][]string{
		{"Dead letter", fmt.Sprintf("could not be written in %d tries; the next try: %s", left.Tries, next)},
		{"Why", shortened(printable(left.Error), maxFailureCell)},
	}
}

// removedRows tell of a dead letter that is no more.
func removedRows(r *operator.Removal) [][]string {
	rows := [][]string{{"Dead letter", removedText(r)}}
	if r.Reason == "" {
		return rows
	}
	was := string(r.Reason)
	if r.JobType != "" {
		was += ", " + r.JobType
	}
	if r.DeadAt != nil {
		was += ", dead at " + timeText(r.DeadAt)
	}
	return append(rows, []string{"It was", printable(was)})
}

// removedText says who removed a dead letter, when, and under which plan or policy.
func removedText(r *operator.Removal) string {
	said := "purged at " + timeText(&r.At)
	if r.Policy != "" {
		said = "removed at " + timeText(&r.At) + " under retention policy " + printable(r.Policy)
	}
	if r.PlanID != "" {
		said += " under plan " + printable(r.PlanID)
	}
	if r.Actor != "" {
		said += " by " + printable(r.Actor)
	}
	return said
}

// waitingRows tell of a job that no handler is scheduled for: it snoozes, say.
func waitingRows(live *operator.LiveJob) [][]string {
	var rows [][]string
	if live.JobType != "" {
		rows = append(rows, []string{"Job type", printable(live.JobType)})
	}
	rows = append(rows, []string{"Attempt", strconv.Itoa(live.Attempt) + " of " + budgetText(live.MaxAttempts) + ", " + live.State})
	if live.TaskQueue != "" {
		rows = append(rows, []string{"Task queue", printable(live.TaskQueue)})
	}
	if live.NextAttemptAt != nil {
		rows = append(rows, []string{"Next attempt", timeText(live.NextAttemptAt)})
	}
	rows = append(rows, ageRows(live)...)
	if failure := failureText(live.LastErrorType, live.LastError); failure != "" {
		rows = append(rows, []string{"Last failure", failure})
	}
	return rows
}

func ageRows(live *operator.LiveJob) [][]string {
	if live.AgeLimitAt == nil {
		return nil
	}
	return [][]string{{"Too old at", timeText(live.AgeLimitAt)}}
}

func failureText(kind, message string) string {
	if kind != "" {
		message = kind + ": " + message
	}
	return shortened(printable(message), maxFailureCell)
}

// maxFailureCell bounds the last failure of a live job; JSON has more of it.
const maxFailureCell = 300

func pendingRows(pending *operator.PendingAttempt) [][]string {
	failure := failureText(pending.LastFailureType, pending.LastFailure)
	if pending.Moving {
		waiting := "attempt " + strconv.Itoa(pending.Attempt)
		if failure != "" {
			waiting += ", last failure " + failure
		}
		return append([][]string{{"Waiting to be moved", waiting}}, placeRows(pending)...)
	}
	attempt := strconv.Itoa(pending.Attempt) + " of " + budgetText(pending.MaxAttempts)
	rows := append([][]string{{"Job type", printable(pending.Type)}, {"Attempt", attempt + ", " + pending.State}}, placeRows(pending)...)
	if failure != "" {
		rows = append(rows, []string{"Last failure", failure})
	}
	return rows
}

func placeRows(pending *operator.PendingAttempt) [][]string {
	var rows [][]string
	add := func(name, value string) {
		if value != "" {
			rows = append(rows, []string{name, printable(value)})
		}
	}
	add("Task queue", pending.TaskQueue)
	if pending.StartedAt != nil {
		add("Started", timeText(pending.StartedAt))
	}
	if pending.LastEndedAt != nil {
		add("Last attempt", "ended "+timeText(pending.LastEndedAt))
	}
	if pending.NextAttemptAt != nil {
		add("Next attempt", timeText(pending.NextAttemptAt))
	}
	add("Last worker", pending.WorkerIdentity)
	return rows
}

func deadRunRows(shown *operator.Shown) [][]string {
	var rows [][]string
	for _, run := range shown.DeadRuns {
		rows = append(rows, []string{"Also a dead letter", "run " + printable(run)})
	}
	return rows
}
