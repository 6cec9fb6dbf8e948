package testsuite_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"

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
	policy.HeartbeatTimeout = 2 * time.Second
	dead := w.enqueue(deadletter.Job{Type: "Vary", Policy: policy})
	require.Error(t, w.wait(dead, nil))

	for i, c := range []struct {
		how     string
		outcome job.Outcome
		same    *bool
	}{
		{"fail", job.OutcomeDeadLettered, ptr(true)},
		{"fail otherwise", job.OutcomeDeadLettered, ptr(false)},
		{"succeed", job.OutcomeSucceeded, nil},
		{"hang", job.OutcomeCancelled, ptr(false)},
	} {
		how.Store(c.how)
		run := w.replay(dead, "")
		if c.how == "hang" {
			w.pendingIn(enumspb.PENDING_ACTIVITY_STATE_STARTED)(run)
			require.NoError(t, w.client.CancelWorkflow(t.Context(), run.GetID(), ""))
		}
		_ = w.wait(run, nil)
		replays, err := w.store.Replays(t.Context(), w.key(dead))
		require.NoError(t, err)
		require.Len(t, replays, i+1)
		for _, r := range replays {
			if r.NewWorkflowID == run.GetID() {
				require.NotNil(t, r.Outcome, c.how)
				require.Equal(t, c.outcome, *r.Outcome)
				require.Equal(t, c.same, r.SameFingerprint, c.how)
				require.NotNil(t, r.FinishedAt)
			}
		}
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
