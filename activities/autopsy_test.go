package activities

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	failurepb "go.temporal.io/api/failure/v1"
	historypb "go.temporal.io/api/history/v1"
	taskqueuepb "go.temporal.io/api/taskqueue/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/sdk/converter"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/internal/closed"
	"github.com/deadletter-dev/deadletter/job"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

func started(start *historypb.WorkflowExecutionStartedEventAttributes) *historypb.HistoryEvent {
	return &historypb.HistoryEvent{
		EventId: 1, EventTime: timestamppb.New(noon), EventType: enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED,
		Attributes: &historypb.HistoryEvent_WorkflowExecutionStartedEventAttributes{WorkflowExecutionStartedEventAttributes: start},
	}
}

func scheduled(id int64, activity string) *historypb.HistoryEvent {
	return &historypb.HistoryEvent{
		EventId: id, EventTime: timestamppb.New(noon.Add(time.Second)), EventType: enumspb.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED,
		Attributes: &historypb.HistoryEvent_ActivityTaskScheduledEventAttributes{ActivityTaskScheduledEventAttributes: &historypb.ActivityTaskScheduledEventAttributes{
			ActivityType: &commonpb.ActivityType{Name: activity}, TaskQueue: &taskqueuepb.TaskQueue{Name: "handlers"},
		}},
	}
}

func terminated(identity, reason string) closed.Verdict {
	return closed.Verdict{Event: &historypb.HistoryEvent{
		EventId: 99, EventTime: timestamppb.New(noon.Add(time.Minute)), EventType: enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_TERMINATED,
		Attributes: &historypb.HistoryEvent_WorkflowExecutionTerminatedEventAttributes{WorkflowExecutionTerminatedEventAttributes: &historypb.WorkflowExecutionTerminatedEventAttributes{
			Identity: identity, Reason: reason,
		}},
	}}
}

func timedOut() closed.Verdict {
	return closed.Verdict{Event: &historypb.HistoryEvent{
		EventId: 99, EventTime: timestamppb.New(noon.Add(time.Minute)), EventType: enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_TIMED_OUT,
		Attributes: &historypb.HistoryEvent_WorkflowExecutionTimedOutEventAttributes{WorkflowExecutionTimedOutEventAttributes: &historypb.WorkflowExecutionTimedOutEventAttributes{}},
	}}
}

func failed(kind string) closed.Verdict {
	return closed.Verdict{Event: &historypb.HistoryEvent{
		EventId: 99, EventTime: timestamppb.New(noon.Add(time.Minute)), EventType: enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_FAILED,
		Attributes: &historypb.HistoryEvent_WorkflowExecutionFailedEventAttributes{WorkflowExecutionFailedEventAttributes: &historypb.WorkflowExecutionFailedEventAttributes{
			Failure: &failurepb.Failure{Message: "words", FailureInfo: &failurepb.Failure_ApplicationFailureInfo{
				ApplicationFailureInfo: &failurepb.ApplicationFailureInfo{Type: kind},
			}},
		}},
	}}
}

// TestClosing proves what is said of each end from outside.
func TestClosing(t *testing.T) {
	t.Parallel()
	run, execution := durationpb.New(time.Minute), durationpb.New(time.Hour)
	for _, c := range []struct {
		name          string
		end           closed.Verdict
		start         *historypb.WorkflowExecutionStartedEventAttributes
		kind, message string
	}{
		{"terminated", terminated("ann@laptop", "a flood"), nil, "TerminatedError", "terminated by ann@laptop: a flood"},
		{"terminated by nobody", terminated("", ""), nil, "TerminatedError", "terminated by an unknown identity"},
		{
			"run timeout", timedOut(),
			&historypb.WorkflowExecutionStartedEventAttributes{
				WorkflowRunTimeout: run, WorkflowExecutionTimeout: execution, WorkflowExecutionExpirationTime: timestamppb.New(noon.Add(time.Hour)),
			},
			"TemporalTimeout:WorkflowRun", "passed the workflow run timeout of 1m0s that the job was started with",
		},
		{
			"execution timeout", timedOut(),
			&historypb.WorkflowExecutionStartedEventAttributes{
				WorkflowRunTimeout: run, WorkflowExecutionTimeout: run, WorkflowExecutionExpirationTime: timestamppb.New(noon.Add(time.Minute)),
			},
			"TemporalTimeout:WorkflowExecution", "passed the workflow execution timeout of 1m0s that the job was started with",
		},
		{"failed", failed("Foreign"), nil, "Foreign", "words"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, described{kind: c.kind, message: c.message}, describeEnd(c.end, c.start))
		})
	}
}

