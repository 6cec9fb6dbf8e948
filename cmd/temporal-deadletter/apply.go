package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/job"
	"github.com/deadletter-dev/deadletter/operator"
)

// apply is what the flags of one apply say.
type apply struct {
	actor    actorFlag
	settings settingsFlags
	yes      bool
	detach   bool
}

func (c *cli) applyCommand() *cobra.Command {
	var a apply
	cmd := &cobra.Command{
		Use:   "apply PLAN",
		Short: "Do what a plan showed, as a durable operation, and follow it",
		Long: "Do what a plan showed, to exactly the dead letters that it froze. The workers of the dead-letter\n" +
			"queue carry it out, as workflow " + job.BulkWorkflowType + ": it goes on without this command, and through\n" +
			"crashes. If you apply a plan again, you join its operation; no member is done twice.",
		Example: "  " + name + " apply plan-k3v7q2m9xa\n" +
			"  " + name + " apply plan-k3v7q2m9xa --rate 5 --yes --detach",
		Args: onePlan,
		RunE: func(cmd *cobra.Command, args []string) error { return c.apply(cmd.Context(), &a, args[0]) },
	}
	a.actor.add(cmd)
	a.settings.add(cmd, true)
	for _, setting := range []string{"rate", "concurrency", "canary", "max-refail"} {
		flag := cmd.Flags().Lookup(setting)
		flag.DefValue = "0" // none is shown: what is not given is the plan's
		flag.Usage += " (default: as the plan says)"
	}
	cmd.Flags().BoolVarP(&a.yes, "yes", "y", false, "do not ask")
	cmd.Flags().BoolVar(&a.detach, "detach", false, "do not follow the operation")
	return cmd
}

func (c *cli) apply(ctx context.Context, a *apply, id string) error {
	if err := c.mustAsk("apply", a.yes); err != nil {
		return err
	}
	who, err := a.actor.name()
	if err != nil {
		return err
	}
	s, err := c.connect(ctx)
	if err != nil {
		return err
	}
	defer s.close()
	plan, err := s.Plan(ctx, id)
	if err == nil {
		err = plan.Appliable()
	}
	if err != nil {
		err = s.store.NoteRefusal(ctx, dlqstore.Asked{Verb: dlqstore.VerbApply, Key: dlqstore.Key{Namespace: s.config.Temporal.Namespace}, Actor: who, PlanID: id}, err)
		return planError(err)
	}
	if err := a.settings.check(); err != nil {
		return err
	}
	var settings *job.BulkSettings
	if asked, given := a.settings.over(plan.Parameters.BulkSettings); given {
		if err := asked.Check(plan.Verb); err != nil {
			return usageError{err}
		}
		settings = &asked
	}
	if plan.State == job.PlanPlanned {
		if err := c.applyPlanned(ctx, s, plan, settings, a.yes); err != nil {
			return err
		}
	}
	if _, err := s.Apply(ctx, operator.ApplyRequest{PlanID: id, Settings: settings, Actor: who}); err != nil {
		return err
	}
	c.sayUnpolled(s.UnpolledByPlan(ctx, plan))
	if a.detach {
		return c.printDetached(plan)
	}
	return c.follow(ctx, s, plan)
}

// applyPlanned shows what would happen and asks.
func (c *cli) applyPlanned(ctx context.Context, s *session, plan *dlqstore.Plan, settings *job.BulkSettings, yes bool) error {
	shown := *plan
	if settings != nil {
		shown.Parameters.BulkSettings = *settings
	}
	if err := planTable(c.aside(), &shown, s.config); err != nil || yes {
		return err
	}
	return c.confirm(ctx, deed(plan)+"?", "nothing was changed")
}

// deed says what a plan does, as a question's beginning.
func deed(plan *dlqstore.Plan) string {
	verb := string(plan.Verb)
	return strings.ToUpper(verb[:1]) + verb[1:] + " " + counted(plan.Pending())
}

func (c *cli) printDetached(plan *dlqstore.Plan) error {
	if c.output != outputText {
		return c.printJSON(plan.Progress())
	}
	_, err := fmt.Fprintf(c.out, "The operation is under way. See `%s plan show %s`; follow it with `%s apply %s --yes`.\n", name, plan.ID, name, plan.ID)
	return err
}

// patience is after how long an operation that nobody takes up is explained.
const patience = 10 * time.Second

