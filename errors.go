package deadletter

import (
	"errors"

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
