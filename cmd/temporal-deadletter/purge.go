package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/internal/connect"
)

const defaultPurgeLimit = 1000 // the store's

// purge is what the flags of one purge say.
type purge struct {
	keyFlags
	actorFlag
	filters filterFlags
	all     bool
	limit   int
	yes     bool
}

func (c *cli) purgeCommand() *cobra.Command {
	var p purge
	cmd := &cobra.Command{
		Use:   "purge",
		Short: "Remove dead letters for good",
		Long: "Remove dead letters for good: one, or all that a filter selects. It shows what would go,\n" +
			"with reasons, times and a sample, and asks first. It needs Postgres only; running jobs are never touched.",
		Example: "  " + name + " purge -w order-4711\n" +
			"  " + name + " purge --reason cancelled --dead-before 720h\n" +
			"  " + name + " purge --all --limit 5000 --yes",
		RunE: func(cmd *cobra.Command, _ []string) error { return c.purge(cmd.Context(), &p) },
	}
	p.keyFlags.add(cmd)
	p.actorFlag.add(cmd)
	p.filters.add(cmd)
	cmd.Flags().BoolVar(&p.all, "all", false, "allow a purge without a filter: every dead letter of the namespace")
	cmd.Flags().IntVar(&p.limit, "limit", defaultPurgeLimit, "most that may match; if more do, nothing is purged")
	cmd.Flags().BoolVarP(&p.yes, "yes", "y", false, "do not ask")
	return cmd
}

func (c *cli) purge(ctx context.Context, p *purge) error {
	filter, err := p.filters.filter(time.Now())
	if err != nil {
		return err
	}
	one := p.workflowID != ""
	switch {
	case one && (p.all || !filter.IsEmpty()):
		return usagef("purge takes either -w or a filter, not both")
	case !one && p.runID != "":
		return usagef("-r names a run of the workflow id that -w gives: pass -w too")
	case !one && filter.IsEmpty() && !p.all:
		return usagef("say what to purge: -w WORKFLOW_ID, a filter such as --reason, or --all; see `%s purge --help`", name)
	case p.limit < 1:
		return usagef("--limit: %d is not a positive number", p.limit)
	}
	if err := c.mustAsk("purge", p.yes); err != nil {
		return err
	}
	who, err := p.name()
	if err != nil {
		return err
	}
	store, config, err := c.openStore(ctx)
	if err != nil {
		return err
	}
	defer store.Close()
	filter.Namespace = config.Temporal.Namespace
	if one {
		return c.purgeOne(ctx, store, config, p, who)
	}
	return c.purgeMatching(ctx, store, config, p, dlqstore.PurgeRequest{Filter: filter, All: p.all, Actor: who})
}

func (c *cli) purgeOne(ctx context.Context, store *dlqstore.Store, config *connect.Config, p *purge, who string) error {
	key, err := store.ResolveFor(ctx, dlqstore.Asked{
		Verb: dlqstore.VerbPurge, Key: dlqstore.Key{Namespace: config.Temporal.Namespace, WorkflowID: p.workflowID, RunID: p.runID}, Actor: who,
	})
	if err != nil {
		return err
	}
	what := "workflow " + printable(key.WorkflowID) + ", run " + printable(key.RunID)
	if err := c.planned(config, 1, what); err != nil {
		return err
	}
	if err := c.askPurge(ctx, p.yes, 1); err != nil {
		return err
	}
	if err := store.Purge(ctx, key, who); err != nil {
		return err
	}
	return c.printPurged(1)
}

func (c *cli) purgeMatching(
	ctx context.Context, store *dlqstore.Store, config *connect.Config, p *purge, request dlqstore.PurgeRequest,
) error {
	matched, err := store.Count(ctx, request.Filter)
	if err != nil {
		return err
	}
	if matched > int64(p.limit) {
		asked := dlqstore.Asked{Verb: dlqstore.VerbPurge, Key: dlqstore.Key{Namespace: config.Temporal.Namespace}, Actor: request.Actor}
		err := store.NoteRefusal(ctx, asked, &dlqstore.CapError{Matched: matched, Limit: p.limit})
		if unaudited := (*dlqstore.UnauditedError)(nil); errors.As(err, &unaudited) {
			return unaudited
		}
		return fmt.Errorf("%d dead letters match, more than --limit %d: nothing was purged; narrow the filter or raise --limit", matched, p.limit)
	}
	if matched == 0 {
		return c.printPurged(0)
	}
	if err := c.planned(config, matched, describe(request.Filter)); err != nil {
		return err
	}
	if !p.yes {
		if err := c.printMatching(ctx, store, request.Filter); err != nil {
			return err
		}
	}
	if err := c.askPurge(ctx, p.yes, matched); err != nil {
		return err
	}
	request.Limit = int(matched) // no more than was shown
	purged, err := store.PurgeMatching(ctx, request)
	if more := (*dlqstore.CapError)(nil); errors.As(err, &more) {
		return fmt.Errorf("%d dead letters match by now, more than the %d shown: nothing was purged; run it again, or bound it with --dead-before", more.Matched, matched)
	}
	if err != nil {
		return fmt.Errorf("%d of %d were purged, then: %w", purged, matched, err)
	}
	return c.printPurged(purged)
}

