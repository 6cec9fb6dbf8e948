package workflows

import (
	"errors"
	"fmt"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"

	"github.com/deadletter-dev/deadletter/internal/text"
	"github.com/deadletter-dev/deadletter/job"
)

// ending is how a job stopped for good.
type ending struct {
	reason job.Reason
	// attempts is nil where the workflow cannot know it.
	attempts *int
	// scheduled and started name the handler's events, 0 where there are none.
	scheduled, started int64
	fault              *job.Fault
	// text is the last error, for the error that the job closes with; note is what
	// we have to add to it.
	text, note string
	// attempts of the last execution, as its workers saw them.
	log []job.AttemptRecord
}

func count(n int) *int { return &n }

// maxFaultText bounds the words of a refusal, which may quote what was refused.
const maxFaultText = 4 << 10

func invalidJob(message string) *job.Fault {
	return &job.Fault{Type: job.InvalidJobErrorType, Message: text.Clipped(message, maxFaultText)}
}

func refused(fault *job.Fault) ending {
	return ending{reason: job.ReasonFatalError, attempts: count(0), fault: fault, text: fault.Message}
}

// classify names the reason of the job's end, and says what else is known of it.
func (j *running) classify(err error, jobCancelled bool) ending {
	policy := j.options.Policy
	policy.MaxAttempts -= j.charged // below 0 still means no limit
	end := classify(err, jobCancelled, policy, j.options.Type)
	if end.attempts != nil {
		*end.attempts += j.charged
	}
	trailer, _ := readTrailer(err)
	end.log = trailer.Attempts
	if end.reason == job.ReasonRetryLifetimeExpired {
		if j.last != nil && j.last.kind == job.CircuitOpenErrorType && end.started == 0 {
			end.reason = job.ReasonCircuitBreakerOpen // the breaker refused until the end
		}
		end.note = j.ageNote(plannedNext(trailer))
	}
	if end.reason == job.ReasonUnknownJobType {
		end.note = j.graceNote()
	}
	return end
}

// cancelledWaiting is the ending of a job that was cancelled between attempts.
func (j *running) cancelledWaiting() ending {
	end := ending{reason: job.ReasonCancelled, attempts: count(j.charged), text: "cancelled before the first attempt"}
	if j.charged > 0 {
		end.text = "cancelled while it waited"
	}
	return end
}

// classify names the reason of a handler's final failure by its first cause and
// timeout type. The retry state only refines it: it differs between server
// versions. Message texts are not looked at, except for what workers in other
// languages say of a type that they do not know; see job.IsUnknownType.
func classify(err error, jobCancelled bool, policy job.Policy, jobType string) ending {
	var end ending
	cause := err
	retryState := enumspb.RETRY_STATE_UNSPECIFIED
	if activity, ok := errors.AsType[*temporal.ActivityError](err); ok {
		end.scheduled, end.started = activity.ScheduledEventID(), activity.StartedEventID()
		retryState = activity.RetryState()
		cause = activity.Unwrap()
	}
	end.text = errorText(cause)
	if retryState == enumspb.RETRY_STATE_MAXIMUM_ATTEMPTS_REACHED && policy.MaxAttempts > 0 {
		end.attempts = count(policy.MaxAttempts)
	}

	switch cause := cause.(type) { //nolint:errorlint // the first cause decides, not one further in
	case *temporal.CanceledError:
		// A handler may return this error unasked; then it arrives wrapped, as an
		// application error, and is an ordinary failure.
		end.reason, end.text = job.ReasonCancelled, "the job was cancelled"
	case *temporal.TimeoutError:
		end.reason = timeoutReason(cause.TimeoutType())
		if cause.TimeoutType() == enumspb.TIMEOUT_TYPE_SCHEDULE_TO_START && end.started == 0 {
			end.attempts = count(0)
		}
	case *temporal.ApplicationError:
		end.reason = applicationReason(cause, retryState, jobType)
	case *temporal.ServerError:
		// The server refused the handler's result or failure, for its size.
		end.reason = job.ReasonFatalError
	default: // a panic, or a kind of failure that a later SDK adds
		end.reason = ordinaryReason(retryState)
	}
	// An unknown type is not retryable within its grace only, and then it ends no job.
	inGrace := end.reason == job.ReasonUnknownJobType && retryState == enumspb.RETRY_STATE_NON_RETRYABLE_FAILURE
	if jobCancelled && (retryState == enumspb.RETRY_STATE_CANCEL_REQUESTED || inGrace) {
		end.reason = job.ReasonCancelled
	}
	return end
}

// ordinaryReason is the reason of a failure that more attempts might have mended.
func ordinaryReason(retryState enumspb.RetryState) job.Reason {
	if retryState == enumspb.RETRY_STATE_TIMEOUT {
		// The attempt failed by itself; the next wait would have passed the age.
		return job.ReasonRetryLifetimeExpired
	}
	return job.ReasonMaxRetriesExceeded
}

func timeoutReason(kind enumspb.TimeoutType) job.Reason {
	switch kind {
	case enumspb.TIMEOUT_TYPE_HEARTBEAT:
		return job.ReasonZombie
	case enumspb.TIMEOUT_TYPE_START_TO_CLOSE:
		return job.ReasonTimeout
	case enumspb.TIMEOUT_TYPE_SCHEDULE_TO_CLOSE, enumspb.TIMEOUT_TYPE_SCHEDULE_TO_START:
		return job.ReasonRetryLifetimeExpired
	default:
		return job.ReasonTimeout
	}
}

func applicationReason(cause *temporal.ApplicationError, retryState enumspb.RetryState, jobType string) job.Reason {
	unknown := !cause.NonRetryable() && job.IsUnknownType(cause.Type(), cause.Message(), jobType)
	switch {
	case unknown && retryState != enumspb.RETRY_STATE_TIMEOUT:
		return job.ReasonUnknownJobType
	case cause.NonRetryable(), retryState == enumspb.RETRY_STATE_NON_RETRYABLE_FAILURE:
		return job.ReasonFatalError
	case cause.Type() == job.ThrottledErrorType && retryState != enumspb.RETRY_STATE_TIMEOUT:
		return job.ReasonThrottled
	default:
		return ordinaryReason(retryState)
	}
}

// maxErrorText bounds the last error inside the error that the job closes with;
// the dead letter keeps much more of it.
const maxErrorText = 1 << 10

// errorText is the message of the failure, for a timeout with the failure of the
// attempt before it.
func errorText(err error) string {
	var words string
	switch err := err.(type) { //nolint:errorlint // the words of this error, not of one further in
	case *temporal.ApplicationError:
		words = err.Message()
	case *temporal.TimeoutError:
		words = err.Message()
		if earlier := errors.Unwrap(err); earlier != nil {
			words = fmt.Sprintf("%s (the attempt before: %s)", words, errorText(earlier))
		}
	default:
		words = err.Error()
	}
	return text.Clipped(words, maxErrorText)
}
