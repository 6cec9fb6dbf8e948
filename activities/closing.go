package activities

import (
	"context"
	"errors"
	"fmt"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	failurepb "go.temporal.io/api/failure/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"

	"github.com/deadletter-dev/deadletter/job"
)

// closing is the event with which a run was closed.
type closing struct{ event *historypb.HistoryEvent }

func readClose(
	ctx context.Context, service workflowservice.WorkflowServiceClient, namespace string, execution *commonpb.WorkflowExecution,
) (closing, error) {
	page, err := service.GetWorkflowExecutionHistory(ctx, &workflowservice.GetWorkflowExecutionHistoryRequest{
		Namespace:              namespace,
		Execution:              execution,
		HistoryEventFilterType: enumspb.HISTORY_EVENT_FILTER_TYPE_CLOSE_EVENT,
	})
	if err != nil {
		return closing{}, fmt.Errorf("activities: read the end of %s: %w", execution.GetWorkflowId(), err)
	}
	events := page.GetHistory().GetEvents()
	if len(events) == 0 {
		return closing{}, fmt.Errorf("activities: the history of %s has no end", execution.GetWorkflowId())
	}
	return closing{events[len(events)-1]}, nil
}

// isFinal reports whether the run is one to write a dead letter of: it was ended
// by something else than its own code, and no run goes on after it by a retry or
// cron policy that its starter set.
func (c closing) isFinal() bool {
	switch c.event.GetEventType() {
	case enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_TERMINATED:
		return true
	case enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_TIMED_OUT:
		return c.event.GetWorkflowExecutionTimedOutEventAttributes().GetNewExecutionRunId() == ""
	case enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_FAILED:
		failed := c.event.GetWorkflowExecutionFailedEventAttributes()
		// A job fails with this type only after its move has succeeded.
		moved := failed.GetFailure().GetApplicationFailureInfo().GetType() == job.DeadLetteredErrorType
		return failed.GetNewExecutionRunId() == "" && !moved
	default:
		return false // a run that is still open has no other last event of these
	}
}

// resetter is the identity with which the server terminates a run that a reset
// replaces.
const resetter = "history-resetter"

// wasReset reports whether the job lives on, or lived on, in a run that a reset
// made. That run's own end is looked at for itself.
//
// The server notes the new run with the one that the reset went back to, which
// need not be the one that it terminated: that one has the resetter's identity. A
// server that does neither still has a later run of the same chain, which can only
// come from a reset, as this run's own end names no next one.
func (s *sweep) wasReset(ctx context.Context, execution *commonpb.WorkflowExecution, c closing) (bool, error) {
	if c.event.GetWorkflowExecutionTerminatedEventAttributes().GetIdentity() == resetter {
		return true, nil
	}
	this, err := s.describe(ctx, execution)
	if err != nil || this.GetWorkflowExtendedInfo().GetResetRunId() != "" {
		return err == nil, err
	}
	latest, err := s.describe(ctx, &commonpb.WorkflowExecution{WorkflowId: execution.GetWorkflowId()})
	var gone *serviceerror.NotFound
	switch {
	case errors.As(err, &gone):
		return false, nil // the latest was deleted, and this one is another
	case err != nil:
		return false, err
	}
	info := latest.GetWorkflowExecutionInfo()
	return info.GetExecution().GetRunId() != execution.GetRunId() &&
		info.GetFirstRunId() != "" && info.GetFirstRunId() == this.GetWorkflowExecutionInfo().GetFirstRunId(), nil
}

func (s *sweep) describe(ctx context.Context, execution *commonpb.WorkflowExecution) (*workflowservice.DescribeWorkflowExecutionResponse, error) {
	description, err := s.service.DescribeWorkflowExecution(ctx, &workflowservice.DescribeWorkflowExecutionRequest{
		Namespace: s.namespace, Execution: execution,
	})
	if err != nil {
		return nil, fmt.Errorf("activities: describe %s: %w", execution.GetWorkflowId(), err)
	}
	return description, nil
}

// failure is what the run failed with, nil when it was not by failing.
func (c closing) failure() *failurepb.Failure {
	return c.event.GetWorkflowExecutionFailedEventAttributes().GetFailure()
}

// describe says what ended the run, in the words of a dead letter.
func (c closing) describe(start *historypb.WorkflowExecutionStartedEventAttributes) described {
	if failure := c.failure(); failure != nil {
		return describe(failure)
	}
	if terminated := c.event.GetWorkflowExecutionTerminatedEventAttributes(); terminated != nil {
		d := described{kind: "TerminatedError", message: "terminated by " + orUnknown(terminated.GetIdentity())}
		if reason := terminated.GetReason(); reason != "" {
			d.message += ": " + reason
		}
		return d
	}
	which, limit := "run", start.GetWorkflowRunTimeout().AsDuration()
	if expires := start.GetWorkflowExecutionExpirationTime(); expires != nil && !c.event.GetEventTime().AsTime().Before(expires.AsTime()) {
		which, limit = "execution", start.GetWorkflowExecutionTimeout().AsDuration()
	}
	return described{
		kind:    map[string]string{"run": "TemporalTimeout:WorkflowRun", "execution": "TemporalTimeout:WorkflowExecution"}[which],
		message: fmt.Sprintf("passed the workflow %s timeout of %s that the job was started with", which, limit.Round(time.Millisecond)),
	}
}

func orUnknown(identity string) string {
	if identity == "" {
		return "an unknown identity"
	}
	return identity
}
