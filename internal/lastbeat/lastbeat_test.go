package lastbeat

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

func details(text string) *commonpb.Payloads {
	return &commonpb.Payloads{Payloads: []*commonpb.Payload{{Data: []byte(text)}}}
}

// wire is a server that fails calls with err, and keeps what it was sent.
type wire struct {
	holder *Holder
	sent   []proto.Message
	err    error
}

func (w *wire) call(request proto.Message) error {
	return w.holder.intercept(context.Background(), "", request, nil, nil,
		func(_ context.Context, _ string, request, _ any, _ *grpc.ClientConn, _ ...grpc.CallOption) error {
			w.sent = append(w.sent, proto.Clone(request.(proto.Message)))
			if failed, ok := request.(*workflowservice.RespondActivityTaskFailedRequest); ok {
				if p := failed.GetLastHeartbeatDetails().GetPayloads(); len(p) > 0 {
					p[0].Data = append(p[0].Data, " encoded in place"...)
				}
			}
			return w.err
		})
}

func (w *wire) holding() int {
	w.holder.mu.Lock()
	defer w.holder.mu.Unlock()
	return len(w.holder.held)
}

func heartbeat(token, text string) *workflowservice.RecordActivityTaskHeartbeatRequest {
	return &workflowservice.RecordActivityTaskHeartbeatRequest{TaskToken: []byte(token), Details: details(text)}
}

func failed(token string) *workflowservice.RespondActivityTaskFailedRequest {
	return &workflowservice.RespondActivityTaskFailedRequest{TaskToken: []byte(token), Identity: "me"}
}

// TestHold proves that the last held heartbeat goes with the failure of its own task,
// again with each try, and that nothing else is changed or kept.
func TestHold(t *testing.T) {
	t.Parallel()
	w := &wire{holder: NewHolder(), err: errors.New("unavailable")}
	require.Error(t, w.call(heartbeat("a", "before")), "not held yet")
	w.holder.Hold([]byte("a"))
	require.NoError(t, w.call(heartbeat("a", "first")))
	require.NoError(t, w.call(heartbeat("a", "last")))
	request := failed("a")
	require.Error(t, w.call(request))
	w.err = nil
	require.NoError(t, w.call(heartbeat("b", "another task")))
	require.NoError(t, w.call(failed("b")))
	require.NoError(t, w.call(request))
	require.True(t, proto.Equal(failed("a"), request), "the SDK's request was changed")
	require.Empty(t, w.holder.held)
	require.NoError(t, w.call(heartbeat("a", "after")))

	carried := failed("a")
	carried.LastHeartbeatDetails = details("last")
	want := []proto.Message{
		heartbeat("a", "before"), carried, heartbeat("b", "another task"), failed("b"), carried, heartbeat("a", "after"),
	}
	require.Len(t, w.sent, len(want))
	for i := range want {
		require.True(t, proto.Equal(want[i], w.sent[i]), "call %d: %v", i, w.sent[i])
	}
}

// TestNoHeartbeat proves that a failure before which none was held does not erase what
// the server has.
func TestNoHeartbeat(t *testing.T) {
	t.Parallel()
	w := &wire{holder: NewHolder()}
	w.holder.Hold([]byte("a"))
	require.NoError(t, w.call(failed("a")))
	require.True(t, proto.Equal(failed("a"), w.sent[0]))
	require.Empty(t, w.holder.held)
}

// TestNeverSent proves that a heartbeat whose failure is never sent is not kept for ever.
func TestNeverSent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &wire{holder: NewHolder()}
		w.holder.Hold([]byte("a"))
		require.NoError(t, w.call(heartbeat("a", "lost")))
		time.Sleep(expiry - time.Second)
		require.Equal(t, 1, w.holding())
		w.holder.Hold([]byte("a")) // again, from now
		time.Sleep(expiry - time.Second)
		require.Equal(t, 1, w.holding())
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.Zero(t, w.holding())
	})
}
