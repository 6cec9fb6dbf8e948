package closed

import (
	"testing"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	failurepb "go.temporal.io/api/failure/v1"
	historypb "go.temporal.io/api/history/v1"

	"github.com/deadletter-dev/deadletter/job"
)

func event(kind enumspb.EventType) *historypb.HistoryEvent {
	return &historypb.HistoryEvent{EventType: kind}
}

func timedOut(next string) *historypb.HistoryEvent {
	e := event(enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_TIMED_OUT)
	e.Attributes = &historypb.HistoryEvent_WorkflowExecutionTimedOutEventAttributes{
		WorkflowExecutionTimedOutEventAttributes: &historypb.WorkflowExecutionTimedOutEventAttributes{NewExecutionRunId: next},
	}
	return e
}

func failed(kind, next string) *historypb.HistoryEvent {
	e := event(enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_FAILED)
	e.Attributes = &historypb.HistoryEvent_WorkflowExecutionFailedEventAttributes{
		WorkflowExecutionFailedEventAttributes: &historypb.WorkflowExecutionFailedEventAttributes{
			NewExecutionRunId: next,
			Failure: &failurepb.Failure{FailureInfo: &failurepb.Failure_ApplicationFailureInfo{
				ApplicationFailureInfo: &failurepb.ApplicationFailureInfo{Type: kind},
			}},
		},
	}
	return e
}

// TestEnds proves which last events are an end for good, and after which the history is
// asked whether the run has moved itself.
func TestEnds(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name              string
		event             *historypb.HistoryEvent
		forGood, byItself bool
	}{
		{"terminated", event(enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_TERMINATED), true, false},
		{"timed out", timedOut(""), true, false},
		{"timed out and retried", timedOut("next"), false, false},
		{"failed", failed("Foreign", ""), true, false},
		{"failed and retried", failed("Foreign", "next"), false, false},
		{"dead-lettered", failed(job.DeadLetteredErrorType, ""), true, true},
		{"dead-lettered under a cron", failed(job.DeadLetteredErrorType, "next"), false, true},
		{"cancelled", event(enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_CANCELED), false, true},
		{"completed", event(enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED), false, false},
		{"open", event(enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED), false, false},
	} {
		require.Equal(t, c.forGood, endedForGood(c.event), c.name)
		require.Equal(t, c.byItself, endsItself(c.event), c.name)
	}
}
