package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/operator"
)

func (c *cli) statsCommand() *cobra.Command {
	var by string
	var hourly, watch bool
	var limit int
	var interval time.Duration
	cmd := &cobra.Command{
		Use:   "stats",
		Short: "Count the jobs of the namespace",
		Long: "Count the jobs of the namespace. Dead letters are counted in Postgres, exactly and since\n" +
			"ever; the others in Temporal, as far back as the namespace retains closed workflows.\n" +
			"Cancelled means cancelled without a dead letter; one that has a dead letter counts as that,\n" +
			"and as nothing once that was purged.\n\n" +
			"--by and --hourly are of the dead letters alone and need Postgres only. Hours are of UTC;\n" +
			"replayed counts what was asked for, purged what went by purge, pruned what by retention.",
		Example: "  " + name + " stats\n" +
			"  " + name + " stats -o json\n" +
			"  " + name + " stats --by reason\n" +
			"  " + name + " stats --hourly",
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case by != "" && hourly, by != "" && watch, hourly && watch:
				return usagef("stats takes one of --by, --hourly and --watch")
			case cmd.Flags().Changed("by"):
				return c.statsBy(cmd.Context(), by, limit)
			case hourly:
				return c.statsHourly(cmd.Context())
			case watch:
				return c.watch(cmd.Context(), interval)
			}
			return c.stats(cmd.Context())
		},
	}
	cmd.Flags().StringVar(&by, "by", "", "count the dead letters by type, queue or reason")
	cmd.Flags().IntVar(&limit, "limit", 50, "most values to list with --by, up to 1000")
	cmd.Flags().BoolVar(&hourly, "hourly", false, "what died, was replayed, purged and pruned in each of the last 24 hours")
	cmd.Flags().BoolVar(&watch, "watch", false, "as the verb watch")
	addInterval(cmd, &interval)
	return cmd
}

func (c *cli) stats(ctx context.Context) error {
	s, err := c.connect(ctx)
	if err != nil {
		return err
	}
	defer s.close()
	stats, err := s.Stats(ctx)
	if err != nil {
		return err
	}
	if c.output != outputText {
		return c.printJSON(stats)
	}
	trend, err := s.Trend(ctx)
	if err != nil {
		return err
	}
	if err := printStats(c.out, stats); err != nil {
		return err
	}
	fmt.Fprintln(c.out, "\nCancelled means cancelled without a dead letter.")
	return table(c.out, trendRows(trend))
}

// trendRows says in words how the dead letters develop.
func trendRows(trend *dlqstore.Trend) [][]string {
	var sum dlqstore.Hour
	for _, hour := range trend.Hours {
		sum.Dead, sum.Replayed = sum.Dead+hour.Dead, sum.Replayed+hour.Replayed
		sum.Purged, sum.Pruned = sum.Purged+hour.Purged, sum.Pruned+hour.Pruned
	}
	oldest := "none"
	if trend.Oldest != nil {
		oldest = timeText(&trend.Oldest.DeadAt) + ", " + printable(trend.Oldest.WorkflowID)
	}
	return [][]string{
		{"Oldest dead letter", oldest},
		{"Last 24 hours", fmt.Sprintf("%+d: %d died, %d purged, %d pruned by retention; %d replayed",
			trend.Growth, sum.Dead, sum.Purged, sum.Pruned, sum.Replayed)},
	}
}

// dimensions are the values of --by.
var dimensions = map[string]dlqstore.Dimension{"type": dlqstore.ByJobType, "queue": dlqstore.ByTaskQueue, "reason": dlqstore.ByReason}

func (c *cli) statsBy(ctx context.Context, by string, limit int) error {
	dimension, ok := dimensions[by]
	if !ok {
		return usagef("--by: %q is none of type, queue, reason", by)
	}
	if err := checkLimit(limit); err != nil {
		return err
	}
	store, config, err := c.openStore(ctx)
	if err != nil {
		return err
	}
	defer store.Close()
	tallies, more, err := store.CountBy(ctx, config.Temporal.Namespace, dimension, limit)
	if err != nil {
		return err
	}
	rows := make([]map[string]any, 0, len(tallies)) // keyed by the column's name
	for _, tally := range tallies {
		rows = append(rows, map[string]any{string(dimension): tally.Value, "dead_letter": tally.Count})
	}
	switch c.output {
	case outputJSON:
		return c.printJSON(struct {
			Counts []map[string]any `json:"counts"`
			More   int              `json:"more"`
		}{rows, more})
	case outputJSONL:
		for _, row := range rows {
			if err := c.printJSON(row); err != nil {
				return err
			}
		}
	case outputText:
		if err := table(c.out, tallyRows(by, tallies)); err != nil {
			return err
		}
	}
	c.sayMore(more, "values")
	return nil
}

func tallyRows(by string, tallies []dlqstore.Tally) [][]string {
	rows := [][]string{{strings.ToUpper(by), "DEAD LETTERS"}}
	for _, tally := range tallies {
		rows = append(rows, []string{printable(tally.Value), strconv.FormatInt(tally.Count, 10)})
	}
	return rows
}

func (c *cli) statsHourly(ctx context.Context) error {
	store, config, err := c.openStore(ctx)
	if err != nil {
		return err
	}
	defer store.Close()
	trend, err := store.Trend(ctx, config.Temporal.Namespace)
	if err != nil {
		return err
	}
	switch c.output {
	case outputJSON:
		return c.printJSON(trend)
	case outputJSONL:
		for _, hour := range trend.Hours {
			if err := c.printJSON(hour); err != nil {
				return err
			}
		}
		return nil
	case outputText:
	}
	if err := table(c.out, hourRows(trend.Hours)); err != nil {
		return err
	}
	fmt.Fprintln(c.out)
	return table(c.out, trendRows(trend))
}

func hourRows(hours []dlqstore.Hour) [][]string {
	rows := [][]string{{"HOUR", "DEAD", "REPLAYED", "PURGED", "PRUNED"}}
	for _, hour := range hours {
		rows = append(rows, []string{
			hour.Hour.Format("2006-01-02 15:04Z"),
			strconv.FormatInt(hour.Dead, 10), strconv.FormatInt(hour.Replayed, 10), strconv.FormatInt(hour.Purged, 10),
			strconv.FormatInt(hour.Pruned, 10),
		})
	}
	return rows
}

func printStats(w io.Writer, stats operator.Stats) error {
	var rows [][]string
	for _, line := range []struct {
		name  string
		count int64
	}{
		{"queued", stats.Queued},
		{"processing", stats.Processing},
		{"done", stats.Done},
		{"cancelled", stats.Cancelled},
		{"dead letters", stats.DeadLetter},
		{"total", stats.Total},
	} {
		rows = append(rows, []string{line.name, strconv.FormatInt(line.count, 10)})
	}
	if err := table(w, rows); err != nil {
		return err
	}
	if stats.Left > 0 {
		fmt.Fprintf(w, "\n%d closed jobs have no dead letter because the sweep could not write it; it tries again. `%s reconcile` lists them.\n", stats.Left, name)
	}
	if stats.SplitEstimated {
		fmt.Fprintln(w, "\nHow many of the running jobs are queued is estimated from a sample of them.")
	}
	return nil
}
