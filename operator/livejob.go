package operator

import (
	"context"
	"errors"
	"fmt"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	failurepb "go.temporal.io/api/failure/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/converter"

	"github.com/deadletter-dev/deadletter/internal/text"
	"github.com/deadletter-dev/deadletter/job"
)

// The states of a LiveJob beside those of a PendingAttempt.
const (
	stateMoving      = "moving"
	stateWaiting     = "waiting"
	stateUnscheduled = "unscheduled"
)

func (o *Operator) newLiveJob(described *workflowservice.DescribeWorkflowExecutionResponse) *LiveJob {
	execution := described.GetWorkflowExecutionInfo().GetExecution()
	return &LiveJob{
		WorkflowID: execution.GetWorkflowId(), RunID: execution.GetRunId(), State: stateUnscheduled, Attempt: 1,
		URL: o.JobPage(execution.GetWorkflowId(), execution.GetRunId()),
	}
}

// liveJob tells of a running job what is known of its next attempt; nil when it
// has closed meanwhile, or is about to after its handler succeeded. Who polls the
// queue that it waits on is left to askQueues.
func (o *Operator) liveJob(ctx context.Context, described *workflowservice.DescribeWorkflowExecutionResponse) (*LiveJob, error) {
	live := o.newLiveJob(described)
	pending := pendingOf(described)
	if pending != nil && pending.Type == job.SettleActivityType {
		return nil, nil //nolint:nilnil // absence is an answer here
	}
	if pending != nil && !pending.Moving {
		live.JobType, live.TaskQueue, live.State = pending.Type, pending.TaskQueue, pending.State
		live.Attempt, live.MaxAttempts, live.NextAttemptAt = pending.Attempt, pending.MaxAttempts, pending.NextAttemptAt
		live.LastErrorType, live.LastError = pending.LastFailureType, pending.LastFailure
		live.AgeLimitAt = timeOf(described.GetPendingActivities()[0].GetExpirationTime())
		live.Waiting = waitingOf(handlerOf(described), live.TaskQueue)
		return live, nil
	}
	// No handler is pending: what it did last is at the end of the history.
	events, err := o.latestEvents(ctx, described)
	if err != nil || events == nil {
		return nil, err //nolint:nilnil // absence is an answer here
	}
	live.readHistory(events)
	if due := timeOf(described.GetWorkflowExecutionInfo().GetExecutionTime()); live.State == stateUnscheduled && due != nil && due.After(time.Now()) {
		live.NextAttemptAt = due // it was started with a delay
	}
	if pending == nil {
		live.Waiting = live.waitingBetween(described, events)
		return live, nil
	}
	live.State, live.NextAttemptAt = stateMoving, nil
	live.LastErrorType, live.LastError = pending.LastFailureType, pending.LastFailure
	live.Waiting = waitingOf(handlerOf(described), o.taskQueue)
	return live, nil
}

// latestPage reaches from the timer, or the move, back to the handler's schedule
// event, unless a person has meddled.
const latestPage = 20

// latestEvents returns the last events, the latest first; nil for a job that has
// closed and is gone.
func (o *Operator) latestEvents(ctx context.Context, described *workflowservice.DescribeWorkflowExecutionResponse) ([]*historypb.HistoryEvent, error) {
	execution := described.GetWorkflowExecutionInfo().GetExecution()
	page, err := o.service.GetWorkflowExecutionHistoryReverse(ctx, &workflowservice.GetWorkflowExecutionHistoryReverseRequest{
		Namespace: o.namespace, Execution: execution, MaximumPageSize: latestPage,
	})
	var gone *serviceerror.NotFound
	switch {
	case errors.As(err, &gone):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("operator: history of %s: %w", execution.GetWorkflowId(), err)
	}
	return page.GetHistory().GetEvents(), nil
}

// readHistory reads what the handler's last execution left, from the latest event
// back to its schedule event.
func (l *LiveJob) readHistory(events []*historypb.HistoryEvent) {
	timer := true // the latest event that tells where the job stands is a timer's start
	for _, event := range events {
		switch event.GetEventType() {
		case enumspb.EVENT_TYPE_TIMER_STARTED:
			if timer {
				at := event.GetEventTime().AsTime().Add(event.GetTimerStartedEventAttributes().GetStartToFireTimeout().AsDuration())
				l.State, l.NextAttemptAt = stateWaiting, &at
			}
			timer = false
		case enumspb.EVENT_TYPE_TIMER_FIRED, enumspb.EVENT_TYPE_TIMER_CANCELED:
			timer = false
		case enumspb.EVENT_TYPE_ACTIVITY_TASK_FAILED:
			timer = false
			l.readFailure(event.GetActivityTaskFailedEventAttributes().GetFailure())
		case enumspb.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
			timer = false
			if scheduled := event.GetActivityTaskScheduledEventAttributes(); !job.IsOwnActivity(scheduled.GetActivityType().GetName()) {
				l.readSchedule(event.GetEventTime().AsTime(), scheduled)
				return
			}
		case enumspb.EVENT_TYPE_ACTIVITY_TASK_STARTED:
			l.Attempt = max(int(event.GetActivityTaskStartedEventAttributes().GetAttempt()), 1)
		case enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED:
			l.readStart(event)
		}
	}
}

func (l *LiveJob) readFailure(failure *failurepb.Failure) {
	if l.LastError == "" && l.LastErrorType == "" {
		l.LastErrorType = text.Bounded(failureType(failure), maxPendingFailure)
		l.LastError = text.Bounded(failure.GetMessage(), maxPendingFailure)
	}
}

// readSchedule counts from the handler's last execution: what it ended with was
// free of charge, so the attempt of that comes again.
func (l *LiveJob) readSchedule(at time.Time, scheduled *historypb.ActivityTaskScheduledEventAttributes) {
	l.JobType, l.TaskQueue = scheduled.GetActivityType().GetName(), scheduled.GetTaskQueue().GetName()
	if limit := int(scheduled.GetRetryPolicy().GetMaximumAttempts()); limit > 0 {
		l.MaxAttempts = &limit
	}
	if age := scheduled.GetScheduleToCloseTimeout().AsDuration(); age > 0 {
		at = at.Add(age)
		l.AgeLimitAt = &at
	}
}

// readStart tells of a job that has not come to its handler yet, where its options
// are readable.
func (l *LiveJob) readStart(event *historypb.HistoryEvent) {
	start := event.GetWorkflowExecutionStartedEventAttributes()
	l.TaskQueue = start.GetTaskQueue().GetName()
	input := start.GetInput().GetPayloads()
	if len(input) == 0 || string(input[0].GetMetadata()[converter.MetadataEncoding]) != converter.MetadataEncodingJSON {
		return
	}
	var options job.Options
	if options.UnmarshalJSON(input[0].GetData()) != nil {
		return // the job refuses them too, in its first task
	}
	l.JobType = options.Type
	if options.TaskQueue != "" {
		l.TaskQueue = options.TaskQueue
	}
	policy := options.Policy.WithDefaults()
	if policy.MaxAttempts > 0 {
		l.MaxAttempts = &policy.MaxAttempts
	}
	if policy.MaxJobAge > 0 {
		at := event.GetEventTime().AsTime().Add(start.GetFirstWorkflowTaskBackoff().AsDuration()).Add(policy.MaxJobAge)
		l.AgeLimitAt = &at
	}
}
