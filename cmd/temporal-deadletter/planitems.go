package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/internal/connect"
)

func (c *cli) planItemsCommand() *cobra.Command {
	var state string
	var after, limit int
	cmd := &cobra.Command{
		Use:   "items PLAN",
		Short: "List the members of a plan and what became of each",
		Example: "  " + name + " plan items plan-k3v7q2m9xa --state failed\n" +
			"  " + name + " plan items plan-k3v7q2m9xa -o jsonl",
		Args: onePlan,
		RunE: func(cmd *cobra.Command, args []string) error {
			if limit < 1 || limit > maxListLimit {
				return usagef("--limit: %d is not between 1 and %d", limit, maxListLimit)
			}
			wanted := dlqstore.ItemState(state)
			if state != "" && !slices.Contains(itemStates, wanted) {
				return usagef("--state: %q is none of pending, done, skipped, failed, left", state)
			}
			return c.withStore(cmd.Context(), func(store *dlqstore.Store, config *connect.Config) error {
				return c.planItems(cmd.Context(), store, config, args[0], wanted, after, limit)
			})
		},
	}
	cmd.Flags().StringVar(&state, "state", "", "only those that are pending, done, skipped, failed or left")
	cmd.Flags().IntVar(&after, "after", 0, "start behind this position, as the page before said")
	cmd.Flags().IntVar(&limit, "limit", 50, "most members to list, up to 1000")
	return cmd
}

var itemStates = []dlqstore.ItemState{dlqstore.ItemPending, dlqstore.ItemDone, dlqstore.ItemSkipped, dlqstore.ItemFailed, dlqstore.ItemLeft}

func (c *cli) planItems(
	ctx context.Context, store *dlqstore.Store, config *connect.Config, id string, state dlqstore.ItemState, after, limit int,
) error {
	if _, err := store.Plan(ctx, config.Temporal.Namespace, id); err != nil {
		return planError(err)
	}
	items, err := store.PlanItems(ctx, id, state, after, limit)
	if err != nil {
		return err
	}
	next := 0
	if len(items) == limit {
		next = items[limit-1].Position
	}
	switch c.output {
	case outputJSON:
		return c.printJSON(struct {
			Items     []dlqstore.PlanItem `json:"items"`
			NextAfter int                 `json:"next_after"` // 0 behind the last page
		}{notNil(items), next})
	case outputJSONL:
		for i := range items {
			if err := c.printJSON(&items[i]); err != nil {
				return err
			}
		}
	case outputText:
		if len(items) == 0 {
			fmt.Fprintln(c.out, "No members match.")
			return nil
		}
		if err := itemTable(c.out, items); err != nil {
			return err
		}
	}
	if next > 0 {
		fmt.Fprintf(c.errw, "%s: there may be more: repeat the command with --after %d\n", name, next)
	}
	return nil
}

func itemTable(w io.Writer, items []dlqstore.PlanItem) error {
	rows := [][]string{{"NO", "STATE", "WORKFLOW ID", "NEW WORKFLOW ID", "OUTCOME", "WHAT"}}
	for i := range items {
		item := &items[i]
		started, outcome := "", ""
		if item.NewWorkflowID != nil {
			started = printable(*item.NewWorkflowID)
		}
		if item.Outcome != nil {
			outcome = string(*item.Outcome)
		}
		what := item.Error
		if item.Detail != nil {
			what += changesText(item.Detail)
		}
		rows = append(rows, []string{strconv.Itoa(item.Position), string(item.State), printable(item.WorkflowID), started, outcome, shortened(printable(what), 2*maxErrorCell)})
	}
	return listTable(w, rows, "NO", "STATE", "WORKFLOW ID", "WHAT")
}

// changesText is a difference on one line.
func changesText(diff *dlqstore.Diff) string {
	var words []string
	for i := range diff.Changes {
		change := &diff.Changes[i]
		words = append(words, change.Path+" "+sideText(string(change.Before), change.BeforeBytes)+" → "+sideText(string(change.After), change.AfterBytes))
	}
	if diff.LeftOut > 0 {
		words = append(words, fmt.Sprintf("and %d more", diff.LeftOut))
	}
	return strings.Join(words, ", ")
}
