package deadletter

import (
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
	// NoUpkeep keeps a worker of the dead-letter queue to its activities. By default
	// it also keeps the operator workflow and the sweep's schedule running in its
	// namespace, and finishes replays that were interrupted. A guest in a namespace
	// whose upkeep is somebody else's sets it.
	NoUpkeep bool
	// CircuitBreaker stops the calls of handlers that keep failing. The zero value
	// has none. A refusal costs the job no attempt and waits circuit_breaker_delay.
	CircuitBreaker CircuitBreaker
}

// CircuitBreaker says when a worker stops calling the handlers of a job type.
type CircuitBreaker = activities.CircuitBreaker
