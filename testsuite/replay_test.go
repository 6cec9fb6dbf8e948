package testsuite_test

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"google.golang.org/protobuf/proto"

	"github.com/deadletter-dev/deadletter"
	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/job"
	"github.com/deadletter-dev/deadletter/operator"
)

// TestReplay proves that a replay is a new job in everything but its content: a
// new id, a fresh budget and age, the same type, queue, priority, tags, policy,
// memo and bytes, and that the dead letter stays and counts.
func TestReplay(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var mended atomic.Bool
	var calls atomic.Int32
	w.startJobs(handlers{"Flaky": func(_ context.Context, a string, n int64) (string, error) {
		calls.Add(1)
		if !mended.Load() {
			return "", errors.New("broken")
		}
		return fmt.Sprint(a, n), nil
	}})
	w.startDLQ(nil)
	policy := quick(2)
	policy.MaxJobAge = 10 * time.Minute
	original := w.enqueue(deadletter.Job{
		Type: "Flaky", Policy: policy, Tags: map[string]string{"tenant": "acme"}, Memo: map[string]any{"order": "A-17"},
		Priority: temporal.Priority{PriorityKey: 2, FairnessKey: "acme", FairnessWeight: 2.5},
	}, "x", int64(9007199254740993))
	require.Error(t, w.wait(original, nil))
	// Older than its max_job_age: the replay's age starts anew all the same.
	_, err := w.store.Pool().Exec(t.Context(), `update deadletter.dead_letters set enqueued_at = enqueued_at - interval '1 hour'`)
	require.NoError(t, err)
	before := w.dead(original)

	calls.Store(0)
	again := w.replay(original, "")
	require.NotEqual(t, original.GetID(), again.GetID())
	require.ErrorContains(t, w.wait(again, nil), "max_retries_exceeded after 2 attempts", "the budget was not fresh")
	require.EqualValues(t, 2, calls.Load())

	mended.Store(true)
	second := w.replay(original, "")
	require.NotEqual(t, again.GetID(), second.GetID())
	var result string
	require.NoError(t, w.wait(second, &result))
	require.Equal(t, "x9007199254740993", result)

	first, last := w.history(original)[0].GetWorkflowExecutionStartedEventAttributes(), w.history(second)[0].GetWorkflowExecutionStartedEventAttributes()
	require.True(t, proto.Equal(first.GetInput(), last.GetInput()), "the input changed")
	require.True(t, proto.Equal(first.GetPriority(), last.GetPriority()), "the priority changed")
	require.Equal(t, first.GetTaskQueue().GetName(), last.GetTaskQueue().GetName())
	require.True(t, proto.Equal(first.GetMemo().GetFields()["order"], last.GetMemo().GetFields()["order"]))
	require.True(t, proto.Equal(w.history(original)[0].GetUserMetadata(), w.history(second)[0].GetUserMetadata()))

	after := w.dead(original)
	require.Equal(t, 2, after.ResurrectionCount)
	require.NotNil(t, after.LastResurrectionAt)
	after.ResurrectionCount, after.LastResurrectionAt = before.ResurrectionCount, before.LastResurrectionAt
	require.Equal(t, before, after, "a replay changed the dead letter")

	heir := w.dead(again)
	require.Equal(t, w.history(again)[0].GetEventTime().AsTime().Truncate(time.Microsecond), *heir.EnqueuedAt, "the age did not start anew")
	require.Equal(t, 1, heir.Generation)
	require.Equal(t, original.GetID(), *heir.ReplayedFromWorkflowID)
	require.Equal(t, original.GetRunID(), *heir.ReplayedFromRunID)
	require.Equal(t, map[string]string{"tenant": "acme"}, heir.Tags)
	require.Equal(t, before.Payloads, heir.Payloads)
	require.JSONEq(t, string(before.Options), string(heir.Options))
	require.JSONEq(t, string(before.Priority), string(heir.Priority))
	require.JSONEq(t, `{"priority_key":2,"fairness_key":"acme","fairness_weight":2.5}`, string(heir.Priority))

	grandchild := w.replay(again, "")
	require.NoError(t, w.wait(grandchild, nil))
	require.Contains(t, w.history(grandchild)[0].GetWorkflowExecutionStartedEventAttributes().GetMemo().String(), `\"generation\":2`)
}

