package activities

import (
	"fmt"
	"slices"

	failurepb "go.temporal.io/api/failure/v1"
)

// described is a failure in the words of a dead letter.
type described struct {
	kind, message, stack string
}

// describe reads type, message and stack of a failure. A timeout's type is
// "TemporalTimeout:" and its kind, as in Temporal's own list of error types.
func describe(f *failurepb.Failure) described {
	d := described{kind: failureType(f), message: f.GetMessage()}
	for cause := f; cause != nil && d.stack == ""; cause = cause.GetCause() {
		d.stack = cause.GetStackTrace()
	}
	if f.GetTimeoutFailureInfo() != nil && f.GetCause() != nil {
		// A timeout says nothing of why; the attempt before it may.
		d.message = fmt.Sprintf("%s (the attempt before: %s)", d.message, f.GetCause().GetMessage())
	}
	return d
}

// wrappers are the Go types that only add words to the error inside: fmt.Errorf
// and errors.Join make them.
var wrappers = []string{"wrapError", "wrapErrors", "joinError"}

func failureType(f *failurepb.Failure) string {
	switch info := f.GetFailureInfo().(type) {
	case *failurepb.Failure_ApplicationFailureInfo:
		kind := info.ApplicationFailureInfo.GetType()
		if inner := f.GetCause(); slices.Contains(wrappers, kind) && inner.GetApplicationFailureInfo() != nil {
			return failureType(inner)
		}
		return kind
	case *failurepb.Failure_TimeoutFailureInfo:
		return "TemporalTimeout:" + info.TimeoutFailureInfo.GetTimeoutType().String()
	case *failurepb.Failure_CanceledFailureInfo:
		return "CanceledError"
	case *failurepb.Failure_TerminatedFailureInfo:
		return "TerminatedError"
	case *failurepb.Failure_ServerFailureInfo:
		return "ServerError"
	default:
		return ""
	}
}
