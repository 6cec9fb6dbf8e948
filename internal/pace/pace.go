// Package pace makes requests to Temporal as fast as the server lets them through.
// A server limits the requests of a namespace, and of its visibility on their own:
// by default to ten lists and counts a second. What it refuses with
// RESOURCE_EXHAUSTED it has not done, so it is asked again, more slowly.
package pace

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"golang.org/x/time/rate"
	"google.golang.org/grpc"
)

const (
	// answerTimeout bounds one request: a server that takes it and never answers
	// must not hold the caller for ever.
	answerTimeout = 30 * time.Second
	// refusedTimeout is how long one request is repeated.
	refusedTimeout = time.Minute
	// firstLimit is the rate after the first refusal, in requests per second: until
	// then nothing is known of the server's.
	firstLimit = 32
	// leastLimit is the slowest.
	leastLimit = 1
	// A refusal slows a lane by slower, once in slowEvery: requests that were under
	// way together are refused together. A time without one makes it faster again.
	// Between the two the server has room for the workers, whose polls it refuses
	// before it refuses a read.
	slower, slowEvery = 0.7, 500 * time.Millisecond
	faster, fastEvery = 1.1, time.Second
)

// Service is a Temporal service that paces the requests which its methods make. Those
// that it does not name go straight to the service below. It does not repeat what
// failed for another cause: a server that is away is told of at once. It is safe for
// concurrent use.
type Service struct {
	workflowservice.WorkflowServiceClient
	onLimited func(error)
	once      sync.Once
	// The server counts both kinds of requests by themselves.
	executions, visibility lane
}

// New returns a service on another. onLimited, if not nil, is called once, by one of
// the callers, when the server refuses a request for its limits for the first time.
func New(service workflowservice.WorkflowServiceClient, onLimited func(error)) *Service {
	return &Service{WorkflowServiceClient: service, onLimited: onLimited, executions: newLane(), visibility: newLane()}
}

// lane is a kind of requests with one limit at the server.
type lane struct {
	limiter *rate.Limiter // infinite until a refusal

	mu      *sync.Mutex
	changed time.Time // of the limiter
	refusal error     // the latest
}

func newLane() lane { return lane{limiter: rate.NewLimiter(rate.Inf, 1), mu: new(sync.Mutex)} }

// wait returns when a request may be made.
func (l *lane) wait(ctx context.Context) error {
	turn := l.limiter.Reserve()
	timer := time.NewTimer(turn.Delay())
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		turn.Cancel()
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.refusal == nil {
			return ctx.Err()
		}
		return fmt.Errorf("%w while Temporal limits the requests: %w", ctx.Err(), l.refusal)
	}
}

func (l *lane) refused(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refusal = err
	switch limit := l.limiter.Limit(); {
	case limit == rate.Inf:
		l.set(firstLimit)
	case time.Since(l.changed) >= slowEvery:
		l.set(max(limit*slower, leastLimit))
	}
}

func (l *lane) answered() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if limit := l.limiter.Limit(); limit != rate.Inf && time.Since(l.changed) >= fastEvery {
		l.set(limit * faster)
	}
}

func (l *lane) set(limit rate.Limit) {
	l.limiter.SetLimit(limit)
	l.changed = time.Now()
}

// call makes one request, and repeats it while the server refuses it for its limits.
func call[Q, R any](
	ctx context.Context, s *Service, l *lane, do func(context.Context, Q, ...grpc.CallOption) (R, error), request Q, options []grpc.CallOption,
) (R, error) {
	var first time.Time
	for {
		if err := l.wait(ctx); err != nil {
			var none R
			return none, err
		}
		answer, err := try(ctx, do, request, options)
		// A message that is too large for gRPC has another Go type from the SDK.
		var limited *serviceerror.ResourceExhausted
		if !errors.As(err, &limited) {
			l.answered()
			return answer, err
		}
		l.refused(err)
		if s.onLimited != nil {
			s.once.Do(func() { s.onLimited(err) })
		}
		switch {
		case first.IsZero():
			first = time.Now()
		case time.Since(first) > refusedTimeout:
			return answer, fmt.Errorf("the Temporal server has refused this for %s: %w", refusedTimeout, err)
		}
	}
}

func try[Q, R any](
	ctx context.Context, do func(context.Context, Q, ...grpc.CallOption) (R, error), request Q, options []grpc.CallOption,
) (R, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	return do(ctx, request, options...)
}
