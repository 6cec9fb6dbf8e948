package testsuite_test

import (
	"bytes"
	"context"
	"encoding/gob"
	"errors"
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
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
	"google.golang.org/protobuf/proto"

	"github.com/deadletter-dev/deadletter"
	"github.com/deadletter-dev/deadletter/job"
)

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

	_, err = deadletter.Enqueue(t.Context(), w.client, j) // closed, and reuse is refused
	var none *deadletter.NotStartedError
	require.ErrorAs(t, err, &none)
	require.Equal(t, deadletter.NotStartedError{ID: j.ID, RunID: run.GetRunID(), Status: enumspb.WORKFLOW_EXECUTION_STATUS_FAILED}, *none)

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

// TestEnqueueRefuses proves that Enqueue names every fault in one error and starts
// nothing, and that arguments above the server's limit are a clear error.
func TestEnqueueRefuses(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, err := deadletter.Enqueue(t.Context(), w.client, deadletter.Job{
		StartDelay: -time.Second, Policy: deadletter.Policy{BackoffMultiplier: 0.5, MaxAttempts: 1 << 40},
	}, 1, 2, 3, 4, 5, 6, 7, 8, 9)
	require.ErrorIs(t, err, deadletter.ErrInvalidJob)
	for _, fault := range []string{"type: missing", "task_queue: missing", "start_delay", "backoff_multiplier", "max_attempts", "9 arguments"} {
		require.ErrorContains(t, err, fault)
	}
	_, err = deadletter.Enqueue(t.Context(), w.client, deadletter.Job{ID: "too-large", Type: "Any", TaskQueue: w.queue}, make([]byte, 2<<20))
	require.ErrorIs(t, err, deadletter.ErrInvalidJob)
	require.ErrorContains(t, err, "size")
	for _, id := range []string{"tab\t", "nul\x00", "latin\xe9"} {
		_, err = deadletter.Enqueue(t.Context(), w.client, deadletter.Job{ID: id, Type: "Any", TaskQueue: w.queue})
		require.ErrorIs(t, err, deadletter.ErrInvalidJob)
		require.ErrorContains(t, err, "control characters")
	}
	_, err = w.describe("too-large", "")
	require.Error(t, err, "it was started all the same")
}

// TestDuplicateID proves that a running duplicate of a job id is the running job.
func TestDuplicateID(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	release := make(chan struct{})
	w.startJobs(handlers{"Wait": func(context.Context) (string, error) { <-release; return "once", nil }})
	first := w.enqueue(deadletter.Job{ID: "invoice-17", Type: "Wait"})
	second := w.enqueue(deadletter.Job{ID: "invoice-17", Type: "Wait"})
	require.Equal(t, first.GetRunID(), second.GetRunID())
	close(release)
	var result string
	require.NoError(t, w.wait(second, &result))
	require.Equal(t, "once", result)
	fresh := w.enqueue(deadletter.Job{Type: "Wait"})
	require.Regexp(t, `^Wait-[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-`, fresh.GetID(), "the default id is not the type and a UUIDv7")
	require.NoError(t, w.wait(fresh, nil))

	for _, reuse := range []enumspb.WorkflowIdReusePolicy{enumspb.WORKFLOW_ID_REUSE_POLICY_REJECT_DUPLICATE, enumspb.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE_FAILED_ONLY} {
		run, err := deadletter.Enqueue(t.Context(), w.client, deadletter.Job{ID: "invoice-17", Type: "Wait", TaskQueue: w.queue, IDReusePolicy: reuse})
		require.Nil(t, run)
		none, ok := errors.AsType[*deadletter.NotStartedError](err)
		require.True(t, ok, "%v", err)
		require.Equal(t, deadletter.NotStartedError{ID: "invoice-17", RunID: first.GetRunID(), Status: enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED}, *none)
	}
	again := w.enqueue(deadletter.Job{ID: "invoice-17", Type: "Wait"})
	require.NotEqual(t, first.GetRunID(), again.GetRunID(), "the default policy starts a new job")
}

// gobConverter writes everything in Go's own encoding, which no other language reads.
type gobConverter struct{}

func (gobConverter) Encoding() string { return "binary/gob" }

