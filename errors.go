package deadletter

import (
	"errors"
	"time"

	"go.temporal.io/sdk/temporal"

	"github.com/deadletter-dev/deadletter/job"
)

// Fatal marks a handler's error as one that no retry will mend: the job is
// dead-lettered at once with reason fatal_error. Any other non-retryable
// application error means the same, also inside fmt.Errorf("%w") or errors.Join.
// Fatal(nil) is nil.
func Fatal(err error) error {
	if err == nil {
		return nil
	}
	return temporal.NewApplicationErrorWithOptions(err.Error(), job.FatalErrorType,
		temporal.ApplicationErrorOptions{NonRetryable: true, Cause: err})
}

// Throttled marks a failure by which a callee asks for patience. It costs an
// attempt, and the next one waits retryAfter, capped at max_delay and without
// jitter; 0 means at once. When it spends the budget the reason is throttled. It
// means the same inside fmt.Errorf("%w") or errors.Join. Throttled(nil, …) is nil.
//
// A handler in another language raises an application failure of type
// "deadletter.Throttled" with the next retry delay of its SDK.
func Throttled(err error, retryAfter time.Duration) error {
	if err == nil {
		return nil
	}
	return temporal.NewApplicationErrorWithOptions(err.Error(), job.ThrottledErrorType, temporal.ApplicationErrorOptions{
		Cause: err, Details: []any{job.Throttle{RetryAfter: retryAfter.String()}},
	})
}

// Snooze asks to run the job again after d, free of charge: nothing has failed,
// it is only not yet time. The job's maximum age still bounds it. A handler
// returns it as its error; it means the same inside fmt.Errorf("%w") or
// errors.Join.
//
// A handler in another language raises an application failure of type
// "deadletter.Snooze" with the detail {"delay": "10s"}.
func Snooze(d time.Duration, reason string) error {
	return temporal.NewApplicationErrorWithOptions("snoozed: "+reason, job.SnoozeErrorType, temporal.ApplicationErrorOptions{
		NonRetryable: true, Details: []any{job.Snooze{Delay: max(d, 0).String(), Reason: reason}},
	})
}

// DeadLettered tells how a job was dead-lettered.
type DeadLettered = job.DeadLettered

// AsDeadLettered reports whether err, from a job's WorkflowRun.Get or from a
// child workflow, says that the job was dead-lettered, and how. A cancelled job
// closes as Canceled and is not among them, although it has a dead letter.
func AsDeadLettered(err error) (DeadLettered, bool) {
	var details DeadLettered
	failure, ok := errors.AsType[*temporal.ApplicationError](err)
	if !ok || failure.Type() != job.DeadLetteredErrorType {
		return details, false
	}
	// Without readable details it was dead-lettered all the same.
	_ = failure.Details(&details)
	return details, true
}
