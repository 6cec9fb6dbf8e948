package testsuite_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/deadletter-dev/deadletter"
	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/job"
	"github.com/deadletter-dev/deadletter/operator"
)

// TestHostileStarts proves that what anybody can put into a start, and the server
// takes, ends as a dead letter and a closed workflow.
func TestHostileStarts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.startJobs(handlers{"Fail": fail})
	w.startDLQ(nil)
	one := map[string]any{"type": "Fail", "policy": map[string]any{"max_attempts": 1}}
	lineage := func(value any) client.StartWorkflowOptions {
		return client.StartWorkflowOptions{Memo: map[string]any{job.LineageMemoKey: value}}
	}
	for name, c := range map[string]struct {
		options client.StartWorkflowOptions
		args    []any
	}{
		"a refusal that quotes half a rune": {args: []any{strings.Repeat("я", 100)}},
		"a queue of the server's own":       {args: []any{map[string]any{"type": "Fail", "task_queue": "/_sys/foo"}}},
		"an activity of our own":            {args: []any{map[string]any{"type": job.MoveActivityType}}},
		"a weight that is no number":        {client.StartWorkflowOptions{Priority: temporal.Priority{FairnessWeight: float32(math.Inf(1))}}, []any{one}},
		"a forged lineage, huge":            {lineage(map[string]any{"actor": strings.Repeat("<", 200_000)}), []any{one}},
		"a forged lineage, absurd":          {lineage(map[string]any{"generation": -7, "replayed_from_workflow_id": "\x00"}), []any{one}},
		"a lineage of another kind":         {lineage([]int{1}), []any{one}},
		"large tags":                        {args: []any{map[string]any{"type": "Fail", "tags": map[string]string{"k": strings.Repeat("<", 300_000)}}}},
		"a large type":                      {args: []any{map[string]any{"type": strings.Repeat("t", 1_500_000)}}},
	} {
		t.Run(name, func(t *testing.T) {
			run := w.bare(c.options, c.args...)
			require.ErrorContains(t, w.wait(run, nil), "dead-lettered: ")
			w.dead(run)
		})
	}
	_, err := deadletter.Enqueue(t.Context(), w.client, deadletter.Job{
		ID: "ключ\n", Type: job.MoveActivityType, TaskQueue: "/_sys/foo", Priority: temporal.Priority{FairnessWeight: float32(math.NaN())},
	})
	for _, fault := range []string{"id: ", "is not a handler", "task_queue: ", "fairness weight"} {
		require.ErrorContains(t, err, fault)
	}
}

// TestForeignID proves that an id which another workflow holds is an error, not a
// job that seems to have been accepted.
func TestForeignID(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, err := w.client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: "order-1", TaskQueue: "elsewhere"}, "Order")
	require.NoError(t, err)
	for id, says := range map[string]string{"order-1": "a workflow of type Order has it", deadletter.OperatorWorkflowID: "the operator workflow's"} {
		_, err = deadletter.Enqueue(t.Context(), w.client, deadletter.Job{ID: id, Type: "Fail", TaskQueue: w.queue})
		require.ErrorIs(t, err, deadletter.ErrInvalidJob)
		require.ErrorContains(t, err, says)
	}
}

// TestForgedMove proves that only a job can move itself.
func TestForgedMove(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.startDLQ(nil)
	mine := worker.New(w.client, "mine", worker.Options{})
	mine.RegisterWorkflowWithOptions(func(ctx workflow.Context) error {
		ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{TaskQueue: deadletter.DefaultTaskQueue, StartToCloseTimeout: time.Minute})
		return workflow.ExecuteActivity(ctx, job.MoveActivityType, job.MoveInput{Reason: job.ReasonZombie}).Get(ctx, nil)
	}, workflow.RegisterOptions{Name: "Mine"})
	w.start(mine)
	run, err := w.client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{TaskQueue: "mine"}, "Mine")
	require.NoError(t, err)
	require.ErrorContains(t, w.wait(run, nil), "only a job moves itself")
	require.Zero(t, w.count())
}

// TestMoveCompletedByHand proves that a person who completes the pending move
// through the API cannot make a dead job close without its dead letter.
func TestMoveCompletedByHand(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.startJobs(handlers{"Fail": fail})
	run := w.enqueue(deadletter.Job{Type: "Fail", Policy: quick(1)})
	require.Eventually(t, func() bool { return w.pendingMove(run) != nil }, patience, 20*time.Millisecond)
	id := w.pendingMove(run).GetActivityId()
	require.NoError(t, w.client.CompleteActivityByID(t.Context(), w.namespace, run.GetID(), run.GetRunID(), id, nil, nil))
	w.startDLQ(nil)
	require.ErrorContains(t, w.wait(run, nil), "dead-lettered")
	w.dead(run)
}

// TestHookEndsTransaction proves that a hook which ends the transaction by SQL is
// found out: the move is tried again, and nothing is lost.
func TestHookEndsTransaction(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.startJobs(handlers{"Fail": fail})
	var calls atomic.Int32
	w.startDLQ(func(ctx context.Context, tx pgx.Tx, _ *dlqstore.DeadLetter) error {
		switch calls.Add(1) {
		case 1:
			_, err := tx.Exec(ctx, "rollback")
			return err
		case 2:
			panic("in the hook")
		default:
			return nil
		}
	})
	run := w.enqueue(deadletter.Job{Type: "Fail", Policy: quick(1)})
	require.ErrorContains(t, w.wait(run, nil), "dead-lettered")
	require.EqualValues(t, 3, calls.Load())
	w.movedOnce(run)
}

// brokenOnce is a codec whose key service fails once for one payload.
type brokenOnce struct {
	data  string
	times atomic.Int32
}

