package workflows

import (
	"errors"
	"time"

	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/deadletter-dev/deadletter/job"
)

// free is an execution of the handler that ended without a charge: snoozed,
// refused by an open circuit breaker, interrupted by its worker's shutdown, or on a
// worker that does not know the type, within the grace for that.
type free struct {
	kind    string // one of job.FreeErrorTypes, or of an unknown type
	unknown bool
	// attempt is the number of its last attempt where the server has told it, else 0.
	attempt int
	delay   time.Duration
	text    string
	trailer job.Trailer
	started int64
}

// asFree reports whether a handler's final failure costs nothing.
func asFree(err error) (free, bool) {
	activity, ok := errors.AsType[*temporal.ActivityError](err)
	if !ok {
		return free{}, false
	}
	failure, ok := activity.Unwrap().(*temporal.ApplicationError) //nolint:errorlint // the first cause decides
	if !ok || !job.IsFree(failure.Type()) {
		return free{}, false
	}
	f := free{kind: failure.Type(), text: failure.Message(), started: activity.StartedEventID()}
	f.trailer, _ = readTrailer(err)
	var snooze job.Snooze
	if f.kind == job.SnoozeErrorType && failure.HasDetails() && failure.Details(&snooze) == nil {
		// One that does not parse is none: the age bounds how often.
		f.delay, _ = time.ParseDuration(snooze.Delay)
	}
	return f, true
}

// reschedule waits until the handler's next execution is due, or returns the
// job's ending when that would be too late.
func (j *running) reschedule(ctx workflow.Context, f free) *ending {
	j.last = &f
	// The attempts before the last one of the execution failed and are charged.
	charged := max(j.attemptOf(ctx, f)-1, 0)
	j.charged += charged
	j.attempts = job.AddRecord(j.attempts, f.trailer.Attempts...)
	j.noteUnknown(workflow.Now(ctx), f, charged)
	switch {
	case f.unknown:
		f.delay = j.graceWait(workflow.Now(ctx))
	case f.kind == job.CircuitOpenErrorType:
		f.delay = max(j.options.Policy.CircuitBreakerDelay, 0)
	}
	if limit := j.options.Policy.MaxJobAge; limit > 0 {
		next := workflow.Now(ctx).Add(f.delay)
		if !next.Before(j.due.Add(limit)) {
			return j.tooLate(next)
		}
	}
	if wait(ctx, f.delay) != nil || ctx.Err() != nil {
		end := j.cancelledWaiting()
		return &end
	}
	return nil
}

// wait returns after the delay, at the signal that ends it early, or with an error
// when the job is cancelled.
func wait(ctx workflow.Context, delay time.Duration) error {
	timed, stop := workflow.WithCancel(ctx)
	defer stop()
	var err error
	workflow.NewSelector(ctx).
		AddFuture(workflow.NewTimer(timed, delay), func(timer workflow.Future) { err = timer.Get(ctx, nil) }).
		AddReceive(retryNow(ctx), func(signals workflow.ReceiveChannel, _ bool) { signals.ReceiveAsync(nil) }).
		Select(ctx)
	return err
}

// dropRetryNow forgets the signals that the handler's next execution answers.
func dropRetryNow(ctx workflow.Context) {
	for retryNow(ctx).ReceiveAsync(nil) {
	}
}

func retryNow(ctx workflow.Context) workflow.ReceiveChannel {
	return workflow.GetSignalChannelWithOptions(ctx, job.RetryNowSignal, workflow.SignalChannelOptions{
		Description: "Ends the wait that the job is in.",
	})
}

// attemptOf is the number of the execution's last attempt. A worker without the
// plugin does not tell it; the job's history does, for one more event.
func (j *running) attemptOf(ctx workflow.Context, f free) int {
	if known := max(f.trailer.Attempt, f.attempt); known > 0 {
		return known
	}
	ctx = workflow.WithLocalActivityOptions(ctx, workflow.LocalActivityOptions{StartToCloseTimeout: 10 * time.Second})
	var attempt int
	if workflow.ExecuteLocalActivity(ctx, job.AttemptActivityType, f.started).Get(ctx, &attempt) != nil {
		return 1 // the job was cancelled, which the caller sees next
	}
	return attempt
}

// readTrailer finds what the interceptor put behind the handler's own details, in
// the failure or, for a timeout, in the failure of the attempt before.
func readTrailer(err error) (job.Trailer, bool) {
	failure, ok := errors.AsType[*temporal.ApplicationError](err)
	if !ok || !failure.HasDetails() {
		return job.Trailer{}, false
	}
	raws := make([]converter.RawValue, job.MaxDetails+1)
	targets := make([]any, len(raws))
	for i := range raws {
		targets[i] = &raws[i]
	}
	if failure.Details(targets...) != nil {
		return job.Trailer{}, false
	}
	for i := len(raws) - 1; i >= 0; i-- {
		if payload := raws[i].Payload(); payload != nil {
			return job.ParseTrailer(payload.GetData())
		}
	}
	return job.Trailer{}, false
}

// plannedNext is when the attempt after the last recorded one was to start.
func plannedNext(trailer job.Trailer) *time.Time {
	if len(trailer.Attempts) == 0 {
		return nil
	}
	last := trailer.Attempts[len(trailer.Attempts)-1]
	if last.Wait == nil {
		return nil
	}
	at := last.Ended.Add(*last.Wait)
	return &at
}

// withoutMessages leaves a handler's words out: what is sent on in plain text must
// not hold them.
func withoutMessages(log []job.AttemptRecord) []job.AttemptRecord {
	log = job.AddRecord(nil, log...)
	for i := range log {
		log[i].Message = ""
	}
	return log
}

// continueAsNew goes on in a fresh run, with the same bytes and the budget and age
// that are left.
func (j *running) continueAsNew(ctx workflow.Context) error {
	ctx = workflow.WithValue(ctx, carryKey{}, job.Carried{
		Charged: j.charged, Created: j.created, Due: j.due, Attempts: withoutMessages(j.attempts), Unknown: j.unknown,
	})
	return workflow.NewContinueAsNewError(ctx, job.WorkflowType, append([]any{j.input}, j.args...)...)
}
