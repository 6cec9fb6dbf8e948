package main

import (
	"context"
	"fmt"

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

// replayedBefore tells of an earlier replay that has succeeded or is under way: to
// replay once more would do its work again. A person is asked; a script is told.
func (c *cli) replayedBefore(ctx context.Context, s *session, key keyFlags, yes bool) error {
	found, err := s.store.Resolve(ctx, s.config.Temporal.Namespace, key.workflowID, key.runID)
	if err != nil {
		return nil // the replay itself says what is wrong
	}
	replays, err := s.store.Replays(ctx, found)
	if err != nil {
		return err
	}
	what := ""
	for i := range replays {
		switch r := &replays[i]; {
		case r.Outcome == nil && what == "":
			what = "a replay of it is under way, as " + printable(r.NewWorkflowID)
		case r.Outcome != nil && *r.Outcome == job.OutcomeSucceeded:
			what = "a replay of it has succeeded, as " + printable(r.NewWorkflowID)
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
