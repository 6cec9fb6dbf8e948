package testsuite_test

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/operatorservice/v1"
	taskqueuepb "go.temporal.io/api/taskqueue/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/deadletter-dev/deadletter"
	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/internal/devstack"
	"github.com/deadletter-dev/deadletter/job"
	"github.com/deadletter-dev/deadletter/operator"
)

// TestPolicyOnTheServer proves that every knob of the policy reaches the server as
// the README's table says: attempts, base delay, multiplier, cap, attempt timeout,
// heartbeat timeout, what is not retried, and the age that is left.
func TestPolicyOnTheServer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.startJobs(handlers{"Fine": func(context.Context) error { return nil }})
	run := w.enqueue(deadletter.Job{Type: "Fine", Policy: deadletter.Policy{
		MaxAttempts: 7, BaseDelay: 2 * time.Second, BackoffMultiplier: 3, MaxDelay: 11 * time.Second, AttemptTimeout: 13 * time.Second,
		HeartbeatTimeout: 5 * time.Second, MaxJobAge: 17 * time.Minute, DeadLetterTimeouts: true,
	}})
	require.NoError(t, w.wait(run, nil))
	scheduled := w.history(run)[4].GetActivityTaskScheduledEventAttributes()
	require.NotNil(t, scheduled)
	retry := scheduled.GetRetryPolicy()
	require.EqualValues(t, 7, retry.GetMaximumAttempts())
	require.Equal(t, 2*time.Second, retry.GetInitialInterval().AsDuration())
	require.InDelta(t, 3, retry.GetBackoffCoefficient(), 0)
	require.Equal(t, 11*time.Second, retry.GetMaximumInterval().AsDuration())
	require.ElementsMatch(t, append(job.FreeErrorTypes(), "TemporalTimeout:Heartbeat", "TemporalTimeout:StartToClose"), retry.GetNonRetryableErrorTypes())
	require.Equal(t, 13*time.Second, scheduled.GetStartToCloseTimeout().AsDuration())
	require.Equal(t, 5*time.Second, scheduled.GetHeartbeatTimeout().AsDuration())
	age := scheduled.GetScheduleToCloseTimeout().AsDuration()
	require.LessOrEqual(t, age, 17*time.Minute)
	require.Greater(t, age, 15*time.Minute)

	bare := w.bare(client.StartWorkflowOptions{}, map[string]any{"type": "Fine"})
	require.NoError(t, w.wait(bare, nil))
	scheduled = w.history(bare)[4].GetActivityTaskScheduledEventAttributes()
	require.EqualValues(t, 3, scheduled.GetRetryPolicy().GetMaximumAttempts())
	require.Equal(t, 3*time.Second, scheduled.GetRetryPolicy().GetInitialInterval().AsDuration())
	require.InDelta(t, 2, scheduled.GetRetryPolicy().GetBackoffCoefficient(), 0)
	require.Equal(t, time.Hour, scheduled.GetRetryPolicy().GetMaximumInterval().AsDuration())
	require.Equal(t, 15*time.Minute, scheduled.GetStartToCloseTimeout().AsDuration())
	require.Zero(t, scheduled.GetHeartbeatTimeout().AsDuration(), "a bare start has no heartbeat timeout")
}

