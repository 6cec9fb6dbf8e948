package activities

import (
	"context"
	"math"
	"math/rand/v2"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"

	"github.com/deadletter-dev/deadletter/internal/text"
	"github.com/deadletter-dev/deadletter/job"
)

// fail turns a handler's error into what the server and the job's workflow are
// told, and leaves the log of attempts to the next one.
func (a *attempt) fail(ctx context.Context, err error) error {
	if passes(err, ctx.Err() != nil) {
		return err
	}
	v := judge(err)
	if v.stack != "" {
		activity.GetLogger(ctx).Error("deadletter: a handler panicked", "stack", v.stack)
	}
	free := job.IsFree(v.kind)
	record := job.AttemptRecord{
		// The server's clock, as in all that the history holds.
		Attempt: a.number(), Started: a.info.StartedTime.UTC(), Ended: a.info.StartedTime.Add(time.Since(a.started)).UTC(),
		Identity: a.options.identity(), Type: v.kind, Message: text.Bounded(v.message, job.MaxRecordText),
	}
	var wait time.Duration
	final := v.nonRetryable || free || a.isLast()
	if !final {
		wait = a.wait(v)
		record.Wait = &wait
	}
	log := a.withGaps()
	if !free {
		log = job.AddRecord(log, record)
	}
	if !final {
		// An attempt whose time has run out is not reported by the SDK.
		if hold := a.options.HoldHeartbeats; hold != nil && ctx.Err() == nil {
			hold(a.info.TaskToken)
		}
		a.heart.leave(ctx, log)
	}
	if free {
		v.nonRetryable = true
	}
	trailer := job.Trailer{Version: job.TrailerVersion, Attempt: int(a.info.Attempt), Attempts: log, Heartbeat: a.heart.checkpoint()}
	return v.wire(trailer, wait, a.options.PlainFailures != nil && a.options.PlainFailures())
}

func (a *attempt) isLast() bool {
	policy := a.info.RetryPolicy
	return policy != nil && policy.MaximumAttempts > 0 && a.info.Attempt >= policy.MaximumAttempts
}

// withGaps is the log with a record for each attempt that left none: its worker
// was lost, or its time ran out.
func (a *attempt) withGaps() []job.AttemptRecord {
	log := a.heart.log
	next := a.plan.Charged + 1
	if len(log) > 0 {
		next = log[len(log)-1].Attempt + 1
	}
	// More of them than a log holds would only push each other out.
	for n := max(next, a.number()-maxGaps); n < a.number(); n++ {
		log = job.AddRecord(log, job.AttemptRecord{Attempt: n, Message: notRecorded})
	}
	return log
}

const maxGaps = 50

// wait is how long to wait before the next attempt.
func (a *attempt) wait(v verdict) time.Duration {
	switch {
	case v.kind == job.ThrottledErrorType:
		return a.capped(throttleOf(v))
	case v.asked > 0:
		return v.asked // the handler's own choice, as the SDK has it
	case a.info.RetryPolicy == nil: // Temporal's test environment
		return 0
	}
	jitter := time.Duration(0)
	if a.plan.JitterMaxDelay > 0 {
		jitter = rand.N(a.plan.JitterMaxDelay)
	}
	return a.capped(Backoff(*a.info.RetryPolicy, a.number(), jitter))
}

// capped keeps a wait under max_delay, and above zero, which would mean to the
// server that none was asked for.
func (a *attempt) capped(wait time.Duration) time.Duration {
	if a.plan.MaxDelay > 0 {
		wait = min(wait, a.plan.MaxDelay)
	}
	return max(wait, time.Millisecond)
}

// Backoff is the wait before attempt n+1: min(base · multiplier^(n-1), cap) plus
// the jitter, clipped at the cap. It neither overflows nor goes below zero, for
// any n.
func Backoff(policy temporal.RetryPolicy, n int, jitter time.Duration) time.Duration {
	limit := policy.MaximumInterval
	if limit <= 0 {
		limit = math.MaxInt64
	}
	wait := job.Backoff(policy.InitialInterval, policy.BackoffCoefficient, limit, n)
	if room := limit - wait; jitter < room {
		return wait + max(jitter, 0)
	}
	return limit
}

func throttleOf(v verdict) time.Duration {
	if len(v.details) == 0 {
		return v.asked
	}
	switch detail := v.details[0].(type) {
	case job.Throttle:
		wait, _ := time.ParseDuration(detail.RetryAfter)
		return wait
	default:
		return v.asked
	}
}