// follow shows the progress until the operation has ended. Its error says that a
// member failed, or that not all were done.
func (c *cli) follow(ctx context.Context, s *session, plan *dlqstore.Plan) error {
	bar := progressBar{cli: c, began: time.Now(), first: plan.Members - plan.Pending()}
	ended, err := s.FollowPlan(ctx, plan.ID, bar.show)
	bar.end()
	if ctx.Err() != nil {
		fmt.Fprintf(c.errw, "%s: the operation goes on without this command: see `%s plan show %s`, or end it with `%s plan cancel %s`\n", name, name, plan.ID, name, plan.ID)
	}
	if err != nil {
		return err
	}
	if c.output != outputText {
		err = c.printJSON(ended.Progress())
	} else {
		_, err = fmt.Fprintf(c.out, "%s %s: %d done, %d skipped, %d failed, %d left untouched.\n",
			strings.ToUpper(string(ended.State[:1]))+string(ended.State[1:]), ended.ID, ended.Done, ended.Skipped, ended.Failed, ended.Pending())
	}
	if err != nil {
		return err
	}
	if ended.Skipped > 0 || ended.Failed > 0 {
		causes, err := s.store.PlanCauses(ctx, ended.ID, maxCauses)
		if err == nil {
			err = causeTable(c.aside(), causes)
		}
		if err != nil {
			return err
		}
	}
	return endError(ended)
}

// endError is nil when all went as it was planned.
func endError(ended *dlqstore.Plan) error {
	switch {
	case ended.State == job.PlanStopped:
		return fmt.Errorf("the operation stopped by itself: %s; %s are untouched", ended.StopCause, counted(ended.Pending()))
	case ended.State == job.PlanCancelled:
		return fmt.Errorf("the operation was cancelled: %s are untouched", counted(ended.Pending()))
	case ended.Failed > 0:
		return fmt.Errorf("%d of %d failed: see `%s plan items %s --state failed`", ended.Failed, ended.Members, name, ended.ID)
	default:
		return nil
	}
}

// progressBar draws one line over and over for a person, and writes one now and
// then otherwise.
type progressBar struct {
	cli    *cli
	began  time.Time
	first  int64 // how many had ended when it began
	last   time.Time
	drawn  bool
	warned bool
	ended  int64     // members, at the last look
	moved  time.Time // when that changed
}

const (
	barWidth = 24
	// stalled is after how long without a member's end the reason is looked for.
	stalled = 30 * time.Second
	// logEvery is how often progress is written where nobody watches.
	logEvery = 5 * time.Second
)

func (b *progressBar) show(p *dlqstore.Plan) {
	if p.State == job.PlanPlanned && time.Since(b.began) > patience && !b.warned {
		b.warned = true
		b.line(fmt.Sprintf("%s: no worker of the dead-letter queue has taken the plan up yet; is one running?", name))
	}
	if ended := p.Members - p.Pending(); ended != b.ended || b.moved.IsZero() || p.State != job.PlanApplying {
		b.ended, b.moved = ended, time.Now()
	} else if time.Since(b.moved) > stalledAfter(p) && !b.warned {
		b.warned = true
		b.line(stallText(p))
	}
	text := b.text(p)
	switch {
	case b.cli.canAsk():
		fmt.Fprintf(b.cli.errw, "\r\x1b[K%s", text)
		b.drawn = true
	case time.Since(b.last) >= logEvery:
		b.last = time.Now()
		fmt.Fprintln(b.cli.errw, text)
	}
}

// stalledAfter leaves a slow operation the time that its rate asks for.
func stalledAfter(p *dlqstore.Plan) time.Duration {
	if rate := p.Parameters.Rate; rate > 0 {
		return stalled + time.Duration(2/rate*float64(time.Second))
	}
	return stalled
}

// stallText says what an operation may wait for.
func stallText(p *dlqstore.Plan) string {
	if canary := int64(p.Parameters.Canary); canary > 0 && p.Done+p.Failed <= canary {
		return fmt.Sprintf("%s: the operation waits for the end of its canary, %d jobs: is a worker running for their task queues? See `%s plan items %s`", name, canary, name, p.ID)
	}
	return fmt.Sprintf("%s: no member has ended for %s: is a worker of the dead-letter queue running, and can it reach Temporal and Postgres?", name, stalledAfter(p).Round(time.Second))
}

func (b *progressBar) line(text string) {
	b.end()
	fmt.Fprintln(b.cli.errw, text)
}

func (b *progressBar) end() {
	if b.drawn {
		fmt.Fprintln(b.cli.errw)
	}
	b.drawn = false
}

func (b *progressBar) text(p *dlqstore.Plan) string {
	ended := p.Members - p.Pending()
	part := 1.0
	if p.Members > 0 {
		part = float64(ended) / float64(p.Members)
	}
	filled := int(part * barWidth)
	text := fmt.Sprintf("[%s%s] %3.0f%%  %s  %d of %d, %d skipped, %d failed",
		strings.Repeat("#", filled), strings.Repeat("-", barWidth-filled), part*100, p.State, ended, p.Members, p.Skipped, p.Failed)
	rate := float64(ended-b.first) / time.Since(b.began).Seconds()
	if rate > 0 && p.Pending() > 0 && p.State == job.PlanApplying {
		left := time.Duration(float64(p.Pending()) / rate * float64(time.Second)).Round(time.Second)
		text += fmt.Sprintf(", %.0f/s, %s left", rate, left)
	}
	return text
}
