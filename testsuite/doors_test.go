package testsuite_test

import (
	"context"
	"errors"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"

	"github.com/deadletter-dev/deadletter"
	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/internal/devstack"
)

// TestCommandLines proves the doors that need nothing of ours: Temporal's own CLI
// starts a job and replays its dead letter by signal and by update; and that our
// CLI leaves the same event as the other doors.
func TestCommandLines(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.startJobs(handlers{"Pair": func(_ context.Context, a emailArgs, n int) error { return errors.New(a.To) }})
	w.startDLQ(nil)
	cli, err := devstack.TemporalCLI(t.Context(), nil)
	require.NoError(t, err)
	temporalCLI := func(args ...string) string {
		out, err := exec.CommandContext(t.Context(), cli, append(args, "--address", w.address, "--namespace", w.namespace)...).CombinedOutput()
		require.NoError(t, err, "%s", out)
		return string(out)
	}
	temporalCLI("workflow", "start", "--type", "deadletter.Job", "--task-queue", w.queue, "-w", "by-cli",
		"--input", `{"type":"Pair","policy":{"max_attempts":1}}`, "--input", `{"to":"a@b.c","size":9007199254740993}`, "--input", "7")
	run := w.client.GetWorkflow(t.Context(), "by-cli", "")
	require.ErrorContains(t, w.wait(run, nil), "dead-lettered: max_retries_exceeded after 1 attempts: a@b.c")
	description, err := w.describe("by-cli", "")
	require.NoError(t, err)
	dead := w.client.GetWorkflow(t.Context(), "by-cli", description.GetWorkflowExecutionInfo().GetExecution().GetRunId())
	require.JSONEq(t, `[{"to":"a@b.c","size":9007199254740993},7]`, string(w.dead(dead).PayloadJSON))

	w.waitOperator()
	temporalCLI("workflow", "signal", "-w", "deadletter-operator", "--name", "replay",
		"--input", `{"workflow_id":"by-cli","request_id":"cli-signal","actor":"oncall"}`)
	require.Eventually(t, func() bool { return w.dead(dead).ResurrectionCount == 1 }, patience, 50*time.Millisecond)
	answer := temporalCLI("workflow", "update", "execute", "-w", "deadletter-operator", "--name", "replay",
		"--input", `{"workflow_id":"by-cli","request_id":"cli-update","actor":"oncall"}`, "-o", "json")
	require.Contains(t, answer, `"workflow_id"`)
	require.Contains(t, answer, `"run_id"`)

	ours := filepath.Join(t.TempDir(), "temporal-deadletter")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", ours, "../cmd/temporal-deadletter").CombinedOutput()
	require.NoError(t, err, "%s", out)
	out, err = exec.CommandContext(t.Context(), ours, "replay", "-w", "by-cli", "--request-id", "cli-ours", "--actor", "oncall",
		"--address", w.address, "--namespace", w.namespace, "--database-url", w.database, "-o", "json").CombinedOutput()
	require.NoError(t, err, "%s", out)

	require.Eventually(t, func() bool { return len(w.replaysOf(dead)) == 3 }, patience, 50*time.Millisecond)
	require.Equal(t, 3, w.dead(dead).ResurrectionCount)
	events, err := w.store.Events(t.Context(), w.key(dead))
	require.NoError(t, err)
	requests := map[string]string{}
	for _, event := range events {
		if event.Verb == dlqstore.VerbReplay {
			require.NotNil(t, event.RequestID)
			requests[*event.RequestID] = event.Actor
		}
	}
	require.Equal(t, map[string]string{"cli-signal": "oncall", "cli-update": "oncall", "cli-ours": "oncall"}, requests)
}

// TestOperatorComesBack proves that the workers of the dead-letter queue start the
// operator workflow again after somebody ended it.
func TestOperatorComesBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.startDLQ(nil)
	w.waitOperator()
	require.NoError(t, w.client.TerminateWorkflow(t.Context(), deadletter.OperatorWorkflowID, "", "test"))
	require.Eventually(t, func() bool {
		now, err := w.describe(deadletter.OperatorWorkflowID, "")
		return err == nil && now.GetWorkflowExecutionInfo().GetStatus() == enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING
	}, 2*patience, 100*time.Millisecond, "nobody started the operator workflow again")
}