// replay replays a dead letter through the Go API.
func (w *world) replay(dead client.WorkflowRun, request string) client.WorkflowRun {
	w.t.Helper()
	out, err := w.operator.Replay(w.t.Context(), operator.ReplayRequest{
		WorkflowID: dead.GetID(), RunID: dead.GetRunID(), RequestID: request, Actor: "tester",
	})
	require.NoError(w.t, err)
	return w.client.GetWorkflow(w.t.Context(), out.WorkflowID, out.RunID)
}

// deadJob returns a job that is a dead letter.
func (w *world) deadJob() client.WorkflowRun {
	w.t.Helper()
	run := w.enqueue(deadletter.Job{Type: "Fail", Policy: quick(1)}, "payload")
	require.ErrorContains(w.t, w.wait(run, nil), "dead-lettered")
	return run
}

// replaysOf counts the jobs that Temporal runs or ran as replays of a dead letter.
func (w *world) replaysOf(dead client.WorkflowRun) (ids []string) {
	w.t.Helper()
	replays, err := w.store.Replays(w.t.Context(), w.key(dead))
	require.NoError(w.t, err)
	for _, r := range replays {
		if _, err := w.describe(r.NewWorkflowID, ""); err == nil {
			ids = append(ids, r.NewWorkflowID)
		}
	}
	return ids
}

// TestSameRequest proves that fifty concurrent calls with one request id are one
// replay, and that a missing key starts nothing.
func TestSameRequest(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	stop := w.startJobs(handlers{"Fail": fail})
	w.startDLQ(nil)
	dead := w.deadJob()
	stop()

	var all sync.WaitGroup
	var mu sync.Mutex
	outs := map[job.ReplayOutput]int{}
	for range 50 {
		all.Go(func() {
			out, err := w.operator.Replay(t.Context(), operator.ReplayRequest{WorkflowID: dead.GetID(), RequestID: "ticket-1", Actor: "tester"})
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				outs[out]++
			} else {
				t.Errorf("replay: %v", err)
			}
		})
	}
	all.Wait()
	require.Len(t, outs, 1)
	require.Equal(t, 1, w.dead(dead).ResurrectionCount)
	require.Len(t, w.replaysOf(dead), 1)

	_, err := w.operator.Replay(t.Context(), operator.ReplayRequest{WorkflowID: "no-such-job", RequestID: "ticket-2", Actor: "tester"})
	require.ErrorIs(t, err, dlqstore.ErrNotFound)
	_, err = w.operator.Replay(t.Context(), operator.ReplayRequest{WorkflowID: dead.GetID()})
	require.ErrorIs(t, err, operator.ErrNoActor)
}

// TestKilledReplay kills the process that replays, with kill -9, at every step,
// and proves that there is never a second job nor a count without a job: the
// workers of the dead-letter queue finish what was counted.
func TestKilledReplay(t *testing.T) {
	t.Parallel()
	for _, step := range []struct {
		name    string
		killAt  string
		counted bool
	}{
		{"inside the transaction", "never", false},
		{"between commit and start", "StartWorkflowExecution", true},
		{"between start and confirmation", "after StartWorkflowExecution", true},
		{"after the confirmation", "never", true},
	} {
		t.Run(step.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.startJobs(handlers{"Fail": fail})
			stopDLQ := w.startDLQ(nil)
			dead := w.deadJob()
			stopDLQ() // else it would finish the replay under the test's eyes

			w.killDuringReplay(dead, step.killAt, step.counted)
			if !step.counted {
				require.Zero(t, w.dead(dead).ResurrectionCount)
				require.Empty(t, w.replaysOf(dead))
				return
			}
			require.Equal(t, 1, w.dead(dead).ResurrectionCount)

			w.startDLQ(nil)
			require.Eventually(t, func() bool {
				replays, err := w.store.Replays(t.Context(), w.key(dead))
				require.NoError(t, err)
				require.Len(t, replays, 1)
				return replays[0].NewRunID != nil
			}, patience, 50*time.Millisecond, "nobody finished the replay")
			require.Len(t, w.replaysOf(dead), 1)

			// The same request, from somebody who does not know what became of it.
			again := w.replay(dead, requestID)
			require.Equal(t, []string{again.GetID()}, w.replaysOf(dead))
			require.Equal(t, 1, w.dead(dead).ResurrectionCount)
			require.Error(t, w.wait(again, nil))
		})
	}
}

