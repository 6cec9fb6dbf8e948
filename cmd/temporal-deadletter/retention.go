package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/internal/connect"
	"github.com/deadletter-dev/deadletter/job"
)

func (c *cli) retentionCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "retention",
		Short: "Say how long dead letters are kept, and remove what is not",
		Long: "Say how long dead letters are kept, and remove what is not. A policy selects by type, reason\n" +
			"and tag. Of those that select a dead letter the one with the most selectors governs it, then\n" +
			"the first by name, and no other. The dead-letter workers apply the policies every hour\n" +
			"(Options.RetentionInterval). Pinned dead letters never go, nor does one that a plan holds or\n" +
			"whose replay is starting. It needs Postgres only.",
		Example: "  " + name + " retention set month --all --keep 30d\n" +
			"  " + name + " retention list",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return usagef("say what to do: %s; see `%s --help`", strings.Join(verbs(cmd), ", "), cmd.CommandPath())
		},
	}
	cmd.AddCommand(c.retentionSetCommand(), c.retentionListCommand(), c.retentionRemoveCommand(), c.retentionRunCommand())
	return cmd
}

// policyFlags say a policy.
type policyFlags struct {
	actorFlag
	jobType, reason, tag string
	keep                 string
	keepLast             int64
	all, disabled        bool
	dryRun, yes          bool
}

func (c *cli) retentionSetCommand() *cobra.Command {
	var p policyFlags
	cmd := &cobra.Command{
		Use:   "set NAME",
		Short: "Set a policy, after a report on what it removes",
		Long: "Set a policy, or replace the one with that name. It shows first what would go now, and asks.\n" +
			"A dead letter goes when it is older than --keep, or is not among the --keep-last newest of\n" +
			"those that the policy governs. Pinned ones are not counted.",
		Example: "  " + name + " retention set emails --type SendEmail --keep 30d\n" +
			"  " + name + " retention set cancelled --reason cancelled --keep 7d --keep-last 10000\n" +
			"  " + name + " retention set rest --all --keep 90d --dry-run",
		Args: func(cmd *cobra.Command, args []string) error { return onePolicy(cmd, args) },
		RunE: func(cmd *cobra.Command, args []string) error {
			policy, err := p.policy(cmd, args[0])
			if err != nil {
				return err
			}
			return c.retentionSet(cmd.Context(), &p, policy)
		},
	}
	p.add(cmd)
	flags := cmd.Flags()
	flags.StringVar(&p.jobType, "type", "", "only this job type")
	flags.StringVar(&p.reason, "reason", "", "only this reason, such as "+someReasons)
	flags.StringVar(&p.tag, "tag", "", "only with this tag, key=value")
	flags.StringVar(&p.keep, "keep", "", "how long to keep, such as 30d or 720h")
	flags.Int64Var(&p.keepLast, "keep-last", 0, "how many to keep, the newest")
	flags.BoolVar(&p.all, "all", false, "allow a policy that selects everything which no other policy governs")
	flags.BoolVar(&p.disabled, "disabled", false, "store it, and let it govern nothing for now")
	flags.BoolVar(&p.dryRun, "dry-run", false, "only report, and store nothing")
	flags.BoolVarP(&p.yes, "yes", "y", false, "do not ask")
	return cmd
}

func onePolicy(cmd *cobra.Command, args []string) error {
	if len(args) != 1 || args[0] == "" {
		return usagef("name one policy: %s NAME", cmd.CommandPath())
	}
	return nil
}

// policy reads the flags. An empty value is refused, as for a filter.
func (p *policyFlags) policy(cmd *cobra.Command, name string) (dlqstore.RetentionPolicy, error) {
	policy := dlqstore.RetentionPolicy{Name: name, JobType: p.jobType, KeepLast: p.keepLast, Enabled: !p.disabled}
	for _, flag := range []string{"type", "reason", "tag", "keep"} {
		if given := cmd.Flags().Lookup(flag); given.Changed && given.Value.String() == "" {
			return policy, usagef("--%s has an empty value; leave the flag out", flag)
		}
	}
	var err error
	if p.reason != "" {
		if policy.Reason, err = job.ParseReason(p.reason); err != nil {
			return policy, usagef("--reason: %q is none of %s", p.reason, reasons())
		}
	}
	if p.tag != "" {
		key, value, ok := strings.Cut(p.tag, "=")
		if !ok || key == "" {
			return policy, usagef("--tag: %q does not look like key=value", p.tag)
		}
		policy.TagKey, policy.TagValue = key, value
	}
	if p.keep != "" {
		if policy.KeepFor, err = span("keep", p.keep); err != nil {
			return policy, err
		}
	}
	switch {
	case cmd.Flags().Changed("keep-last") && p.keepLast < 1:
		return policy, usagef("--keep-last: %d is not a positive number", p.keepLast)
	case policy.KeepFor == 0 && policy.KeepLast == 0:
		return policy, usagef("say what to keep: --keep 30d, --keep-last 10000, or both")
	case policy.SelectsAll() && !p.all:
		return policy, usagef("the policy selects everything: narrow it with --type, --reason or --tag, or pass --all to mean it")
	case !policy.SelectsAll() && p.all:
		return policy, usagef("--all is for a policy without --type, --reason and --tag")
	}
	policy.Namespace = "-" // the one to come is the connection's
	if err := policy.Validate(); err != nil {
		return policy, usagef("%w", err)
	}
	return policy, nil
}

