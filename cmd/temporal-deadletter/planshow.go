package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/internal/connect"
	"github.com/deadletter-dev/deadletter/job"
)

func (c *cli) planListCommand() *cobra.Command {
	var limit int
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List plans and how far they are, the newest first",
		Example: "  " + name + " plan list",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit < 1 || limit > maxListLimit {
				return usagef("--limit: %d is not between 1 and %d", limit, maxListLimit)
			}
			return c.withStore(cmd.Context(), func(store *dlqstore.Store, config *connect.Config) error {
				plans, err := store.Plans(cmd.Context(), config.Temporal.Namespace, limit)
				if err != nil {
					return err
				}
				return c.printPlans(plans)
			})
		},
	}
	cmd.Flags().IntVar(&limit, "limit", 50, "most plans to list, up to 1000")
	return cmd
}

func (c *cli) printPlans(plans []dlqstore.Plan) error {
	switch c.output {
	case outputJSON:
		list := []planJSON{}
		for i := range plans {
			list = append(list, planOf(&plans[i]))
		}
		return c.printJSON(map[string]any{"plans": list})
	case outputJSONL:
		for i := range plans {
			if err := c.printJSON(planOf(&plans[i])); err != nil {
				return err
			}
		}
	case outputText:
		if len(plans) == 0 {
			fmt.Fprintln(c.out, "There are no plans.")
			return nil
		}
		rows := [][]string{{"CREATED AT", "PLAN", "VERB", "STATE", "MEMBERS", "DONE", "SKIPPED", "FAILED", "BY"}}
		for i := range plans {
			p := &plans[i]
			rows = append(rows, []string{
				timeText(&p.CreatedAt), p.ID, string(p.Verb), stateText(p), number(p.Members), number(p.Done), number(p.Skipped), number(p.Failed), printable(p.Actor),
			})
		}
		return listTable(c.out, rows, "PLAN", "VERB", "STATE", "MEMBERS")
	}
	return nil
}

func number(n int64) string { return strconv.FormatInt(n, 10) }

func stateText(p *dlqstore.Plan) string {
	if p.State == job.PlanPlanned && p.Appliable() != nil {
		return "expired"
	}
	return string(p.State)
}

func (c *cli) planShowCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "show PLAN",
		Short:   "Show a plan, and how far its operation is",
		Example: "  " + name + " plan show plan-k3v7q2m9xa",
		Args:    onePlan,
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.withStore(cmd.Context(), func(store *dlqstore.Store, config *connect.Config) error {
				plan, err := store.Plan(cmd.Context(), config.Temporal.Namespace, args[0])
				if err != nil {
					return planError(err)
				}
				return c.printPlan(cmd.Context(), store, plan, config)
			})
		},
	}
}

// onePlan takes exactly one argument.
func onePlan(cmd *cobra.Command, args []string) error {
	if len(args) != 1 || args[0] == "" {
		return usagef("%s takes one plan, such as plan-k3v7q2m9xa; see `%s plan list`", cmd.Name(), name)
	}
	return nil
}

// filterText puts a stored filter into words.
func filterText(stored json.RawMessage) string {
	var filter dlqstore.Filter
	if err := json.Unmarshal(stored, &filter); err != nil {
		return printable(string(stored))
	}
	return describe(filter)
}

// planJSON is a plan with what follows from its numbers.
type planJSON struct {
	*dlqstore.Plan
	Causes     []dlqstore.PlanCause `json:"causes,omitempty"` // the commonest, of skipped and failed members
	WillAffect int64                `json:"will_affect"`
	Truncated  bool                 `json:"truncated"`
	// EstimatedSeconds is null when no rate limits the operation.
	EstimatedSeconds *float64 `json:"estimated_seconds"`
	// Rate and ETASeconds are of an operation under way: members per second since it
	// was applied, pauses included, and what the rest takes at that rate.
	Rate       *float64 `json:"rate,omitempty"`
	ETASeconds *float64 `json:"eta_seconds,omitempty"`
	// Outcomes are of a replay that was applied.
	Outcomes *job.BulkOutcomes `json:"outcomes,omitempty"`
}

func planOf(p *dlqstore.Plan) planJSON {
	shown := planJSON{Plan: p, WillAffect: p.Members - p.Skipped, Truncated: p.Truncated()}
	if seconds, limited := estimate(p); limited {
		shown.EstimatedSeconds = &seconds
	}
	if rate, eta, known := pace(p); known {
		shown.Rate, shown.ETASeconds = &rate, &eta
	}
	return shown
}