func (w *world) killDuringReplay(dead client.WorkflowRun, killAt string, counted bool) {
	w.t.Helper()
	release := func() {}
	if !counted {
		// The dead letter's lock is taken, so the process stands inside its transaction.
		db := w.connect()
		tx, err := db.Begin(w.t.Context())
		require.NoError(w.t, err)
		_, err = tx.Exec(w.t.Context(), `select 1 from deadletter.dead_letters for update`)
		require.NoError(w.t, err)
		release = func() { require.NoError(w.t, tx.Rollback(w.t.Context())) }
	}
	process := w.startProcess(roleReplay, killAt, "DEADLETTER_TEST_WORKFLOW="+dead.GetID())
	if !counted {
		watch := w.connect()
		require.Eventually(w.t, func() bool {
			var waiting int
			require.NoError(w.t, watch.QueryRow(w.t.Context(),
				`select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`).Scan(&waiting))
			return waiting > 0
		}, patience, 20*time.Millisecond, "the process never came to the lock")
		require.NoError(w.t, process.Process.Kill())
	}
	var exit *exec.ExitError
	require.ErrorAs(w.t, process.Wait(), &exit)
	require.Equal(w.t, -1, exit.ExitCode(), "the process was not killed")
	release()
}

// TestReplayDoors proves that the Go API, an activity in a user's workflow, a
// signal and an update do the same: one new job, one event with the actor.
func TestReplayDoors(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.startJobs(handlers{"Fail": fail})
	w.startDLQ(nil)
	repairs := worker.New(w.client, "repairs", worker.Options{})
	repairs.RegisterWorkflowWithOptions(repair, workflow.RegisterOptions{Name: "Repair"})
	w.start(repairs)

	for _, door := range []struct {
		name string
		ask  func(in job.ReplayInput) *job.ReplayOutput
	}{
		{"api", func(in job.ReplayInput) *job.ReplayOutput {
			out, err := w.operator.Replay(t.Context(), operator.ReplayRequest{
				WorkflowID: in.WorkflowID, RunID: in.RunID, RequestID: in.RequestID, Actor: in.Actor,
			})
			require.NoError(t, err)
			return &out
		}},
		{"activity", func(in job.ReplayInput) *job.ReplayOutput {
			run, err := w.client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{TaskQueue: "repairs"}, "Repair", in)
			require.NoError(t, err)
			var out job.ReplayOutput
			require.NoError(t, w.wait(run, &out))
			return &out
		}},
		{"signal", func(in job.ReplayInput) *job.ReplayOutput {
			w.waitOperator()
			require.NoError(t, w.client.SignalWorkflow(t.Context(), deadletter.OperatorWorkflowID, "", "replay", in))
			return nil
		}},
		{"update", func(in job.ReplayInput) *job.ReplayOutput {
			w.waitOperator()
			var out job.ReplayOutput
			require.NoError(t, w.update(in).Get(t.Context(), &out))
			return &out
		}},
	} {
		t.Run(door.name, func(t *testing.T) {
			dead := w.deadJob()
			in := job.ReplayInput{WorkflowID: dead.GetID(), RequestID: "by-" + door.name, Actor: "oncall"}
			out := door.ask(in)
			require.Eventually(t, func() bool { return len(w.replaysOf(dead)) == 1 }, patience, 20*time.Millisecond)
			id := w.replaysOf(dead)[0]
			if out != nil {
				require.Equal(t, id, out.WorkflowID)
				require.NotEmpty(t, out.RunID)
			}
			require.Error(t, w.wait(w.client.GetWorkflow(t.Context(), id, ""), nil))
			require.Equal(t, 1, w.dead(dead).ResurrectionCount)

			events, err := w.store.Events(t.Context(), w.key(dead))
			require.NoError(t, err)
			require.Len(t, events, 3, "moved, replayed, and the replay's job died again")
			event := events[slices.IndexFunc(events, func(e dlqstore.Event) bool { return e.Verb == dlqstore.VerbReplay })]
			require.Equal(t, dlqstore.VerbReplay, event.Verb)
			require.Equal(t, "oncall", event.Actor)
			require.Equal(t, in.RequestID, *event.RequestID)
			require.JSONEq(t, fmt.Sprintf(`{"new_workflow_id":%q}`, id), string(event.Detail))
		})
	}
	t.Run("a missing key is a clear error", func(t *testing.T) {
		err := w.update(job.ReplayInput{WorkflowID: "no-such-job", Actor: "oncall"}).Get(t.Context(), nil)
		var failure *temporal.ApplicationError
		require.ErrorAs(t, err, &failure)
		require.Equal(t, job.NotFoundErrorType, failure.Type())
		err = w.update(job.ReplayInput{Actor: "oncall"}).Get(t.Context(), nil)
		require.ErrorContains(t, err, "workflow_id is missing")
	})
}

