package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/deadletter-dev/deadletter/dlqstore"
)

func (c *cli) planPauseCommand() *cobra.Command {
	return c.controlCommand("pause", "Have the operation of a plan wait, after the few members that it has in hand", "pause",
		func(ctx context.Context, s *session, id, who string) error { return s.PausePlan(ctx, id, who) })
}

func (c *cli) planResumeCommand() *cobra.Command {
	return c.controlCommand("resume", "Have a paused operation go on", "go on",
		func(ctx context.Context, s *session, id, who string) error { return s.ResumePlan(ctx, id, who) })
}

func (c *cli) planCancelCommand() *cobra.Command {
	return c.controlCommand("cancel", "End the operation of a plan: the members that it has not got to stay as they are", "end",
		func(ctx context.Context, s *session, id, who string) error { return s.CancelPlan(ctx, id, who) })
}

func (c *cli) controlCommand(verb, short, told string, act func(context.Context, *session, string, string) error) *cobra.Command {
	var actor actorFlag
	cmd := &cobra.Command{
		Use:     verb + " PLAN",
		Short:   short,
		Example: "  " + name + " plan " + verb + " plan-k3v7q2m9xa",
		Args:    onePlan,
		RunE: func(cmd *cobra.Command, args []string) error {
			who, err := actor.name()
			if err != nil {
				return err
			}
			s, err := c.connect(cmd.Context())
			if err != nil {
				return err
			}
			defer s.close()
			if err := act(cmd.Context(), s, args[0], who); err != nil {
				return planError(err)
			}
			c.sayUnpolled(s.UnpolledByControl(cmd.Context()))
			if c.output != outputText {
				return c.printJSON(map[string]string{"plan_id": args[0], "told": verb})
			}
			_, err = fmt.Fprintf(c.out, "The operation of %s is told to %s. See `%s plan show %s`.\n", printable(args[0]), told, name, printable(args[0]))
			return err
		},
	}
	actor.add(cmd)
	return cmd
}

// planError says where plans are listed, in place of the dead letters.
func planError(err error) error {
	if errors.Is(err, dlqstore.ErrNotFound) {
		return fmt.Errorf("%s; see `%s plan list`, and whether --namespace is the right one", oneLine(err.Error()), name)
	}
	return err
}
