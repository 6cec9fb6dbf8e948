package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/internal/replay"
	"github.com/deadletter-dev/deadletter/operator"
)

func (c *cli) replayCommand() *cobra.Command {
	var key keyFlags
	var actor actorFlag
	var requestID string
	var yes bool
	cmd := &cobra.Command{
		Use:   "replay [WORKFLOW_ID]",
		Short: "Start a new job from a dead letter, with a fresh budget",
		Long: "Start a new job from a dead letter, under a new workflow id, with a fresh budget of\n" +
			"attempts and a fresh age. The dead letter stays, and counts the replay. It says so when no\n" +
			"worker polls the task queues of the new job.\n\n" +
			"It asks before it repeats work, unless --yes is given:\n" +
			"- An earlier replay succeeded, is under way or is a dead letter itself. Without a terminal\n" +
			"  it cannot ask: it prints a warning and replays. With --request-id it does not look.\n" +
			"- A person reset the job, and it succeeded after all. Without a terminal it replays nothing\n" +
			"  and exits with 2.",
		Example: "  " + name + " replay -w order-4711\n" +
			"  " + name + " replay -w order-4711 --request-id ticket-42 --actor oncall -o json",
		Args: key.arguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			who, err := actor.name()
			if err != nil {
				return err
			}
			repeated := requestID != ""
			if !repeated {
				requestID = uuid.NewString() // known here, so that a failure can name it
			}
			s, err := c.connect(cmd.Context())
			if err != nil {
				return err
			}
			defer s.close()
			if !repeated {
				if err := c.replayedBefore(cmd.Context(), s, key, yes); err != nil {
					return err
				}
			}
			request := operator.ReplayRequest{WorkflowID: key.workflowID, RunID: key.runID, RequestID: requestID, Actor: who}
			started, err := s.Replay(cmd.Context(), request)
			if errors.Is(err, dlqstore.ErrSuperseded) {
				if err := c.allowSuperseded(cmd.Context(), err, yes); err != nil {
					return err
				}
				request.AllowSuperseded = true
				started, err = s.Replay(cmd.Context(), request)
			}
			switch {
			case errors.Is(err, dlqstore.ErrNotFound):
				return notDead(cmd.Context(), s, key, err)
			case err != nil && replay.IsFinal(err):
				return err
			case err != nil:
				fmt.Fprintf(c.errw, "%s: the replay may have been counted; repeat it safely with --request-id %s\n", name, requestID)
				return err
			}
			unpolled, err := s.UnpolledByReplay(cmd.Context(), key.workflowID, key.runID)
			c.sayUnpolled(unpolled, err)
			if c.output != outputText {
				return c.printJSON(struct {
					WorkflowID string `json:"workflow_id"`
					RunID      string `json:"run_id"`
					RequestID  string `json:"request_id"`
					// Unpolled are the task queues that the new job needs and no worker polls.
					Unpolled []operator.QueueState `json:"unpolled,omitempty"`
				}{started.WorkflowID, started.RunID, requestID, unpolled})
			}
			return table(c.out, [][]string{
				{"Replayed", printable(key.workflowID)},
				{"New workflow id", printable(started.WorkflowID)},
				{"New run id", started.RunID},
				{"Request id", printable(requestID)},
			})
		},
	}
	key.add(cmd)
	actor.add(cmd)
	cmd.Flags().StringVar(&requestID, "request-id", "", "makes the request repeatable: the same id gives the same new job (default: a fresh id)")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask about work that would be done again")
	return cmd
}

// notDead says of a job that is no dead letter what it is instead; the error it
// is given stands for one that nobody knows.
func notDead(ctx context.Context, s *session, key keyFlags, notFound error) error {
	shown, err := s.Show(ctx, key.workflowID, key.runID)
	switch {
	case err != nil || shown.DeadLetter != nil:
		return notFound
	case shown.Removed != nil:
		return fmt.Errorf("%s is no dead letter any more: it was %s; see `%[3]s events -w %[1]s`", key.workflowID, removedText(shown.Removed), name)
	case shown.Status != nil:
		return fmt.Errorf("%s is no dead letter: it is %s", key.workflowID, *shown.Status)
	default:
		return fmt.Errorf("%s is no dead letter: it closed as %s", key.workflowID, shown.ClosedAs)
	}
}
