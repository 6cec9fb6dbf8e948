package testsuite_test

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/deadletter-dev/deadletter"
	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/job"
)

// startSweep starts one sweep, as the schedule would.
func (w *world) startSweep() client.WorkflowRun {
	w.t.Helper()
	run, err := w.client.ExecuteWorkflow(w.t.Context(),
		client.StartWorkflowOptions{ID: "sweep-" + uuid.NewString(), TaskQueue: deadletter.DefaultTaskQueue}, job.SweepWorkflowType)
	require.NoError(w.t, err)
	return run
}

// sweep runs one sweep to its end.
func (w *world) sweep() (state job.SweepState) {
	w.t.Helper()
	require.NoError(w.t, w.wait(w.startSweep(), &state))
	require.True(w.t, state.Done)
	return state
}

// visible waits until the server lists so many closed jobs that a sweep looks at.
func (w *world) visible(n int) {
	w.t.Helper()
	require.Eventually(w.t, func() bool {
		count, err := w.client.CountWorkflow(w.t.Context(), &workflowservice.CountWorkflowExecutionsRequest{
			Namespace: w.namespace, Query: "WorkflowType = 'deadletter.Job' AND ExecutionStatus IN ('Terminated', 'TimedOut', 'Failed', 'Canceled')",
		})
		return err == nil && count.GetCount() == int64(n)
	}, patience, 20*time.Millisecond)
}

func (w *world) terminate(run client.WorkflowRun, reason string) {
	w.t.Helper()
	require.NoError(w.t, w.client.TerminateWorkflow(w.t.Context(), run.GetID(), run.GetRunID(), reason))
}

// noRow proves that the run was not taken for dead.
func (w *world) noRow(run client.WorkflowRun) {
	w.t.Helper()
	_, err := w.store.Get(w.t.Context(), w.key(run))
	require.ErrorIs(w.t, err, dlqstore.ErrNotFound)
	require.Empty(w.t, w.verbs(w.key(run)))
}

// TestSweepTerminated proves that 20 terminated jobs, in every stage of their
// lives, and 5 that passed a workflow timeout are dead letters after two sweeps,
// each once, with payloads that replay, although the first sweeper is killed in
// the middle of a page and two others run at once.
func TestSweepTerminated(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var mended atomic.Bool
	patient := func(ctx context.Context, i int, text string) (string, error) {
		if !mended.Load() {
			return "", hang(ctx)
		}
		return fmt.Sprint(text, i), nil
	}
	h := handlers{"Hang": patient, "Fail": func(ctx context.Context, i int, text string) (string, error) {
		if !mended.Load() {
			return "", errors.New("boom")
		}
		return patient(ctx, i, text)
	}}
	w.startJobs(h)

	policy := deadletter.Policy{MaxAttempts: 3, BaseDelay: time.Hour, HeartbeatTimeout: time.Minute}
	tags := map[string]string{"tenant": "acme"}
	type doomed struct {
		client.WorkflowRun
		attempts      int
		kind, message string
	}
	var jobs []doomed
	add := func(attempts int, kind, message string, start func(i int) client.WorkflowRun) {
		jobs = append(jobs, doomed{start(len(jobs)), attempts, kind, message})
	}
	// First those whose end is a matter of time. A handler that has not started when
	// that is over never will.
	for range 3 {
		add(1, "TemporalTimeout:WorkflowExecution", "passed the workflow execution timeout of 1m0s", func(i int) client.WorkflowRun {
			run := w.bare(client.StartWorkflowOptions{WorkflowExecutionTimeout: time.Minute},
				job.Options{Type: "Hang", Policy: policy, Tags: tags}, i, "payload")
			w.pendingIn(enumspb.PENDING_ACTIVITY_STATE_STARTED)(run)
			return run
		})
	}
	for range 2 {
		add(1, "TemporalTimeout:WorkflowRun", "passed the workflow run timeout of 1m0s", func(i int) client.WorkflowRun {
			run := w.bare(client.StartWorkflowOptions{WorkflowRunTimeout: time.Minute},
				job.Options{Type: "Hang", Policy: policy, Tags: tags}, i, "payload")
			w.pendingIn(enumspb.PENDING_ACTIVITY_STATE_STARTED)(run)
			return run
		})
	}
	timed := len(jobs)
	const by = "terminated by testsuite: cleaning up"
	for range 4 { // no worker knows of the workflow
		add(0, "TerminatedError", by, func(i int) client.WorkflowRun {
			return w.enqueue(deadletter.Job{Type: "Hang", TaskQueue: "later", Policy: policy, Tags: tags}, i, "payload")
		})
	}
	for range 3 { // the handler waits for a worker
		add(0, "TerminatedError", by, func(i int) client.WorkflowRun {
			run := w.bare(client.StartWorkflowOptions{}, job.Options{Type: "Hang", TaskQueue: "later", Policy: policy, Tags: tags}, i, "payload")
			w.pendingIn(enumspb.PENDING_ACTIVITY_STATE_SCHEDULED)(run)
			return run
		})
	}
	for range 7 { // in the middle of an attempt
		add(1, "TerminatedError", by, func(i int) client.WorkflowRun {
			run := w.enqueue(deadletter.Job{Type: "Hang", Policy: policy, Tags: tags}, i, "payload")
			w.pendingIn(enumspb.PENDING_ACTIVITY_STATE_STARTED)(run)
			return run
		})
	}
	for range 6 { // between two attempts
		add(1, "TerminatedError", by+" (the last attempt: boom)", func(i int) client.WorkflowRun {
			run := w.enqueue(deadletter.Job{Type: "Fail", Policy: policy, Tags: tags}, i, "payload")
			w.failedOnce(run)
			return run
		})
	}
	for _, run := range jobs[timed:] {
		w.terminate(run, "cleaning up")
	}
	alive := w.enqueue(deadletter.Job{Type: "Hang", Policy: policy}, 0, "alive")
	w.visible(len(jobs))

	sweeper := w.startProcess(roleDLQ, "move 7")
	first := w.startSweep()
	var exit *exec.ExitError
	require.ErrorAs(t, sweeper.Wait(), &exit)
	require.Equal(t, syscall.SIGKILL, exit.Sys().(syscall.WaitStatus).Signal())
	w.sessionsEnd()
	require.Positive(t, w.count(), "it was killed before it had written anything")
	require.Less(t, w.count(), int64(len(jobs)), "it was killed too late")
	require.True(t, w.watermark().IsZero(), "the watermark moved before the sweep was over")

	var hooks sync.Map
	hook := func(_ context.Context, _ pgx.Tx, dl *dlqstore.DeadLetter) error {
		_, twice := hooks.LoadOrStore(dl.RunID, true)
		if twice {
			return errors.New("the hook ran twice")
		}
		return nil
	}
	before := w.count()
	w.startDLQ(hook)
	w.startDLQ(hook)
	second := w.startSweep()
	for _, run := range []client.WorkflowRun{first, second} {
		var state job.SweepState
		require.NoError(t, w.wait(run, &state))
		require.Zero(t, state.Left, state.LastError)
	}

	require.EqualValues(t, len(jobs), w.count())
	ran := 0
	hooks.Range(func(any, any) bool { ran++; return true })
	require.EqualValues(t, int64(len(jobs))-before, ran, "a hook did not run for each row")
	for i, run := range jobs {
		dl := w.dead(run)
		require.Equal(t, []string{dlqstore.VerbMove}, w.verbs(w.key(run)))
		require.Equal(t, job.ReasonTerminated, dl.Reason)
		require.Equal(t, run.kind, dl.ErrorType)
		require.Contains(t, dl.ErrorMessage, run.message)
		require.Equal(t, map[string]string{"tenant": "acme"}, dl.Tags)
		require.JSONEq(t, fmt.Sprintf(`[%d, "payload"]`, i), string(dl.PayloadJSON))
		require.NotEmpty(t, dl.JobType)
		require.NotEmpty(t, dl.TaskQueue)
		require.NotNil(t, dl.Attempts, "%d", i)
		require.Equal(t, run.attempts, *dl.Attempts, "%d", i)
		require.Equal(t, 3, *dl.MaxAttempts)
		require.Equal(t, run.GetRunID(), dl.FirstRunID)
		events := w.history(run)
		require.WithinDuration(t, events[len(events)-1].GetEventTime().AsTime(), dl.DeadAt, time.Microsecond)
		require.WithinDuration(t, events[0].GetEventTime().AsTime(), *dl.EnqueuedAt, time.Microsecond)
		attempts, err := w.store.Attempts(t.Context(), w.key(run))
		require.NoError(t, err)
		require.Len(t, attempts, run.attempts)
	}
	require.Equal(t, enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING, w.status(alive))
	require.False(t, w.watermark().IsZero())

	mended.Store(true)
	w.startJobsOn("later", h)
	for i, run := range jobs {
		var result string
		require.NoError(t, w.wait(w.replay(run, ""), &result))
		require.Equal(t, fmt.Sprint("payload", i), result)
	}
	require.Zero(t, w.sweep().Moved, "a row was written again")
}

