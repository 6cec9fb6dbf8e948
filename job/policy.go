package job

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"
)

// Policy says how a job is retried and when automatic execution stops. It is
// fixed when the job is enqueued.
//
// One rule for every number and duration: zero takes the default, negative
// means "no limit" or "off". On the wire durations are Go duration strings.
type Policy struct {
	// MaxAttempts counts the first run too. Zero means 3; negative means no limit.
	MaxAttempts int
	// BaseDelay is the wait before the second attempt. Zero means 3s; negative
	// means at once. The server's timers make a wait below 1s about 1s.
	BaseDelay time.Duration
	// BackoffMultiplier multiplies the wait after each attempt. Zero means 2; 1 keeps
	// the wait constant; other values below 1 are refused.
	BackoffMultiplier float64
	// MaxDelay caps the wait, jitter included. Zero means 1h; negative means no cap.
	MaxDelay time.Duration
	// JitterMaxDelay is the upper end of the random addition to each wait. Zero
	// means 1s; negative means none.
	JitterMaxDelay time.Duration
	// CircuitBreakerDelay is the wait after an open breaker refused an attempt.
	// Zero means 5s; negative means at once.
	CircuitBreakerDelay time.Duration
	// MaxJobAge bounds the job's life, counted from when it was due (start time
	// plus start delay). Zero means 24h; negative means no limit.
	MaxJobAge time.Duration
	// AttemptTimeout bounds one attempt. Zero means 15m; negative means no limit.
	AttemptTimeout time.Duration
	// HeartbeatTimeout is how long a running attempt may stay silent before its
	// worker is taken for dead. Zero means 1m for a job enqueued through Enqueue,
	// whose Go workers heartbeat by themselves, and off for a job started in any
	// other way; negative means off.
	HeartbeatTimeout time.Duration
	// RetryZombies retries an attempt whose heartbeat expired. Its side effects
	// are unknown then, so the default is to dead-letter it at once.
	RetryZombies bool
	// DeadLetterTimeouts dead-letters the job on the first attempt that passes
	// AttemptTimeout, instead of retrying it.
	DeadLetterTimeouts bool
	// DiscardCancelled drops a cancelled job instead of dead-lettering it.
	DiscardCancelled bool
	// UnknownTypeGrace is for how long, from the first time that a worker did not know
	// the job type, such attempts cost nothing: in a rolling deploy a newer worker may
	// still take the job. The budget is spent after it. Zero means 5m; negative means
	// none.
	UnknownTypeGrace time.Duration
}

// The defaults of a Policy.
const (
	DefaultMaxAttempts         = 3
	DefaultBaseDelay           = 3 * time.Second
	DefaultBackoffMultiplier   = 2.0
	DefaultMaxDelay            = time.Hour
	DefaultJitterMaxDelay      = time.Second
	DefaultCircuitBreakerDelay = 5 * time.Second
	DefaultMaxJobAge           = 24 * time.Hour
	DefaultAttemptTimeout      = 15 * time.Minute
	DefaultUnknownTypeGrace    = 5 * time.Minute
	// DefaultEnqueueHeartbeatTimeout is used by Enqueue only; a bare start has none.
	DefaultEnqueueHeartbeatTimeout = time.Minute
)

// WithDefaults returns the policy with every zero number and duration replaced
// by its default. HeartbeatTimeout becomes -1s (off): its default is the caller's.
func (p Policy) WithDefaults() Policy {
	if p.MaxAttempts == 0 {
		p.MaxAttempts = DefaultMaxAttempts
	}
	if p.BackoffMultiplier == 0 {
		p.BackoffMultiplier = DefaultBackoffMultiplier
	}
	for _, field := range []struct {
		value    *time.Duration
		standard time.Duration
	}{
		{&p.BaseDelay, DefaultBaseDelay},
		{&p.MaxDelay, DefaultMaxDelay},
		{&p.JitterMaxDelay, DefaultJitterMaxDelay},
		{&p.CircuitBreakerDelay, DefaultCircuitBreakerDelay},
		{&p.MaxJobAge, DefaultMaxJobAge},
		{&p.AttemptTimeout, DefaultAttemptTimeout},
		{&p.UnknownTypeGrace, DefaultUnknownTypeGrace},
		{&p.HeartbeatTimeout, -time.Second},
	} {
		if *field.value == 0 {
			*field.value = field.standard
		}
	}
	return p
}

