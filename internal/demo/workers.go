package demo

import (
	"context"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
)

// Queues are the two task queues that a process serves.
type Queues struct {
	DeadLetters string // the client's plugin must have the store
	Jobs        string // the sample handlers
}

// Serve runs a worker on each queue until ctx is done, and returns when what was
// in flight has ended. The error is nil if ctx ended it, else what broke a worker.
// It calls ready, unless nil, when both have started.
func Serve(ctx context.Context, c client.Client, queues Queues, handlers *Handlers, ready func()) error {
	broken := make(chan error, 2) // one for each worker
	options := worker.Options{OnFatalError: func(err error) { broken <- err }}

	deadLetters := worker.New(c, queues.DeadLetters, options)
	jobs := worker.New(c, queues.Jobs, options)
	handlers.Register(jobs)
	for _, w := range []worker.Worker{deadLetters, jobs} {
		if err := w.Start(); err != nil {
			return err
		}
		defer w.Stop()
	}
	if ready != nil {
		ready()
	}
	select {
	case <-ctx.Done():
		return nil
	case err := <-broken:
		return err
	}
}
