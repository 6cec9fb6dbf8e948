package testsuite_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/deadletter-dev/deadletter"
	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/internal/devstack"
	"github.com/deadletter-dev/deadletter/internal/devstack/devtest"
	"github.com/deadletter-dev/deadletter/operator"
)

// requestCounts counts the requests of a client that the server answered and refused.
type requestCounts struct {
	mu                sync.Mutex
	answered, refused map[string]int
}

func (r *requestCounts) options(options client.Options) client.Options {
	r.answered, r.refused = map[string]int{}, map[string]int{}
	options.ConnectionOptions.DialOptions = append(options.ConnectionOptions.DialOptions, grpc.WithChainUnaryInterceptor(
		func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			err := invoker(ctx, method, req, reply, cc, opts...)
			r.mu.Lock()
			defer r.mu.Unlock()
			if status.Code(err) == codes.ResourceExhausted {
				r.refused[path.Base(method)]++
			} else {
				r.answered[path.Base(method)]++
			}
			return err
		}))
	return options
}

// take returns what was counted, and counts from zero.
func (r *requestCounts) take() (answered, refused map[string]int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	answered, refused = maps.Clone(r.answered), maps.Clone(r.refused)
	clear(r.answered)
	clear(r.refused)
	return answered, refused
}

// unserved starts jobs that no worker ever takes up.
func unserved(t *testing.T, c client.Client, n int) {
	t.Helper()
	group, ctx := errgroup.WithContext(t.Context())
	group.SetLimit(16)
	for i := range n {
		group.Go(func() error {
			_, err := deadletter.Enqueue(ctx, c, deadletter.Job{ID: fmt.Sprintf("job-%03d", i), Type: "Fine", TaskQueue: "nobody"})
			return err
		})
	}
	require.NoError(t, group.Wait())
}

// TestJobsRequests proves how many requests it takes to list jobs: one for each that
// is looked at, and few beside; that the oldest are found among many; and that a
// search which is stopped says by what, with what it had found.
func TestJobsRequests(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var counted requestCounts
	verbs, err := operator.New(operator.Config{Store: w.store, Client: w.dialWith(counted.options(w.options())), Namespace: w.namespace})
	require.NoError(t, err)
	unserved(t, w.client, 60)
	w.running(60)

	counted.take()
	found, err := verbs.Jobs(t.Context(), operator.JobsRequest{})
	require.NoError(t, err)
	require.Equal(t, operator.Jobs{Jobs: []operator.LiveJob{}, Running: 60, Looked: 60, Queues: found.Queues}, found)
	require.Len(t, found.Queues, 1)
	require.Equal(t, 60, found.Queues[0].Waiting)
	answered, _ := counted.take()
	require.Equal(t, map[string]int{
		"CountWorkflowExecutions": 1, "ListWorkflowExecutions": 1, "DescribeWorkflowExecution": 60,
		"DescribeTaskQueue": 2, // for either type of tasks, not for each job
	}, answered, "no history is read of jobs that are not listed")

	_, err = verbs.Jobs(t.Context(), operator.JobsRequest{MinAttempt: 1})
	require.NoError(t, err)
	answered, _ = counted.take()
	require.Equal(t, 60, answered["GetWorkflowExecutionHistoryReverse"])

	found, err = verbs.Jobs(t.Context(), operator.JobsRequest{MinAttempt: 1, Scan: 20})
	require.NoError(t, err)
	require.Equal(t, operator.StoppedByScan, found.StoppedBy)
	require.True(t, found.Bounded)
	require.GreaterOrEqual(t, found.Looked, 18)
	require.LessOrEqual(t, found.Looked, 20)
	answered, _ = counted.take()
	require.Equal(t, found.Looked, answered["DescribeWorkflowExecution"])
	require.LessOrEqual(t, answered["CountWorkflowExecutions"], 25)
	require.LessOrEqual(t, answered["ListWorkflowExecutions"], 2)

	found, err = verbs.Jobs(t.Context(), operator.JobsRequest{Timeout: time.Nanosecond})
	require.NoError(t, err)
	require.Equal(t, operator.Jobs{Jobs: []operator.LiveJob{}, Bounded: true, StoppedBy: operator.StoppedByTimeout, Queues: []operator.JobQueue{}}, found)

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	told := 0
	found, err = verbs.Jobs(ctx, operator.JobsRequest{MinAttempt: 1, Progress: func(looked, of int) {
		told++
		require.Equal(t, told, looked)
		require.Equal(t, 60, of)
		if looked == 10 {
			cancel()
		}
	}})
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, operator.StoppedByInterrupt, found.StoppedBy)
	require.GreaterOrEqual(t, found.Looked, 10)
	require.Less(t, found.Looked, 60)
	require.Len(t, found.Jobs, found.Looked, "what was found is kept")
	for i := range found.Jobs {
		require.NotEmpty(t, found.Jobs[i].WorkflowID)
	}
}

// TestRequestLimit proves that jobs, stats and show read to their end from a server
// that allows 15 requests a second, that few are refused, and that it is told of once.
func TestRequestLimit(t *testing.T) {
	t.Parallel()
	server, err := devstack.StartTemporal(t.Context(), devstack.TemporalOptions{DynamicConfig: []string{
		"frontend.namespaceRPS=15", "frontend.namespaceRPS.visibility=5", "frontend.namespaceBurstRatio.visibility=1",
	}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop()) })
	database := devtest.Postgres(t)
	require.NoError(t, dlqstore.Migrate(t.Context(), database))
	store, err := dlqstore.Open(t.Context(), database)
	require.NoError(t, err)
	t.Cleanup(store.Close)
	var counted requestCounts
	c, err := client.Dial(counted.options(clientOptions(server.Address, "default")))
	require.NoError(t, err)
	t.Cleanup(c.Close)
	var told []error
	verbs, err := operator.New(operator.Config{Store: store, Client: c, OnLimited: func(err error) { told = append(told, err) }})
	require.NoError(t, err)
	unserved(t, c, 45)
	// Visibility lags by moments.
	for found := (operator.Jobs{}); found.Running < 45; {
		found, err = verbs.Jobs(t.Context(), operator.JobsRequest{Scan: 1})
		require.NoError(t, err)
	}
	counted.take()

	found, err := verbs.Jobs(t.Context(), operator.JobsRequest{})
	require.NoError(t, err)
	require.Equal(t, 45, found.Looked)
	require.Empty(t, found.StoppedBy)
	stats, err := verbs.Stats(t.Context())
	require.NoError(t, err)
	require.Equal(t, operator.Stats{Total: 45, Queued: 45}, stats)
	answered, refused := counted.take()
	require.Equal(t, 90, answered["DescribeWorkflowExecution"])
	require.Positive(t, refused["DescribeWorkflowExecution"], "the limit was met")
	require.Less(t, refused["DescribeWorkflowExecution"], 45)
	require.Len(t, told, 1)
	var limited *serviceerror.ResourceExhausted
	require.ErrorAs(t, told[0], &limited)

	// At the limit show asks again too, and does not take the server to be away.
	var group errgroup.Group
	for i := range 15 {
		group.Go(func() error {
			shown, err := verbs.Show(t.Context(), fmt.Sprintf("job-%03d", i), "")
			if err == nil && shown.Live == nil {
				err = errors.New("no live job is shown")
			}
			return err
		})
	}
	require.NoError(t, group.Wait())
	require.Len(t, told, 1)
}
