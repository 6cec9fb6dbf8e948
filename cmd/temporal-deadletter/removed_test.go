package main

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"

	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/job"
	"github.com/deadletter-dev/deadletter/operator"
)

// TestRemoved proves that show and replay tell of a dead letter that was purged or
// pruned who did that and when, whether Temporal knows the job or not or cannot be
// reached, also when its refused requests are newer.
func TestRemoved(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.move("gone-purged")
	b.succeed("purge", "-w", "gone-purged", "--yes", "--actor", "oncall")
	b.move("gone-planned")
	b.succeed("purge", "-w", "gone-planned", "--yes", "--actor", "oncall")
	_, err := b.store.Pool().Exec(t.Context(), `update deadletter.events set plan_id = 'plan-1' where workflow_id = 'gone-planned' and verb = 'purge'`)
	require.NoError(t, err)
	b.move("gone-pruned", func(dl *dlqstore.DeadLetter) { dl.Reason = job.ReasonZombie })
	b.succeed("retention", "set", "month", "--reason", "zombie", "--keep", "30d", "--yes")
	b.succeed("retention", "run", "--yes", "--actor", "keeper")

	const at = `20\d\d-\d\d-\d\d \d\d:\d\d:\d\dZ`
	for id, removal := range map[string]string{
		"gone-purged":  `purged at ` + at + ` by oncall`,
		"gone-planned": `purged at ` + at + ` under plan plan-1 by oncall`,
		"gone-pruned":  `removed at ` + at + ` under retention policy month by keeper`,
	} {
		r := b.call("replay", "-w", id)
		require.Equal(t, exitFailed, r.code)
		require.Regexp(t, `^temporal-deadletter: `+id+` is no dead letter any more: it was `+removal+"; see `temporal-deadletter events -w "+id+"`\n$", r.errw)
		for _, args := range [][]string{{"show", id}, {"show", id, "-r", deadLetter("").RunID}, {"show", id, "--address", nowhere}} {
			text := b.succeed(args...)
			require.Regexp(t, `(?m)^Dead letter +`+removal+`$`, text)
			require.Regexp(t, `(?m)^It was +(zombie|max_retries_exceeded), SendEmail, dead at 2026-03-01 12:00:00Z$`, text)
			require.NotContains(t, text, "Closed as")
		}
	}
	require.Equal(t, exitFailed, b.call("show", "gone-purged", "-r", secondRun).code, "another run")
	var shown struct {
		Status  *string           `json:"status"`
		RunID   string            `json:"run_id"`
		Removed *operator.Removal `json:"removed"`
	}
	b.decode(&shown, "show", "gone-pruned", "-o", "json")
	require.Nil(t, shown.Status)
	require.Equal(t, deadLetter("").RunID, shown.RunID)
	require.False(t, shown.Removed.At.IsZero())
	shown.Removed.At = died
	require.Equal(t, &operator.Removal{
		At: died, Verb: dlqstore.VerbPrune, Actor: "keeper", Policy: "month", Reason: job.ReasonZombie, JobType: "SendEmail", DeadAt: &died,
	}, shown.Removed)
	for _, verb := range []string{"edit", "purge"} {
		r := b.call(map[string][]string{"edit": {"edit", "gone-purged", "--queue", "q"}, "purge": {"purge", "-w", "gone-purged", "--yes"}}[verb]...)
		require.Contains(t, r.errw, "not found; see")
		require.Contains(t, r.errw, ", or `temporal-deadletter events -w ID`, if it may have been purged\n")
	}

	// Of one that Temporal still knows.
	c := b.dial()
	run, err := c.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: "gone-closed", TaskQueue: "gone-nobody"}, job.WorkflowType)
	require.NoError(t, err)
	require.NoError(t, c.TerminateWorkflow(t.Context(), "gone-closed", "", "test"))
	b.move("gone-closed", func(dl *dlqstore.DeadLetter) { dl.RunID = run.GetRunID() })
	b.succeed("purge", "-w", "gone-closed", "--yes", "--actor", "oncall")
	text := b.succeed("show", "gone-closed")
	require.Regexp(t, `(?m)^Closed as +Terminated$`, text)
	require.Regexp(t, `(?m)^Dead letter +purged at `+at+` by oncall$`, text)
	require.NotContains(t, text, "without a dead letter")
	require.Regexp(t, `gone-closed is no dead letter any more: it was purged at .* by oncall`, b.call("replay", "gone-closed").errw)
}