// pace is how fast an operation goes and how long the rest takes; not known before it
// has done anything, nor after its end.
func pace(p *dlqstore.Plan) (perSecond, eta float64, known bool) {
	if p.AppliedAt == nil || p.State.IsFinal() || p.Done+p.Failed == 0 {
		return 0, 0, false
	}
	perSecond = float64(p.Done+p.Failed) / max(time.Since(*p.AppliedAt).Seconds(), 1)
	return perSecond, float64(p.Pending()) / perSecond, true
}

// estimate is how long the pending members take at the plan's rate.
func estimate(p *dlqstore.Plan) (seconds float64, limited bool) {
	rate := p.Parameters.WithDefaults().Rate
	if rate == 0 {
		return 0, false
	}
	return float64(p.Pending()) / rate, true
}

// maxCauses is how many causes of skips and failures are shown.
const maxCauses = 5

func (c *cli) printPlan(ctx context.Context, store *dlqstore.Store, p *dlqstore.Plan, config *connect.Config) error {
	causes, err := store.PlanCauses(ctx, p.ID, maxCauses)
	if err != nil {
		return err
	}
	var outcomes *job.BulkOutcomes
	if p.Verb == job.BulkReplay && p.AppliedAt != nil {
		found, err := store.Outcomes(ctx, p.ID)
		if err != nil {
			return err
		}
		outcomes = &found
	}
	if c.output != outputText {
		shown := planOf(p)
		shown.Causes, shown.Outcomes = notNil(causes), outcomes
		return c.printJSON(shown)
	}
	if err := planTable(c.out, p, config); err != nil {
		return err
	}
	if err := printOutcomes(c.out, p, outcomes); err != nil {
		return err
	}
	if err := causeTable(c.out, causes); err != nil {
		return err
	}
	if p.State != job.PlanPlanned || p.Appliable() != nil {
		return nil
	}
	if err := c.sampleTable(ctx, store, p); err != nil {
		return err
	}
	if p.Pending() == 0 {
		_, err := fmt.Fprintln(c.out, "\nThere is nothing to apply.")
		return err
	}
	_, err = fmt.Fprintf(c.out, "\nNothing has been changed. Until %s, apply it with: %s apply %s\n", timeText(&p.ExpiresAt), name, p.ID)
	return err
}

func printOutcomes(w io.Writer, p *dlqstore.Plan, o *job.BulkOutcomes) error {
	if o == nil {
		return nil
	}
	section(w, "What became of the new jobs")
	if _, err := fmt.Fprintf(w, "  %d succeeded, %d died again, %d cancelled, %d not known yet\n", o.Succeeded, o.Refailed, o.Cancelled, o.Open); err != nil {
		return err
	}
	if canary := int64(p.Parameters.Canary); canary > 0 && !p.State.IsFinal() && p.Done+p.Failed <= canary && o.Open > 0 {
		_, err := fmt.Fprintf(w, "  The canary waits for these %d: is a worker running for their queue?\n", o.Open)
		return err
	}
	return nil
}

func causeTable(w io.Writer, causes []dlqstore.PlanCause) error {
	if len(causes) == 0 {
		return nil
	}
	section(w, "Left alone")
	rows := [][]string{{"  MEMBERS", "STATE", "WHY"}}
	for _, cause := range causes {
		rows = append(rows, []string{"  " + number(cause.Members), string(cause.State), shortened(printable(cause.Error), 2*maxErrorCell)})
	}
	return table(w, rows)
}

