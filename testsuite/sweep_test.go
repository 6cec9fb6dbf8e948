package testsuite_test

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	taskqueuepb "go.temporal.io/api/taskqueue/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"google.golang.org/protobuf/proto"

	"github.com/deadletter-dev/deadletter"
	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/job"
)

// dieAtMove returns the hook of a process that is to be killed at "move N", nil
// for any other moment.
func dieAtMove(killAt string, die func() error) dlqstore.Hook {
	number, ok := strings.CutPrefix(killAt, "move ")
	if !ok {
		return nil
	}
	var moves atomic.Int32
	return func(context.Context, pgx.Tx, *dlqstore.DeadLetter) error {
		if strconv.Itoa(int(moves.Add(1))) == number {
			return die()
		}
		return nil
	}
}

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
			Namespace: w.namespace, Query: "WorkflowType = 'deadletter.Job' AND ExecutionStatus IN ('Terminated', 'TimedOut', 'Failed')",
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

func (w *world) watermark() time.Time {
	w.t.Helper()
	watermark, err := w.store.SweepWatermark(w.t.Context(), w.namespace)
	require.NoError(w.t, err)
	return watermark
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
	for _, run := range jobs {
		w.terminate(run, "cleaning up")
	}
	for range 3 {
		add(1, "TemporalTimeout:WorkflowExecution", "passed the workflow execution timeout of 20s", func(i int) client.WorkflowRun {
			run := w.bare(client.StartWorkflowOptions{WorkflowExecutionTimeout: 20 * time.Second},
				job.Options{Type: "Hang", Policy: policy, Tags: tags}, i, "payload")
			w.pendingIn(enumspb.PENDING_ACTIVITY_STATE_STARTED)(run)
			return run
		})
	}
	for range 2 {
		add(1, "TemporalTimeout:WorkflowRun", "passed the workflow run timeout of 20s", func(i int) client.WorkflowRun {
			run := w.bare(client.StartWorkflowOptions{WorkflowRunTimeout: 20 * time.Second},
				job.Options{Type: "Hang", Policy: policy, Tags: tags}, i, "payload")
			w.pendingIn(enumspb.PENDING_ACTIVITY_STATE_STARTED)(run)
			return run
		})
	}
	alive := w.enqueue(deadletter.Job{Type: "Hang", Policy: policy}, 0, "alive")
	w.visible(len(jobs))

	sweeper := w.startProcess(roleDLQ, "move 7")
	first := w.startSweep()
	var exit *exec.ExitError
	require.ErrorAs(t, sweeper.Wait(), &exit)
	require.Equal(t, syscall.SIGKILL, exit.Sys().(syscall.WaitStatus).Signal())
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
	later := w.queue
	w.queue = "later"
	w.startJobs(h)
	w.queue = later
	for i, run := range jobs {
		var result string
		require.NoError(t, w.wait(w.replay(run, ""), &result))
		require.Equal(t, fmt.Sprint("payload", i), result)
	}
	require.Zero(t, w.sweep().Moved, "a row was written again")
}

// TestSweptThenDeleted proves that a dead letter which the sweep wrote replays
// when Temporal has forgotten the job, and that a job deleted before any sweep
// leaves nothing and troubles nobody.
func TestSweptThenDeleted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.startJobs(handlers{"Echo": func(_ context.Context, text string) (string, error) { return text, nil }})
	w.startDLQ(nil)
	remove := func(run client.WorkflowRun) {
		_, err := w.client.WorkflowService().DeleteWorkflowExecution(t.Context(), &workflowservice.DeleteWorkflowExecutionRequest{
			Namespace: w.namespace, WorkflowExecution: &commonpb.WorkflowExecution{WorkflowId: run.GetID(), RunId: run.GetRunID()},
		})
		require.NoError(t, err)
		require.Eventually(t, func() bool {
			_, err := w.describe(run.GetID(), run.GetRunID())
			var gone *serviceerror.NotFound
			return errors.As(err, &gone)
		}, patience, 50*time.Millisecond)
	}
	swept := w.enqueue(deadletter.Job{Type: "Echo", StartDelay: time.Hour}, "kept")
	unseen := w.enqueue(deadletter.Job{Type: "Echo", StartDelay: time.Hour}, "lost")
	w.terminate(swept, "")
	w.terminate(unseen, "")
	remove(unseen)
	w.visible(1)
	require.Equal(t, 1, w.sweep().Moved)
	require.Equal(t, "terminated by testsuite: terminated by user via frontend", w.dead(swept).ErrorMessage)
	remove(swept)
	var result string
	require.NoError(t, w.wait(w.replay(swept, ""), &result))
	require.Equal(t, "kept", result)
	w.noRow(unseen)
}

