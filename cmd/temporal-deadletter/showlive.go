package main

import (
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
	DeadRuns []string                 `json:"dead_runs,omitempty"`
	UI       string                   `json:"ui,omitempty"`
}

func printLive(w io.Writer, shown *operator.Shown, page string) error {
	rows := [][]string{
		{"Workflow id", printable(shown.WorkflowID)},
		{"Run id", printable(shown.RunID)},
		{"Namespace", printable(shown.Namespace)},
	}
	if shown.Status != nil {
		rows = append(rows, []string{"Status", string(*shown.Status)})
	} else {
		rows = append(rows, []string{"Closed as", printable(shown.ClosedAs) + ", without a dead letter"})
	}
	rows = append(rows, pendingRows(shown.Pending)...)
	return table(w, append(append(rows, deadRunRows(shown)...), pageRows(page)...))
}

// maxFailureCell bounds the last failure of a live job; JSON has more of it.
const maxFailureCell = 300

func pendingRows(pending *operator.PendingAttempt) [][]string {
	if pending == nil {
		return nil
	}
	failure := pending.LastFailure
	if pending.LastFailureType != "" {
		failure = pending.LastFailureType + ": " + failure
	}
	failure = shortened(printable(failure), maxFailureCell)
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