// TestEnqueueOptions proves that what Enqueue takes beside the arguments is on the
// workflow: search attributes, memo, priority and fairness, start delay, summary
// and details, and the reuse policy of the id; and that a replay keeps all of it
// but the delay, the header of another SDK's start included.
func TestEnqueueOptions(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, err := w.client.OperatorService().AddSearchAttributes(t.Context(), &operatorservice.AddSearchAttributesRequest{
		Namespace: w.namespace, SearchAttributes: map[string]enumspb.IndexedValueType{"Tenant": enumspb.INDEXED_VALUE_TYPE_KEYWORD},
	})
	require.NoError(t, err)
	w.startJobs(handlers{"Fail": fail})
	w.startDLQ(nil)
	tenant := temporal.NewSearchAttributeKeyKeyword("Tenant")
	j := deadletter.Job{
		ID: "invoice-" + uuid.NewString(), Type: "Fail", Policy: quick(1), StartDelay: 2 * time.Second,
		Priority:         temporal.Priority{PriorityKey: 1, FairnessKey: "acme", FairnessWeight: 1.5},
		Memo:             map[string]any{"order": 17},
		SearchAttributes: temporal.NewSearchAttributes(tenant.ValueSet("acme")),
		IDReusePolicy:    enumspb.WORKFLOW_ID_REUSE_POLICY_REJECT_DUPLICATE,
	}
	var run client.WorkflowRun
	require.Eventually(t, func() bool { // the new search attribute takes a moment
		j.TaskQueue = w.queue
		run, err = deadletter.Enqueue(t.Context(), w.client, j)
		return err == nil
	}, patience, 200*time.Millisecond)
	require.ErrorContains(t, w.wait(run, nil), "max_retries_exceeded")

	first := w.history(run)[0]
	start := first.GetWorkflowExecutionStartedEventAttributes()
	require.Equal(t, 2*time.Second, start.GetFirstWorkflowTaskBackoff().AsDuration())
	require.Equal(t, `"acme"`, string(start.GetSearchAttributes().GetIndexedFields()["Tenant"].GetData()))
	require.Equal(t, `17`, string(start.GetMemo().GetFields()["order"].GetData()))
	require.True(t, proto.Equal(&commonpb.Priority{PriorityKey: 1, FairnessKey: "acme", FairnessWeight: 1.5}, start.GetPriority()))
	require.Equal(t, `"Job Fail"`, string(first.GetUserMetadata().GetSummary().GetData()))
	require.Contains(t, string(first.GetUserMetadata().GetDetails().GetData()), "At most 1 attempts")

	again, err := deadletter.Enqueue(t.Context(), w.client, j) // closed, and reuse is refused
	if err == nil {
		require.Equal(t, run.GetRunID(), again.GetRunID(), "the reuse policy of the id was ignored")
	}

	header := &commonpb.Header{Fields: map[string]*commonpb.Payload{"trace": {Data: []byte("abc")}}}
	input := &commonpb.Payloads{Payloads: []*commonpb.Payload{
		{Metadata: map[string][]byte{"encoding": []byte("json/plain")}, Data: []byte(`{"type":"Fail","policy":{"max_attempts":1}}`)},
	}}
	started, err := w.client.WorkflowService().StartWorkflowExecution(t.Context(), &workflowservice.StartWorkflowExecutionRequest{
		Namespace: w.namespace, WorkflowId: "foreign", RequestId: uuid.NewString(), WorkflowType: &commonpb.WorkflowType{Name: deadletter.WorkflowType},
		TaskQueue: &taskqueuepb.TaskQueue{Name: w.queue}, Input: input, Header: header, SearchAttributes: start.GetSearchAttributes(),
	})
	require.NoError(t, err)
	foreign := w.client.GetWorkflow(t.Context(), "foreign", started.GetRunId())
	require.Error(t, w.wait(foreign, nil))

	for _, dead := range []client.WorkflowRun{run, foreign} {
		replay := w.replay(dead, "")
		require.Error(t, w.wait(replay, nil))
		before, after := w.history(dead)[0].GetWorkflowExecutionStartedEventAttributes(), w.history(replay)[0].GetWorkflowExecutionStartedEventAttributes()
		require.True(t, proto.Equal(before.GetSearchAttributes(), after.GetSearchAttributes()), "search attributes changed")
		require.True(t, proto.Equal(before.GetHeader(), after.GetHeader()), "the header changed")
		require.Equal(t, before.GetPriority().GetPriorityKey(), after.GetPriority().GetPriorityKey())
		require.Equal(t, before.GetPriority().GetFairnessKey(), after.GetPriority().GetFairnessKey())
		require.Zero(t, after.GetFirstWorkflowTaskBackoff().AsDuration(), "a replay starts at once")
	}
}

// TestReplayIgnoresDelay proves that the age of a replay counts from its own start,
// whatever start delay its original had.
func TestReplayIgnoresDelay(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var calls atomic.Int32
	h := handlers{"Fine": func(context.Context) error { calls.Add(1); return nil }}
	stop := w.startJobs(h)
	w.startDLQ(nil)
	policy := deadletter.Policy{MaxJobAge: 4 * time.Second}
	delayed := w.cancelled(deadletter.Job{Type: "Fine", Policy: policy, StartDelay: time.Hour}, func(client.WorkflowRun) {})
	require.Error(t, w.wait(delayed, nil))
	require.Equal(t, job.ReasonCancelled, w.dead(delayed).Reason)
	stop()

	again := w.replay(delayed, "")
	started := time.Now()
	require.Eventually(t, func() bool { return time.Since(started) > policy.MaxJobAge+time.Second }, patience, 50*time.Millisecond)
	w.startJobs(h)
	require.ErrorContains(t, w.wait(again, nil), "retry_lifetime_expired after 0 attempts")
	require.Zero(t, calls.Load())
}

