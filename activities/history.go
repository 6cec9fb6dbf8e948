package activities

import (
	"context"
	"fmt"
	"slices"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	failurepb "go.temporal.io/api/failure/v1"
	historypb "go.temporal.io/api/history/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/activity"

	"github.com/deadletter-dev/deadletter/job"
)

// trail is what a job's own history says of its start and of the last execution
// of its handler, as the wire held it. Fields other than start may be nil.
type trail struct {
	start     *historypb.HistoryEvent
	scheduled *historypb.HistoryEvent
	started   *historypb.HistoryEvent
	closed    *historypb.HistoryEvent // failed, timed out, cancelled or completed
	// executions counts how often the handler was scheduled, each with retries of its own.
	executions int
	// move is the terminal activity's schedule event, nil while the job lives.
	move *historypb.HistoryEvent
	// pending is the handler's execution when it still runs: cancelled without
	// heartbeats, so the cancellation could not reach it.
	pending *workflowpb.PendingActivityInfo
	// records are the attempts that failures of this run tell of, by number: empty
	// under a codec, and without the plugin on the handler's side.
	records map[int]job.AttemptRecord
	// checkpoint is the handler's own last heartbeat, a marshalled Payloads.
	checkpoint []byte
}

// readTrail reads the history. scheduledID names the handler's execution; 0
// means the last one, if any.
func readTrail(
	ctx context.Context, service workflowservice.WorkflowServiceClient,
	namespace string, execution *commonpb.WorkflowExecution, scheduledID int64,
) (*trail, error) {
	var t trail
	_, err := scanHistory(ctx, service, namespace, execution, func(event *historypb.HistoryEvent) bool {
		t.note(event, scheduledID)
		return false
	})
	if err != nil {
		return nil, err
	}
	if t.start.GetWorkflowExecutionStartedEventAttributes() == nil {
		return nil, fmt.Errorf("activities: the history of %s has no start event", execution.GetWorkflowId())
	}
	if t.scheduled != nil && t.closed == nil {
		if err := t.findPending(ctx, service, namespace, execution); err != nil {
			return nil, err
		}
	}
	return &t, nil
}

func (t *trail) note(event *historypb.HistoryEvent, scheduledID int64) {
	switch event.GetEventType() {
	case enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED:
		t.start = event
	case enumspb.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
		name := event.GetActivityTaskScheduledEventAttributes().GetActivityType().GetName()
		if name == job.MoveActivityType {
			t.move = event
		} else if !job.IsOwnActivity(name) {
			t.executions++
		}
		if event.GetEventId() == scheduledID || scheduledID == 0 && !job.IsOwnActivity(name) {
			t.scheduled, t.started, t.closed = event, nil, nil
		}
	case enumspb.EVENT_TYPE_ACTIVITY_TASK_STARTED:
		if t.isOf(event.GetActivityTaskStartedEventAttributes().GetScheduledEventId()) {
			t.started = event
		}
	case enumspb.EVENT_TYPE_ACTIVITY_TASK_FAILED:
		t.noteRecords(event.GetActivityTaskFailedEventAttributes().GetFailure())
		t.noteClosed(event, event.GetActivityTaskFailedEventAttributes().GetScheduledEventId())
	case enumspb.EVENT_TYPE_ACTIVITY_TASK_TIMED_OUT:
		t.noteRecords(event.GetActivityTaskTimedOutEventAttributes().GetFailure())
		t.noteClosed(event, event.GetActivityTaskTimedOutEventAttributes().GetScheduledEventId())
	case enumspb.EVENT_TYPE_ACTIVITY_TASK_CANCELED:
		t.noteClosed(event, event.GetActivityTaskCanceledEventAttributes().GetScheduledEventId())
	case enumspb.EVENT_TYPE_ACTIVITY_TASK_COMPLETED:
		t.noteClosed(event, event.GetActivityTaskCompletedEventAttributes().GetScheduledEventId())
	default:
		// No other event says anything about the handler.
	}
}

func (t *trail) isOf(scheduledID int64) bool {
	return t.scheduled != nil && t.scheduled.GetEventId() == scheduledID
}

