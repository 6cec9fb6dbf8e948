package activities

import (
	"fmt"
	"time"

	historypb "go.temporal.io/api/history/v1"

	"github.com/deadletter-dev/deadletter/internal/closed"
)

// describeEnd says what ended a run from outside, in the words of a dead letter.
func describeEnd(v closed.Verdict, start *historypb.WorkflowExecutionStartedEventAttributes) described {
	if failure := v.Failure(); failure != nil {
		return describe(failure)
	}
	if terminated := v.Event.GetWorkflowExecutionTerminatedEventAttributes(); terminated != nil {
		d := described{kind: "TerminatedError", message: "terminated by " + orUnknown(terminated.GetIdentity())}
		if reason := terminated.GetReason(); reason != "" {
			d.message += ": " + reason
		}
		return d
	}
	which, limit := "run", start.GetWorkflowRunTimeout().AsDuration()
	if expires := start.GetWorkflowExecutionExpirationTime(); expires != nil && !v.Event.GetEventTime().AsTime().Before(expires.AsTime()) {
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
