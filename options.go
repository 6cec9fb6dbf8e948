package deadletter

import (
	"errors"
	"fmt"
	"time"

	"github.com/deadletter-dev/deadletter/activities"
	"github.com/deadletter-dev/deadletter/dlqstore"
)

// Options configure a Plugin. The zero value serves jobs, with their dead
// letters on DefaultTaskQueue.
type Options struct {
	// Store keeps the dead letters. Nil means that this process runs jobs but does
	// not serve the dead-letter queue; a worker on that queue is then refused. The
	// plugin does not close it.
	Store *dlqstore.Store
	// TaskQueue is the task queue of the dead-letter activities, the same in all
	// processes. Empty means DefaultTaskQueue.
	TaskQueue string
	// MoveTx, if set, runs inside the transaction that writes a dead letter: delete
	// the legacy row, mark the order failed. Its error undoes the whole move, which
	// is then tried again, without limit. It needs a Store.
	MoveTx dlqstore.Hook
	// SweepInterval is how often the dead-letter workers look for jobs that closed
	// without a dead letter: terminated, timed out or failed from outside. They keep
	// schedule "deadletter-sweep" for it, made when it is missing; a worker that
	// starts with another interval changes it. Zero means DefaultSweepInterval, less
	// than a second is refused. Negative means off: no schedule is made, and one that
	// is there is left alone.
	SweepInterval time.Duration
	// RetentionInterval is how often the dead-letter workers remove what the
	// retention policies let go. They keep schedule "deadletter-retention" for it as
	// they keep the sweep's. Zero means DefaultRetentionInterval, less than a second
	// is refused. Negative means off.
	RetentionInterval time.Duration
	// NoUpkeep keeps a worker of the dead-letter queue to its activities. By default
	// it also keeps the operator workflow and the two schedules running in its
	// namespace, and finishes replays that were interrupted. A guest in a namespace
	// whose upkeep is somebody else's sets it.
	NoUpkeep bool
	// CircuitBreaker stops the calls of handlers that keep failing. The zero value
	// has none. A refusal costs the job no attempt and waits circuit_breaker_delay.
	CircuitBreaker CircuitBreaker
}

// CircuitBreaker says when a worker stops calling the handlers of a job type.
type CircuitBreaker = activities.CircuitBreaker

// validate returns every fault of the options in one error, or nil.
func (o *Options) validate() error {
	var faults []error
	for _, interval := range []struct {
		name  string
		value time.Duration
		what  string
	}{{"SweepInterval", o.SweepInterval, "sweep"}, {"RetentionInterval", o.RetentionInterval, "retention"}} {
		if interval.value > 0 && interval.value < time.Second {
			faults = append(faults, fmt.Errorf("deadletter: Options.%s %s: use 1s or more, or a negative one for no %s", interval.name, interval.value, interval.what))
		}
	}
	if o.MoveTx != nil && o.Store == nil {
		faults = append(faults, errors.New("deadletter: Options.MoveTx runs inside the store's transaction, and there is no Options.Store"))
	}
	return errors.Join(faults...)
}
