package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/internal/connect"
)

func (c *cli) pinCommand() *cobra.Command {
	return c.pinning(&cobra.Command{
		Use:     "pin [WORKFLOW_ID]",
		Short:   "Keep a dead letter from every retention policy",
		Long:    "Keep a dead letter from every retention policy. A purge takes it all the same. It needs Postgres\nonly.",
		Example: "  " + name + " pin -w order-4711",
	}, true, (*dlqstore.Store).Pin)
}

func (c *cli) unpinCommand() *cobra.Command {
	return c.pinning(&cobra.Command{
		Use:     "unpin [WORKFLOW_ID]",
		Short:   "Let the retention policies govern a dead letter again",
		Long:    "Let the retention policies govern a dead letter again. It needs Postgres only.",
		Example: "  " + name + " unpin -w order-4711",
	}, false, (*dlqstore.Store).Unpin)
}

func (c *cli) pinning(
	cmd *cobra.Command, pinned bool, act func(*dlqstore.Store, context.Context, dlqstore.Key, string) (bool, error),
) *cobra.Command {
	var key keyFlags
	var actor actorFlag
	cmd.Args = key.arguments
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		who, err := actor.name()
		if err != nil {
			return err
		}
		return c.withStore(cmd.Context(), func(store *dlqstore.Store, config *connect.Config) error {
			found, err := store.ResolveFor(cmd.Context(), dlqstore.Asked{
				Verb: map[bool]string{true: dlqstore.VerbPin, false: dlqstore.VerbUnpin}[pinned], Actor: who,
				Key: dlqstore.Key{Namespace: config.Temporal.Namespace, WorkflowID: key.workflowID, RunID: key.runID},
			})
			if err != nil {
				return err
			}
			changed, err := act(store, cmd.Context(), found, who)
			if err != nil {
				return err
			}
			if c.output != outputText {
				return c.printJSON(struct {
					dlqstore.Key
					Pinned  bool `json:"pinned"`
					Changed bool `json:"changed"`
				}{found, pinned, changed})
			}
			state := map[bool]string{true: "is pinned: no retention policy removes it", false: "is not pinned: retention policies govern it"}[pinned]
			if !changed {
				state += "; so it was before"
			}
			_, err = fmt.Fprintf(c.out, "%s %s.\n", printable(found.WorkflowID), state)
			return err
		})
	}
	key.add(cmd)
	actor.add(cmd)
	return cmd
}
