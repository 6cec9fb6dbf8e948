// Package closed judges a job's closed run: whether it should have a dead letter, and
// for which reason. The sweep and the reconciliation share it. What the database says
// of the run is the caller's affair: of most runs it knows, and they are never judged.
package closed

import (
	"context"
	"errors"
	"fmt"

	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	failurepb "go.temporal.io/api/failure/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/converter"

	"github.com/deadletter-dev/deadletter/job"
)

// Statuses are the ways in which a run closes that may be dead, as a visibility query
// has them.
const Statuses = "ExecutionStatus IN ('Terminated', 'TimedOut', 'Failed', 'Canceled')"

// Run is the closed run of a job.
type Run struct {
	Service   workflowservice.WorkflowServiceClient
	Namespace string
	Execution *commonpb.WorkflowExecution
}

// Verdict says how a run ended.
type Verdict struct {
	// Dead is true of a run that should have a dead letter.
	Dead   bool
	Reason job.Reason
	// Told is what the run told its terminal activity, with which it ended by itself;
	// nil when it was ended from outside. ToldAt is when.
	Told   *job.MoveInput
	ToldAt *historypb.HistoryEvent
	// Event is the one with which the run closed.
	Event *historypb.HistoryEvent
}

// Judge reads the end of a run. Its errors are of the server, wrapped.
func Judge(ctx context.Context, run Run) (Verdict, error) {
	event, err := run.lastEvent(ctx)
	if err != nil {
		return Verdict{}, err
	}
	v := Verdict{Event: event, Reason: job.ReasonTerminated}
	if endsItself(event) {
		if err := run.readTold(ctx, &v); err != nil {
			return Verdict{}, err
		}
		if v.Told != nil {
			v.Dead, v.Reason = true, v.Told.Reason
			return v, nil
		}
	}
	if !endedForGood(event) {
		return v, nil
	}
	livesOn, err := run.wasReset(ctx, event)
	v.Dead = err == nil && !livesOn
	return v, err
}

// endsItself reports whether the run closed as one does that has moved itself.
func endsItself(event *historypb.HistoryEvent) bool {
	failure := event.GetWorkflowExecutionFailedEventAttributes().GetFailure()
	return event.GetEventType() == enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_CANCELED ||
		failure.GetApplicationFailureInfo().GetType() == job.DeadLetteredErrorType
}

// readTold looks for the schedule event of the terminal activity, which is near the
// end. A cancelled run without one discards its cancellation by policy, and leaves no
// dead letter.
func (r Run) readTold(ctx context.Context, v *Verdict) error {
	request := &workflowservice.GetWorkflowExecutionHistoryReverseRequest{Namespace: r.Namespace, Execution: r.Execution}
	for {
		page, err := r.Service.GetWorkflowExecutionHistoryReverse(ctx, request)
		if err != nil {
			return fmt.Errorf("read the end of %s: %w", r.Execution.GetWorkflowId(), err)
		}
		for _, event := range page.GetHistory().GetEvents() {
			scheduled := event.GetActivityTaskScheduledEventAttributes()
			if scheduled.GetActivityType().GetName() != job.MoveActivityType {
				continue
			}
			var told job.MoveInput
			if err := converter.GetDefaultDataConverter().FromPayloads(scheduled.GetInput(), &told); err != nil {
				return fmt.Errorf("what %s told its terminal activity: %w", r.Execution.GetWorkflowId(), err)
			}
			v.Told, v.ToldAt = &told, event
			return nil
		}
		if request.NextPageToken = page.GetNextPageToken(); len(request.NextPageToken) == 0 {
			return nil
		}
	}
}

func (r Run) lastEvent(ctx context.Context) (*historypb.HistoryEvent, error) {
	page, err := r.Service.GetWorkflowExecutionHistory(ctx, &workflowservice.GetWorkflowExecutionHistoryRequest{
		Namespace:              r.Namespace,
		Execution:              r.Execution,
		HistoryEventFilterType: enumspb.HISTORY_EVENT_FILTER_TYPE_CLOSE_EVENT,
	})
	if err != nil {
		return nil, fmt.Errorf("read the end of %s: %w", r.Execution.GetWorkflowId(), err)
	}
	events := page.GetHistory().GetEvents()
	if len(events) == 0 {
		return nil, fmt.Errorf("the history of %s has no end", r.Execution.GetWorkflowId())
	}
	return events[len(events)-1], nil
}

// endedForGood reports whether something else than the run's own code ended it, and no
// run goes on after it by a retry or cron policy that its starter set.
func endedForGood(event *historypb.HistoryEvent) bool {
	switch event.GetEventType() {
	case enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_TERMINATED:
		return true
	case enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_TIMED_OUT:
		return event.GetWorkflowExecutionTimedOutEventAttributes().GetNewExecutionRunId() == ""
	case enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_FAILED:
		return event.GetWorkflowExecutionFailedEventAttributes().GetNewExecutionRunId() == ""
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
func (r Run) wasReset(ctx context.Context, event *historypb.HistoryEvent) (bool, error) {
	if event.GetWorkflowExecutionTerminatedEventAttributes().GetIdentity() == resetter {
		return true, nil
	}
	this, err := r.describe(ctx, r.Execution)
	if err != nil || this.GetWorkflowExtendedInfo().GetResetRunId() != "" {
		return err == nil, err
	}
	latest, err := r.Latest(ctx)
	if err != nil || latest == nil {
		return false, err // the latest was deleted, and this one is another
	}
	info := latest.GetWorkflowExecutionInfo()
	return info.GetExecution().GetRunId() != r.Execution.GetRunId() &&
		info.GetFirstRunId() != "" && info.GetFirstRunId() == this.GetWorkflowExecutionInfo().GetFirstRunId(), nil
}

// Latest describes the latest run of the same workflow id, nil when it was deleted.
func (r Run) Latest(ctx context.Context) (*workflowservice.DescribeWorkflowExecutionResponse, error) {
	latest, err := r.describe(ctx, &commonpb.WorkflowExecution{WorkflowId: r.Execution.GetWorkflowId()})
	if gone := (*serviceerror.NotFound)(nil); errors.As(err, &gone) {
		return nil, nil //nolint:nilnil // absence is an answer here
	}
	return latest, err
}

func (r Run) describe(ctx context.Context, execution *commonpb.WorkflowExecution) (*workflowservice.DescribeWorkflowExecutionResponse, error) {
	description, err := r.Service.DescribeWorkflowExecution(ctx, &workflowservice.DescribeWorkflowExecutionRequest{
		Namespace: r.Namespace, Execution: execution,
	})
	if err != nil {
		return nil, fmt.Errorf("describe %s: %w", execution.GetWorkflowId(), err)
	}
	return description, nil
}

// Failure is what the run failed with, nil when it was not by failing.
func (v Verdict) Failure() *failurepb.Failure {
	return v.Event.GetWorkflowExecutionFailedEventAttributes().GetFailure()
}