func plain(t *testing.T, value any) *commonpb.Payload {
	t.Helper()
	payload, err := converter.GetDefaultDataConverter().ToPayload(value)
	require.NoError(t, err)
	return payload
}

// TestAutopsyOfManyExecutions proves that the attempts of a job whose handler was
// scheduled anew, or that continued as new, are counted on from what the workflow
// put into headers, that a free attempt is not counted, and that each attempt of
// the log is kept.
func TestAutopsyOfManyExecutions(t *testing.T) {
	t.Parallel()
	record := func(n int) job.AttemptRecord {
		return job.AttemptRecord{Attempt: n, Started: noon.Add(time.Duration(n) * time.Second), Ended: noon.Add(time.Duration(n) * time.Second)}
	}
	start := &historypb.WorkflowExecutionStartedEventAttributes{
		ContinuedExecutionRunId: "before", Initiator: enumspb.CONTINUE_AS_NEW_INITIATOR_WORKFLOW,
		Header: &commonpb.Header{Fields: map[string]*commonpb.Payload{
			job.CarriedHeader: plain(t, job.Carried{Charged: 2, Created: noon.Add(-time.Hour), Attempts: []job.AttemptRecord{record(1), record(2)}}),
		}},
	}
	handler := func(id int64, charged int) *historypb.HistoryEvent {
		event := scheduled(id, "Handler")
		event.GetActivityTaskScheduledEventAttributes().Header = &commonpb.Header{Fields: map[string]*commonpb.Payload{
			job.PlanHeader: plain(t, job.Plan{Charged: charged}),
		}}
		event.GetActivityTaskScheduledEventAttributes().RetryPolicy = &commonpb.RetryPolicy{MaximumAttempts: int32(5 - charged)}
		return event
	}
	startOf := func(id, scheduled int64, attempt int32) *historypb.HistoryEvent {
		return &historypb.HistoryEvent{
			EventId: id, EventTime: timestamppb.New(noon.Add(time.Second)), EventType: enumspb.EVENT_TYPE_ACTIVITY_TASK_STARTED,
			Attributes: &historypb.HistoryEvent_ActivityTaskStartedEventAttributes{ActivityTaskStartedEventAttributes: &historypb.ActivityTaskStartedEventAttributes{
				ScheduledEventId: scheduled, Attempt: attempt,
			}},
		}
	}
	snoozed := func(id, scheduled int64) *historypb.HistoryEvent {
		return &historypb.HistoryEvent{
			EventId: id, EventTime: timestamppb.New(noon.Add(2 * time.Second)), EventType: enumspb.EVENT_TYPE_ACTIVITY_TASK_FAILED,
			Attributes: &historypb.HistoryEvent_ActivityTaskFailedEventAttributes{ActivityTaskFailedEventAttributes: &historypb.ActivityTaskFailedEventAttributes{
				ScheduledEventId: scheduled,
				Failure: &failurepb.Failure{Message: "not yet", FailureInfo: &failurepb.Failure_ApplicationFailureInfo{ApplicationFailureInfo: &failurepb.ApplicationFailureInfo{
					Type: job.SnoozeErrorType, Details: &commonpb.Payloads{Payloads: []*commonpb.Payload{
						plain(t, job.Trailer{Version: job.TrailerVersion, Attempt: 2, Attempts: []job.AttemptRecord{record(3)}}),
					}},
				}}},
			}},
		}
	}
	examine := func(events ...*historypb.HistoryEvent) (*dlqstore.DeadLetter, []dlqstore.Attempt) {
		var tr trail
		for _, event := range append([]*historypb.HistoryEvent{started(start)}, events...) {
			tr.note(event, 0)
		}
		if len(events)%3 == 1 { // the last one is still to come
			tr.pending = &workflowpb.PendingActivityInfo{Attempt: 2, LastFailure: &failurepb.Failure{Message: "boom"}}
		}
		dl, attempts, err := autopsy(&tr, terminated("me", ""))
		require.NoError(t, err)
		require.Equal(t, noon.Add(-time.Hour), *dl.EnqueuedAt)
		return dl, attempts
	}

	dl, attempts := examine()
	require.Equal(t, 2, *dl.Attempts)
	require.Len(t, attempts, 2)

	dl, attempts = examine(handler(5, 2), startOf(6, 5, 2), snoozed(7, 5))
	require.Equal(t, 3, *dl.Attempts, "the snoozed attempt was counted, or the one before it was not")
	require.Equal(t, 5, *dl.MaxAttempts)
	require.Len(t, attempts, 3)
	require.Equal(t, "terminated by me (the last attempt: not yet)", dl.ErrorMessage)

	dl, attempts = examine(handler(5, 2), startOf(6, 5, 2), snoozed(7, 5), handler(8, 3))
	require.Equal(t, 4, *dl.Attempts)
	require.Len(t, attempts, 4)
	require.Equal(t, "boom", attempts[3].ErrorMessage)
}

