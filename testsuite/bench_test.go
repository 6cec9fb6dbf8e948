package testsuite_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/deadletter-dev/deadletter"
	"github.com/deadletter-dev/deadletter/internal/devstack/devtest"
)

// BenchmarkJob measures jobs that succeed against bare workflows with one
// activity, in turns on the same server and worker. Metrics: time-ratio is the
// time of a job over that of a bare workflow, extra-events the difference in
// history events.
func BenchmarkJob(b *testing.B) {
	address, namespace := devtest.Temporal(b)
	plugin, err := deadletter.NewPlugin(deadletter.Options{})
	require.NoError(b, err)
	c, err := client.Dial(clientOptions(address, namespace, plugin))
	require.NoError(b, err)
	defer c.Close()
	w := worker.New(c, "bench", worker.Options{})
	w.RegisterActivityWithOptions(func(_ context.Context, in string) (string, error) { return in, nil }, activity.RegisterOptions{Name: "Echo"})
	w.RegisterWorkflowWithOptions(bare, workflow.RegisterOptions{Name: "Bare"})
	require.NoError(b, w.Start())
	defer w.Stop()

	startBare := func() (client.WorkflowRun, error) {
		return c.ExecuteWorkflow(b.Context(), client.StartWorkflowOptions{TaskQueue: "bench"}, "Bare", "payload")
	}
	startJob := func() (client.WorkflowRun, error) {
		return deadletter.Enqueue(b.Context(), c, deadletter.Job{Type: "Echo", TaskQueue: "bench"}, "payload")
	}
	const batch = 20 // at once
	runBatch(b, batch, startBare)
	runBatch(b, batch, startJob)

	var bareTime, jobTime time.Duration
	var bareRun, jobRun client.WorkflowRun
	for b.Loop() {
		var took time.Duration
		bareRun, took = runBatch(b, batch, startBare)
		bareTime += took
		jobRun, took = runBatch(b, batch, startJob)
		jobTime += took
	}
	b.ReportMetric(float64(jobTime)/float64(bareTime), "time-ratio")
	b.ReportMetric(float64(events(b, c, jobRun)-events(b, c, bareRun)), "extra-events")
}

func bare(ctx workflow.Context, in string) (out string, err error) {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{StartToCloseTimeout: time.Minute})
	err = workflow.ExecuteActivity(ctx, "Echo", in).Get(ctx, &out)
	return out, err
}

// runBatch starts n at once, waits for all, and returns one of them.
func runBatch(b *testing.B, n int, start func() (client.WorkflowRun, error)) (client.WorkflowRun, time.Duration) {
	b.Helper()
	began := time.Now()
	runs := make([]client.WorkflowRun, n)
	errs := make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			if runs[i], errs[i] = start(); errs[i] == nil {
				errs[i] = runs[i].Get(b.Context(), nil)
			}
		})
	}
	all.Wait()
	for _, err := range errs {
		require.NoError(b, err)
	}
	return runs[0], time.Since(began)
}

func events(b *testing.B, c client.Client, run client.WorkflowRun) (n int) {
	b.Helper()
	pages := c.GetWorkflowHistory(b.Context(), run.GetID(), run.GetRunID(), false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for pages.HasNext() {
		_, err := pages.Next()
		require.NoError(b, err)
		n++
	}
	return n
}
