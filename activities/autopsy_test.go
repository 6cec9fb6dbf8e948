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
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

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

func terminated(identity, reason string) closing {
	return closing{&historypb.HistoryEvent{
		EventId: 99, EventTime: timestamppb.New(noon.Add(time.Minute)), EventType: enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_TERMINATED,
		Attributes: &historypb.HistoryEvent_WorkflowExecutionTerminatedEventAttributes{WorkflowExecutionTerminatedEventAttributes: &historypb.WorkflowExecutionTerminatedEventAttributes{
			Identity: identity, Reason: reason,
		}},
	}}
}

func timedOut(next string) closing {
	return closing{&historypb.HistoryEvent{
		EventId: 99, EventTime: timestamppb.New(noon.Add(time.Minute)), EventType: enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_TIMED_OUT,
		Attributes: &historypb.HistoryEvent_WorkflowExecutionTimedOutEventAttributes{WorkflowExecutionTimedOutEventAttributes: &historypb.WorkflowExecutionTimedOutEventAttributes{
			NewExecutionRunId: next,
		}},
	}}
}

func failed(kind, next string) closing {
	return closing{&historypb.HistoryEvent{
		EventId: 99, EventTime: timestamppb.New(noon.Add(time.Minute)), EventType: enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_FAILED,
		Attributes: &historypb.HistoryEvent_WorkflowExecutionFailedEventAttributes{WorkflowExecutionFailedEventAttributes: &historypb.WorkflowExecutionFailedEventAttributes{
			NewExecutionRunId: next,
			Failure: &failurepb.Failure{Message: "words", FailureInfo: &failurepb.Failure_ApplicationFailureInfo{
				ApplicationFailureInfo: &failurepb.ApplicationFailureInfo{Type: kind},
			}},
		}},
	}}
}

// TestClosing proves which ends are final, and what is said of each.
func TestClosing(t *testing.T) {
	t.Parallel()
	run, execution := durationpb.New(time.Minute), durationpb.New(time.Hour)
	for _, c := range []struct {
		name          string
		end           closing
		start         *historypb.WorkflowExecutionStartedEventAttributes
		final         bool
		kind, message string
	}{
		{"terminated", terminated("ann@laptop", "a flood"), nil, true, "TerminatedError", "terminated by ann@laptop: a flood"},
		{"terminated by nobody", terminated("", ""), nil, true, "TerminatedError", "terminated by an unknown identity"},
		{
			"run timeout", timedOut(""),
			&historypb.WorkflowExecutionStartedEventAttributes{
				WorkflowRunTimeout: run, WorkflowExecutionTimeout: execution, WorkflowExecutionExpirationTime: timestamppb.New(noon.Add(time.Hour)),
			},
			true, "TemporalTimeout:WorkflowRun", "passed the workflow run timeout of 1m0s that the job was started with",
		},
		{
			"execution timeout", timedOut(""),
			&historypb.WorkflowExecutionStartedEventAttributes{
				WorkflowRunTimeout: run, WorkflowExecutionTimeout: run, WorkflowExecutionExpirationTime: timestamppb.New(noon.Add(time.Minute)),
			},
			true, "TemporalTimeout:WorkflowExecution", "passed the workflow execution timeout of 1m0s that the job was started with",
		},
		{"timed out and retried", timedOut("next"), nil, false, "", ""},
		{"failed", failed("Foreign", ""), nil, true, "Foreign", "words"},
		{"failed and retried", failed("Foreign", "next"), nil, false, "", ""},
		{"dead-lettered", failed(job.DeadLetteredErrorType, ""), nil, false, "", ""},
		{"open", closing{started(nil)}, nil, false, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.final, c.end.isFinal())
			if c.final {
				require.Equal(t, described{kind: c.kind, message: c.message}, c.end.describe(c.start))
			}
		})
	}
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