// TestAutopsyAttempts proves that the count of attempts is what the server's last
// state of the handler says, and unknown where earlier executions or runs were
// charged too.
func TestAutopsyAttempts(t *testing.T) {
	t.Parallel()
	running := func(n int32) *workflowpb.PendingActivityInfo {
		return &workflowpb.PendingActivityInfo{Attempt: n, LastStartedTime: timestamppb.New(noon), LastFailure: &failurepb.Failure{Message: "earlier"}}
	}
	waiting := func(n int32) *workflowpb.PendingActivityInfo {
		return &workflowpb.PendingActivityInfo{Attempt: n, LastStartedTime: timestamppb.New(time.Unix(0, 0)), LastFailure: &failurepb.Failure{Message: "earlier"}}
	}
	continued := &historypb.WorkflowExecutionStartedEventAttributes{
		ContinuedExecutionRunId: "before", Initiator: enumspb.CONTINUE_AS_NEW_INITIATOR_WORKFLOW,
	}
	retried := &historypb.WorkflowExecutionStartedEventAttributes{
		ContinuedExecutionRunId: "before", Initiator: enumspb.CONTINUE_AS_NEW_INITIATOR_RETRY,
	}
	count := func(n int) *int { return &n }
	for _, c := range []struct {
		name     string
		start    *historypb.WorkflowExecutionStartedEventAttributes
		handlers int
		pending  *workflowpb.PendingActivityInfo
		attempts *int
		rows     int
		message  string
	}{
		{"never scheduled", nil, 0, nil, count(0), 0, "terminated by me"},
		{"in the queue", nil, 1, waiting(1), count(0), 0, "terminated by me"},
		{"running", nil, 1, running(3), count(3), 2, "terminated by me (the attempt before: earlier)"},
		{"waiting", nil, 1, waiting(3), count(2), 1, "terminated by me (the last attempt: earlier)"},
		{"the server tells nothing", nil, 1, nil, nil, 0, "terminated by me"},
		{"scheduled anew", nil, 2, running(1), nil, 0, "terminated by me (the attempt before: earlier)"},
		{"continued", continued, 1, running(1), nil, 0, "terminated by me (the attempt before: earlier)"},
		{"continued before its handler", continued, 0, nil, nil, 0, "terminated by me"},
		{"a retry of the workflow", retried, 0, nil, count(0), 0, "terminated by me"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var tr trail
			tr.note(started(c.start), 0)
			for i := range c.handlers {
				tr.note(scheduled(int64(5+i), "Handler"), 0)
			}
			tr.pending = c.pending
			dl, attempts, err := autopsy(&tr, terminated("me", ""))
			require.NoError(t, err)
			require.Equal(t, c.attempts, dl.Attempts)
			require.Len(t, attempts, c.rows)
			require.Equal(t, c.message, dl.ErrorMessage)
			require.Equal(t, job.ReasonTerminated, dl.Reason)
			require.Equal(t, noon.Add(time.Minute), dl.DeadAt)
			if c.handlers > 0 {
				require.Equal(t, "Handler", dl.JobType)
				require.Equal(t, "handlers", dl.TaskQueue)
			}
		})
	}
}
