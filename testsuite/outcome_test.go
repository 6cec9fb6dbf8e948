package testsuite_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"

	"github.com/deadletter-dev/deadletter"
	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/job"
)

// TestReplayOutcome proves that the row of a replay learns how its job ended, and
// that a job which a person reset and that then succeeded marks its old dead letter.
func TestReplayOutcome(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var how atomic.Value
	how.Store("fail")
	w.startJobs(handlers{"Vary": func(ctx context.Context) error {
		switch how.Load() {
		case "fail":
			return errors.New("boom 1")
		case "fail otherwise":
			return errors.New("another cause")
		case "hang":
			return hang(ctx)
		default:
			return nil
		}
	}})
	w.startDLQ(nil)
	policy := quick(1)
	policy.HeartbeatTimeout = 20 * time.Second // no busy machine makes one that hangs a zombie
	dead := w.enqueue(deadletter.Job{Type: "Vary", Policy: policy})
	require.Error(t, w.wait(dead, nil))
	policy.DiscardCancelled = true
	discarding := w.enqueue(deadletter.Job{Type: "Vary", Policy: policy})
	require.Error(t, w.wait(discarding, nil))
	cancel := func(run client.WorkflowRun) {
		require.NoError(t, w.client.CancelWorkflow(t.Context(), run.GetID(), ""))
	}

	for _, c := range []struct {
		dead    client.WorkflowRun
		how     string
		end     func(client.WorkflowRun) // ends one that hangs
		outcome job.Outcome
		same    *bool
	}{
		{dead, "fail", nil, job.OutcomeDeadLettered, ptr(true)},
		{dead, "fail otherwise", nil, job.OutcomeDeadLettered, ptr(false)},
		{dead, "succeed", nil, job.OutcomeSucceeded, nil},
		{dead, "hang", cancel, job.OutcomeCancelled, ptr(false)},
		{discarding, "hang", cancel, job.OutcomeCancelled, nil},
		{dead, "hang", func(run client.WorkflowRun) { w.terminate(run, "") }, job.OutcomeDeadLettered, ptr(false)},
	} {
		how.Store(c.how)
		run := w.replay(c.dead, "")
		if c.end != nil {
			w.pendingIn(enumspb.PENDING_ACTIVITY_STATE_STARTED)(run)
			c.end(run)
		}
		_ = w.wait(run, nil)
		require.Eventually(t, func() bool {
			if w.status(run) == enumspb.WORKFLOW_EXECUTION_STATUS_TERMINATED {
				w.sweep() // until the server lists it
			}
			replays, err := w.store.Replays(t.Context(), w.key(c.dead))
			require.NoError(t, err)
			i := slices.IndexFunc(replays, func(r dlqstore.Replay) bool { return r.NewWorkflowID == run.GetID() })
			require.GreaterOrEqual(t, i, 0)
			if replays[i].Outcome == nil {
				require.Equal(t, enumspb.WORKFLOW_EXECUTION_STATUS_TERMINATED, w.status(run), "%s: a job has ended without its outcome", c.how)
				return false
			}
			require.Equal(t, c.outcome, *replays[i].Outcome, c.how)
			require.Equal(t, c.same, replays[i].SameFingerprint, c.how)
			require.NotNil(t, replays[i].FinishedAt)
			return true
		}, patience, 50*time.Millisecond, c.how)
	}

	// Reset to before the handler was scheduled, and it succeeds.
	how.Store("succeed")
	reset := w.resetToStart(dead)
	require.NoError(t, w.wait(reset, nil))
	row := w.dead(dead)
	require.NotNil(t, row.SupersededAt)
	require.Equal(t, reset.GetRunID(), *row.SupersededByRunID)
	require.Contains(t, w.verbs(row.Key), dlqstore.VerbSupersede)
}
