package pace_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"
	"google.golang.org/grpc"

	"github.com/deadletter-dev/deadletter/internal/pace"
)

// server answers as many requests as its limiters allow, and counts.
type server struct {
	workflowservice.WorkflowServiceClient
	executions, visibility *rate.Limiter
	fault                  error

	mu                       sync.Mutex
	answered, refused, asked int
}

func (s *server) DescribeWorkflowExecution(
	context.Context, *workflowservice.DescribeWorkflowExecutionRequest, ...grpc.CallOption,
) (*workflowservice.DescribeWorkflowExecutionResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	switch {
	case s.fault != nil:
		return nil, s.fault
	case s.executions.Allow():
		s.answered++
		return &workflowservice.DescribeWorkflowExecutionResponse{}, nil
	default:
		s.refused++
		return nil, serviceerror.NewResourceExhausted(enumspb.RESOURCE_EXHAUSTED_CAUSE_RPS_LIMIT, "namespace rate limit exceeded")
	}
}

func (s *server) ListWorkflowExecutions(
	context.Context, *workflowservice.ListWorkflowExecutionsRequest, ...grpc.CallOption,
) (*workflowservice.ListWorkflowExecutionsResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.visibility.Allow() {
		return nil, serviceerror.NewResourceExhausted(enumspb.RESOURCE_EXHAUSTED_CAUSE_RPS_LIMIT, "namespace rate limit exceeded")
	}
	return &workflowservice.ListWorkflowExecutionsResponse{}, nil
}

func describe(ctx context.Context, s *pace.Service) error {
	_, err := s.DescribeWorkflowExecution(ctx, &workflowservice.DescribeWorkflowExecutionRequest{})
	return err
}

// TestLimited proves that many reads of a server with a limit all succeed, with few
// refusals, that the limit is told of once, and that the other lane is not slowed.
func TestLimited(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		below := &server{executions: rate.NewLimiter(15, 30), visibility: rate.NewLimiter(10, 10)}
		told := 0
		s := pace.New(below, func(err error) {
			told++
			require.EqualError(t, err, "namespace rate limit exceeded")
		})
		var group errgroup.Group
		group.SetLimit(8)
		for range 600 {
			group.Go(func() error { return describe(t.Context(), s) })
		}
		require.NoError(t, group.Wait())
		require.Equal(t, 600, below.answered)
		require.Less(t, below.refused, 120, "of %d", below.asked)
		require.Equal(t, 1, told)

		began := time.Now()
		for range 10 {
			_, err := s.ListWorkflowExecutions(t.Context(), &workflowservice.ListWorkflowExecutionsRequest{})
			require.NoError(t, err)
		}
		require.Zero(t, time.Since(began), "the lists have a limit of their own")
	})
}

// TestRefusedForever proves that one request is repeated for a bounded time, and that
// the error is the server's.
func TestRefusedForever(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := pace.New(&server{executions: rate.NewLimiter(0, 0)}, nil)
		began := time.Now()
		err := describe(t.Context(), s)
		var limited *serviceerror.ResourceExhausted
		require.ErrorAs(t, err, &limited)
		require.ErrorContains(t, err, "has refused this for 1m0s")
		require.InDelta(t, time.Minute, time.Since(began), float64(5*time.Second))
	})
}

// TestNotRepeated proves that a server which is away is told of at once.
func TestNotRepeated(t *testing.T) {
	t.Parallel()
	below := &server{fault: serviceerror.NewUnavailable("connection refused")}
	require.Equal(t, below.fault, describe(t.Context(), pace.New(below, nil)))
	require.Equal(t, 1, below.asked)
}

// TestEndWhileLimited proves that a caller whose time is over learns what it waited for.
func TestEndWhileLimited(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := pace.New(&server{executions: rate.NewLimiter(0, 0)}, nil)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		err := describe(ctx, s)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		var limited *serviceerror.ResourceExhausted
		require.ErrorAs(t, err, &limited)
	})
}
