package testsuite_test

import (
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
)

// reset starts a job's workflow anew from its first task, as a person does in the
// Temporal UI.
func (w *world) reset(run client.WorkflowRun) client.WorkflowRun {
	w.t.Helper()
	var first int64
	for _, event := range w.history(run) {
		if event.GetEventType() == enumspb.EVENT_TYPE_WORKFLOW_TASK_COMPLETED {
			first = event.GetEventId()
			break
		}
	}
	response, err := w.client.WorkflowService().ResetWorkflowExecution(w.t.Context(), &workflowservice.ResetWorkflowExecutionRequest{
		Namespace:                 w.namespace,
		WorkflowExecution:         &commonpb.WorkflowExecution{WorkflowId: run.GetID(), RunId: run.GetRunID()},
		Reason:                    "test",
		WorkflowTaskFinishEventId: first,
		RequestId:                 uuid.NewString(),
	})
	require.NoError(w.t, err)
	return w.client.GetWorkflow(w.t.Context(), run.GetID(), response.GetRunId())
}
