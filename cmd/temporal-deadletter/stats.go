package main

import (
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/deadletter-dev/deadletter/operator"
)

func (c *cli) statsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "stats",
		Short: "Count the jobs of the namespace",
		Long: "Count the jobs of the namespace. Dead letters are counted in Postgres, exactly and since\n" +
			"ever; the others in Temporal, as far back as the namespace retains closed workflows.\n" +
			"Cancelled means cancelled without a dead letter; one that has a dead letter counts as that.",
		Example: "  " + name + " stats\n" +
			"  " + name + " stats -o json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := c.connect(cmd.Context())
			if err != nil {
				return err
			}
			defer s.close()
			stats, err := s.Stats(cmd.Context())
			if err != nil {
				return err
			}
			if c.output != outputText {
				return c.printJSON(stats)
			}
			if err := printStats(c.out, stats); err != nil {
				return err
			}
			_, err = fmt.Fprintln(c.out, "\nCancelled means cancelled without a dead letter.")
			return err
		},
	}
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
	if stats.SplitEstimated {
		fmt.Fprintln(w, "\nHow many of the running jobs are queued is estimated from a sample of them.")
	}
	return nil
}
