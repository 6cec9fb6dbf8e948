package activities

import (
	"context"
	"sync"
	"time"

	"go.temporal.io/sdk/interceptor"
)

// maxHeartbeatDetails is how many values of one heartbeat survive into the next
// attempt when the handler itself stays silent.
const maxHeartbeatDetails = 16

// heart beats for a handler while it runs. A beat without details would erase
// the handler's own, so each one repeats the last that there were.
type heart struct {
	interceptor.ActivityOutboundInterceptorBase

	mu      sync.Mutex
	details []any
}

// RecordHeartbeat notes the handler's own details on their way to the server.
func (h *heart) RecordHeartbeat(ctx context.Context, details ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.details = details
	h.Next.RecordHeartbeat(ctx, details...)
}

// start beats four times per timeout, which leaves room for a lost beat, until
// stop is called; stop waits for a beat in flight.
func (h *heart) start(ctx context.Context, timeout time.Duration) (stop func()) {
	h.details = previousDetails(ctx, h.Next)
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		ticker := time.NewTicker(max(timeout/4, time.Millisecond))
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				h.beat(ctx)
			}
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

func (h *heart) beat(ctx context.Context) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if ctx.Err() == nil {
		h.Next.RecordHeartbeat(ctx, h.details...)
	}
}
