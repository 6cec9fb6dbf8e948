package testsuite_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/worker"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/deadletter-dev/deadletter"
	"github.com/deadletter-dev/deadletter/dlqstore"
)

// attempts returns the attempts of a dead job, which must be numbered from 1.
func (w *world) attempts(t *testing.T, run client.WorkflowRun) []dlqstore.Attempt {
	t.Helper()
	attempts, err := w.store.Attempts(t.Context(), w.key(run))
	require.NoError(t, err)
	for i, attempt := range attempts {
		require.Equal(t, i+1, attempt.Attempt)
	}
	return attempts
}

// TestEveryAttemptIsKept proves that each attempt's error, times, worker and wait
// are in the dead letter, in order and bounded, panics and timeouts included, for
// no event more.
func TestEveryAttemptIsKept(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var calls atomic.Int32
	large := strings.Repeat("x", 1<<20)
	w.startJobs(handlers{
		"Various": func(ctx context.Context) error {
			switch n := calls.Add(1); n {
			case 2:
				panic("second")
			case 3:
				return hang(ctx) // until the attempt times out
			default:
				return fmt.Errorf("error %d", n)
			}
		},
		"Large": func(context.Context) error { return errors.New("head " + large + " tail") },
		"Panic": func(context.Context) error { panic("at the disco") },
	})
	w.startDLQ(nil)
	policy := quick(5)
	policy.AttemptTimeout = 20 * time.Second // of the others too, which must not come near it
	run := w.enqueue(deadletter.Job{Type: "Various", Policy: policy})
	panics := w.enqueue(deadletter.Job{Type: "Panic", Policy: quick(3)})
	big := w.enqueue(deadletter.Job{Type: "Large", Policy: quick(5)})

	require.ErrorContains(t, w.wait(run, nil), "after 5 attempts: error 5")
	attempts := w.attempts(t, run)
	require.Len(t, attempts, 5)
	// The third is told by the server, unless its worker is faster by a moment.
	for i, says := range []string{"error 1", "second", "timed out|^context deadline exceeded$", "error 4", "error 5"} {
		require.Regexp(t, says, attempts[i].ErrorMessage)
		if i == 2 {
			continue // its worker may not have been able to report it
		}
		require.Equal(t, "testsuite", attempts[i].WorkerIdentity)
		inOrder(t, attempts[i].StartedAt, attempts[i].EndedAt)
		require.Equal(t, i < 4, attempts[i].Wait != nil)
		if i < 4 {
			require.GreaterOrEqual(t, *attempts[i].Wait, policy.BaseDelay)
			require.LessOrEqual(t, *attempts[i].Wait, policy.BaseDelay+time.Second) // the default jitter
		}
	}
	w.atMost(t, 17, run)

	require.Error(t, w.wait(panics, nil))
	attempts = w.attempts(t, panics)
	require.Len(t, attempts, 3)
	for _, attempt := range attempts {
		require.Equal(t, "at the disco", attempt.ErrorMessage)
		require.Equal(t, "PanicError", attempt.ErrorType)
	}
	require.Contains(t, w.dead(panics).ErrorStack, "attempts_test.go")
	last := settled(w.history(panics))
	require.NotEmpty(t, last[6].GetActivityTaskFailedEventAttributes().GetFailure().GetStackTrace(), "the Temporal UI shows no stack")

	require.Error(t, w.wait(big, nil))
	attempts = w.attempts(t, big)
	require.Len(t, attempts, 5)
	for _, attempt := range attempts {
		require.Contains(t, attempt.ErrorMessage, "head x")
		require.LessOrEqual(t, len(attempt.ErrorMessage), dlqstore.MaxErrorMessage)
	}
}

// TestCheckpoints proves that a handler's own heartbeat details reach its next
// attempt unharmed by ours, and that the dead letter keeps the last.
func TestCheckpoints(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var seen sync.Map
	w.startJobs(handlers{"Steps": func(ctx context.Context) error {
		attempt := activity.GetInfo(ctx).Attempt
		var at, extra string
		if activity.HasHeartbeatDetails(ctx) {
			if err := activity.GetHeartbeatDetails(ctx, &at, &extra); err != nil {
				return deadletter.Fatal(err)
			}
		}
		seen.Store(attempt, at+extra)
		if attempt != 2 { // the second stays silent: what the first left must survive it
			activity.RecordHeartbeat(ctx, fmt.Sprintf("step-%d", attempt), "!")
		}
		return errors.New("boom")
	}})
	w.startDLQ(nil)
	run := w.enqueue(deadletter.Job{Type: "Steps", Policy: quick(4)})
	require.ErrorContains(t, w.wait(run, nil), "max_retries_exceeded after 4 attempts")
	for attempt, want := range map[int32]string{1: "", 2: "step-1!", 3: "step-1!", 4: "step-3!"} {
		got, _ := seen.Load(attempt)
		require.Equal(t, want, got, "attempt %d", attempt)
	}
	var kept commonpb.Payloads
	require.NoError(t, proto.Unmarshal(w.dead(run).LastHeartbeatDetails, &kept))
	require.Len(t, kept.GetPayloads(), 2)
	require.JSONEq(t, `"step-4"`, string(kept.GetPayloads()[0].GetData()))
	require.Len(t, w.attempts(t, run), 4)
}