// repair is a user's workflow that replays a dead letter.
func repair(ctx workflow.Context, in job.ReplayInput) (out job.ReplayOutput, err error) {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue: deadletter.DefaultTaskQueue, StartToCloseTimeout: time.Minute,
	})
	err = workflow.ExecuteActivity(ctx, deadletter.ReplayActivityType, in).Get(ctx, &out)
	return out, err
}

func (w *world) waitOperator() {
	w.t.Helper()
	require.Eventually(w.t, func() bool {
		_, err := w.describe(deadletter.OperatorWorkflowID, "")
		return err == nil
	}, patience, 20*time.Millisecond, "the operator workflow never came up")
}

// update sends an update; the handle's Get returns a rejection too.
func (w *world) update(in job.ReplayInput) client.WorkflowUpdateHandle {
	w.t.Helper()
	handle, err := w.client.UpdateWorkflow(w.t.Context(), client.UpdateWorkflowOptions{
		WorkflowID: deadletter.OperatorWorkflowID, UpdateName: "replay", WaitForStage: client.WorkflowUpdateStageCompleted, Args: []any{in},
	})
	require.NoError(w.t, err)
	return handle
}

// TestOperatorHistory proves that the operator workflow bounds its own history,
// and loses no request on the way to its next run.
func TestOperatorHistory(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	stop := w.startJobs(handlers{"Fail": fail})
	w.startDLQ(nil)
	dead := w.deadJob()
	stop()
	w.waitOperator()
	first, err := w.describe(deadletter.OperatorWorkflowID, "")
	require.NoError(t, err)

	const requests = 900 // each costs several events: more than one run's worth
	for i := range requests {
		in := job.ReplayInput{WorkflowID: dead.GetID(), RequestID: fmt.Sprintf("r-%d", i), Actor: "oncall"}
		require.NoError(t, w.client.SignalWorkflow(t.Context(), deadletter.OperatorWorkflowID, "", "replay", in))
	}
	w.grows(requests, func() int { return w.dead(dead).ResurrectionCount })
	require.Equal(t, requests, w.dead(dead).ResurrectionCount)
	require.Eventually(t, func() bool {
		now, err := w.describe(deadletter.OperatorWorkflowID, "")
		require.NoError(t, err)
		return now.GetWorkflowExecutionInfo().GetExecution().GetRunId() != first.GetWorkflowExecutionInfo().GetExecution().GetRunId()
	}, patience, 100*time.Millisecond, "the operator never started a new run")
	old, err := w.describe(deadletter.OperatorWorkflowID, first.GetWorkflowExecutionInfo().GetExecution().GetRunId())
	require.NoError(t, err)
	require.Equal(t, enumspb.WORKFLOW_EXECUTION_STATUS_CONTINUED_AS_NEW, old.GetWorkflowExecutionInfo().GetStatus())
	require.Less(t, old.GetWorkflowExecutionInfo().GetHistoryLength(), int64(10_000))
}

// TestRefusedReplay proves that a start which the server will never accept takes
// its count back and says why.
func TestRefusedReplay(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.startJobs(handlers{"Fail": fail})
	w.startDLQ(nil)
	dead := w.deadJob()
	broken, err := proto.Marshal(&commonpb.SearchAttributes{IndexedFields: map[string]*commonpb.Payload{
		"NotRegistered": {Metadata: map[string][]byte{"encoding": []byte("json/plain"), "type": []byte("Keyword")}, Data: []byte(`"x"`)},
	}})
	require.NoError(t, err)
	_, err = w.store.Pool().Exec(t.Context(), `update deadletter.dead_letters set search_attributes = $1`, broken)
	require.NoError(t, err)

	for range 2 {
		_, err = w.operator.Replay(t.Context(), operator.ReplayRequest{WorkflowID: dead.GetID(), RequestID: "refused", Actor: "tester"})
		require.ErrorIs(t, err, dlqstore.ErrRefused)
		require.ErrorContains(t, err, "NotRegistered")
		require.Zero(t, w.dead(dead).ResurrectionCount)
	}
	require.Empty(t, w.replaysOf(dead))
}
