package workflows

import (
	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/workflow"

	"github.com/deadletter-dev/deadletter/job"
)

// What the workflow code puts into its context for the interceptor to put on the
// wire, and the other way round: only an interceptor reaches headers.
type (
	planKey    struct{} // job.Plan, for the handler's activity
	carryKey   struct{} // job.Carried, for the next run
	carriedKey struct{} // *commonpb.Payload, from the run before
)

// NewInterceptor returns the worker interceptor that carries the job workflow's
// words in headers. It touches nothing of other workflows.
func NewInterceptor() interceptor.WorkerInterceptor { return &workerInterceptor{} }

type workerInterceptor struct {
	interceptor.WorkerInterceptorBase
}

func (*workerInterceptor) InterceptWorkflow(_ workflow.Context, next interceptor.WorkflowInboundInterceptor) interceptor.WorkflowInboundInterceptor {
	return &inbound{WorkflowInboundInterceptorBase: interceptor.WorkflowInboundInterceptorBase{Next: next}}
}

type inbound struct {
	interceptor.WorkflowInboundInterceptorBase
}

func (i *inbound) Init(next interceptor.WorkflowOutboundInterceptor) error {
	return i.Next.Init(&outbound{WorkflowOutboundInterceptorBase: interceptor.WorkflowOutboundInterceptorBase{Next: next}})
}

func (i *inbound) ExecuteWorkflow(ctx workflow.Context, in *interceptor.ExecuteWorkflowInput) (any, error) {
	if carried := interceptor.WorkflowHeader(ctx)[job.CarriedHeader]; carried != nil {
		ctx = workflow.WithValue(ctx, carriedKey{}, carried)
	}
	return i.Next.ExecuteWorkflow(ctx, in)
}

type outbound struct {
	interceptor.WorkflowOutboundInterceptorBase
}

func (o *outbound) ExecuteActivity(ctx workflow.Context, activityType string, args ...any) workflow.Future {
	if plan, ok := ctx.Value(planKey{}).(job.Plan); ok {
		setHeader(ctx, job.PlanHeader, plan)
	}
	return o.Next.ExecuteActivity(ctx, activityType, args...)
}

func (o *outbound) NewContinueAsNewError(ctx workflow.Context, wfn any, args ...any) error {
	if carried, ok := ctx.Value(carryKey{}).(job.Carried); ok {
		setHeader(ctx, job.CarriedHeader, carried)
	}
	return o.Next.NewContinueAsNewError(ctx, wfn, args...)
}

func setHeader(ctx workflow.Context, key string, value any) {
	payload, err := converter.GetDefaultDataConverter().ToPayload(value)
	if err != nil {
		panic(err) // these types always encode
	}
	if header := interceptor.WorkflowHeader(ctx); header != nil {
		header[key] = payload
	}
}

// carriedFrom reads what the run before left, nil for a first run.
func carriedFrom(ctx workflow.Context) *job.Carried {
	payload, ok := ctx.Value(carriedKey{}).(*commonpb.Payload)
	if !ok {
		return nil
	}
	var carried job.Carried
	if converter.GetDefaultDataConverter().FromPayload(payload, &carried) != nil {
		return nil
	}
	return &carried
}