// planned shows what would go.
func (c *cli) planned(config *connect.Config, matched int64, what string) error {
	return table(c.aside(), [][]string{
		{"Purge", counted(matched) + ", for good"},
		{"Namespace", printable(config.Temporal.Namespace)},
		{"Database", printable(config.Database()) + ", schema " + printable(config.Schema)},
		{"Filter", what},
	})
}

func (c *cli) askPurge(ctx context.Context, yes bool, matched int64) error {
	if yes {
		return nil
	}
	return c.confirm(ctx, "Purge "+counted(matched)+"?", "nothing was purged")
}

const (
	// previewWithin bounds the look at what would go: a person waits for it, and can
	// decide without it.
	previewWithin = 10 * time.Second
	previewRows   = 5
)

// printMatching shows, of the dead letters that a filter selects, the reasons, the
// times and a sample.
func (c *cli) printMatching(ctx context.Context, store *dlqstore.Store, filter dlqstore.Filter) error {
	bounded, cancel := context.WithTimeout(ctx, previewWithin)
	defer cancel()
	spans, err := store.Spans(bounded, filter)
	var sample []dlqstore.DeadLetter
	if err == nil {
		sample, _, err = store.List(bounded, filter, dlqstore.Page{Limit: previewRows})
	}
	switch {
	case ctx.Err() == nil && errors.Is(err, dlqstore.ErrTimeout):
		_, err = fmt.Fprintln(c.aside(), "What they are is left out: Postgres did not tell in time.")
		return err
	case err != nil || len(spans) == 0:
		return err
	}
	if err := table(c.aside(), spanRows(spans)); err != nil {
		return err
	}
	fmt.Fprintf(c.aside(), "The newest %d of them\n", len(sample))
	rows := [][]string{{"  DEAD AT", "REASON", "TYPE", "WORKFLOW ID", "ERROR"}}
	for i := range sample {
		dl := &sample[i]
		rows = append(rows, []string{
			"  " + timeText(&dl.DeadAt), string(dl.Reason), orNone(dl.JobType), printable(dl.WorkflowID), shortened(printable(dl.ErrorMessage), maxErrorCell),
		})
	}
	return listTable(c.aside(), rows)
}

// spanRows has keys as wide as those of planned, with which it makes one table.
func spanRows(spans []dlqstore.Span) [][]string {
	oldest, newest := spans[0].Oldest, spans[0].Newest
	var reasons []string
	for i := range spans {
		s := &spans[i]
		reasons = append(reasons, fmt.Sprintf("%s %d", printable(string(s.Reason)), s.Count))
		if s.Oldest.Before(oldest) {
			oldest = s.Oldest
		}
		if s.Newest.After(newest) {
			newest = s.Newest
		}
	}
	return [][]string{
		{"By reason", strings.Join(reasons, ", ")},
		{"Dead", "from " + timeText(&oldest) + " to " + timeText(&newest)},
	}
}

func counted(n int64) string {
	if n == 1 {
		return "1 dead letter"
	}
	return fmt.Sprintf("%d dead letters", n)
}

func (c *cli) printPurged(purged int64) error {
	if c.output != outputText {
		return c.printJSON(struct {
			Purged int64 `json:"purged"`
		}{purged})
	}
	_, err := fmt.Fprintf(c.out, "Purged %s.\n", counted(purged))
	return err
}

// canAsk reports whether a person is there to answer.
func (c *cli) canAsk() bool { return isTerminal(c.in) }

// ask reads one line in lower case. A read cannot be interrupted, so Ctrl-C
// leaves it behind.
func (c *cli) ask(ctx context.Context) (string, error) {
	type reply struct {
		line string
		err  error
	}
	replies := make(chan reply, 1)
	go func() {
		line, err := bufio.NewReader(c.in).ReadString('\n')
		replies <- reply{line, err}
	}()
	select {
	case <-ctx.Done():
		return "", ctx.Err()
	case r := <-replies:
		if r.err != nil && !errors.Is(r.err, io.EOF) {
			return "", fmt.Errorf("read the answer: %w", r.err)
		}
		return strings.ToLower(strings.TrimSpace(r.line)), nil
	}
}
