package workflows

import (
	"fmt"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/deadletter-dev/deadletter/internal/text"
	"github.com/deadletter-dev/deadletter/job"
)

// ageLeft returns how long the job may still live, 0 for no limit, or its ending
// when it is too old already.
func (j *running) ageLeft(ctx workflow.Context) (time.Duration, *ending) {
	limit := j.options.Policy.MaxJobAge
	if limit < 0 {
		return 0, nil
	}
	left := j.due.Add(limit).Sub(workflow.Now(ctx))
	if left <= 0 {
		return 0, j.tooLate(workflow.Now(ctx))
	}
	return left, nil
}

// tooLate is the ending of a job whose next attempt would be past its age.
func (j *running) tooLate(next time.Time) *ending {
	end := &ending{reason: job.ReasonRetryLifetimeExpired, attempts: count(j.charged), text: "no worker picked the job up in time", note: j.ageNote(nil)}
	if j.last != nil {
		end.text, end.note = text.Clipped(j.last.text, maxErrorText), j.ageNote(&next)
		end.fault = &job.Fault{Type: j.last.kind, Message: end.text}
		if j.last.kind == job.CircuitOpenErrorType {
			end.reason = job.ReasonCircuitBreakerOpen
		}
	}
	return end
}

// ageNote says when the job was too old, and why: planned is when the next
// attempt would have been, nil when that is not known.
func (j *running) ageNote(planned *time.Time) string {
	stamp := func(at time.Time) string { return at.UTC().Format(time.RFC3339) }
	note := fmt.Sprintf("created %s, due %s, max_job_age %s ended %s",
		stamp(j.created), stamp(j.due), j.options.Policy.MaxJobAge, stamp(j.due.Add(j.options.Policy.MaxJobAge)))
	if planned != nil {
		note += ", the next attempt was planned for " + stamp(*planned)
	}
	return note
}

// startDelay returns how long after its start the job was due. Enqueue puts it
// into the options. A replay starts at once, whatever its original did. For a
// bare start the SDK does not tell; the job's history does, but asking costs a
// history event, so it is asked only when the answer can matter: when more than
// a tenth of the age was gone before the first task.
func (j *running) startDelay(ctx workflow.Context) time.Duration {
	if j.lineage.Generation > 0 {
		return 0
	}
	if j.options.StartDelay != nil {
		return *j.options.StartDelay
	}
	waited := workflow.Now(ctx).Sub(workflow.GetInfo(ctx).WorkflowStartTime)
	if waited <= j.options.Policy.MaxJobAge/10 {
		return 0
	}
	// Retried without limit: the server that answers is the one that runs us.
	ctx = workflow.WithLocalActivityOptions(ctx, workflow.LocalActivityOptions{StartToCloseTimeout: 10 * time.Second})
	var delay time.Duration
	if err := workflow.ExecuteLocalActivity(ctx, job.StartDelayActivityType).Get(ctx, &delay); err != nil {
		// Only a cancellation ends it without an answer; the caller sees that next.
		return 0
	}
	return delay
}