// resetToStart starts the run anew from its first workflow task, as the Temporal UI does.
func (w *world) resetToStart(run client.WorkflowRun) client.WorkflowRun {
	w.t.Helper()
	out, err := w.client.ResetWorkflowExecution(w.t.Context(), &workflowservice.ResetWorkflowExecutionRequest{
		Namespace:         w.namespace,
		WorkflowExecution: &commonpb.WorkflowExecution{WorkflowId: run.GetID(), RunId: run.GetRunID()},
		Reason:            "a person", WorkflowTaskFinishEventId: 4, RequestId: uuid.NewString(),
	})
	require.NoError(w.t, err)
	return w.client.GetWorkflow(w.t.Context(), run.GetID(), out.GetRunId())
}

// TestSweepAndResets proves that a run which a reset ended is not taken for dead
// as its job lives on, whichever run the reset went back to, and that a run made
// by a reset dies like any other.
func TestSweepAndResets(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var mended atomic.Bool
	w.startJobs(handlers{"Hang": func(ctx context.Context) error {
		if mended.Load() {
			return nil
		}
		return hang(ctx)
	}})
	w.startDLQ(nil)
	policy := deadletter.Policy{HeartbeatTimeout: time.Minute, BaseDelay: time.Hour}
	start := func() client.WorkflowRun {
		run := w.enqueue(deadletter.Job{Type: "Hang", Policy: policy})
		w.pendingIn(enumspb.PENDING_ACTIVITY_STATE_STARTED)(run)
		return run
	}

	// Twice from the same run: the second reset ends a run that it does not go back to.
	base := start()
	middle := w.resetToStart(base)
	w.pendingIn(enumspb.PENDING_ACTIVITY_STATE_STARTED)(middle)
	last := w.resetToStart(base)
	w.pendingIn(enumspb.PENDING_ACTIVITY_STATE_STARTED)(last)
	w.visible(2)
	require.Zero(t, w.sweep().Moved)

	// That one is terminated: dead, and its line is known.
	w.terminate(last, "enough")
	w.visible(3)
	require.Equal(t, 1, w.sweep().Moved)
	w.noRow(base)
	w.noRow(middle)
	dl := w.dead(last)
	require.Equal(t, base.GetRunID(), dl.FirstRunID)
	require.Equal(t, "terminated by testsuite: enough", dl.ErrorMessage)

	// Terminated, then reset before a sweep saw it.
	saved := start()
	w.terminate(saved, "by mistake")
	w.visible(4)
	mended.Store(true)
	require.NoError(t, w.wait(w.resetToStart(saved), nil))
	require.Zero(t, w.sweep().Moved)
	w.noRow(saved)
	// A new job under the same id is no reset: the one that it replaced is dead.
	mended.Store(false)
	replaced := start()
	w.terminate(replaced, "")
	mended.Store(true)
	require.NoError(t, w.wait(w.enqueue(deadletter.Job{ID: replaced.GetID(), Type: "Hang"}), nil))
	w.visible(5)
	require.Equal(t, 1, w.sweep().Moved)
	w.dead(replaced)
	require.NoError(t, w.wait(w.replay(last, ""), nil))
}

