package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/operator"
)

func (c *cli) retryNowCommand() *cobra.Command {
	var key keyFlags
	var actor actorFlag
	cmd := &cobra.Command{
		Use:   "retry-now [WORKFLOW_ID]",
		Short: "Have a job's next attempt start now instead of after its wait",
		Long: "Have a job's next attempt start now instead of after its wait: between two attempts, in a snooze,\n" +
			"after a circuit breaker refused it, or in its start delay. The attempts and the age that it has\n" +
			"left stay as they are.",
		Example: "  " + name + " jobs retry-now -w order-4711",
		Args:    key.arguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.onJob(cmd.Context(), &key, &actor, func(s *session, request operator.JobRequest) error {
				done, err := s.RetryNow(cmd.Context(), request)
				if err != nil {
					return err
				}
				c.sayUnpolled(s.UnpolledByJob(cmd.Context(), done.Key))
				switch {
				case c.output != outputText:
					return c.printJSON(done)
				case done.WouldBeAt != nil:
					_, err = fmt.Fprintf(c.out, "The next attempt of %s starts now; it was due at %s.\n", printable(done.WorkflowID), timeText(done.WouldBeAt))
				default:
					_, err = fmt.Fprintf(c.out, "%s has been told not to wait any longer.\n", printable(done.WorkflowID))
				}
				return err
			})
		},
	}
	key.addLive(cmd)
	actor.add(cmd)
	return cmd
}

func (c *cli) cancelCommand() *cobra.Command {
	var key keyFlags
	var actor actorFlag
	var yes bool
	cmd := &cobra.Command{
		Use:   "cancel [WORKFLOW_ID]",
		Short: "Stop a running job for good",
		Long: "Stop a running job for good. It asks first. The job ends with a dead letter of reason cancelled,\n" +
			"which can be replayed, or with none if its policy discards cancelled jobs.",
		Example: "  " + name + " jobs cancel -w order-4711\n" +
			"  " + name + " jobs cancel -w order-4711 --yes --actor oncall",
		Args: key.arguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := c.mustAsk("jobs cancel", yes); err != nil {
				return err
			}
			return c.onJob(cmd.Context(), &key, &actor, func(s *session, request operator.JobRequest) error {
				err := table(c.aside(), [][]string{
					{"Cancel", "workflow " + printable(request.WorkflowID)},
					{"Namespace", printable(s.config.Temporal.Namespace)},
					{"Temporal", printable(s.config.Temporal.HostPort)},
				})
				if err != nil {
					return err
				}
				if !yes {
					if err := c.confirm(cmd.Context(), "Cancel it?", "nothing was cancelled"); err != nil {
						return err
					}
				}
				cancelled, err := s.CancelJob(cmd.Context(), request)
				if err != nil {
					return err
				}
				c.sayUnpolled(s.UnpolledByJob(cmd.Context(), cancelled))
				if c.output != outputText {
					return c.printJSON(cancelled)
				}
				_, err = fmt.Fprintf(c.out, "%s has been asked to stop. Its dead letter, reason cancelled, appears when it has; "+
					"none does if its policy discards cancelled jobs.\n", printable(cancelled.WorkflowID))
				return err
			})
		},
	}
	key.addLive(cmd)
	actor.add(cmd)
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return cmd
}

// onJob runs a verb on one live job.
func (c *cli) onJob(ctx context.Context, key *keyFlags, actor *actorFlag, act func(*session, operator.JobRequest) error) error {
	who, err := actor.name()
	if err != nil {
		return err
	}
	s, err := c.connect(ctx)
	if err != nil {
		return err
	}
	defer s.close()
	err = act(s, operator.JobRequest{WorkflowID: key.workflowID, RunID: key.runID, Actor: who})
	if errors.Is(err, dlqstore.ErrNotFound) { // the usual mend is about dead letters
		return fmt.Errorf("there is no job %s; see `%s jobs --min-attempt 1`, and whether --namespace is the right one", key.workflowID, name)
	}
	return err
}
