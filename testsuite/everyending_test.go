package testsuite_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"

	"github.com/deadletter-dev/deadletter"
	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/job"
)

// TestEveryEnding proves that no way for a job to end leaves neither a result nor
// a dead letter, nor both, nor two.
func TestEveryEnding(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.startJobs(handlers{
		"Fine": func(context.Context) error { return nil },
		"Fail": fail, "Hang": hang,
		"Fatal":    func(context.Context) error { return deadletter.Fatal(errors.New("no")) },
		"Panic":    func(context.Context) error { panic("now") },
		"Number":   func(context.Context, int) error { return nil },
		"Oversize": func(context.Context) (string, error) { return strings.Repeat("x", 3<<20), nil },
	})
	w.startDLQ(nil)
	w.startForeign()
	start := func(jobType string, policy deadletter.Policy, args ...any) client.WorkflowRun {
		return w.enqueue(deadletter.Job{Type: jobType, Policy: policy}, args...)
	}
	waiting := deadletter.Policy{BaseDelay: time.Hour}
	cancel := func(run client.WorkflowRun, reached func(client.WorkflowRun)) client.WorkflowRun {
		reached(run)
		require.NoError(t, w.client.CancelWorkflow(t.Context(), run.GetID(), ""))
		return run
	}
	terminate := func(run client.WorkflowRun, reached func(client.WorkflowRun)) client.WorkflowRun {
		reached(run)
		require.NoError(t, w.client.TerminateWorkflow(t.Context(), run.GetID(), "", "by a person"))
		return run
	}
	beating := deadletter.Policy{HeartbeatTimeout: 20 * time.Second}
	running := w.pendingIn(enumspb.PENDING_ACTIVITY_STATE_STARTED)
	at := func(client.WorkflowRun) {}

	// On a queue that nobody polls, so that none of our code runs before it.
	timedOut, err := w.client.ExecuteWorkflow(t.Context(),
		client.StartWorkflowOptions{TaskQueue: "nobody", WorkflowExecutionTimeout: 2 * time.Second}, deadletter.WorkflowType, map[string]any{"type": "Fine"})
	require.NoError(t, err)

	endings := map[string]struct {
		run    client.WorkflowRun
		reason job.Reason // "" for a result
	}{
		"success":          {start("Fine", quick(1)), ""},
		"budget":           {start("Fail", quick(2)), job.ReasonMaxRetriesExceeded},
		"fatal":            {start("Fatal", quick(2)), job.ReasonFatalError},
		"panic":            {start("Panic", quick(2)), job.ReasonMaxRetriesExceeded},
		"undecodable":      {start("Number", quick(2), "no number"), job.ReasonMaxRetriesExceeded},
		"oversized result": {start("Oversize", quick(2)), job.ReasonFatalError},
		"unknown type":     {start("NoSuch", noGrace(2)), job.ReasonUnknownJobType},
		"attempt timeout":  {start("Hang", deadletter.Policy{MaxAttempts: 1, AttemptTimeout: time.Second}), job.ReasonTimeout},
		"age, next wait":   {start("Fail", deadletter.Policy{BaseDelay: time.Hour, MaxJobAge: 10 * time.Minute}), job.ReasonRetryLifetimeExpired},
		"age, attempt":     {start("Hang", deadletter.Policy{MaxJobAge: 10 * time.Second}), job.ReasonRetryLifetimeExpired},
		"age, queue": {w.bare(client.StartWorkflowOptions{}, map[string]any{
			"type": "Fine", "task_queue": "nobody", "policy": map[string]any{"max_job_age": "5s"},
		}), job.ReasonRetryLifetimeExpired},
		"heartbeat": {w.bare(client.StartWorkflowOptions{}, map[string]any{
			"type": "Silent", "task_queue": "foreign", "policy": map[string]any{"heartbeat_timeout": "1s"},
		}), job.ReasonZombie},
		"invalid policy":     {w.bare(client.StartWorkflowOptions{}, map[string]any{"type": "Fine", "policy": 7}), job.ReasonFatalError},
		"ninth argument":     {w.bare(client.StartWorkflowOptions{}, map[string]any{"type": "Fine"}, 1, 2, 3, 4, 5, 6, 7, 8, 9), job.ReasonFatalError},
		"cancelled at first": {cancel(w.enqueue(deadletter.Job{Type: "Fine", StartDelay: time.Hour}), at), job.ReasonCancelled},
		"cancelled running":  {cancel(start("Hang", beating), running), job.ReasonCancelled},
		"cancelled waiting":  {cancel(start("Fail", waiting), w.failedOnce), job.ReasonCancelled},
		"terminated running": {terminate(start("Hang", beating), running), job.ReasonTerminated},
		"terminated waiting": {terminate(start("Fail", waiting), w.failedOnce), job.ReasonTerminated},
		"terminated early":   {terminate(w.enqueue(deadletter.Job{Type: "Fine", StartDelay: time.Hour}), at), job.ReasonTerminated},
		"workflow timeout":   {timedOut, job.ReasonTerminated},
	}
	for _, ending := range endings {
		_ = w.wait(ending.run, nil)
	}
	missing := func() (names []string) {
		for name, ending := range endings {
			if _, err := w.store.Get(t.Context(), w.key(ending.run)); ending.reason != "" && errors.Is(err, dlqstore.ErrNotFound) {
				names = append(names, name)
			}
		}
		return names
	}
	var left []string
	require.Eventually(t, func() bool { // visibility lags
		w.sweep()
		left = missing()
		return len(left) == 0
	}, patience, 200*time.Millisecond, "%v", &left)
	w.sweep()

	rows := 0
	for name, ending := range endings {
		dl, err := w.store.Get(t.Context(), w.key(ending.run))
		if ending.reason == "" {
			require.ErrorIs(t, err, dlqstore.ErrNotFound, name)
			require.Equal(t, "Completed", w.status(ending.run).String(), name)
			continue
		}
		rows++
		require.NoError(t, err, name)
		require.Equal(t, ending.reason, dl.Reason, name)
		require.Equal(t, []string{dlqstore.VerbMove}, w.verbs(dl.Key), name)
	}
	require.EqualValues(t, rows, w.count())
}
