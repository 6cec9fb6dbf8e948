package activities

import (
	"context"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/interceptor"

	"github.com/deadletter-dev/deadletter/job"
)

// NewInterceptor returns the worker interceptor that runs around each attempt of
// a job's handler: it heartbeats for the handler and makes its error fit for the
// wire. Activities of other workflows pass through it untouched.
func NewInterceptor() interceptor.WorkerInterceptor { return &workerInterceptor{} }

type workerInterceptor struct {
	interceptor.WorkerInterceptorBase
}

// InterceptActivity is called for each attempt anew.
func (*workerInterceptor) InterceptActivity(_ context.Context, next interceptor.ActivityInboundInterceptor) interceptor.ActivityInboundInterceptor {
	return &attempt{ActivityInboundInterceptorBase: interceptor.ActivityInboundInterceptorBase{Next: next}}
}

// attempt is one attempt of a handler.
type attempt struct {
	interceptor.ActivityInboundInterceptorBase
	heart heart
}

// Init puts the heart between the handler's own heartbeats and the server.
func (a *attempt) Init(outbound interceptor.ActivityOutboundInterceptor) error {
	a.heart.Next = outbound
	return a.Next.Init(&a.heart)
}

// ExecuteActivity runs the attempt.
func (a *attempt) ExecuteActivity(ctx context.Context, in *interceptor.ExecuteActivityInput) (any, error) {
	info := activity.GetInfo(ctx)
	if info.WorkflowType == nil || info.WorkflowType.Name != job.WorkflowType || info.IsLocalActivity || ours(info.ActivityType.Name) {
		return a.Next.ExecuteActivity(ctx, in)
	}
	if info.HeartbeatTimeout > 0 {
		stop := a.heart.start(ctx, info.HeartbeatTimeout)
		defer stop()
	}
	defer cleanPanic()
	result, err := a.Next.ExecuteActivity(ctx, in)
	return result, wireError(err)
}

func ours(activityType string) bool {
	switch activityType {
	case job.MoveActivityType, job.ReplayActivityType, job.PurgeActivityType, job.StartDelayActivityType:
		return true
	default:
		return false
	}
}

// previousDetails returns the heartbeat details that an earlier attempt left, each
// as its own bytes.
func previousDetails(ctx context.Context, outbound interceptor.ActivityOutboundInterceptor) []any {
	if !outbound.HasHeartbeatDetails(ctx) {
		return nil
	}
	raws := make([]converter.RawValue, maxHeartbeatDetails)
	targets := make([]any, maxHeartbeatDetails)
	for i := range raws {
		targets[i] = &raws[i]
	}
	if outbound.GetHeartbeatDetails(ctx, targets...) != nil {
		return nil
	}
	var details []any
	for _, raw := range raws {
		if raw.Payload() != nil {
			details = append(details, raw)
		}
	}
	return details
}