// TestLogTravels proves that a failed attempt leaves the log of attempts and the handler's
// checkpoint to the next one: with its failure when the worker's client has the plugin,
// through a codec too, and in a heartbeat of its own otherwise.
func TestLogTravels(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.startDLQ(nil)
	for name, c := range map[string]struct {
		onClient, elsewhere, codec bool
		beats                      int32 // sent, of three attempts the first of which records one itself
	}{
		"plain":          {onClient: true, beats: 1},
		"codec":          {onClient: true, codec: true, beats: 1},
		"worker alone":   {beats: 3},
		"another client": {elsewhere: true, beats: 3},
	} {
		plugin, err := deadletter.NewPlugin(deadletter.Options{})
		require.NoError(t, err)
		var beats atomic.Int32
		options := w.options()
		options.Identity = "testsuite"
		options.ConnectionOptions.DialOptions = []grpc.DialOption{grpc.WithChainUnaryInterceptor(func(
			ctx context.Context, method string, request, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
		) error {
			if _, ok := request.(*workflowservice.RecordActivityTaskHeartbeatRequest); ok {
				beats.Add(1)
			}
			return invoke(ctx, method, request, reply, cc, opts...)
		})}
		if c.codec {
			options.DataConverter = converter.NewCodecDataConverter(converter.GetDefaultDataConverter(), newEncryption(t))
		}
		var ofWorker worker.Options
		if c.onClient {
			options.Plugins = []client.Plugin{plugin}
		} else {
			ofWorker.Plugins = []worker.Plugin{plugin}
		}
		if c.elsewhere {
			w.dial(plugin)
		}
		queue := "jobs " + name
		jobs := worker.New(w.dialWith(options), queue, ofWorker)
		var seen sync.Map
		var left, wire atomic.Value
		jobs.RegisterActivityWithOptions(func(ctx context.Context) error {
			info := activity.GetInfo(ctx)
			var at string
			if activity.HasHeartbeatDetails(ctx) {
				if err := activity.GetHeartbeatDetails(ctx, &at); err != nil {
					return deadletter.Fatal(err)
				}
			}
			seen.Store(info.Attempt, at)
			described, err := w.describe(info.WorkflowExecution.ID, info.WorkflowExecution.RunID)
			if err != nil {
				return deadletter.Fatal(err)
			}
			kept := described.GetPendingActivities()[0].GetHeartbeatDetails()
			left.Store(len(kept.GetPayloads()))
			wire.Store(kept.String())
			if info.Attempt == 1 {
				activity.RecordHeartbeat(ctx, "step-1")
			}
			return fmt.Errorf("error %d", info.Attempt)
		}, activity.RegisterOptions{Name: "Steps"})
		stop := w.start(jobs)

		run := w.enqueue(deadletter.Job{Type: "Steps", TaskQueue: queue, Policy: quick(3)})
		require.ErrorContains(t, w.wait(run, nil), "error 3", name)
		stop()
		require.Equal(t, c.beats, beats.Load(), name)
		for attempt, want := range map[int32]string{1: "", 2: "step-1", 3: "step-1"} {
			got, _ := seen.Load(attempt)
			require.Equal(t, want, got, "%s, attempt %d", name, attempt)
		}
		require.Equal(t, 2, left.Load(), name)
		if c.codec {
			require.NotContains(t, wire.Load(), "step-1", name)
			require.NotContains(t, wire.Load(), "error 2", name)
			continue // the log in the dead letter is what a worker with the codec reads
		}
		attempts := w.attempts(t, run)
		require.Len(t, attempts, 3, name)
		for i, attempt := range attempts {
			require.Equal(t, fmt.Sprintf("error %d", i+1), attempt.ErrorMessage, name)
			require.NotNil(t, attempt.StartedAt, name)
		}
	}
}