// TestEveryDyingJobIsSeen proves, for jobs that are all alive when the watch
// begins, what TestStatsWhileDying proves for the last of them.
func TestEveryDyingJobIsSeen(t *testing.T) {
	t.Parallel()
	const jobs, watched = 200, 8
	w := newWorld(t)
	w.startJobs(handlers{"Fail": fail})
	runs := make([]client.WorkflowRun, jobs)
	for i := range runs {
		runs[i] = w.enqueue(deadletter.Job{Type: "Fail", Policy: quick(1)})
	}
	ctx, done := context.WithCancel(t.Context())
	defer done()
	var alive, dead [watched]atomic.Int32
	var watchers sync.WaitGroup
	for i := range watched {
		run := runs[i*jobs/watched]
		watchers.Go(func() {
			for ctx.Err() == nil {
				shown, err := w.operator.Show(ctx, run.GetID(), "")
				switch {
				case ctx.Err() != nil:
					return
				case err != nil:
					t.Errorf("show: %v", err)
					return
				case (shown.Status == nil) == (shown.DeadLetter == nil):
					t.Errorf("job %s: status %v, dead letter %v, closed as %q", run.GetID(), shown.Status, shown.DeadLetter, shown.ClosedAs)
				case shown.Status != nil && dead[i].Load() > 0:
					t.Errorf("job %s came back to life", run.GetID())
				case shown.Status != nil:
					alive[i].Add(1)
				default:
					dead[i].Add(1)
				}
			}
		})
	}
	watchers.Go(func() { w.watchStats(ctx) })
	require.Eventually(t, func() bool {
		for i := range alive {
			if alive[i].Load() == 0 {
				return false
			}
		}
		return true
	}, patience, 5*time.Millisecond)
	w.startDLQ(nil) // only now can any job die
	for _, run := range runs {
		require.Error(t, w.wait(run, nil))
	}
	require.Eventually(t, func() bool {
		for i := range dead {
			if dead[i].Load() == 0 {
				return false
			}
		}
		return true
	}, patience, 5*time.Millisecond)
	done()
	watchers.Wait()
	require.EqualValues(t, jobs, w.count())
}

// TestLargeArguments proves that 1.9 MiB of arguments, as text and as bytes, are
// dead-lettered and replayed, byte for byte.
func TestLargeArguments(t *testing.T) {
	t.Parallel()
	const size = 19 << 20 / 10
	w := newWorld(t)
	w.startJobs(handlers{"Fail": fail})
	w.startDLQ(nil)
	for name, arg := range map[string]any{"text": strings.Repeat("x", size), "bytes": make([]byte, size)} {
		t.Run(name, func(t *testing.T) {
			run := w.enqueue(deadletter.Job{Type: "Fail", Policy: quick(2), Tags: map[string]string{"t": strings.Repeat("y", 8<<10)}}, arg)
			require.ErrorContains(t, w.wait(run, nil), "max_retries_exceeded")
			again := w.replay(run, "")
			require.ErrorContains(t, w.wait(again, nil), "max_retries_exceeded")
			first, last := w.history(run)[0].GetWorkflowExecutionStartedEventAttributes(), w.history(again)[0].GetWorkflowExecutionStartedEventAttributes()
			require.True(t, proto.Equal(first.GetInput(), last.GetInput()))
			require.Equal(t, w.dead(run).Payloads, w.dead(again).Payloads)
			require.Greater(t, len(w.dead(run).Payloads), size)
		})
	}
}

// TestErrorType proves that a dead letter has the type of the last error, also of
// one that is wrapped, and the errors of the attempts that the history holds.
func TestErrorType(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var calls atomic.Int32
	w.startJobs(handlers{
		"Typed": func(context.Context) error {
			return temporal.NewApplicationError(fmt.Sprint("try ", calls.Add(1)), "SMTPError")
		},
		"Wrapped": func(context.Context) error {
			return fmt.Errorf("send: %w", temporal.NewApplicationError("550", "SMTPError"))
		},
	})
	w.startDLQ(nil)
	typed := w.enqueue(deadletter.Job{Type: "Typed", Policy: quick(3)})
	require.Error(t, w.wait(typed, nil))
	dl := w.dead(typed)
	require.Equal(t, "SMTPError", dl.ErrorType)
	require.Equal(t, "try 3", dl.ErrorMessage)
	attempts, err := w.store.Attempts(t.Context(), dl.Key)
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(attempts), 2)
	for _, attempt := range attempts {
		require.Equal(t, "SMTPError", attempt.ErrorType)
		require.Equal(t, fmt.Sprint("try ", attempt.Attempt), attempt.ErrorMessage)
	}
	wrapped := w.enqueue(deadletter.Job{Type: "Wrapped", Policy: quick(1)})
	require.Error(t, w.wait(wrapped, nil))
	require.Equal(t, "SMTPError", w.dead(wrapped).ErrorType)

	require.NotEqual(t, dl.Fingerprint, w.dead(wrapped).Fingerprint, "two causes, one fingerprint")
	other := w.enqueue(deadletter.Job{Type: "Typed", Policy: quick(1)})
	require.Error(t, w.wait(other, nil))
	require.Equal(t, dl.Fingerprint, w.dead(other).Fingerprint, "one cause, two fingerprints")
}

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

