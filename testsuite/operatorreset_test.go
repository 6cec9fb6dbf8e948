package testsuite_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"

	"github.com/deadletter-dev/deadletter"
	"github.com/deadletter-dev/deadletter/job"
)

// TestOperatorReset proves that a reset of the operator workflow, whose signals then
// run again, repeats no replay, neither one with a request id nor one without,
// whatever malformed signals lie between them; and that a signal which comes after
// it is not taken for one of those.
func TestOperatorReset(t *testing.T) {
	t.Parallel()
	const rounds = 3
	w := newWorld(t)
	stop := w.startJobs(handlers{"Fail": fail})
	w.startDLQ(nil)
	dead := w.deadJob()
	stop() // the replays' own jobs are of no interest
	w.waitOperator()
	signal := func(input any) {
		require.NoError(t, w.client.SignalWorkflow(t.Context(), deadletter.OperatorWorkflowID, "", job.ReplayMessage, input))
	}
	for round := range rounds {
		for _, malformed := range []any{"replay it", 7, []string{dead.GetID()}, []byte{0xff}, map[string]any{"workflow_id": 17}} {
			signal(malformed)
		}
		signal(job.ReplayInput{WorkflowID: dead.GetID()})
		signal(nil) // decodes, and names no dead letter
		signal(job.ReplayInput{WorkflowID: dead.GetID(), RequestID: fmt.Sprint("ticket-", round)})
	}
	want := 2 * rounds
	requests := 8 * rounds // each of them, if only to be refused
	description, err := w.describe(deadletter.OperatorWorkflowID, "")
	require.NoError(t, err)
	run := w.client.GetWorkflow(t.Context(), deadletter.OperatorWorkflowID, description.GetWorkflowExecutionInfo().GetExecution().GetRunId())
	w.answered(run, requests)
	require.Equal(t, want, w.dead(dead).ResurrectionCount)

	for range 2 { // the second time of the run that the first one made
		run = w.resetToStart(run)
		w.answered(run, requests)
		require.Equal(t, want, w.dead(dead).ResurrectionCount, "a reset repeated a replay")

		signal(job.ReplayInput{WorkflowID: dead.GetID()})
		want, requests = want+1, requests+1
		w.answered(run, requests)
		require.Equal(t, want, w.dead(dead).ResurrectionCount, "a new request was taken for an old one")
	}
	require.Len(t, w.replaysOf(dead), want)
}

// answered waits until a run has ended so many activities.
func (w *world) answered(run client.WorkflowRun, want int) {
	w.t.Helper()
	ended := 0
	require.Eventually(w.t, func() bool {
		ended = 0
		for _, event := range w.history(run) {
			switch event.GetEventType() {
			case enumspb.EVENT_TYPE_ACTIVITY_TASK_COMPLETED, enumspb.EVENT_TYPE_ACTIVITY_TASK_FAILED:
				ended++
			default:
			}
		}
		return ended >= want
	}, patience, 50*time.Millisecond)
	require.Equal(w.t, want, ended)
}
