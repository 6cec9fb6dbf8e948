package job

import (
	"fmt"
	"slices"
)

// Reason says why a job is dead: a closed set, the same text in Postgres, in
// JSON and on the command line.
type Reason string

// The reasons.
const (
	ReasonMaxRetriesExceeded   Reason = "max_retries_exceeded"   // the attempt budget is spent
	ReasonFatalError           Reason = "fatal_error"            // classified as non-transient; also invalid options
	ReasonCancelled            Reason = "cancelled"              // an operator or the runtime cancelled the job
	ReasonZombie               Reason = "zombie"                 // the heartbeat expired
	ReasonCircuitBreakerOpen   Reason = "circuit_breaker_open"   // the age ran out while the breaker refused execution
	ReasonThrottled            Reason = "throttled"              // the budget is spent and the last failure was a throttle
	ReasonRetryLifetimeExpired Reason = "retry_lifetime_expired" // too old, or the next wait would make it so
	ReasonTimeout              Reason = "timeout"                // the last attempt passed attempt_timeout
	ReasonUnknownJobType       Reason = "unknown_job_type"       // no worker knew the type: the grace is over and the budget is spent
	ReasonTerminated           Reason = "terminated"             // terminated or timed out from outside
)

// Reasons returns the whole set, in the order of the documentation.
func Reasons() []Reason {
	return []Reason{
		ReasonMaxRetriesExceeded, ReasonFatalError, ReasonCancelled, ReasonZombie, ReasonCircuitBreakerOpen,
		ReasonThrottled, ReasonRetryLifetimeExpired, ReasonTimeout, ReasonUnknownJobType, ReasonTerminated,
	}
}

// ParseReason returns the reason with that exact text, or an error that lists
// the set.
func ParseReason(text string) (Reason, error) {
	if r := Reason(text); slices.Contains(Reasons(), r) {
		return r, nil
	}
	return "", fmt.Errorf("job: %q is not a reason; use one of %v", text, Reasons())
}