// TestSweepAndSuccessors proves that a run which a retry or cron policy follows
// up is not taken for dead, and that the last of them is.
func TestSweepAndSuccessors(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.startJobs(handlers{"Hang": hang})
	w.startDLQ(nil)
	options := job.Options{Type: "Hang", Policy: deadletter.Policy{HeartbeatTimeout: -1}}
	retried := w.bare(client.StartWorkflowOptions{
		WorkflowRunTimeout: time.Second, RetryPolicy: &temporal.RetryPolicy{InitialInterval: time.Millisecond, MaximumAttempts: 2},
	}, options)
	require.Error(t, w.wait(w.client.GetWorkflow(t.Context(), retried.GetID(), ""), nil))
	w.visible(2)
	require.Equal(t, 1, w.sweep().Moved)
	w.noRow(retried)
	latest, err := w.describe(retried.GetID(), "")
	require.NoError(t, err)
	final := w.client.GetWorkflow(t.Context(), retried.GetID(), latest.GetWorkflowExecutionInfo().GetExecution().GetRunId())
	dl := w.dead(final)
	require.Equal(t, retried.GetRunID(), dl.FirstRunID)
	require.Equal(t, "TemporalTimeout:WorkflowRun", dl.ErrorType)

	cron := w.bare(client.StartWorkflowOptions{WorkflowRunTimeout: time.Second, CronSchedule: "@every 1s"}, options)
	require.Eventually(t, func() bool {
		latest, err := w.describe(cron.GetID(), "")
		return err == nil && latest.GetWorkflowExecutionInfo().GetExecution().GetRunId() != cron.GetRunID()
	}, patience, 20*time.Millisecond)
	require.NoError(t, w.client.TerminateWorkflow(t.Context(), cron.GetID(), "", "no more"))
	latest, err = w.describe(cron.GetID(), "")
	require.NoError(t, err)
	require.Eventually(t, func() bool { w.sweep(); return w.count() == 2 }, patience, 20*time.Millisecond)
	w.noRow(cron)
	require.Contains(t, w.dead(w.client.GetWorkflow(t.Context(), cron.GetID(), latest.GetWorkflowExecutionInfo().GetExecution().GetRunId())).ErrorMessage, "no more")
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

// TestSweepDuringMove proves that a job which is terminated while its dead letter
// cannot be written has it by the next sweep, with what it told of itself.
func TestSweepDuringMove(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.startJobs(handlers{"Fail": fail})
	run := w.enqueue(deadletter.Job{Type: "Fail", Policy: quick(2), Tags: map[string]string{"a": "b"}}, "argument")
	require.Eventually(t, func() bool { return w.pendingMove(run) != nil }, patience, 20*time.Millisecond)
	w.terminate(run, "")
	w.visible(1)
	w.startDLQ(nil)
	require.Equal(t, 1, w.sweep().Moved)
	dl := w.dead(run)
	require.Equal(t, job.ReasonTerminated, dl.Reason)
	require.Equal(t, 2, *dl.Attempts)
	require.Equal(t, "terminated by testsuite: terminated by user via frontend (the last attempt: boom)", dl.ErrorMessage)
	require.Equal(t, map[string]string{"a": "b"}, dl.Tags)
}

// TestSweepWatermarkHolds proves that a job whose hook fails keeps the watermark
// before it and hinders no other, and that the sweep after its repair writes it
// and moves on.
func TestSweepWatermarkHolds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var broken atomic.Pointer[string]
	w.startDLQ(func(_ context.Context, _ pgx.Tx, dl *dlqstore.DeadLetter) error {
		if id := broken.Load(); id != nil && *id == dl.WorkflowID {
			return errors.New("no such order")
		}
		return nil
	})
	clean := w.sweep()
	require.WithinDuration(t, clean.Until, w.watermark(), time.Microsecond)

	var runs []client.WorkflowRun
	for i := range 5 {
		run := w.enqueue(deadletter.Job{Type: "Any"}, i)
		w.terminate(run, "")
		runs = append(runs, run)
	}
	bad := runs[2]
	id := bad.GetID()
	broken.Store(&id)
	w.visible(len(runs))
	closed, err := w.describe(bad.GetID(), bad.GetRunID())
	require.NoError(t, err)
	for i := range 2 {
		state := w.sweep()
		require.Equal(t, 1, state.Left)
		require.Equal(t, []int{4, 0}[i], state.Moved)
		require.Contains(t, state.LastError, "no such order")
		require.WithinDuration(t, closed.GetWorkflowExecutionInfo().GetCloseTime().AsTime(), w.watermark(), time.Microsecond)
	}
	require.EqualValues(t, len(runs)-1, w.count())
	w.noRow(bad)

	broken.Store(nil)
	mended := w.sweep()
	require.Equal(t, 1, mended.Moved)
	require.Zero(t, mended.Left)
	w.dead(bad)
	require.WithinDuration(t, mended.Until, w.watermark(), time.Microsecond)
}

