package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/deadletter-dev/deadletter/dlqstore"
)

func (c *cli) groupsCommand() *cobra.Command {
	var filters filterFlags
	var limit int
	cmd := &cobra.Command{
		Use:   "groups",
		Short: "Group dead letters by what they died of, the largest group first",
		Long: "Group dead letters by fingerprint: job type, reason, the type of the innermost error, and\n" +
			"the first frame of the application's own, or where there is no stack the message without\n" +
			"numbers, ids, addresses and quoted values. It needs Postgres only. By --type, --reason,\n" +
			"--queue and --fingerprint it takes no longer on a large table; other filters read the\n" +
			"rows that they select.",
		Example: "  " + name + " groups\n" +
			"  " + name + " groups --dead-after 2h\n" +
			"  " + name + " groups --type SendEmail -o json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			filter, err := filters.filter(time.Now())
			if err != nil {
				return err
			}
			if err := checkLimit(limit); err != nil {
				return err
			}
			store, config, err := c.openStore(cmd.Context())
			if err != nil {
				return err
			}
			defer store.Close()
			filter.Namespace = config.Temporal.Namespace
			groups, more, err := store.Groups(cmd.Context(), filter, limit)
			if err != nil {
				return err
			}
			return c.printGroups(groups, more)
		},
	}
	filters.add(cmd)
	cmd.Flags().IntVar(&limit, "limit", 50, "most groups to list, up to 1000")
	return cmd
}

func checkLimit(limit int) error {
	if limit < 1 || limit > maxListLimit {
		return usagef("--limit: %d is not between 1 and %d", limit, maxListLimit)
	}
	return nil
}

func (c *cli) printGroups(groups []dlqstore.Group, more int) error {
	switch c.output {
	case outputJSON:
		if groups == nil {
			groups = []dlqstore.Group{}
		}
		return c.printJSON(struct {
			Groups []dlqstore.Group `json:"groups"`
			More   int              `json:"more"`
		}{groups, more})
	case outputJSONL:
		for i := range groups {
			if err := c.printJSON(&groups[i]); err != nil {
				return err
			}
		}
		c.sayMore(more, "groups")
		return nil
	case outputText:
	}
	if len(groups) == 0 {
		_, err := fmt.Fprintln(c.out, "No dead letters match.")
		return err
	}
	cells := [][]string{{"COUNT", "FIRST DEAD AT", "LAST DEAD AT", "TYPE", "REASON", "QUEUES", "FINGERPRINT", "SAMPLE", "ERROR"}}
	noted := slices.ContainsFunc(groups, func(g dlqstore.Group) bool { return g.Notes > 0 })
	if noted {
		cells[0] = append(cells[0], "NEWEST NOTE")
	}
	for i := range groups {
		g := &groups[i]
		row := []string{
			strconv.FormatInt(g.Count, 10), timeText(&g.FirstDeadAt), timeText(&g.LastDeadAt), printable(g.JobType), g.Reason,
			shortened(printable(strings.Join(g.TaskQueues, ",")), maxErrorCell), printable(g.Fingerprint), printable(g.Sample.WorkflowID),
			groupError(g),
		}
		if noted {
			row = append(row, groupNote(g))
		}
		cells = append(cells, row)
	}
	if err := listTable(c.out, cells, "COUNT", "TYPE", "REASON", "FINGERPRINT", "ERROR"); err != nil {
		return err
	}
	c.sayMore(more, "groups")
	return nil
}

func groupError(g *dlqstore.Group) string {
	text := g.ErrorMessage
	if g.ErrorType != "" {
		text = g.ErrorType + ": " + text
	}
	return shortened(printable(text), maxErrorCell)
}

// groupNote says what was noted last, who said it when, and how much more there is.
func groupNote(g *dlqstore.Group) string {
	if g.Note == nil {
		return ""
	}
	text := shortened(printable(g.Note.Text), maxErrorCell) + " (" + printable(g.Note.Actor) + ", " + timeText(&g.Note.At)
	if more := g.Notes - 1; more > 0 {
		text += ", and " + strconv.FormatInt(more, 10) + " before"
	}
	return text + ")"
}

// sayMore says on the side that a limit left something out.
func (c *cli) sayMore(more int, what string) {
	if more > 0 {
		fmt.Fprintf(c.errw, "%s: %s left out: %d; raise --limit to see them\n", name, what, more)
	}
}
