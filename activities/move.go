package activities

import (
	"context"
	"fmt"

	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"

	"github.com/deadletter-dev/deadletter/job"
)

// runtimeActor is the actor of what no person did.
const runtimeActor = "deadletter"

// Move is the terminal activity of a dying job: it reads the job's end from the
// job's own history and writes the dead letter, in one transaction, once. It
// may run any number of times. For a job all its errors are retryable: one
// whose dead letter cannot be written waits.
func (a *Activities) Move(ctx context.Context, in job.MoveInput) error {
	info := activity.GetInfo(ctx)
	if info.WorkflowType == nil || info.WorkflowType.Name != job.WorkflowType {
		return temporal.NewNonRetryableApplicationError("only a job moves itself to the dead letters", job.RefusedErrorType, nil)
	}
	execution := &commonpb.WorkflowExecution{WorkflowId: info.WorkflowExecution.ID, RunId: info.WorkflowExecution.RunID}
	service := a.client(ctx, info).WorkflowService()

	t, err := readTrail(ctx, service, info.Namespace, execution, in.ScheduledEventID)
	if err != nil {
		return err
	}
	dl, attempts, err := certify(in, t)
	if err != nil {
		return err
	}
	dl.Namespace, dl.WorkflowID, dl.RunID = info.Namespace, execution.GetWorkflowId(), execution.GetRunId()
	// When the workflow decided, not when Postgres came round to it.
	dl.DeadAt = info.ScheduledTime
	if _, err := a.Store.Move(ctx, dl, numbered(attempts, dl.Attempts), runtimeActor, a.MoveTx); err != nil {
		return err
	}
	return completePlain(ctx, service, info, job.MoveResult{Moved: true, Attempts: dl.Attempts})
}

// completePlain completes the running activity with a result in plain JSON. A
// returned result would go through this client's codec, which the job's
// workflow may not have.
func completePlain(ctx context.Context, service workflowservice.WorkflowServiceClient, info activity.Info, result any) error {
	payloads, err := converter.GetDefaultDataConverter().ToPayloads(result)
	if err != nil {
		return fmt.Errorf("activities: encode the result of %s: %w", info.ActivityType.Name, err)
	}
	_, err = service.RespondActivityTaskCompleted(ctx, &workflowservice.RespondActivityTaskCompletedRequest{
		Namespace: info.Namespace,
		TaskToken: info.TaskToken,
		Result:    payloads,
		Identity:  runtimeActor,
	})
	if err != nil {
		return fmt.Errorf("activities: complete %s: %w", info.ActivityType.Name, err)
	}
	return activity.ErrResultPending
}
