package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/internal/connect"
	"github.com/deadletter-dev/deadletter/job"
	"github.com/deadletter-dev/deadletter/operator"
)

func (c *cli) planCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "Plan what to do with many dead letters, and see what it would be",
		Long: "Plan what to do with many dead letters. A plan freezes which ones, and changes none; `" + name + " apply`\n" +
			"then does exactly what the plan showed. It needs Postgres only.",
		Example: "  " + name + " plan replay --type SendEmail --reason timeout --canary 10 --max-refail 20%\n" +
			"  " + name + " plan purge --reason cancelled --dead-before 720h\n" +
			"  " + name + " plan list",
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return usagef("name what to plan: %s; see `%s --help`", strings.Join(verbs(cmd), ", "), cmd.CommandPath())
		},
	}
	cmd.AddCommand(
		c.planVerbCommand(job.BulkReplay, "Plan to start a new job from each dead letter that a filter selects"),
		c.planVerbCommand(job.BulkPurge, "Plan to remove each dead letter that a filter selects, for good"),
		c.planVerbCommand(job.BulkEdit, "Plan to change arguments, queue, policy, priority or tags of each dead letter that a filter selects"),
		c.planVerbCommand(job.BulkRetag, "Plan to change the tags of each dead letter that a filter selects"),
		c.planListCommand(), c.planShowCommand(), c.planItemsCommand(),
		c.planPauseCommand(), c.planResumeCommand(), c.planCancelCommand(),
	)
	for _, verb := range cmd.Commands() {
		if verb.Args == nil {
			verb.Args = noArguments
		}
	}
	return cmd
}

// newPlan is what the flags of one plan say.
type newPlan struct {
	actor    actorFlag
	filters  filterFlags
	settings settingsFlags
	edit     editFlags // of an edit or a retag
	request  dlqstore.PlanRequest
}

func (p *newPlan) edits() bool {
	return p.request.Verb == job.BulkEdit || p.request.Verb == job.BulkRetag
}

// addEdit adds the flags that say what to change. Those of verb edit have names that
// the filter has here.
func (p *newPlan) addEdit(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringArrayVar(&p.edit.tags, "set-tag", nil, "set a tag, key=value; may be repeated")
	flags.StringArrayVar(&p.edit.untag, "unset-tag", nil, "remove a tag; may be repeated")
	if p.request.Verb == job.BulkRetag {
		return
	}
	flags.StringVar(&p.edit.mergePatch, "merge-patch", "", "JSON merge patch (RFC 7386) of the one argument, or an array of patches, one per argument")
	flags.StringVar(&p.edit.jsonPatch, "json-patch", "", "JSON patch (RFC 6902) of the array of arguments")
	flags.StringVar(&p.edit.queue, "set-queue", "", "task queue of the handler")
	flags.StringVar(&p.edit.policy, "set-policy", "", "JSON merge patch of the retry policy; null takes a default")
	flags.StringVar(&p.edit.priority, "set-priority", "", "priority key, 1 (first) to 5, or a JSON merge patch of the priority")
}

// takeEdit reads those flags.
func (p *newPlan) takeEdit() error {
	wanted, err := p.edit.edit()
	switch {
	case err != nil:
		return err
	case wanted.IsEmpty():
		return usagef("say what to change; see `%s plan %s --help`", name, p.request.Verb)
	}
	if p.request, err = operator.WithEdit(p.request, wanted); err != nil {
		return usageError{err}
	}
	return nil
}

func (c *cli) planVerbCommand(verb job.BulkVerb, short string) *cobra.Command {
	p := newPlan{request: dlqstore.PlanRequest{Verb: verb}}
	cmd := &cobra.Command{
		Use:   string(verb),
		Short: short,
		Long: short + ". It changes nothing:\n" +
			"it shows what `" + name + " apply` would do, to exactly which dead letters.",
		Example: "  " + name + " plan " + string(verb) + " --type SendEmail --dead-after 24h --rate 20" + map[job.BulkVerb]string{
			job.BulkEdit:  ` --merge-patch '{"sender": "noreply@acme.com"}'`,
			job.BulkRetag: " --set-tag incident=4711",
		}[verb],
		RunE: func(cmd *cobra.Command, _ []string) error { return c.newPlan(cmd.Context(), &p) },
	}
	p.actor.add(cmd)
	p.filters.add(cmd)
	p.settings.add(cmd, verb == job.BulkReplay)
	if p.edits() {
		p.addEdit(cmd)
	}
	cmd.Flags().BoolVar(&p.request.All, "all", false, "allow a plan without a filter: every dead letter of the namespace")
	cmd.Flags().IntVar(&p.request.Limit, "limit", dlqstore.DefaultPlanLimit, fmt.Sprintf("most members, the oldest first, up to %d", dlqstore.MaxPlanLimit))
	if verb == job.BulkReplay {
		cmd.Flags().BoolVar(&p.request.Parameters.IncludeSuperseded, "include-superseded", false, "replay also those whose job, reset by a person, succeeded later")
		cmd.Flags().BoolVar(&p.request.Parameters.IncludeReplayed, "include-replayed", false, "replay also those of which a replay succeeded, is under way, or is a dead letter itself")
	}
	return cmd
}

