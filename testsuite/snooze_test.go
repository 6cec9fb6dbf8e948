package testsuite_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"

	"github.com/deadletter-dev/deadletter"
	"github.com/deadletter-dev/deadletter/dlqstore"
)

// snoozes is how often TestSnooze snoozes one job: enough for a second run, which six
// events for each of them make due after some 170.
var snoozes = flag.Int("snoozes", 250, "how often TestSnooze snoozes one job")

// TestSnooze proves that a snooze costs no attempt, that the age bounds it, and
// that a job which is snoozed all the time keeps a bounded history, its bytes, its
// id and its lineage, with the dead letter under its final run.
func TestSnooze(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var calls sync.Map // job id → how often
	count := func(ctx context.Context) int32 {
		n, _ := calls.LoadOrStore(activity.GetInfo(ctx).WorkflowExecution.ID, new(atomic.Int32))
		return n.(*atomic.Int32).Add(1)
	}
	many := int32(*snoozes)
	w.startJobs(handlers{
		"Twice": func(ctx context.Context, end string) error {
			if count(ctx) <= 2 {
				return fmt.Errorf("not yet: %w", deadletter.Snooze(time.Millisecond, "the file is not there"))
			}
			if end == "succeed" {
				return nil
			}
			return errors.New("boom")
		},
		"Often": func(ctx context.Context, _ string) error {
			id := activity.GetInfo(ctx).WorkflowExecution.ID
			if count(ctx) <= many && !strings.Contains(id, "-replay-") {
				return deadletter.Snooze(0, "busy")
			}
			return errors.New("boom")
		},
		"Forever": func(ctx context.Context) error {
			if count(ctx) <= 2 {
				return deadletter.Snooze(0, "for a moment")
			}
			return deadletter.Snooze(10*time.Hour, "until tomorrow")
		},
		"Between": func(ctx context.Context) error { // fails, snoozes, fails
			if count(ctx) == 2 {
				return deadletter.Snooze(0, "in between")
			}
			return fmt.Errorf("boom")
		},
	})
	w.startDLQ(nil)
	good := w.enqueue(deadletter.Job{Type: "Twice", Policy: quick(2)}, "succeed")
	bad := w.enqueue(deadletter.Job{Type: "Twice", Policy: quick(2)}, "fail")
	// Of so many tasks an overloaded server may lose one. It is retried, and the budget
	// is spent exactly all the same.
	policy := quick(4)
	policy.HeartbeatTimeout, policy.RetryZombies = 30*time.Second, true
	often := w.enqueue(deadletter.Job{Type: "Often", Policy: policy, Tags: map[string]string{"k": "v"}}, "payload")
	between := w.enqueue(deadletter.Job{Type: "Between", Policy: quick(2)})
	forever := w.enqueue(deadletter.Job{Type: "Forever", Policy: deadletter.Policy{MaxJobAge: 10 * time.Minute}})

	require.NoError(t, w.wait(good, nil))
	require.ErrorContains(t, w.wait(bad, nil), "max_retries_exceeded after 2 attempts: boom")
	require.ErrorContains(t, w.wait(between, nil), "max_retries_exceeded after 2 attempts: boom")
	require.Len(t, w.attempts(t, between), 2)
	// Dead before the age has ended: its next execution would be past it.
	require.ErrorContains(t, w.wait(forever, nil), "retry_lifetime_expired after 0 attempts: snoozed: until tomorrow")
	require.Contains(t, w.dead(forever).ErrorMessage, "the next attempt was planned for ")

	first := often.GetRunID()
	w.grows(int(many)+1, func() int {
		n, _ := calls.LoadOrStore(often.GetID(), new(atomic.Int32))
		return int(n.(*atomic.Int32).Load())
	})
	require.ErrorContains(t, w.wait(often, nil), "max_retries_exceeded after 4 attempts: boom")
	rows, _, err := w.store.List(t.Context(), dlqstore.Filter{Namespace: w.namespace, WorkflowID: often.GetID()}, dlqstore.Page{})
	require.NoError(t, err)
	require.Len(t, rows, 1)
	dl, err := w.store.Get(t.Context(), rows[0].Key)
	require.NoError(t, err)
	require.NotEqual(t, first, dl.RunID, "the job never went on in a new run")
	require.Equal(t, first, dl.FirstRunID)
	require.Equal(t, policy.MaxAttempts, *dl.Attempts)
	require.Equal(t, map[string]string{"k": "v"}, dl.Tags)
	require.JSONEq(t, `["payload"]`, string(dl.PayloadJSON))
	started := w.history(w.client.GetWorkflow(t.Context(), often.GetID(), first))[0]
	require.Equal(t, started.GetEventTime().AsTime().Truncate(time.Microsecond), *dl.EnqueuedAt, "enqueued_at is not the first run's")
	for _, id := range []string{first, dl.RunID} {
		run := w.client.GetWorkflow(t.Context(), often.GetID(), id)
		require.Less(t, len(w.history(run)), 1200)
		w.replays("", run)
	}
	// The replay starts with a fresh budget and age, not with what the run before carried.
	replayed := w.replay(w.client.GetWorkflow(t.Context(), dl.WorkflowID, dl.RunID), "")
	require.ErrorContains(t, w.wait(replayed, nil), "max_retries_exceeded after 4 attempts: boom")
}
