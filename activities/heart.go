package activities

import (
	"context"
	"sync"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/interceptor"
	"google.golang.org/protobuf/proto"

	"github.com/deadletter-dev/deadletter/job"
)

// heart beats for a handler while it runs. Every beat carries our log of attempts
// in front and the handler's own details behind it: the server hands the last
// beat to the next attempt, and one without the handler's details would erase
// them. The handler sees only its own.
type heart struct {
	interceptor.ActivityOutboundInterceptorBase

	mu sync.Mutex
	// adopted is false for activities that are no handlers: then all passes through.
	adopted bool
	// wrapped is true when the details of the attempt before have ours in front.
	wrapped bool
	attempt int
	log     []job.AttemptRecord
	// previous are the details that an earlier attempt left to the handler, details
	// the last of either: encoded, because the handler may go on changing its values.
	previous, details []any
	converter         converter.DataConverter
}

// adopt reads what the attempt before left.
func (h *heart) adopt(ctx context.Context, info activity.Info) {
	h.adopted, h.attempt = true, int(info.Attempt)
	if !h.Next.HasHeartbeatDetails(ctx) {
		return
	}
	raws, targets := rawTargets(1 + job.MaxDetails)
	if h.Next.GetHeartbeatDetails(ctx, targets...) != nil {
		return
	}
	if payload := raws[0].Payload(); payload != nil {
		// Without ours in front, the attempt before ran on a worker without the plugin.
		if trailer, ok := job.ParseTrailer(payload.GetData()); ok {
			h.log, h.wrapped = trailer.Attempts, true
			raws = raws[1:]
		}
	}
	for _, raw := range raws {
		if raw.Payload() != nil {
			h.previous = append(h.previous, raw)
		}
	}
	h.details = h.previous
}

// HasHeartbeatDetails tells of the handler's own.
func (h *heart) HasHeartbeatDetails(ctx context.Context) bool {
	if !h.adopted {
		return h.Next.HasHeartbeatDetails(ctx)
	}
	return len(h.previous) > 0
}

// GetHeartbeatDetails returns the handler's own.
func (h *heart) GetHeartbeatDetails(ctx context.Context, targets ...any) error {
	if !h.adopted {
		return h.Next.GetHeartbeatDetails(ctx, targets...)
	}
	if h.wrapped {
		targets = append([]any{new(converter.RawValue)}, targets...)
	}
	return h.Next.GetHeartbeatDetails(ctx, targets...)
}

// RecordHeartbeat sends the handler's own behind ours.
func (h *heart) RecordHeartbeat(ctx context.Context, details ...any) {
	if !h.adopted {
		h.Next.RecordHeartbeat(ctx, details...)
		return
	}
	encoded, err := h.encode(details)
	if err != nil {
		h.Next.RecordHeartbeat(ctx, details...) // says so as the SDK does, on the handler's goroutine
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.details = encoded
	h.beat(ctx)
}

// encode returns the values as raw ones. A codec of the team's own is taken off
// again: it is put on when they are sent.
func (h *heart) encode(details []any) ([]any, error) {
	payloads, err := h.converter.ToPayloads(details...)
	if err != nil {
		return nil, err
	}
	raws, targets := rawTargets(len(details))
	if err := h.converter.FromPayloads(payloads, targets...); err != nil {
		return nil, err
	}
	encoded := make([]any, len(details))
	for i, raw := range raws {
		encoded[i] = raw
	}
	return encoded, nil
}

// rawTargets returns n raw values and what to decode them through.
func rawTargets(n int) ([]converter.RawValue, []any) {
	raws, targets := make([]converter.RawValue, n), make([]any, n)
	for i := range raws {
		targets[i] = &raws[i]
	}
	return raws, targets
}

// leave hands the log to the next attempt.
func (h *heart) leave(ctx context.Context, log []job.AttemptRecord) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.log = log
	h.beat(ctx)
}

func (h *heart) beat(ctx context.Context) {
	trailer := job.Trailer{Version: job.TrailerVersion, Attempt: h.attempt, Attempts: h.log}
	h.Next.RecordHeartbeat(ctx, append([]any{trailer}, h.details...)...)
}

// start beats four times per timeout, which leaves room for a lost beat, until
// stop is called; stop waits for a beat in flight. A timeout of 0 means that
// nobody listens.
func (h *heart) start(ctx context.Context, timeout time.Duration) (stop func()) {
	if timeout <= 0 {
		return func() {}
	}
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
				h.mu.Lock()
				if ctx.Err() == nil {
					h.beat(ctx)
				}
				h.mu.Unlock()
			}
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// checkpoint is the handler's last heartbeat as the wire would hold it, nil when
// there is none or it cannot be told: a value that only the worker's own converter
// can encode.
func (h *heart) checkpoint() []byte {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.details) == 0 {
		return nil
	}
	payloads, err := converter.GetDefaultDataConverter().ToPayloads(h.details...)
	if err != nil {
		return nil
	}
	data, err := proto.MarshalOptions{Deterministic: true}.Marshal(payloads)
	if err != nil || len(data) > maxCheckpoint {
		return nil
	}
	return data
}

// maxCheckpoint bounds the checkpoint that travels with a failure, in bytes.
const maxCheckpoint = 64 << 10