func (c *brokenOnce) Encode(payloads []*commonpb.Payload) ([]*commonpb.Payload, error) {
	return payloads, nil
}

func (c *brokenOnce) Decode(payloads []*commonpb.Payload) ([]*commonpb.Payload, error) {
	for _, p := range payloads {
		if string(p.GetData()) == c.data && c.times.Add(1) == 1 {
			return nil, errors.New("the key service is down")
		}
	}
	return payloads, nil
}

// TestResultNotReadable proves that a handler which has succeeded is not taken for
// a failed one because the job's worker could not decode its result for a moment.
func TestResultNotReadable(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.startDLQ(nil)
	codec := &brokenOnce{data: `"result"`}
	plugin, err := deadletter.NewPlugin(deadletter.Options{})
	require.NoError(t, err)
	options := w.options(plugin)
	options.DataConverter = converter.NewCodecDataConverter(converter.GetDefaultDataConverter(), codec)
	c := w.dialWith(options)
	var calls atomic.Int32
	jobs := worker.New(c, w.queue, worker.Options{})
	jobs.RegisterActivityWithOptions(func(context.Context) (string, error) { calls.Add(1); return "result", nil }, activity.RegisterOptions{Name: "Ok"})
	w.start(jobs)
	require.NoError(t, w.wait(w.enqueue(deadletter.Job{Type: "Ok", Policy: quick(2)}), nil))
	require.Positive(t, codec.times.Load(), "nothing was broken")
	require.EqualValues(t, 1, calls.Load())
	require.Zero(t, w.count())
}

// hiding is an error whose text says nothing of what it wraps.
type hiding struct{ inside error }

func (hiding) Error() string   { return "hidden" }
func (h hiding) Unwrap() error { return h.inside }

// panics is an error whose text cannot be had.
type panics struct{}

func (panics) Error() string { panic("in Error") }

// TestUnsendableErrors proves that an error which the wire would refuse, in any of
// its parts, is an ordinary failure: retried, and dead-lettered for its budget.
func TestUnsendableErrors(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	huge := strings.Repeat("z", 3<<20)
	h := handlers{}
	for name, err := range map[string]error{
		"BadType":     temporal.NewApplicationError("m", "T\xff"),
		"BadCause":    hiding{errors.New("bad \xff")},
		"BadJoined":   errors.Join(errors.New("x\xff"), temporal.NewCanceledError()),
		"Details":     temporal.NewApplicationError("m", "T", make(chan int)),
		"PanicCause":  hiding{panics{}},
		"Panics":      panics{},
		"Timeout":     temporal.NewTimeoutError(1, nil),
		"HugeType":    temporal.NewApplicationError("m", huge),
		"HugeCause":   hiding{errors.New(huge)},
		"HugeDetails": temporal.NewApplicationError("m", "T", huge),
	} {
		h[name] = func(context.Context) error { return err }
	}
	w.startJobs(h)
	w.startDLQ(nil)
	runs := map[string]client.WorkflowRun{}
	for name := range h {
		runs[name] = w.enqueue(deadletter.Job{Type: name, Policy: quick(2)})
	}
	for name, run := range runs {
		require.ErrorContains(t, w.wait(run, nil), "dead-lettered: max_retries_exceeded after 2 attempts", name)
		require.Len(t, w.attempts(t, run), 2, name)
	}
}

// TestChangingHeartbeat proves that a handler may go on changing what it has
// recorded as its heartbeat: what was recorded is what the next attempt sees, and
// nothing crashes the worker.
func TestChangingHeartbeat(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	type progress struct{ Done map[string]int }
	var seen atomic.Int32
	w.startJobs(handlers{"Map": func(ctx context.Context) error {
		if activity.HasHeartbeatDetails(ctx) {
			var left progress
			if err := activity.GetHeartbeatDetails(ctx, &left); err != nil {
				return deadletter.Fatal(err)
			}
			seen.Store(int32(left.Done["items"]))
			return nil
		}
		done := &progress{Done: map[string]int{"items": 1}}
		activity.RecordHeartbeat(ctx, done)
		// Long enough for the plugin to repeat the heartbeat, and shorter than its
		// timeout. A loop that keeps a core busy may make it miss that all the same; the
		// next attempt sees the same then.
		for end := time.Now().Add(5 * time.Second); time.Now().Before(end); {
			done.Done["items"]++
		}
		return errors.New("after the changes")
	}})
	policy := quick(2)
	policy.HeartbeatTimeout, policy.RetryZombies = 8*time.Second, true
	require.NoError(t, w.wait(w.enqueue(deadletter.Job{Type: "Map", Policy: policy}), nil))
	require.EqualValues(t, 1, seen.Load())
}

// TestRepeatedRequest proves that a request id means the same job even when the
// dead letter is purged, or another run of its id has died, in between.
func TestRepeatedRequest(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.startJobs(handlers{"Fail": fail})
	w.startDLQ(nil)
	enqueue := func() client.WorkflowRun {
		run := w.enqueue(deadletter.Job{ID: "same", Type: "Fail", Policy: quick(1)})
		require.Error(t, w.wait(run, nil))
		return run
	}
	first := enqueue()
	ask := func() string {
		out, err := w.operator.Replay(t.Context(), operator.ReplayRequest{WorkflowID: "same", RequestID: "ticket", Actor: "tester"})
		require.NoError(t, err)
		return out.WorkflowID
	}
	id := ask()
	enqueue()
	require.Equal(t, id, ask(), "another run of the id died")
	_, err := w.operator.Purge(t.Context(), "same", first.GetRunID(), "tester")
	require.NoError(t, err)
	require.Equal(t, id, ask(), "the dead letter was purged")
}