func planTable(w io.Writer, p *dlqstore.Plan, config *connect.Config) error {
	rows := [][]string{
		{"Plan", p.ID + ", by " + printable(p.Actor) + " at " + timeText(&p.CreatedAt)},
		{"Verb", string(p.Verb)},
		{"Namespace", printable(config.Temporal.Namespace)},
		{"Database", printable(config.Database()) + ", schema " + printable(config.Schema)},
		{"Filter", filterText(p.Filter)},
	}
	if p.Parameters.Edit != "" {
		rows = append(rows, []string{"Change", shortened(printable(strings.TrimSpace(p.Parameters.Edit)), 4*maxErrorCell)})
	}
	rows = append(rows, [][]string{
		{"Matched", number(p.Matched)},
		{"Members", number(p.Members)},
		{"Will affect", number(p.Members - p.Skipped)},
	}...)
	report := &p.Report
	if report.LeftOut > 0 {
		rows = append(rows, []string{"Left out", fmt.Sprintf("%d, because a replay of them succeeded, is under way or is a dead letter itself; --include-replayed takes them in", report.LeftOut)})
	}
	if p.Truncated() {
		more := "raise --limit"
		if p.Verb == job.BulkReplay || p.Verb == job.BulkPurge {
			more += ", or plan again when these are done"
		}
		rows = append(rows, []string{"Truncated", fmt.Sprintf("yes: the %d oldest of %d; %s", p.Members, p.Matched-report.LeftOut, more)})
	}
	superseded := "whose job succeeded later"
	if p.Verb == job.BulkReplay {
		superseded += map[bool]string{true: ", replayed all the same", false: ", left out"}[p.Parameters.IncludeSuperseded]
	}
	rows = append(rows, []string{"By reason", tally(report.ByReason)}, []string{"By type", tally(report.ByType)})
	if report.OldestDeadAt != nil {
		rows = append(rows, []string{"Dead", "from " + timeText(report.OldestDeadAt) + " to " + timeText(report.NewestDeadAt)})
	}
	for _, line := range []struct {
		name string
		n    int64
		what string
	}{
		{"Superseded", report.Superseded, superseded},
		{"Replayed", report.Replayed, "were replayed before"},
		{"Planned twice", report.Held, "are in another plan too"},
	} {
		if line.n > 0 {
			rows = append(rows, []string{line.name, fmt.Sprintf("%d %s", line.n, line.what)})
		}
	}
	rows = append(rows, []string{"Speed", speedText(p)})
	if canary := p.Parameters.Canary; canary > 0 {
		limit := share(*p.Parameters.WithDefaults().MaxRefail)
		rows = append(rows, []string{"Canary", fmt.Sprintf("%d first; it stops when more than %s die again", canary, limit.String())})
	}
	rows = append(rows, []string{"State", stateText(p)})
	if p.AppliedAt != nil {
		rows = append(rows, []string{"Applied", "by " + printable(p.AppliedBy) + " at " + timeText(p.AppliedAt)})
	}
	if rate, eta, known := pace(p); known {
		rows = append(rows, []string{"Pace", fmt.Sprintf("%.1f per second, about %s for the rest", rate, time.Duration(eta*float64(time.Second)).Round(time.Second))})
	}
	rows = append(rows, []string{"Ended", fmt.Sprintf("%d done, %d skipped, %d failed, %d not", p.Done, p.Skipped, p.Failed, p.Pending())})
	if p.StopCause != "" {
		rows = append(rows, []string{"Stopped", printable(p.StopCause)})
	}
	return table(w, rows)
}

func tally(counts map[string]int64) string {
	keys := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		if counts[a] != counts[b] {
			return int(counts[b] - counts[a])
		}
		return strings.Compare(a, b)
	})
	var words []string
	for _, key := range keys {
		words = append(words, printable(key)+" "+number(counts[key]))
	}
	return orNone(strings.Join(words, ", "))
}

func speedText(p *dlqstore.Plan) string {
	seconds, limited := estimate(p)
	if !limited {
		return "no limit"
	}
	if seconds == 0 {
		return fmt.Sprintf("%g per second", p.Parameters.WithDefaults().Rate)
	}
	took := time.Duration(seconds * float64(time.Second)).Round(time.Second)
	return fmt.Sprintf("%g per second, about %s", p.Parameters.WithDefaults().Rate, max(took, time.Second))
}

// sampleTable shows a few members: those of an edit with what would change.
func (c *cli) sampleTable(ctx context.Context, store *dlqstore.Store, p *dlqstore.Plan) error {
	if len(p.Report.Sample) == 0 {
		return nil
	}
	if p.Parameters.Edit != "" {
		items, err := store.PlanItems(ctx, p.ID, dlqstore.ItemPending, 0, len(p.Report.Sample))
		if err != nil || len(items) == 0 {
			return err
		}
		section(c.out, "Sample")
		return itemTable(c.out, items)
	}
	section(c.out, "Sample")
	rows := [][]string{{"  DEAD AT", "REASON", "TYPE", "WORKFLOW ID", "ERROR"}}
	for _, s := range p.Report.Sample {
		rows = append(rows, []string{
			"  " + timeText(&s.DeadAt), string(s.Reason), printable(s.JobType), printable(s.WorkflowID), shortened(printable(s.ErrorMessage), maxErrorCell),
		})
	}
	return listTable(c.out, rows, "WORKFLOW ID", "ERROR")
}
