package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/deadletter-dev/deadletter/dlqstore"
)

func (c *cli) eventsCommand() *cobra.Command {
	var filter dlqstore.EventFilter
	var page dlqstore.EventPage
	var since, until string
	given := pflag.NewFlagSet("filter", pflag.ContinueOnError)
	cmd := &cobra.Command{
		Use:   "events",
		Short: "List who did what and when, the newest first",
		Long: "List who did what and when, the newest first: the audit. Refused requests are in it, with\n" +
			"\"_refused\" behind the verb, and the events of purged dead letters. It needs Postgres only.",
		Example: "  " + name + " events --actor oncall --since 24h\n" +
			"  " + name + " events --verb purge -o jsonl\n" +
			"  " + name + " events -w order-4711",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := noEmptyValue(given); err != nil {
				return err
			}
			if page.Limit < 1 || page.Limit > maxListLimit {
				return usagef("--limit: %d is not between 1 and %d", page.Limit, maxListLimit)
			}
			var err error
			now := time.Now()
			if filter.Since, err = moment("since", since, now); err != nil {
				return err
			}
			if filter.Until, err = moment("until", until, now); err != nil {
				return err
			}
			store, config, err := c.openStore(cmd.Context())
			if err != nil {
				return err
			}
			defer store.Close()
			filter.Namespace = config.Temporal.Namespace
			events, next, err := store.ListEvents(cmd.Context(), filter, page)
			if err != nil {
				return err
			}
			return c.printAudit(events, next)
		},
	}
	given.StringVarP(&filter.WorkflowID, "workflow-id", "w", "", "workflow id of the job")
	given.StringVarP(&filter.RunID, "run-id", "r", "", "its run id")
	given.StringVar(&filter.Actor, "actor", "", "who asked")
	given.StringVar(&filter.Verb, "verb", "", "what was asked, such as replay, purge, edit, note, or edit_refused")
	given.StringVar(&filter.PlanID, "plan", "", "plan that it belongs to")
	given.StringVar(&since, "since", "", "at this time or later: "+timeHelp)
	given.StringVar(&until, "until", "", "before this time, given like --since")
	cmd.Flags().AddFlagSet(given)
	cmd.Flags().IntVar(&page.Limit, "limit", 50, "most events to list, up to 1000")
	cmd.Flags().Var(cursorFlag{&page.Cursor}, "cursor", "where the page starts, as the page before said")
	return cmd
}

// noEmptyValue refuses a filter that is given without a value: it is more likely
// an unset variable of a script than a wish for everything.
func noEmptyValue(flags *pflag.FlagSet) (err error) {
	flags.VisitAll(func(flag *pflag.Flag) {
		if flag.Changed && flag.Value.String() == "" && err == nil {
			err = usagef("--%s has an empty value; leave the flag out to select all", flag.Name)
		}
	})
	return err
}

func (c *cli) printAudit(events []dlqstore.Event, next string) error {
	switch c.output {
	case outputJSON:
		return c.printJSON(struct {
			Events     []dlqstore.Event `json:"events"`
			NextCursor string           `json:"next_cursor"`
		}{notNil(events), next})
	case outputJSONL:
		for i := range events {
			if err := c.printJSON(&events[i]); err != nil {
				return err
			}
		}
		if next != "" {
			fmt.Fprintf(c.errw, "%s: there is more: repeat the command with --cursor %s\n", name, next)
		}
	case outputText:
		if len(events) == 0 {
			fmt.Fprintln(c.out, "No events match.")
			return nil
		}
		rows := [][]string{{"AT", "VERB", "BY", "WORKFLOW ID", "PLAN", "DETAIL"}}
		for i := range events {
			e := &events[i]
			plan := ""
			if e.PlanID != nil {
				plan = printable(*e.PlanID)
			}
			rows = append(rows, []string{timeText(&e.At), printable(e.Verb), orNone(e.Actor), printable(e.WorkflowID), plan, detailText(e.Detail)})
		}
		if err := listTable(c.out, rows, "AT", "VERB", "BY", "WORKFLOW ID", "DETAIL"); err != nil {
			return err
		}
		if next != "" {
			fmt.Fprintf(c.out, "\nThere is more. Next page: repeat the command with --cursor %s\n", next)
		}
	}
	return nil
}
