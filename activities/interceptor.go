package activities

import (
	"context"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/interceptor"

	"github.com/deadletter-dev/deadletter/job"
)

// InterceptorOptions configure the interceptor of one worker.
type InterceptorOptions struct {
	// StopGrace is how long after its worker began to stop a handler may go on
	// before its context is cancelled. Zero means that it is never cancelled for that.
	StopGrace time.Duration
	// PlainFailures says that the worker's client has no failure converter of its
	// own, so that errors are plain on the wire anyway.
	PlainFailures func() bool
	// Identity tells the worker's identity. Nil means that it is not known.
	Identity func() string
	// DataConverter tells the worker's own. Nil, or a nil result, means the SDK's default.
	DataConverter func() converter.DataConverter
	// HoldHeartbeats is told of the task of an attempt that is about to fail, so that its
	// last heartbeat may travel with the failure. Nil means that it is sent by itself.
	HoldHeartbeats func(taskToken []byte)
	// Breakers guard the handlers. Nil means none.
	Breakers *Breakers
}

func (o InterceptorOptions) dataConverter() converter.DataConverter {
	if o.DataConverter != nil {
		if own := o.DataConverter(); own != nil {
			return own
		}
	}
	return converter.GetDefaultDataConverter()
}

func (o InterceptorOptions) identity() string {
	if o.Identity == nil {
		return ""
	}
	return o.Identity()
}

// NewInterceptor returns the worker interceptor that runs around each attempt of
// a job's handler. It heartbeats for the handler, keeps the log of attempts, waits
// with jitter, makes errors mean on the wire what they mean in Go, and tells a
// worker's shutdown from a failure. Activities of other workflows pass through it
// untouched.
func NewInterceptor(options InterceptorOptions) interceptor.WorkerInterceptor {
	return &workerInterceptor{options: options}
}

type workerInterceptor struct {
	interceptor.WorkerInterceptorBase
	options InterceptorOptions
}

// InterceptActivity is called for each attempt anew.
func (w *workerInterceptor) InterceptActivity(_ context.Context, next interceptor.ActivityInboundInterceptor) interceptor.ActivityInboundInterceptor {
	return &attempt{
		ActivityInboundInterceptorBase: interceptor.ActivityInboundInterceptorBase{Next: next},
		options:                        w.options,
	}
}

// attempt is one attempt of a handler.
type attempt struct {
	interceptor.ActivityInboundInterceptorBase
	options InterceptorOptions
	heart   heart
	info    activity.Info
	plan    job.Plan
	started time.Time
}

// Init puts the heart between the handler's own heartbeats and the server.
func (a *attempt) Init(outbound interceptor.ActivityOutboundInterceptor) error {
	a.heart.Next = outbound
	return a.Next.Init(&a.heart)
}

// ExecuteActivity runs the attempt.
func (a *attempt) ExecuteActivity(ctx context.Context, in *interceptor.ExecuteActivityInput) (any, error) {
	a.info = activity.GetInfo(ctx)
	if !isHandler(a.info) {
		return a.Next.ExecuteActivity(ctx, in)
	}
	a.started = time.Now()
	a.plan = readPlan(interceptor.Header(ctx))
	a.heart.converter = a.options.dataConverter()
	a.heart.adopt(ctx, a.info)

	report, refused := a.options.Breakers.allow(a.info)
	if refused != nil {
		return nil, a.fail(ctx, refused)
	}
	stop := a.heart.start(ctx, a.info.HeartbeatTimeout)
	handlerCtx, interrupted, release := a.untilShutdown(ctx)
	result, err := a.call(handlerCtx, in)
	release()
	stop()

	if err != nil && interrupted() && ctx.Err() == nil && isCancellation(err) {
		err = shutdownError(err)
	}
	report(err)
	if err != nil {
		err = a.fail(ctx, err)
	}
	return result, err
}

// call runs the handler. A panic becomes an error, so that it is logged and waited
// out like any other; where it cannot keep its stack that way it goes on.
func (a *attempt) call(ctx context.Context, in *interceptor.ExecuteActivityInput) (result any, err error) {
	defer func() {
		if value := recover(); value != nil {
			result, err = nil, panicError(value)
		}
	}()
	return a.Next.ExecuteActivity(ctx, in)
}

// isHandler tells a job's handler from every other activity of the worker.
func isHandler(info activity.Info) bool {
	if info.WorkflowType == nil || info.WorkflowType.Name != job.WorkflowType || info.IsLocalActivity {
		return false
	}
	return !job.IsOwnActivity(info.ActivityType.Name)
}

func readPlan(header map[string]*commonpb.Payload) job.Plan {
	var plan job.Plan
	if payload := header[job.PlanHeader]; payload != nil {
		// One that does not parse is none: no jitter then.
		_ = converter.GetDefaultDataConverter().FromPayload(payload, &plan)
	}
	return plan
}

// number counts the attempts of the whole job.
func (a *attempt) number() int { return a.plan.Charged + int(a.info.Attempt) }