func (c *cli) retentionSet(ctx context.Context, p *policyFlags, policy dlqstore.RetentionPolicy) error {
	if err := c.mustAsk("retention set", p.yes || p.dryRun); err != nil {
		return err
	}
	who, err := p.name()
	if err != nil {
		return err
	}
	return c.withStore(ctx, func(store *dlqstore.Store, config *connect.Config) error {
		policy.Namespace = config.Temporal.Namespace
		report, err := store.PruneReport(ctx, policy)
		switch {
		case err != nil:
			return err
		case p.dryRun && c.output != outputText:
			return c.printJSON(report)
		}
		if err := printPruneReports(c.aside(), config, []dlqstore.PruneReport{report}); err != nil || p.dryRun {
			return err
		}
		if !p.yes {
			if err := c.confirm(ctx, "Set policy "+printable(policy.Name)+"?", "nothing was stored"); err != nil {
				return err
			}
		}
		stored, err := store.SetRetention(ctx, policy, p.all, who)
		switch {
		case err != nil:
			return err
		case c.output != outputText:
			return c.printJSON(stored)
		case stored.Enabled:
			_, err = fmt.Fprintf(c.out, "Policy %s is set. The dead-letter workers apply it; `%s retention run` does so now.\n", printable(stored.Name), name)
		default:
			_, err = fmt.Fprintf(c.out, "Policy %s is stored, and disabled.\n", printable(stored.Name))
		}
		return err
	})
}

func (c *cli) retentionRemoveCommand() *cobra.Command {
	var actor actorFlag
	cmd := &cobra.Command{
		Use:     "remove NAME",
		Short:   "Remove a policy, and no dead letter",
		Example: "  " + name + " retention remove emails",
		Args:    func(cmd *cobra.Command, args []string) error { return onePolicy(cmd, args) },
		RunE: func(cmd *cobra.Command, args []string) error {
			who, err := actor.name()
			if err != nil {
				return err
			}
			return c.withStore(cmd.Context(), func(store *dlqstore.Store, config *connect.Config) error {
				if err := store.RemoveRetention(cmd.Context(), config.Temporal.Namespace, args[0], who); err != nil {
					return noSuchPolicy(err)
				}
				if c.output != outputText {
					return c.printJSON(struct {
						Removed string `json:"removed"`
					}{args[0]})
				}
				_, err := fmt.Fprintf(c.out, "Policy %s is removed. What it governed falls to the next policy that selects it, or is kept.\n", printable(args[0]))
				return err
			})
		},
	}
	actor.add(cmd)
	return cmd
}

func (c *cli) retentionRunCommand() *cobra.Command {
	var actor actorFlag
	var dryRun, yes bool
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Remove now what the enabled policies let go",
		Long:  "Remove now what the enabled policies let go, as the dead-letter workers do by schedule. It shows\nwhat would go and asks first.",
		Example: "  " + name + " retention run --dry-run\n" +
			"  " + name + " retention run --yes --actor oncall",
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := c.mustAsk("retention run", yes || dryRun); err != nil {
				return err
			}
			who, err := actor.name()
			if err != nil {
				return err
			}
			return c.withStore(cmd.Context(), func(store *dlqstore.Store, config *connect.Config) error {
				return c.retentionRun(cmd.Context(), store, config, who, dryRun, yes)
			})
		},
	}
	actor.add(cmd)
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only report")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return cmd
}

func (c *cli) retentionRun(ctx context.Context, store *dlqstore.Store, config *connect.Config, who string, dryRun, yes bool) error {
	reports, err := store.PruneReports(ctx, config.Temporal.Namespace)
	switch {
	case err != nil:
		return err
	case dryRun && c.output != outputText:
		return c.printJSON(struct {
			Reports []dlqstore.PruneReport `json:"reports"`
		}{notNil(reports)})
	case len(reports) == 0:
		fmt.Fprintln(c.aside(), "No policy is enabled.")
	}
	if err := printPruneReports(c.aside(), config, reports); err != nil || dryRun {
		return err
	}
	var due int64
	for i := range reports {
		due += reports[i].WouldPrune
	}
	if due > 0 && !yes {
		if err := c.confirm(ctx, "Remove "+counted(due)+", for good?", "nothing was removed"); err != nil {
			return err
		}
	}
	pruned := dlqstore.Pruned{ByPolicy: map[string]int64{}}
	if due > 0 {
		pruned, err = store.Prune(ctx, dlqstore.PruneRequest{Namespace: config.Temporal.Namespace, Actor: who})
	}
	if told := c.printPrunedNow(pruned); err == nil {
		err = told
	}
	return err
}

func (c *cli) printPrunedNow(pruned dlqstore.Pruned) error {
	if c.output != outputText {
		return c.printJSON(struct {
			Pruned map[string]int64 `json:"pruned"`
		}{pruned.ByPolicy})
	}
	if len(pruned.ByPolicy) == 0 {
		_, err := fmt.Fprintln(c.out, "Nothing was removed.")
		return err
	}
	for _, policy := range slices.Sorted(maps.Keys(pruned.ByPolicy)) {
		fmt.Fprintf(c.out, "Removed %s by policy %s.\n", counted(pruned.ByPolicy[policy]), printable(policy))
	}
	return nil
}

func (c *cli) retentionListCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Short:   "List the policies, the most specific first, and what each removed of late",
		Example: "  " + name + " retention list -o json",
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.withStore(cmd.Context(), func(store *dlqstore.Store, config *connect.Config) error {
				policies, err := store.RetentionPolicies(cmd.Context(), config.Temporal.Namespace)
				if err != nil {
					return err
				}
				pruned, err := store.PrunedSince(cmd.Context(), config.Temporal.Namespace, time.Now().Add(-day))
				if err != nil {
					return err
				}
				return c.printPolicies(policies, pruned)
			})
		},
	}
}