func (t *trail) noteClosed(event *historypb.HistoryEvent, scheduledID int64) {
	if t.isOf(scheduledID) {
		t.closed = event
	}
}

func (t *trail) findPending(
	ctx context.Context, service workflowservice.WorkflowServiceClient, namespace string, execution *commonpb.WorkflowExecution,
) error {
	description, err := service.DescribeWorkflowExecution(ctx, &workflowservice.DescribeWorkflowExecutionRequest{
		Namespace: namespace, Execution: execution,
	})
	if err != nil {
		return fmt.Errorf("activities: describe %s: %w", execution.GetWorkflowId(), err)
	}
	id := t.scheduled.GetActivityTaskScheduledEventAttributes().GetActivityId()
	for _, pending := range description.GetPendingActivities() {
		if pending.GetActivityId() == id {
			t.pending = pending
		}
	}
	return nil
}

// failure is the handler's final failure, nil where the history has none.
func (t *trail) failure() *failurepb.Failure {
	if failed := t.closed.GetActivityTaskFailedEventAttributes(); failed != nil {
		return failed.GetFailure()
	}
	return t.closed.GetActivityTaskTimedOutEventAttributes().GetFailure()
}

func (t *trail) retryState() string {
	state := t.closed.GetActivityTaskFailedEventAttributes().GetRetryState()
	if timedOut := t.closed.GetActivityTaskTimedOutEventAttributes(); timedOut != nil {
		state = timedOut.GetRetryState()
	}
	if state == enumspb.RETRY_STATE_UNSPECIFIED {
		return ""
	}
	return state.String()
}

// StartDelay is the local activity behind the age of a job that was started with
// a delay by anything but Enqueue: it reads the delay from the job's start event.
func StartDelay(ctx context.Context) (time.Duration, error) {
	var delay time.Duration
	err := scanOwnHistory(ctx, func(event *historypb.HistoryEvent) bool {
		start := event.GetWorkflowExecutionStartedEventAttributes()
		delay = start.GetFirstWorkflowTaskBackoff().AsDuration()
		return start != nil
	})
	return delay, err
}

// Attempt is the local activity behind the budget of a job whose handler was
// snoozed by a worker without the plugin: it reads the number of the attempt from
// its start event.
func Attempt(ctx context.Context, startedEventID int64) (int, error) {
	attempt := 0
	err := scanOwnHistory(ctx, func(event *historypb.HistoryEvent) bool {
		if event.GetEventId() != startedEventID {
			return false
		}
		attempt = int(event.GetActivityTaskStartedEventAttributes().GetAttempt())
		return true
	})
	return attempt, err
}

// scanOwnHistory passes the events of the activity's workflow to found until it
// says true, which it must.
func scanOwnHistory(ctx context.Context, found func(*historypb.HistoryEvent) bool) error {
	info := activity.GetInfo(ctx)
	execution := &commonpb.WorkflowExecution{WorkflowId: info.WorkflowExecution.ID, RunId: info.WorkflowExecution.RunID}
	told, err := scanHistory(ctx, activity.GetClient(ctx).WorkflowService(), info.Namespace, execution, found)
	if err == nil && !told {
		err = fmt.Errorf("activities: the history of %s does not tell", execution.GetWorkflowId())
	}
	return err
}

// scanHistory passes the events of a workflow to found, page by page, until it
// says true; told is whether it did.
func scanHistory(
	ctx context.Context, service workflowservice.WorkflowServiceClient,
	namespace string, execution *commonpb.WorkflowExecution, found func(*historypb.HistoryEvent) bool,
) (told bool, err error) {
	request := &workflowservice.GetWorkflowExecutionHistoryRequest{Namespace: namespace, Execution: execution}
	for {
		page, err := service.GetWorkflowExecutionHistory(ctx, request)
		if err != nil {
			return false, fmt.Errorf("activities: read history of %s: %w", execution.GetWorkflowId(), err)
		}
		if slices.ContainsFunc(page.GetHistory().GetEvents(), found) {
			return true, nil
		}
		if request.NextPageToken = page.GetNextPageToken(); len(request.NextPageToken) == 0 {
			return false, nil
		}
	}
}