func (c *cli) newPlan(ctx context.Context, p *newPlan) error {
	var err error
	if p.request.Filter, err = p.filters.filter(time.Now()); err != nil {
		return err
	}
	switch {
	case p.request.Filter.IsEmpty() && !p.request.All:
		return usagef("say which dead letters: a filter such as --reason, or --all; see `%s plan %s --help`", name, p.request.Verb)
	case p.request.Limit < 1 || p.request.Limit > dlqstore.MaxPlanLimit:
		return usagef("--limit: %d is not between 1 and %d", p.request.Limit, dlqstore.MaxPlanLimit)
	}
	if err := p.settings.check(); err != nil {
		return err
	}
	p.request.Parameters.BulkSettings, _ = p.settings.over(job.BulkSettings{})
	if err := p.request.Parameters.Check(p.request.Verb); err != nil {
		return usageError{err}
	}
	if p.edits() {
		if err := p.takeEdit(); err != nil {
			return err
		}
	}
	if p.request.Actor, err = p.actor.name(); err != nil {
		return err
	}
	return c.withStore(ctx, func(store *dlqstore.Store, config *connect.Config) error {
		p.request.Filter.Namespace = config.Temporal.Namespace
		plan, err := store.CreatePlan(ctx, p.request)
		if err != nil {
			return err
		}
		return c.printPlan(ctx, store, plan, config)
	})
}

// settingsFlags say how fast a bulk operation goes.
type settingsFlags struct {
	cmd       *cobra.Command
	settings  job.BulkSettings
	maxRefail share
}

func (s *settingsFlags) add(cmd *cobra.Command, canary bool) {
	s.cmd = cmd
	cmd.Flags().Float64Var(&s.settings.Rate, "rate", job.DefaultBulkRate, "dead letters per second; -1 for no limit")
	if canary {
		cmd.Flags().IntVar(&s.settings.Concurrency, "concurrency", job.DefaultBulkConcurrency, fmt.Sprintf("starts under way at once, up to %d", job.MaxBulkConcurrency))
		cmd.Flags().IntVar(&s.settings.Canary, "canary", 0, "replay this many first, wait for their outcome, and go on in growing steps")
		s.maxRefail = job.DefaultMaxRefail
		cmd.Flags().Var(&s.maxRefail, "max-refail", "stop by itself when a greater share of the replayed jobs dies again; needs --canary")
	}
}

// check refuses a rate of 0, which one takes for none and another for no limit.
func (s *settingsFlags) check() error {
	if s.settings.Rate == 0 {
		return usagef("--rate: 0 is none; give dead letters per second, such as 0.5, or -1 for no limit")
	}
	return nil
}

// over returns the settings with those of the flags that were given, and whether
// any was.
func (s *settingsFlags) over(settings job.BulkSettings) (job.BulkSettings, bool) {
	given := false
	for name, take := range map[string]func(){
		"rate":        func() { settings.Rate = s.settings.Rate },
		"concurrency": func() { settings.Concurrency = s.settings.Concurrency },
		"canary":      func() { settings.Canary = s.settings.Canary },
		"max-refail": func() {
			limit := float64(s.maxRefail)
			settings.MaxRefail = &limit
		},
	} {
		if s.cmd.Flags().Changed(name) {
			given = true
			take()
		}
	}
	return settings, given
}

// share is a flag's value from 0 to 1, written as 20% or 0.2.
type share float64

// String writes it as a percentage.
func (s *share) String() string { return strconv.FormatFloat(float64(*s)*100, 'g', 6, 64) + "%" }

// Set refuses what is no share.
func (s *share) Set(text string) error {
	number, percent := strings.CutSuffix(text, "%")
	value, err := strconv.ParseFloat(number, 64)
	if percent {
		value /= 100
	}
	if err != nil || !(value >= 0 && value <= 1) {
		return fmt.Errorf("%q is no share such as 20%% or 0.2", text)
	}
	*s = share(value)
	return nil
}

// Type names the flag's value in the help.
func (*share) Type() string { return "share" }