// TestSweepLooksBack proves that a job which became visible only minutes after it
// closed, when the watermark had passed it, is found all the same.
func TestSweepLooksBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.startDLQ(nil)
	run := w.enqueue(deadletter.Job{Type: "Any"})
	w.terminate(run, "")
	w.visible(1)
	passed, err := w.store.AdvanceSweep(t.Context(), w.namespace, time.Now().Add(4*time.Minute))
	require.NoError(t, err)
	require.Equal(t, 1, w.sweep().Moved)
	w.dead(run)
	require.Equal(t, passed, w.watermark(), "the watermark went back")
}

// TestSweepWaits proves that a sweep waits for a store that is away, instead of
// leaving one job after the other.
func TestSweepWaits(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var tries atomic.Int32
	w.startDLQ(func(context.Context, pgx.Tx, *dlqstore.DeadLetter) error {
		if tries.Add(1) <= 3 {
			return fmt.Errorf("as if: %w", dlqstore.ErrUnavailable)
		}
		return nil
	})
	for range 6 {
		w.terminate(w.enqueue(deadletter.Job{Type: "Any"}), "")
	}
	w.visible(6)
	state := w.sweep()
	require.Zero(t, state.Left)
	require.EqualValues(t, 6, w.count())
	require.WithinDuration(t, state.Until, w.watermark(), time.Microsecond)
}

