package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/deadletter-dev/deadletter/job"
	"github.com/deadletter-dev/deadletter/operator"
)

func (c *cli) reconcileCommand() *cobra.Command {
	var since string
	var dryRun, yes bool
	cmd := &cobra.Command{
		Use:   "reconcile",
		Short: "Compare Temporal's closed jobs with Postgres, and write the dead letters that are missing",
		Long: "Compare Temporal's closed jobs with Postgres, and write the dead letters that are missing, as\n" +
			"after the restore of a dump. The dead-letter workers write them, as the sweep does; what was\n" +
			"purged or pruned stays so. It shows first what is missing, and asks.",
		Example: "  " + name + " reconcile --since 48h --dry-run\n" +
			"  " + name + " reconcile --since 2026-11-30T00:00:00Z --yes",
		RunE: func(cmd *cobra.Command, _ []string) error {
			from, err := moment("since", since, time.Now())
			if err != nil {
				return err
			}
			if from == nil {
				return usagef("reconcile needs --since: the time from which on jobs are compared, before the dump was made")
			}
			if !from.Before(time.Now()) {
				return usagef("reconcile --since %s: no job has closed since then; give a time in the past, before the dump was made", since)
			}
			if err := c.mustAsk("reconcile", yes || dryRun); err != nil {
				return err
			}
			return c.reconcile(cmd.Context(), *from, dryRun, yes)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&since, "since", "", "compare jobs that closed since this time, or this long ago, such as 48h (required)")
	flags.BoolVar(&dryRun, "dry-run", false, "only report, and write nothing")
	flags.BoolVarP(&yes, "yes", "y", false, "do not ask")
	return cmd
}

func (c *cli) reconcile(ctx context.Context, since time.Time, dryRun, yes bool) error {
	s, err := c.connect(ctx)
	if err != nil {
		return err
	}
	defer s.close()
	found, err := s.Reconcile(ctx, since)
	if err != nil {
		return err
	}
	if c.output == outputText || !dryRun {
		if err := printReconciliation(c.aside(), found); err != nil {
			return err
		}
	}
	var written *job.SweepState
	if !dryRun && found.MissingCount > 0 {
		if !yes {
			question := fmt.Sprintf("Write %s?", counted(found.MissingCount))
			if err := c.confirm(ctx, question, "nothing was written"); err != nil {
				return err
			}
		}
		state, err := s.WriteMissing(ctx, since)
		if err != nil {
			return err
		}
		written = &state
	}
	return c.printReconciled(found, written)
}

// printReconciled tells what was written. A dead letter that could not be written is a
// failure.
func (c *cli) printReconciled(found operator.Reconciliation, written *job.SweepState) error {
	if c.output != outputText {
		result := struct {
			operator.Reconciliation
			Written *int `json:"written,omitempty"`
		}{Reconciliation: found}
		if written != nil {
			result.Written = &written.Moved
		}
		if err := c.printJSON(result); err != nil {
			return err
		}
	} else if written != nil {
		fmt.Fprintf(c.out, "Wrote %s.\n", counted(int64(written.Moved)))
	}
	if written != nil && written.Left > 0 {
		return fmt.Errorf("%s could not be written, and will be tried again: %s", counted(int64(written.Left)), oneLine(written.LastError))
	}
	return nil
}

func printReconciliation(w io.Writer, found operator.Reconciliation) error {
	err := table(w, [][]string{
		{"Closed since", timeText(&found.Since)},
		{"Compared", strconv.FormatInt(found.Compared, 10)},
		{"Known", strconv.FormatInt(found.Known, 10) + ", their dead letters are there or were removed"},
		{"Not dead", strconv.FormatInt(found.NotDead, 10)},
		{"Missing", counted(found.MissingCount)},
	})
	if err != nil {
		return err
	}
	if len(found.Missing) > 0 {
		rows := [][]string{{"  CLOSED", "REASON", "WORKFLOW ID"}}
		for i := range found.Missing {
			m := &found.Missing[i]
			rows = append(rows, []string{"  " + timeText(&m.ClosedAt), string(m.Reason), printable(m.WorkflowID)})
		}
		if err := table(w, rows); err != nil {
			return err
		}
	}
	if more := found.MissingCount - int64(len(found.Missing)); more > 0 {
		fmt.Fprintf(w, "  and %d more\n", more)
	}
	if len(found.Left) == 0 {
		return nil
	}
	fmt.Fprintln(w, "The sweep could not write these so far:")
	rows := [][]string{{"  CLOSED", "TRIES", "WORKFLOW ID", "WHY"}}
	for i := range found.Left {
		l := &found.Left[i]
		rows = append(rows, []string{"  " + timeText(&l.ClosedAt), strconv.Itoa(l.Tries), printable(l.WorkflowID), shortened(printable(l.Error), maxFailureCell)})
	}
	return table(w, rows)
}