// Backoff is the wait before attempt n+1 without jitter: min(base · multiplier^(n-1),
// limit). A limit of 0 or less means none. It neither overflows nor goes below zero,
// for any n.
func Backoff(base time.Duration, multiplier float64, limit time.Duration, n int) time.Duration {
	if limit <= 0 {
		limit = math.MaxInt64
	}
	grown := float64(max(base, 0)) * math.Pow(max(multiplier, 1), float64(max(n-1, 0)))
	if grown < float64(limit) {
		return time.Duration(grown)
	}
	return limit
}

// Validate returns every fault of the policy joined into one error, or nil.
func (p Policy) Validate() error {
	var faults []error
	if p.MaxAttempts > math.MaxInt32 {
		faults = append(faults, fmt.Errorf("max_attempts: %d is above %d; use -1 for no limit", p.MaxAttempts, math.MaxInt32))
	}
	if m := p.BackoffMultiplier; m != 0 && (!(m >= 1) || math.IsInf(m, 0)) {
		faults = append(faults, fmt.Errorf("backoff_multiplier: %v is not a number of at least 1; use 1 for a constant wait", m))
	}
	if hb := p.HeartbeatTimeout; hb > 0 && hb < minHeartbeatTimeout {
		faults = append(faults, fmt.Errorf("heartbeat_timeout: %s is too short for heartbeats to keep up; use at least %s, or -1s for off", hb, minHeartbeatTimeout))
	}
	return errors.Join(faults...)
}

// minHeartbeatTimeout leaves four heartbeats time to make their way.
const minHeartbeatTimeout = 100 * time.Millisecond

// policyFields lists the wire names beside the field that each fills.
func (p *Policy) policyFields() (durations map[string]*time.Duration, flags map[string]*bool) {
	durations = map[string]*time.Duration{
		"base_delay":            &p.BaseDelay,
		"max_delay":             &p.MaxDelay,
		"jitter_max_delay":      &p.JitterMaxDelay,
		"circuit_breaker_delay": &p.CircuitBreakerDelay,
		"max_job_age":           &p.MaxJobAge,
		"attempt_timeout":       &p.AttemptTimeout,
		"heartbeat_timeout":     &p.HeartbeatTimeout,
		"unknown_type_grace":    &p.UnknownTypeGrace,
	}
	flags = map[string]*bool{
		"retry_zombies":        &p.RetryZombies,
		"dead_letter_timeouts": &p.DeadLetterTimeouts,
		"discard_cancelled":    &p.DiscardCancelled,
	}
	return durations, flags
}

// MarshalJSON writes the wire form. Zero fields are left out.
func (p Policy) MarshalJSON() ([]byte, error) {
	out := map[string]any{}
	if p.MaxAttempts != 0 {
		out["max_attempts"] = p.MaxAttempts
	}
	if p.BackoffMultiplier != 0 {
		out["backoff_multiplier"] = p.BackoffMultiplier
	}
	durations, flags := p.policyFields()
	for name, d := range durations {
		if *d != 0 {
			out[name] = d.String()
		}
	}
	for name, f := range flags {
		if *f {
			out[name] = true
		}
	}
	return json.Marshal(out)
}

// UnmarshalJSON reads the wire form. The error joins every fault: wrong types,
// durations that do not parse, names that no field has, and what Validate finds.
func (p *Policy) UnmarshalJSON(data []byte) error {
	fields, faults, err := decodeObject("policy", data)
	if err != nil {
		return err
	}
	var read Policy
	durations, flags := read.policyFields()
	for _, name := range sortedKeys(fields) {
		value := fields[name]
		if string(value) == "null" {
			continue // the same as a missing field
		}
		var fault error
		switch {
		case name == "max_attempts":
			read.MaxAttempts, fault = decodeInt(value)
		case name == "backoff_multiplier":
			fault = decodeAs(value, &read.BackoffMultiplier, "a number")
		case durations[name] != nil:
			*durations[name], fault = decodeDuration(value)
		case flags[name] != nil:
			fault = decodeAs(value, flags[name], "true or false")
		default:
			fault = errors.New("the policy has no such field")
		}
		if fault != nil {
			faults = append(faults, fmt.Errorf("%s: %w", name, fault))
		}
	}
	if fault := read.Validate(); fault != nil {
		faults = append(faults, fault)
	}
	if len(faults) > 0 {
		return errors.Join(faults...)
	}
	*p = read
	return nil
}
