package activities

import (
	"fmt"
	"sync"
	"time"

	"github.com/sony/gobreaker/v2"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"

	"github.com/deadletter-dev/deadletter/job"
)

// CircuitBreaker says when a worker stops calling the handlers of a job type that
// keep failing. Each worker process has one breaker per job type.
type CircuitBreaker struct {
	// Threshold is how many transient failures within Window open the breaker. Zero
	// means that there is none.
	Threshold uint32
	// Window is how far back failures count. Zero means 1m.
	Window time.Duration
	// OpenTime is how long an open breaker refuses before it lets probes through.
	// Zero means 30s.
	OpenTime time.Duration
	// HalfOpenProbes is how many handlers may run then; when as many have succeeded
	// the breaker closes, and the first transient failure opens it again. Zero means 1.
	HalfOpenProbes uint32
	// PerType overrides all of this for a job type. PerType inside it is ignored.
	PerType map[string]CircuitBreaker
	// OnStateChange, if set, is told of each change, in words: "closed", "open" or
	// "half-open". It is called with a lock held: it must return at once.
	OnStateChange func(jobType, from, to string)
}

// Breakers are the circuit breakers of one worker process. A nil one never
// refuses. It is safe for concurrent use.
type Breakers struct {
	config CircuitBreaker
	mu     sync.Mutex
	byType map[string]*gobreaker.TwoStepCircuitBreaker[any]
}

// NewBreakers returns the breakers, or nil when none is configured.
func NewBreakers(config CircuitBreaker) *Breakers {
	if config.Threshold == 0 && len(config.PerType) == 0 {
		return nil
	}
	return &Breakers{config: config, byType: map[string]*gobreaker.TwoStepCircuitBreaker[any]{}}
}

// allow asks whether the handler may run. report must be told how it ended.
func (b *Breakers) allow(info activity.Info) (report func(error), refused error) {
	nobody := func(error) {}
	if b == nil {
		return nobody, nil
	}
	breaker := b.of(info.ActivityType.Name)
	if breaker == nil {
		return nobody, nil
	}
	done, err := breaker.Allow()
	if err != nil {
		return nobody, temporal.NewApplicationErrorWithOptions(
			fmt.Sprintf("the circuit breaker of %s is %s", info.ActivityType.Name, breaker.State()),
			job.CircuitOpenErrorType, temporal.ApplicationErrorOptions{NonRetryable: true})
	}
	return done, nil
}

// of returns the breaker of a job type, nil when it has none.
func (b *Breakers) of(jobType string) *gobreaker.TwoStepCircuitBreaker[any] {
	b.mu.Lock()
	defer b.mu.Unlock()
	breaker, known := b.byType[jobType]
	if !known {
		config, own := b.config.PerType[jobType]
		if !own {
			config = b.config
		}
		if config.Threshold > 0 {
			breaker = b.newBreaker(jobType, config)
		}
		b.byType[jobType] = breaker
	}
	return breaker
}

// windowBuckets is how finely a window rolls.
const windowBuckets = 10

func (b *Breakers) newBreaker(jobType string, config CircuitBreaker) *gobreaker.TwoStepCircuitBreaker[any] {
	window, open := config.Window, config.OpenTime
	if window <= 0 {
		window = time.Minute
	}
	if open <= 0 {
		open = 30 * time.Second
	}
	return gobreaker.NewTwoStepCircuitBreaker[any](gobreaker.Settings{
		Name:         jobType,
		MaxRequests:  config.HalfOpenProbes, // 0 is 1 there too
		Interval:     window,
		BucketPeriod: max(window/windowBuckets, time.Millisecond),
		Timeout:      open,
		ReadyToTrip:  func(counts gobreaker.Counts) bool { return counts.TotalFailures >= config.Threshold },
		IsExcluded:   isNoVerdict,
		OnStateChange: func(name string, from, to gobreaker.State) {
			if b.config.OnStateChange != nil {
				b.config.OnStateChange(name, from.String(), to.String())
			}
		},
	})
}

// isNoVerdict reports whether an error says nothing of what the handler depends
// on: a fatal one is the job's own fault, a snooze or a shutdown is nobody's.
// Otherwise one poisoned job could close the road for its whole type.
func isNoVerdict(err error) bool {
	if err == nil {
		return false
	}
	if isCancellation(err) || passes(err, false) {
		return true
	}
	v := judge(err)
	return v.nonRetryable || job.IsFree(v.kind)
}
