package main

import (
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/deadletter-dev/deadletter/dlqstore"
)

const maxListLimit = 1000 // the store's

func (c *cli) listCommand() *cobra.Command {
	var filters filterFlags
	var page dlqstore.Page
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List dead letters, the newest first",
		Long:  "List dead letters, the newest first. It needs Postgres only.",
		Example: "  " + name + " list\n" +
			"  " + name + " list --reason max_retries_exceeded --type SendEmail --dead-after 24h\n" +
			"  " + name + " list --tag tenant=acme --replayed=false -o jsonl\n" +
			"  " + name + " list --where 'args[0].customer.id=42'",
		RunE: func(cmd *cobra.Command, _ []string) error {
			filter, err := filters.filter(time.Now())
			if err != nil {
				return err
			}
			if page.Limit < 1 || page.Limit > maxListLimit {
				return usagef("--limit: %d is not between 1 and %d", page.Limit, maxListLimit)
			}
			store, config, err := c.openStore(cmd.Context())
			if err != nil {
				return err
			}
			defer store.Close()
			filter.Namespace = config.Temporal.Namespace
			rows, next, err := store.List(cmd.Context(), filter, page)
			if err != nil {
				return err
			}
			return c.printList(rows, next)
		},
	}
	filters.add(cmd)
	cmd.Flags().IntVar(&page.Limit, "limit", 50, "most rows to list, up to 1000")
	cmd.Flags().Var(cursorFlag{&page.Cursor}, "cursor", "where the page starts, as the page before said")
	cmd.Flags().BoolVar(&page.OldestFirst, "oldest-first", false, "turn the order around")
	return cmd
}

func (c *cli) printList(rows []dlqstore.DeadLetter, next string) error {
	switch c.output {
	case outputJSON:
		if rows == nil {
			rows = []dlqstore.DeadLetter{}
		}
		return c.printJSON(struct {
			DeadLetters []dlqstore.DeadLetter `json:"dead_letters"`
			NextCursor  string                `json:"next_cursor"`
		}{rows, next})
	case outputJSONL:
		for i := range rows {
			if err := c.printJSON(&rows[i]); err != nil {
				return err
			}
		}
		if next != "" {
			fmt.Fprintf(c.errw, "%s: there is more: repeat the command with --cursor %s\n", name, next)
		}
	case outputText:
		if len(rows) == 0 {
			fmt.Fprintln(c.out, "No dead letters match.")
			return nil
		}
		if err := deadLetterTable(c.out, rows, time.Now()); err != nil {
			return err
		}
		if next != "" {
			fmt.Fprintf(c.out, "\nThere is more. Next page: repeat the command with --cursor %s\n", next)
		}
	}
	return nil
}

// maxErrorCell keeps a row on one line of a wide terminal, mostly.
const maxErrorCell = 60

func deadLetterTable(w io.Writer, rows []dlqstore.DeadLetter, now time.Time) error {
	cells := [][]string{{"DEAD AT", "AGE", "REASON", "TYPE", "ATTEMPTS", "REPLAYS", "WORKFLOW ID", "ERROR"}}
	for i := range rows {
		dl := &rows[i]
		cells = append(cells, []string{
			timeText(&dl.DeadAt), ageText(dl.DeadAt, now), string(dl.Reason), printable(dl.JobType), countText(dl.Attempts), strconv.Itoa(dl.ResurrectionCount),
			printable(dl.WorkflowID), shortened(printable(dl.ErrorMessage), maxErrorCell),
		})
	}
	return listTable(w, cells, "DEAD AT", "AGE", "WORKFLOW ID", "REASON", "ERROR")
}

func countText(count *int) string {
	if count == nil {
		return "?"
	}
	return strconv.Itoa(*count)
}
