package testsuite_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	taskqueuepb "go.temporal.io/api/taskqueue/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/worker"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/deadletter-dev/deadletter"
	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/job"
	"github.com/deadletter-dev/deadletter/operator"
)

// TestForeignIDs proves that a job whose id is not ASCII, which other languages may
// start, runs, dies, is shown, replayed and purged as any other, and that a terminated
// one is swept; and that a client without the plugin is told what it lacks, also by Enqueue.
func TestForeignIDs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var mended atomic.Bool
	w.startJobs(handlers{"Echo": echoOnce(&mended)})
	w.startDLQ(nil)
	plugin, err := deadletter.NewPlugin(deadletter.Options{})
	require.NoError(t, err)
	able := w.dial(plugin)
	op, err := operator.New(operator.Config{Store: w.store, Client: able, Namespace: w.namespace})
	require.NoError(t, err)

	conn, err := grpc.NewClient(w.address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	service := workflowservice.NewWorkflowServiceClient(conn)
	// start does it as another language's client would.
	start := func(id, queue string) client.WorkflowRun {
		input, err := converter.GetDefaultDataConverter().ToPayloads(job.Options{Type: "Echo", TaskQueue: queue, Policy: quick(2)}, "kept")
		require.NoError(t, err)
		started, err := service.StartWorkflowExecution(t.Context(), &workflowservice.StartWorkflowExecutionRequest{
			Namespace: w.namespace, WorkflowId: id, RequestId: uuid.NewString(), WorkflowType: &commonpb.WorkflowType{Name: job.WorkflowType},
			TaskQueue: &taskqueuepb.TaskQueue{Name: w.queue}, Input: input,
		})
		require.NoError(t, err)
		return able.GetWorkflow(t.Context(), id, started.GetRunId())
	}

	dead := start("заказ-日本-1", w.queue)
	require.ErrorContains(t, w.wait(dead, nil), "max_retries_exceeded")
	dl := w.dead(dead)
	require.Equal(t, job.ReasonMaxRetriesExceeded, dl.Reason)
	require.Equal(t, 2, *dl.Attempts)
	shown, err := op.Show(t.Context(), dead.GetID(), "")
	require.NoError(t, err)
	require.NotNil(t, shown.DeadLetter)

	mended.Store(true)
	replayed, err := op.Replay(t.Context(), operator.ReplayRequest{WorkflowID: dead.GetID(), Actor: "tester"})
	require.NoError(t, err)
	var echoed string
	require.NoError(t, w.wait(able.GetWorkflow(t.Context(), replayed.WorkflowID, replayed.RunID), &echoed))
	require.Equal(t, "kept", echoed)
	enqueued, err := deadletter.Enqueue(t.Context(), able, deadletter.Job{ID: "ünï-2", Type: "Echo", TaskQueue: w.queue}, "from Go")
	require.NoError(t, err)
	require.NoError(t, w.wait(able.GetWorkflow(t.Context(), enqueued.GetID(), enqueued.GetRunID()), &echoed))
	require.Equal(t, "from Go", echoed)
	_, err = deadletter.Enqueue(t.Context(), w.client, deadletter.Job{ID: "ünï-3", Type: "Echo", TaskQueue: w.queue}, "")
	require.ErrorContains(t, err, "client.Options.Plugins")
	_, err = able.DescribeWorkflow(t.Context(), "ünï-3", "")
	require.ErrorContains(t, err, "not found")

	terminated := start("заказ\t3", "nobody")
	w.pendingWith(op, terminated, "queued")
	_, err = service.TerminateWorkflowExecution(t.Context(), &workflowservice.TerminateWorkflowExecutionRequest{
		Namespace: w.namespace, WorkflowExecution: &commonpb.WorkflowExecution{WorkflowId: terminated.GetID()},
	})
	require.NoError(t, err)
	w.visible(2)
	state := w.sweep()
	require.Equal(t, 1, state.Moved)
	require.Zero(t, state.Left, state.LastError)
	require.Equal(t, job.ReasonTerminated, w.dead(terminated).Reason)
	require.WithinDuration(t, state.Until, w.watermark(), time.Microsecond)
	require.NoError(t, w.store.Purge(t.Context(), w.key(terminated), "tester"))
	_, err = w.store.Get(t.Context(), w.key(terminated))
	require.ErrorIs(t, err, dlqstore.ErrNotFound)

	_, err = w.operator.Show(t.Context(), dead.GetID(), "")
	require.ErrorContains(t, err, "client.Options.Plugins")
}

// pendingWith waits until the operator shows the job with a status.
func (w *world) pendingWith(op *operator.Operator, run client.WorkflowRun, status job.Status) {
	w.t.Helper()
	require.Eventually(w.t, func() bool {
		shown, err := op.Show(w.t.Context(), run.GetID(), "")
		return err == nil && shown.Status != nil && *shown.Status == status
	}, patience, 20*time.Millisecond)
}

// TestForeignIDOfWorkerWithoutClient proves that a job whose worker cannot name it says
// so, since the plugin is the worker's alone and not its client's.
func TestForeignIDOfWorkerWithoutClient(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	plugin, err := deadletter.NewPlugin(deadletter.Options{})
	require.NoError(t, err)
	able := w.dial(plugin)
	op, err := operator.New(operator.Config{Store: w.store, Client: able, Namespace: w.namespace})
	require.NoError(t, err)
	w.start(worker.New(w.client, w.queue, worker.Options{Plugins: []worker.Plugin{plugin}}))
	run, err := able.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: "заказ-4", TaskQueue: w.queue}, job.WorkflowType, job.Options{Type: "Any"})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		shown, err := op.Show(t.Context(), run.GetID(), "")
		return err == nil && strings.Contains(shown.Trouble, "not printable ASCII")
	}, patience, 100*time.Millisecond)
}