// TestSweepPages proves that a sweep over more than one page of the server's list
// misses none, and costs a constant number of history events.
func TestSweepPages(t *testing.T) {
	t.Parallel()
	const jobs = 450
	w := newWorld(t)
	var starts sync.WaitGroup
	for part := range 5 {
		starts.Go(func() {
			for i := part; i < jobs; i += 5 {
				run, err := deadletter.Enqueue(t.Context(), w.client, deadletter.Job{ID: fmt.Sprint("job-", i), Type: "Any", TaskQueue: w.queue}, i)
				if err == nil {
					err = w.client.TerminateWorkflow(t.Context(), run.GetID(), run.GetRunID(), "")
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	starts.Wait()
	w.visible(jobs)
	w.startDLQ(nil)
	run := w.startSweep()
	var state job.SweepState
	require.NoError(t, w.wait(run, &state))
	require.Equal(t, jobs, state.Moved)
	require.EqualValues(t, jobs, w.count())
	w.atMost(t, 23, run) // 11, and 6 for every further 20 seconds of a slow machine
}

// TestSweepEncrypted proves that a job whose options are encrypted is swept
// without the key: what it was comes from how its handler was scheduled, its
// payloads stay as they were and replay.
func TestSweepEncrypted(t *testing.T) {
	t.Parallel()
	const secret = "4111-1111-1111-1111"
	w := newWorld(t)
	w.startDLQ(nil)
	plugin, err := deadletter.NewPlugin(deadletter.Options{})
	require.NoError(t, err)
	encrypted, err := client.Dial(client.Options{
		HostPort: w.address, Namespace: w.namespace, Logger: quiet(), Plugins: []client.Plugin{plugin},
		DataConverter: converter.NewCodecDataConverter(converter.GetDefaultDataConverter(), newEncryption(t)),
	})
	require.NoError(t, err)
	t.Cleanup(encrypted.Close)
	w.client = encrypted // from here on, of jobs
	sweeps := w.dial(nil)
	sweep := func() (state job.SweepState) {
		run, err := sweeps.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{TaskQueue: deadletter.DefaultTaskQueue}, job.SweepWorkflowType)
		require.NoError(t, err)
		require.NoError(t, w.wait(run, &state))
		return state
	}
	var mended atomic.Bool
	jobs := worker.New(encrypted, w.queue, worker.Options{})
	jobs.RegisterActivity(&charges{mended: &mended})
	w.start(jobs)

	waiting := w.enqueue(deadletter.Job{Type: "Charge", Policy: deadletter.Policy{BaseDelay: time.Hour, MaxAttempts: 4}}, secret)
	w.failedOnce(waiting)
	unseen := w.enqueue(deadletter.Job{Type: "Charge", StartDelay: time.Hour}, secret)
	w.terminate(waiting, "")
	w.terminate(unseen, "")
	w.visible(2)
	require.Equal(t, 2, sweep().Moved)

	dl := w.dead(waiting)
	require.Equal(t, "Charge", dl.JobType)
	require.Equal(t, w.queue, dl.TaskQueue)
	require.Equal(t, 1, *dl.Attempts)
	require.Equal(t, 4, *dl.MaxAttempts)
	require.Nil(t, dl.Options)
	require.Nil(t, dl.PayloadJSON)
	dl = w.dead(unseen)
	require.Empty(t, dl.JobType)
	require.Empty(t, dl.TaskQueue)
	require.Zero(t, *dl.Attempts)
	w.holdsNowhere(secret)

	mended.Store(true)
	for _, run := range []client.WorkflowRun{waiting, unseen} {
		var result string
		require.NoError(t, w.wait(w.replay(run, ""), &result))
		require.Equal(t, "charged "+secret, result)
	}
}

type charges struct{ mended *atomic.Bool }

func (c *charges) Charge(_ context.Context, card string) (string, error) {
	if !c.mended.Load() {
		return "", errors.New("declined")
	}
	return "charged " + card, nil
}

// TestSweptReplay proves that a replay which is terminated keeps its lineage, its
// priority and its memo in its own dead letter.
func TestSweptReplay(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.startDLQ(nil)
	first := w.enqueue(deadletter.Job{
		Type: "Any", Memo: map[string]any{"order": 17}, Priority: temporal.Priority{PriorityKey: 2, FairnessKey: "acme", FairnessWeight: 2.5},
	})
	w.terminate(first, "")
	w.visible(1)
	require.Equal(t, 1, w.sweep().Moved)
	again := w.replay(first, "")
	w.terminate(again, "")
	w.visible(2)
	require.Equal(t, 1, w.sweep().Moved)
	heir, ancestor := w.dead(again), w.dead(first)
	require.Equal(t, 1, heir.Generation)
	require.Equal(t, first.GetID(), *heir.ReplayedFromWorkflowID)
	require.Equal(t, first.GetRunID(), *heir.ReplayedFromRunID)
	require.JSONEq(t, `{"priority_key":2,"fairness_key":"acme","fairness_weight":2.5}`, string(heir.Priority))
	require.JSONEq(t, string(ancestor.Options), string(heir.Options))
	require.Equal(t, ancestor.UserMetadata, heir.UserMetadata)
	var memo commonpb.Memo
	require.NoError(t, proto.Unmarshal(heir.Memo, &memo))
	require.Equal(t, "17", string(memo.GetFields()["order"].GetData()))
}

// TestSweptContinuation proves that a job which had continued as new is counted on
// from what it carried, and that its replay does not inherit that: budget and age
// are fresh.
func TestSweptContinuation(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.startDLQ(nil)
	encode := func(values ...any) *commonpb.Payloads {
		payloads, err := converter.GetDefaultDataConverter().ToPayloads(values...)
		require.NoError(t, err)
		return payloads
	}
	created := time.Now().Add(-time.Hour).Truncate(time.Microsecond)
	carried := encode(job.Carried{Charged: 2, Created: created, Due: created})
	started, err := w.client.WorkflowService().StartWorkflowExecution(t.Context(), &workflowservice.StartWorkflowExecutionRequest{
		Namespace: w.namespace, WorkflowId: "continued", WorkflowType: &commonpb.WorkflowType{Name: deadletter.WorkflowType},
		TaskQueue: &taskqueuepb.TaskQueue{Name: w.queue}, RequestId: uuid.NewString(),
		Input: encode(job.Options{Type: "Any"}),
		Header: &commonpb.Header{Fields: map[string]*commonpb.Payload{
			job.CarriedHeader: carried.GetPayloads()[0], "theirs": carried.GetPayloads()[0],
		}},
	})
	require.NoError(t, err)
	run := w.client.GetWorkflow(t.Context(), "continued", started.GetRunId())
	w.terminate(run, "")
	w.visible(1)
	require.Equal(t, 1, w.sweep().Moved)
	dl := w.dead(run)
	require.Equal(t, 2, *dl.Attempts)
	require.WithinDuration(t, created, *dl.EnqueuedAt, time.Microsecond)
	header := w.history(w.replay(run, ""))[0].GetWorkflowExecutionStartedEventAttributes().GetHeader().GetFields()
	require.Contains(t, header, "theirs")
	require.NotContains(t, header, job.CarriedHeader)
}

// TestSweepSchedule proves that several dead-letter workers make one schedule,
// which sweeps by itself, that they make it again when somebody deletes it, that
// another interval changes it and spares a pause, and that "off" leaves it alone.
func TestSweepSchedule(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	startEvery := func(interval time.Duration) (stop func()) {
		plugin, err := deadletter.NewPlugin(deadletter.Options{Store: w.openStore(), SweepInterval: interval, RetentionInterval: -1})
		require.NoError(t, err)
		return w.start(worker.New(w.dial(plugin), deadletter.DefaultTaskQueue, worker.Options{}))
	}
	handle := w.client.ScheduleClient().GetHandle(t.Context(), job.SweepScheduleID)
	every := func() time.Duration {
		description, err := handle.Describe(t.Context())
		if err != nil || len(description.Schedule.Spec.Intervals) != 1 {
			return 0
		}
		return description.Schedule.Spec.Intervals[0].Every
	}
	becomes := func(interval time.Duration) {
		require.Eventually(t, func() bool { return every() == interval }, patience, 20*time.Millisecond)
	}
	// The keeper starts the operator workflow first, so that has been settled too.
	startEvery(-1)
	w.waitOperator()
	require.Zero(t, every(), "it was made although it is off")

	stop1, stop2 := startEvery(time.Second), startEvery(time.Second)
	becomes(time.Second)
	run := w.enqueue(deadletter.Job{Type: "Any"})
	w.terminate(run, "")
	require.Eventually(t, func() bool { return w.count() == 1 }, patience, 20*time.Millisecond)
	w.dead(run)

	require.NoError(t, handle.Delete(t.Context()))
	require.Eventually(t, func() bool { return every() == 0 }, patience, time.Millisecond)
	becomes(time.Second)
	description, err := handle.Describe(t.Context())
	require.NoError(t, err)
	require.Equal(t, enumspb.SCHEDULE_OVERLAP_POLICY_SKIP, description.Schedule.Policy.Overlap)
	require.Equal(t, deadletter.DefaultTaskQueue, description.Schedule.Action.(*client.ScheduleWorkflowAction).TaskQueue)

	stop1()
	stop2()
	require.NoError(t, handle.Pause(t.Context(), client.SchedulePauseOptions{Note: "by a person"}))
	stop := startEvery(0)
	becomes(deadletter.DefaultSweepInterval)
	description, err = handle.Describe(t.Context())
	require.NoError(t, err)
	require.True(t, description.Schedule.State.Paused)
	stop()

	list, err := w.client.ScheduleClient().List(t.Context(), client.ScheduleListOptions{})
	require.NoError(t, err)
	schedules := 0
	for list.HasNext() {
		_, err := list.Next()
		require.NoError(t, err)
		schedules++
	}
	require.Equal(t, 1, schedules)

	_, err = deadletter.NewPlugin(deadletter.Options{SweepInterval: time.Millisecond})
	require.ErrorContains(t, err, "SweepInterval 1ms")
}
