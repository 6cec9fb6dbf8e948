package workflows

import (
	"fmt"
	"time"

	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/deadletter-dev/deadletter/internal/text"
	"github.com/deadletter-dev/deadletter/job"
)

// bury moves the dead job to the dead-letter table and returns the error that
// the job closes with.
func (w Workflows) bury(ctx workflow.Context, j running, end ending) error {
	if cancelled(end) && j.options.Policy.DiscardCancelled {
		w.settle(ctx, j, job.OutcomeCancelled)
		return temporal.NewCanceledError()
	}
	moved := w.move(ctx, j, end)
	if cancelled(end) {
		return temporal.NewCanceledError()
	}
	attempts := "an unknown number of"
	if moved.Attempts != nil {
		attempts = fmt.Sprint(*moved.Attempts)
	}
	return temporal.NewApplicationErrorWithOptions(
		fmt.Sprintf("dead-lettered: %s after %s attempts: %s", end.reason, attempts, end.words()),
		job.DeadLetteredErrorType,
		temporal.ApplicationErrorOptions{NonRetryable: true, Details: []any{job.DeadLettered{Reason: end.reason, Attempts: moved.Attempts}}},
	)
}

func cancelled(end ending) bool { return end.reason == job.ReasonCancelled }

// move runs the terminal activity until it has succeeded. The server retries it
// without limit, which adds no history: an outage of Postgres only delays it.
func (w Workflows) move(ctx workflow.Context, j running, end ending) job.MoveResult {
	// The job's ctx is cancelled when the job is; the move must still run.
	ctx, _ = workflow.NewDisconnectedContext(ctx)
	// Plain JSON: the workers of the dead-letter queue need not have the key of
	// the job's codec.
	ctx = workflow.WithDataConverter(ctx, converter.GetDefaultDataConverter())
	ctx = workflow.WithActivityOptions(ctx, w.storeActivityOptions())

	policy := j.options.Policy
	if policy.UnknownTypeGrace == job.DefaultUnknownTypeGrace {
		// Left out: a dead-letter worker of before it was refuses a field that it does not know.
		policy.UnknownTypeGrace = 0
	}
	input := job.MoveInput{
		Reason:           end.reason,
		JobType:          text.Clipped(j.options.Type, maxFaultText),
		TaskQueue:        text.Clipped(j.options.TaskQueue, maxFaultText),
		Policy:           policy,
		Tags:             j.options.Tags,
		Lineage:          j.lineage,
		OptionsReadable:  j.readable,
		Created:          j.created,
		Charged:          j.charged,
		Log:              withoutMessages(append(j.attempts, end.log...)),
		Note:             end.note,
		ScheduledEventID: end.scheduled,
		StartedEventID:   end.started,
		Attempts:         end.attempts,
		Fault:            end.fault,
	}
	if end.fault == nil && (end.scheduled == 0 || cancelled(end)) {
		// The history may have no failure that says why.
		input.Fault = &job.Fault{Message: end.text}
	}
	for {
		var result job.MoveResult
		err := workflow.ExecuteActivity(ctx, job.MoveActivityType, input).Get(ctx, &result)
		if err == nil && result.Moved {
			return result
		}
		// Only a person can end an activity that is retried without limit, by
		// failing or completing it through the API. The dead letter must be written all the same.
		workflow.GetLogger(ctx).Error("deadletter: the move was ended from outside and starts again", "error", err)
		_ = workflow.Sleep(ctx, 5*time.Second)
	}
}

// words are the last error and what we have to add.
func (e ending) words() string {
	if e.note == "" {
		return e.text
	}
	return e.text + " (" + e.note + ")"
}

// storeActivityOptions are those of every activity that needs Postgres: one
// attempt is bounded, their number is not.
func (w Workflows) storeActivityOptions() workflow.ActivityOptions {
	return workflow.ActivityOptions{
		TaskQueue:           w.TaskQueue,
		StartToCloseTimeout: time.Minute,
		RetryPolicy: &temporal.RetryPolicy{
			InitialInterval:    time.Second,
			BackoffCoefficient: 2,
			MaximumInterval:    30 * time.Second,
		},
	}
}