func (c gobConverter) ToPayload(value any) (*commonpb.Payload, error) {
	var data bytes.Buffer
	err := gob.NewEncoder(&data).Encode(value)
	return &commonpb.Payload{Metadata: map[string][]byte{converter.MetadataEncoding: []byte(c.Encoding())}, Data: data.Bytes()}, err
}

func (gobConverter) FromPayload(payload *commonpb.Payload, into any) error {
	return gob.NewDecoder(bytes.NewReader(payload.GetData())).Decode(into)
}

func (gobConverter) ToString(*commonpb.Payload) string { return "gob" }

// gobData is a data converter that was not built from the SDK's, and knows no raw values.
type gobData struct{ gobConverter }

func (c gobData) ToPayloads(values ...any) (*commonpb.Payloads, error) {
	payloads := new(commonpb.Payloads)
	for _, value := range values {
		payload, err := c.ToPayload(value)
		if err != nil {
			return nil, err
		}
		payloads.Payloads = append(payloads.Payloads, payload)
	}
	return payloads, nil
}

func (c gobData) FromPayloads(payloads *commonpb.Payloads, into ...any) error {
	for i, payload := range payloads.GetPayloads() {
		if i == len(into) {
			break
		}
		if err := c.FromPayload(payload, into[i]); err != nil {
			return err
		}
	}
	return nil
}

func (gobData) ToStrings(*commonpb.Payloads) []string { return nil }

// TestOptionsTravelAsJSON proves that a job's options are JSON on the wire whatever data
// converter the client has, with a codec or without, one of its own making included;
// through Enqueue and through a start of the workflow type with the options type; that
// the arguments reach the handler in the client's own encoding; and that such a job
// is dead-lettered and replayed by workers with that converter.
func TestOptionsTravelAsJSON(t *testing.T) {
	t.Parallel()
	gobs := converter.NewCompositeDataConverter(gobConverter{})
	for name, data := range map[string]converter.DataConverter{
		"composite": gobs, "encrypted": converter.NewCodecDataConverter(gobs, newEncryption(t)), "own": gobData{},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			plugin, err := deadletter.NewPlugin(deadletter.Options{Store: w.store})
			require.NoError(t, err)
			options := w.options(plugin)
			options.DataConverter = data
			w.client = w.dialWith(options)
			var repaired atomic.Bool
			jobs := worker.New(w.client, w.queue, worker.Options{})
			jobs.RegisterActivityWithOptions(func(_ context.Context, text string) (string, error) {
				if text == "fails" && !repaired.Load() {
					return "", errors.New("boom")
				}
				return text, nil
			}, activity.RegisterOptions{Name: "Echo"})
			w.start(jobs)
			w.start(worker.New(w.client, deadletter.DefaultTaskQueue, worker.Options{}))
			first := w.enqueue(deadletter.Job{Type: "Echo"}, "hello")
			second := w.bare(client.StartWorkflowOptions{}, job.Options{Type: "Echo"}, "hello")
			for _, run := range []client.WorkflowRun{first, second} {
				var result string
				require.NoError(t, w.wait(run, &result))
				require.Equal(t, "hello", result)
				sent := w.history(run)[0].GetWorkflowExecutionStartedEventAttributes().GetInput().GetPayloads()
				encoding := func(i int) string { return string(sent[i].GetMetadata()[converter.MetadataEncoding]) }
				if name == "encrypted" {
					require.NotEqual(t, converter.MetadataEncodingJSON, encoding(0), "the codec still applies")
				} else {
					require.Equal(t, converter.MetadataEncodingJSON, encoding(0))
					require.Equal(t, "binary/gob", encoding(1))
				}
			}
			dead := w.enqueue(deadletter.Job{Type: "Echo", Policy: quick(1)}, "fails")
			require.ErrorContains(t, w.wait(dead, nil), "max_retries_exceeded")
			require.Equal(t, job.ReasonMaxRetriesExceeded, w.dead(dead).Reason)
			repaired.Store(true)
			var result string
			require.NoError(t, w.wait(w.replay(dead, ""), &result))
			require.Equal(t, "fails", result)
		})
	}
}
