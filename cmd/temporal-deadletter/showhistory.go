package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/operator"
)

// printCauses tells of the levels under the outermost failure, which the error
// shows already.
func printCauses(w io.Writer, causes []operator.FailureCause) {
	if len(causes) < 2 {
		return
	}
	section(w, "Caused by")
	for _, cause := range causes[1:] {
		said := printable(cause.Message)
		if cause.Type != "" {
			said = printable(cause.Type) + ": " + said
		}
		fmt.Fprintln(w, "  "+said)
	}
}

func printHeartbeat(w io.Writer, heartbeat *operator.Heartbeat) {
	if heartbeat == nil {
		return
	}
	section(w, "Last heartbeat")
	if heartbeat.Details == nil {
		fmt.Fprintln(w, "  not readable here: "+printable(heartbeat.Unreadable))
		return
	}
	fmt.Fprintln(w, "  "+printable(string(heartbeat.Details)))
}

func printNotes(w io.Writer, notes []dlqstore.Note) {
	if len(notes) == 0 {
		return
	}
	section(w, "Notes")
	for i := range notes {
		n := &notes[i]
		on := ""
		if n.Group != nil {
			on = ", on the fingerprint"
		}
		fmt.Fprintf(w, "  %s  %s%s\n", timeText(&n.At), printable(n.Actor), on)
		for _, line := range printableLines(n.Text) {
			fmt.Fprintln(w, "    "+line)
		}
	}
}

func printRevisions(w io.Writer, revisions []dlqstore.Revision) error {
	if len(revisions) == 0 {
		return nil
	}
	section(w, "Edits")
	for i := range revisions {
		r := &revisions[i]
		from := ""
		if r.RevertedTo != nil {
			from = ", from revision " + strconv.Itoa(*r.RevertedTo)
		}
		if r.PlanID != nil {
			from += ", plan " + printable(*r.PlanID)
		}
		fmt.Fprintf(w, "  revision %d  %s  %s%s\n", r.Revision, timeText(&r.At), printable(r.Actor), from)
		if err := printDiff(w, r.Diff); err != nil {
			return err
		}
	}
	return nil
}

func printDiff(w io.Writer, diff dlqstore.Diff) error {
	var rows [][]string
	for i := range diff.Changes {
		change := &diff.Changes[i]
		rows = append(rows, []string{
			"    " + printable(change.Path),
			sideText(string(change.Before), change.BeforeBytes) + " → " + sideText(string(change.After), change.AfterBytes),
		})
	}
	if diff.LeftOut > 0 {
		rows = append(rows, []string{fmt.Sprintf("    and %d more", diff.LeftOut)})
	}
	return table(w, rows)
}

func sideText(value string, size int) string {
	switch {
	case value != "":
		return printable(value)
	case size > 0:
		return fmt.Sprintf("(%d bytes)", size)
	default:
		return "(none)"
	}
}

func printLineage(w io.Writer, line dlqstore.Lineage) error {
	if len(line.Ancestors) > 0 {
		section(w, "Replayed from")
		rows := [][]string{{"  WORKFLOW ID", "RUN ID", "DEAD AT", "REASON"}}
		for i := range line.Ancestors {
			a := &line.Ancestors[i]
			reason := "purged"
			if a.Reason != nil {
				reason = string(*a.Reason)
			}
			rows = append(rows, []string{"  " + printable(a.WorkflowID), printable(a.RunID), timeText(a.DeadAt), reason})
		}
		if err := table(w, rows); err != nil {
			return err
		}
	}
	var further [][]string
	for i := range line.Descendants {
		if d := &line.Descendants[i]; d.Depth > 1 { // its own replays are shown by themselves
			further = append(further, []string{
				strings.Repeat("  ", min(d.Depth, maxIndent)-1) + printable(d.WorkflowID), printable(d.NewWorkflowID), printable(replayState(&d.Replay)),
			})
		}
	}
	if len(further) == 0 {
		return nil
	}
	section(w, "Replays of its replays")
	return table(w, append([][]string{{"  FROM", "NEW WORKFLOW ID", "STATE"}}, further...))
}

const maxIndent = 10
