package workflows

import (
	"errors"
	"fmt"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/deadletter-dev/deadletter/job"
)

// unknownTypeGrace guards the grace: jobs of before it were moved where a job of
// today waits. It is asked for on that path only, since the answer is an event.
const unknownTypeGrace = "deadletter.unknown-type-grace"

// minGraceWait keeps a policy without waits from filling the history.
const minGraceWait = time.Second

// graceLeft is for how much longer an attempt costs nothing when its worker does not
// know the job type.
func (j *running) graceLeft(now time.Time) time.Duration {
	grace := max(j.options.Policy.UnknownTypeGrace, 0)
	if j.unknown.Tries == 0 {
		return grace
	}
	return j.unknown.Since.Add(grace).Sub(now)
}

// asUnknown reports whether the handler's execution ended on a worker that does not
// know the job type, while such an end costs nothing: in a rolling deploy a newer
// worker may know it.
//
// A Go worker's answer comes at once. What other SDKs answer the server takes for a
// failure of the handler, so it comes with the last attempt of the budget, and only
// that one is free.
func (j *running) asUnknown(ctx workflow.Context, err error) (free, bool) {
	activity, ok := errors.AsType[*temporal.ActivityError](err)
	if !ok {
		return free{}, false
	}
	failure, ok := activity.Unwrap().(*temporal.ApplicationError) //nolint:errorlint // the first cause decides
	if !ok || failure.NonRetryable() || !job.IsUnknownType(failure.Type(), failure.Message(), j.options.Type) {
		return free{}, false
	}
	f := free{kind: failure.Type(), unknown: true, text: failure.Message(), started: activity.StartedEventID()}
	switch activity.RetryState() {
	case enumspb.RETRY_STATE_NON_RETRYABLE_FAILURE:
		// The execution began within the grace. It may end after it: the budget is spent
		// by the next one then.
	case enumspb.RETRY_STATE_MAXIMUM_ATTEMPTS_REACHED:
		if j.graceLeft(workflow.Now(ctx)) <= 0 {
			return free{}, false
		}
		f.attempt = j.options.Policy.MaxAttempts - j.charged
	default: // too old, or cancelled
		return free{}, false
	}
	if workflow.GetVersion(ctx, unknownTypeGrace, workflow.DefaultVersion, 1) == workflow.DefaultVersion {
		return free{}, false
	}
	return f, true
}

// noteUnknown keeps since when the type has been unknown without a break. Attempts
// that an execution is charged for before it ended so are a break: a worker ran them.
// The server's count of a spent budget does not tell who did.
func (j *running) noteUnknown(now time.Time, f free, charged int) {
	switch {
	case !f.unknown:
		j.unknown = job.UnknownType{}
	case j.unknown.Tries == 0 || charged > 0 && f.attempt == 0:
		j.unknown = job.UnknownType{Since: now, Tries: 1}
	default:
		j.unknown.Tries++
	}
}

// graceWait is the job's backoff, to the end of the grace at the longest.
func (j *running) graceWait(now time.Time) time.Duration {
	p := j.options.Policy
	wait := max(job.Backoff(p.BaseDelay, p.BackoffMultiplier, p.MaxDelay, j.unknown.Tries), minGraceWait)
	return min(wait, max(j.graceLeft(now), 0))
}

// graceNote says what the job did before it spent its budget, if anything.
func (j *running) graceNote() string {
	if j.unknown.Tries == 0 {
		return ""
	}
	grace := j.options.Policy.UnknownTypeGrace
	return fmt.Sprintf("free tries: %d, from %s to the end of unknown_type_grace %s", j.unknown.Tries, j.unknown.Since.UTC().Format(time.RFC3339), grace)
}