// TestSweepFailures proves that a job which failed outside our code is swept with
// the failure's own words, and that one which was dead-lettered as it should is
// left alone, also after it was purged.
func TestSweepFailures(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.startJobs(handlers{"Fail": fail})
	w.startDLQ(nil)
	foreign := worker.New(w.client, "foreign", worker.Options{})
	foreign.RegisterWorkflowWithOptions(func(workflow.Context, converter.RawValue, string) error {
		return temporal.NewApplicationError("not our code", "Foreign")
	}, workflow.RegisterOptions{Name: deadletter.WorkflowType})
	w.start(foreign)
	failed := w.enqueue(deadletter.Job{Type: "Fine", TaskQueue: "foreign", Tags: map[string]string{"a": "b"}}, "argument")
	require.ErrorContains(t, w.wait(failed, nil), "not our code")
	proper, purged := w.deadJob(), w.deadJob()
	before := w.dead(proper)
	require.NoError(t, w.store.Purge(t.Context(), w.key(purged), "tester"))
	w.visible(3)

	require.Equal(t, 1, w.sweep().Moved)
	dl := w.dead(failed)
	require.Equal(t, job.ReasonTerminated, dl.Reason)
	require.Equal(t, "Foreign", dl.ErrorType)
	require.Equal(t, "not our code", dl.ErrorMessage)
	require.Equal(t, "Fine", dl.JobType)
	require.Zero(t, *dl.Attempts)
	require.NotEmpty(t, dl.Failure)
	require.Equal(t, before, w.dead(proper))
	require.Equal(t, []string{dlqstore.VerbMove}, w.verbs(w.key(proper)))
	_, err := w.store.Get(t.Context(), w.key(purged))
	require.ErrorIs(t, err, dlqstore.ErrNotFound)

	require.NoError(t, w.store.Purge(t.Context(), w.key(failed), "tester"))
	require.Zero(t, w.sweep().Moved, "a purged job came back")
	_, err = w.store.Get(t.Context(), w.key(failed))
	require.ErrorIs(t, err, dlqstore.ErrNotFound)
}
