package testsuite_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/api/serviceerror"
	taskqueuepb "go.temporal.io/api/taskqueue/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
	"google.golang.org/protobuf/proto"

	"github.com/deadletter-dev/deadletter"
	"github.com/deadletter-dev/deadletter/job"
)

// echoOnce returns a handler that returns its argument once it is mended, and fails before.
func echoOnce(mended *atomic.Bool) func(context.Context, string) (string, error) {
	return func(_ context.Context, text string) (string, error) {
		if !mended.Load() {
			return "", errors.New("boom")
		}
		return text, nil
	}
}

// TestSweptThenDeleted proves that a dead letter which its job or the sweep wrote
// replays when Temporal has forgotten the job, and that a job deleted before any
// sweep leaves nothing and troubles nobody.
func TestSweptThenDeleted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var mended atomic.Bool
	w.startJobs(handlers{"Echo": echoOnce(&mended)})
	w.startDLQ(nil)
	remove := func(runs ...client.WorkflowRun) {
		for _, run := range runs {
			_, err := w.client.WorkflowService().DeleteWorkflowExecution(t.Context(), &workflowservice.DeleteWorkflowExecutionRequest{
				Namespace: w.namespace, WorkflowExecution: &commonpb.WorkflowExecution{WorkflowId: run.GetID(), RunId: run.GetRunID()},
			})
			require.NoError(t, err)
		}
		for _, run := range runs { // it takes the server up to half a minute
			require.Eventually(t, func() bool {
				_, err := w.describe(run.GetID(), run.GetRunID())
				var gone *serviceerror.NotFound
				return errors.As(err, &gone)
			}, patience, 50*time.Millisecond)
		}
	}
	proper := w.enqueue(deadletter.Job{Type: "Echo", Policy: quick(1)}, "kept")
	require.ErrorContains(t, w.wait(proper, nil), "max_retries_exceeded")
	mended.Store(true)
	swept := w.enqueue(deadletter.Job{Type: "Echo", StartDelay: time.Hour}, "kept")
	unseen := w.enqueue(deadletter.Job{Type: "Echo", StartDelay: time.Hour}, "lost")
	w.terminate(swept, "")
	w.terminate(unseen, "")
	remove(proper, unseen)
	w.visible(1)
	require.Equal(t, 1, w.sweep().Moved)
	require.Equal(t, "terminated by testsuite: terminated by user via frontend", w.dead(swept).ErrorMessage)
	remove(swept)
	for _, dead := range []client.WorkflowRun{proper, swept} {
		var result string
		require.NoError(t, w.wait(w.replay(dead, ""), &result))
		require.Equal(t, "kept", result)
	}
	w.noRow(unseen)
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
	options := w.options(plugin)
	options.DataConverter = converter.NewCodecDataConverter(converter.GetDefaultDataConverter(), newEncryption(t))
	encrypted := w.dialWith(options)
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
