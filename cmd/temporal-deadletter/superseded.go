package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/job"
)

// allowSuperseded asks whether to replay a job that succeeded after all, which is
// what refused says; nil means yes.
func (c *cli) allowSuperseded(ctx context.Context, refused error, yes bool) error {
	switch {
	case yes:
		return nil
	case !c.canAsk():
		return usagef("%w: pass --yes to replay it all the same", refused)
	}
	fmt.Fprintf(c.errw, "%s: %s\n", name, oneLine(refused.Error()))
	return c.confirmOn(ctx, c.errw, "Replay it all the same?", "nothing was replayed")
}

// replayedBefore tells of an earlier replay, or one down its line, that has succeeded,
// is under way, or is a dead letter itself, to be replayed in its turn: to replay this
// one once more would do its work again. A person is asked; a script is told.
func (c *cli) replayedBefore(ctx context.Context, s *session, key keyFlags, yes bool) error {
	found, err := s.store.Resolve(ctx, s.config.Temporal.Namespace, key.workflowID, key.runID)
	if err != nil {
		return nil // the replay itself says what is wrong
	}
	line, err := s.store.Lineage(ctx, found)
	if err != nil {
		return err
	}
	what := ""
	for i := range line.Descendants {
		switch r := &line.Descendants[i]; {
		case r.Outcome == nil && what == "":
			what = "a replay of it is under way, as " + printable(r.NewWorkflowID)
		case r.Outcome != nil && *r.Outcome == job.OutcomeSucceeded:
			what = "a replay of it has succeeded, as " + printable(r.NewWorkflowID)
		case what == "":
			_, err := s.store.Resolve(ctx, found.Namespace, r.NewWorkflowID, "")
			switch {
			case err == nil, errors.Is(err, dlqstore.ErrAmbiguous):
				what = "a replay of it is a dead letter itself: " + printable(r.NewWorkflowID)
			case !errors.Is(err, dlqstore.ErrNotFound):
				return err
			}
		}
	}
	if what == "" || yes {
		return nil
	}
	fmt.Fprintf(c.errw, "%s: %s\n", name, what)
	if !c.canAsk() {
		return nil
	}
	return c.confirm(ctx, "Replay it once more?", "nothing was replayed")
}
