package activities

import (
	"context"
	"sync/atomic"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"

	"github.com/deadletter-dev/deadletter/job"
)

// untilShutdown returns the handler's context: it ends when its worker has been
// stopping for StopGrace, in time for the handler to return and be reported.
// interrupted tells whether the worker is stopping; release ends the watch.
func (a *attempt) untilShutdown(ctx context.Context) (handlerCtx context.Context, interrupted func() bool, release func()) {
	stopping := activity.GetWorkerStopChannel(ctx)
	handlerCtx, cancel := context.WithCancel(ctx)
	released := make(chan struct{})
	var stopped atomic.Bool
	go func() {
		select {
		case <-released:
			return
		case <-stopping:
			stopped.Store(true)
		}
		if a.options.StopGrace <= 0 {
			return
		}
		grace := time.NewTimer(a.options.StopGrace)
		defer grace.Stop()
		select {
		case <-released:
		case <-grace.C:
			cancel()
		}
	}()
	return handlerCtx, stopped.Load, func() {
		close(released)
		cancel()
	}
}

// shutdownError says that an attempt did not fail but was interrupted.
func shutdownError(err error) error {
	return temporal.NewApplicationErrorWithOptions("interrupted by the shutdown of its worker: "+err.Error(),
		job.WorkerShutdownErrorType, temporal.ApplicationErrorOptions{NonRetryable: true})
}
