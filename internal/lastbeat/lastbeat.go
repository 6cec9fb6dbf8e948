// Package lastbeat has the last heartbeat of an attempt that fails travel with its
// failure, for which Temporal has a field, and so saves a call.
//
// It works on the requests as the SDK has encoded them: what the next attempt reads is
// what a heartbeat of its own call would have left, whatever converters there are.
package lastbeat

import (
	"context"
	"sync"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

// Holder keeps heartbeats back until the failure of the same attempt is sent. It is safe
// for concurrent use.
type Holder struct {
	mu   sync.Mutex
	held map[string]*beat // by task token
}

type beat struct {
	details *commonpb.Payloads
	expiry  *time.Timer
}

// expiry is how long a heartbeat waits for the failure, which the SDK sends at once and
// tries for a minute to send again. Without a bound the failures that it never sends,
// since the attempt's time has run out, would pile up.
const expiry = 2 * time.Minute

// NewHolder returns a Holder that holds nothing.
func NewHolder() *Holder { return &Holder{held: map[string]*beat{}} }

// Hold keeps back what heartbeats of a task follow. Call it when the task is about to
// fail: heartbeats that it holds do not prove to the server that the worker lives.
func (h *Holder) Hold(taskToken []byte) {
	key := string(taskToken)
	h.mu.Lock()
	defer h.mu.Unlock()
	held := new(beat)
	held.expiry = time.AfterFunc(expiry, func() { h.release(key, held) })
	h.held[key] = held
}

// DialOption lets a connection hold heartbeats. On one without it they are sent as ever.
// Put it in front of all other options, which then see the calls that are made.
func (h *Holder) DialOption() grpc.DialOption {
	return grpc.WithChainUnaryInterceptor(h.intercept)
}

func (h *Holder) intercept(
	ctx context.Context, method string, request, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
) error {
	switch r := request.(type) {
	case *workflowservice.RecordActivityTaskHeartbeatRequest:
		if h.keep(r) {
			return nil
		}
	case *workflowservice.RespondActivityTaskFailedRequest:
		held, details := h.of(r.GetTaskToken())
		if held == nil {
			break
		}
		if details != nil {
			// A copy: the SDK sends its request again when the call fails.
			r = proto.CloneOf(r)
			r.LastHeartbeatDetails = details
		}
		err := invoke(ctx, method, r, reply, cc, opts...)
		if err == nil {
			h.release(string(r.GetTaskToken()), held)
		}
		return err
	}
	return invoke(ctx, method, request, reply, cc, opts...)
}

// keep reports whether it has kept the heartbeat back.
func (h *Holder) keep(r *workflowservice.RecordActivityTaskHeartbeatRequest) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	held := h.held[string(r.GetTaskToken())]
	if held == nil {
		return false
	}
	held.details = r.GetDetails()
	return true
}

func (h *Holder) of(taskToken []byte) (*beat, *commonpb.Payloads) {
	h.mu.Lock()
	defer h.mu.Unlock()
	held := h.held[string(taskToken)]
	if held == nil {
		return nil, nil
	}
	// Copied, since an interceptor behind this one may encode it in place.
	return held, proto.CloneOf(held.details)
}

func (h *Holder) release(key string, held *beat) {
	h.mu.Lock()
	defer h.mu.Unlock()
	held.expiry.Stop()
	if h.held[key] == held {
		delete(h.held, key)
	}
}