// TestLongHistory proves that the move finds the job's input and failure also in a
// history of several pages.
func TestLongHistory(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	hold := make(chan struct{})
	w.startJobs(handlers{"Wait": func(context.Context) error { <-hold; return errors.New("at last") }})
	w.startDLQ(nil)
	run := w.enqueue(deadletter.Job{Type: "Wait", Policy: quick(1)}, "argument")
	w.pendingIn(enumspb.PENDING_ACTIVITY_STATE_STARTED)(run)
	for range 1200 { // the job ignores them; the history holds them
		require.NoError(t, w.client.SignalWorkflow(t.Context(), run.GetID(), "", "noise", strings.Repeat("z", 1000)))
	}
	close(hold)
	require.ErrorContains(t, w.wait(run, nil), "max_retries_exceeded after 1 attempts: at last")
	dl := w.dead(run)
	require.JSONEq(t, `["argument"]`, string(dl.PayloadJSON))
	require.Equal(t, "at last", dl.ErrorMessage)
	require.Equal(t, 1, *dl.Attempts)
}

// TestAgeLeft proves that the handler gets what is left of the job's age, counted
// from when the job was due, to the millisecond: the waiting before the first task
// is taken off, and a start delay is not. It holds on a machine of any speed.
func TestAgeLeft(t *testing.T) {
	t.Parallel()
	const age = 10 * time.Minute
	w := newWorld(t)
	policy := deadletter.Policy{MaxJobAge: age}
	plain := w.enqueue(deadletter.Job{Type: "Fine", Policy: policy})
	delayed := w.enqueue(deadletter.Job{Type: "Fine", Policy: policy, StartDelay: 3 * time.Second})
	enqueued := time.Now()
	require.Eventually(t, func() bool { return time.Since(enqueued) > 2*time.Second }, patience, 50*time.Millisecond)
	w.startJobs(handlers{"Fine": func(context.Context) error { return nil }})
	for run, delay := range map[client.WorkflowRun]time.Duration{plain: 0, delayed: 3 * time.Second} {
		require.NoError(t, w.wait(run, nil))
		var firstTask time.Time
		for _, event := range w.history(run) {
			switch event.GetEventType() {
			case enumspb.EVENT_TYPE_WORKFLOW_TASK_STARTED:
				firstTask = event.GetEventTime().AsTime()
			case enumspb.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
				due := w.history(run)[0].GetEventTime().AsTime().Add(delay)
				left := event.GetActivityTaskScheduledEventAttributes().GetScheduleToCloseTimeout().AsDuration()
				require.InDelta(t, float64(age-firstTask.Sub(due)), float64(left), float64(100*time.Millisecond))
			default:
			}
		}
	}
}

// TestShowOrder proves that a look at a job is never neither live nor dead, at the
// two moments where it could be: the job dies whole right before, and right after,
// Temporal is asked.
func TestShowOrder(t *testing.T) {
	t.Parallel()
	const method = "DescribeWorkflowExecution"
	for name, hooked := range map[string]func(string, func() error) []grpc.DialOption{"before": beforeCall, "after": afterCall} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.startJobs(handlers{"Fail": fail})
			run := w.enqueue(deadletter.Job{Type: "Fail", Policy: quick(1)})
			require.Eventually(t, func() bool { return w.pendingMove(run) != nil }, patience, 10*time.Millisecond)
			var once sync.Once
			die := func() error {
				once.Do(func() {
					w.startDLQ(nil)
					_ = w.wait(run, nil)
				})
				return nil
			}
			c, err := client.Dial(client.Options{
				HostPort: w.address, Namespace: w.namespace, Logger: quiet(),
				ConnectionOptions: client.ConnectionOptions{DialOptions: hooked(method, die)},
			})
			require.NoError(t, err)
			t.Cleanup(c.Close)
			verbs, err := operator.New(operator.Config{Store: w.store, Client: c, Namespace: w.namespace})
			require.NoError(t, err)
			ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
			defer cancel()
			shown, err := verbs.Show(ctx, run.GetID(), "")
			require.NoError(t, err)
			require.Nil(t, shown.Status)
			require.NotNil(t, shown.DeadLetter)
		})
	}
}
