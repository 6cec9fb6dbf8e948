package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/internal/connect"
	"github.com/deadletter-dev/deadletter/internal/replay"
	"github.com/deadletter-dev/deadletter/job"
	"github.com/deadletter-dev/deadletter/operator"
)

func (c *cli) editCommand() *cobra.Command {
	var e editFlags
	cmd := &cobra.Command{
		Use:   "edit [WORKFLOW_ID]",
		Short: "Change arguments, queue, policy, priority or tags of a dead letter",
		Long: "Change arguments, queue, policy, priority or tags of a dead letter, for its next replay. What\n" +
			"is not named stays byte for byte. Each edit is a revision: show tells what it changed, and\n" +
			"--revert N brings an earlier one back. An edit of a revision that is not the newest is\n" +
			"refused. It needs Postgres only, unless --replay is given.\n\n" +
			"Arguments count from 0. A value of @FILE is read from the file.",
		Example: "  " + name + ` edit -w order-4711 --merge-patch '{"customer": {"id": 42}}'` + "\n" +
			"  " + name + ` edit -w order-4711 --json-patch '[{"op": "replace", "path": "/0/to", "value": "a@b.c"}]' --replay` + "\n" +
			"  " + name + ` edit -w order-4711 --arg 1='{"copies": 2}' --queue emails-slow --policy '{"max_attempts": 9}'` + "\n" +
			"  " + name + " edit -w order-4711 --editor\n" +
			"  " + name + " edit -w order-4711 --to-original",
		Args: e.key.arguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.edit(cmd.Context(), &e) },
	}
	e.add(cmd)
	return cmd
}

func (c *cli) edit(ctx context.Context, e *editFlags) error {
	request, err := e.request()
	if err != nil {
		return err
	}
	if e.editor && !c.canAsk() {
		return usagef("--editor needs a terminal, and there is none: pass the arguments with --args, --arg, --merge-patch or --json-patch")
	}
	if request.Actor, err = e.actor.name(); err != nil {
		return err
	}
	if request.RequestID == "" {
		request.RequestID = uuid.NewString() // known here, so that a failure can name it
	}
	config, err := c.config()
	if err != nil {
		return err
	}
	if request.Replay {
		s, err := c.open(ctx, config)
		if err != nil {
			return err
		}
		defer s.close()
		return c.editIn(ctx, s.store, config, e, request, func(ctx context.Context, request operator.EditRequest) (*operator.Edited, error) {
			done, err := s.Edit(ctx, request)
			if err == nil && done.Replay != nil {
				c.sayUnpolled(s.UnpolledByReplay(ctx, done.Key.WorkflowID, done.Key.RunID))
			}
			return done, err
		})
	}
	store, err := c.storeOf(ctx, config)
	if err != nil {
		return err
	}
	defer store.Close()
	return c.editIn(ctx, store, config, e, request, func(ctx context.Context, request operator.EditRequest) (*operator.Edited, error) {
		return operator.EditStored(ctx, store, config.Temporal.Namespace, request)
	})
}

// editor is the verb, with Temporal or without.
type editor func(ctx context.Context, request operator.EditRequest) (*operator.Edited, error)

func (c *cli) editIn(ctx context.Context, store *dlqstore.Store, config *connect.Config, e *editFlags, request operator.EditRequest, do editor) error {
	key, err := store.ResolveFor(ctx, dlqstore.Asked{
		Verb: dlqstore.VerbEdit, Key: dlqstore.Key{Namespace: config.Temporal.Namespace, WorkflowID: e.key.workflowID, RunID: e.key.runID},
		Actor: request.Actor, RequestID: request.RequestID,
	})
	if err != nil {
		return err
	}
	request.WorkflowID, request.RunID = key.WorkflowID, key.RunID
	dl, err := store.Get(ctx, key)
	switch {
	case errors.Is(err, dlqstore.ErrNotFound) && e.requestID != "" && request.Replay && !e.editor:
		request.Revision = max(request.Revision, 1) // purged; what was done under the id still has its answer
	case err != nil:
		return err
	case request.Revision == 0:
		request.Revision = dl.Revision
	}
	var typed *draft
	if e.editor {
		if typed, err = c.openEditor(ctx, dl); err != nil {
			return err
		}
		if typed == nil {
			fmt.Fprintln(c.errw, "Nothing was changed.")
			return nil
		}
		request.Edit.Arguments = typed.text
	}
	if e.dryRun {
		return c.previewEdit(dl, request)
	}
	done, err := do(ctx, request)
	if errors.Is(err, dlqstore.ErrSuperseded) {
		if err = c.allowSuperseded(ctx, err, e.yes); err == nil {
			request.AllowSuperseded = true
			done, err = do(ctx, request)
		}
	}
	if err != nil && done == nil {
		if !isRefusal(err) {
			fmt.Fprintf(c.errw, "%s: the edit may have been made; repeat it safely with --request-id %s\n", name, request.RequestID)
		}
		return typed.keep(err)
	}
	typed.discard()
	if err != nil {
		fmt.Fprintf(c.errw, "%s: the edit is made, and the replay may have been counted; repeat both safely with --request-id %s\n", name, request.RequestID)
		return err
	}
	return c.printEdited(done)
}

func isRefusal(err error) bool { return replay.IsFinal(err) || errors.Is(err, operator.ErrNoActor) }

// previewEdit tells what would change and writes nothing.
func (c *cli) previewEdit(dl *dlqstore.DeadLetter, request operator.EditRequest) error {
	diff, err := operator.PreviewEdit(dl, request.Edit)
	if err != nil {
		return err
	}
	if c.output != outputText {
		return c.printJSON(struct {
			dlqstore.Key
			Revision int           `json:"revision"`
			Diff     dlqstore.Diff `json:"diff"`
		}{dl.Key, dl.Revision, diff})
	}
	if len(diff.Changes) == 0 {
		fmt.Fprintln(c.out, "Nothing would change.")
		return nil
	}
	fmt.Fprintf(c.out, "Revision %d of %s would change:\n", dl.Revision, printable(dl.WorkflowID))
	return printDiff(c.out, diff)
}

func (c *cli) printEdited(done *operator.Edited) error {
	number, changes := 0, dlqstore.Diff{Changes: []dlqstore.Change{}}
	if done.Revision != nil {
		number, changes = done.Revision.Revision, done.Revision.Diff
	}
	if c.output != outputText {
		return c.printJSON(struct {
			dlqstore.Key
			Revision  int               `json:"revision"`
			RequestID string            `json:"request_id"`
			Diff      dlqstore.Diff     `json:"diff"`
			Replay    *job.ReplayOutput `json:"replay,omitempty"`
		}{done.Key, number, done.RequestID, changes, done.Replay})
	}
	rows := [][]string{{"Edited", printable(done.Key.WorkflowID)}, {"Revision", strconv.Itoa(number)}}
	if done.Replay != nil {
		rows = append(rows, []string{"New workflow id", printable(done.Replay.WorkflowID)}, []string{"New run id", done.Replay.RunID})
	}
	if err := table(c.out, append(rows, []string{"Request id", printable(done.RequestID)})); err != nil {
		return err
	}
	return printDiff(c.out, changes)
}
