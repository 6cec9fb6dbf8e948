package deadletter

import (
	"context"
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"sync"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/interceptor"

	"github.com/deadletter-dev/deadletter/job"
)

// signatures knows how many arguments the handlers take that this process itself
// registers: a job that brings another number is refused before it starts, because
// the SDK would drop what is too much and make up what is missing.
type signatures struct {
	mu sync.Mutex
	// counts is by task queue and activity type; variadic handlers are not in it.
	counts map[[2]string]int
}

// note is called for each activity that a worker registers.
func (s *signatures) note(queue string, fn any, options activity.RegisterOptions) {
	t := reflect.TypeOf(fn)
	if t == nil || t.Kind() != reflect.Func || t.IsVariadic() {
		return // a struct of activities, whose methods are registered one by one elsewhere
	}
	count := t.NumIn()
	if count > 0 && t.In(0).Implements(reflect.TypeFor[context.Context]()) {
		count--
	}
	name := options.Name
	if name == "" {
		name = functionName(fn)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts[[2]string{queue, name}] = count
}

// functionName is the name under which the SDK registers a function.
func functionName(fn any) string {
	name := runtime.FuncForPC(reflect.ValueOf(fn).Pointer()).Name()
	return strings.TrimSuffix(name[strings.LastIndex(name, ".")+1:], "-fm")
}

// check refuses a job whose handler is known to take another number of arguments.
func (s *signatures) check(queue string, options job.Options, args []any) error {
	if options.TaskQueue != "" {
		queue = options.TaskQueue
	}
	s.mu.Lock()
	want, known := s.counts[[2]string{queue, options.Type}]
	s.mu.Unlock()
	if known && want != len(args) {
		return fmt.Errorf("%w: %d arguments, and the handler %s takes %d", ErrInvalidJob, len(args), options.Type, want)
	}
	return nil
}

// clientInterceptor looks at the starts of jobs.
type clientInterceptor struct {
	interceptor.ClientInterceptorBase
	signatures *signatures
}

func (c *clientInterceptor) InterceptClient(next interceptor.ClientOutboundInterceptor) interceptor.ClientOutboundInterceptor {
	return &clientOutbound{ClientOutboundInterceptorBase: interceptor.ClientOutboundInterceptorBase{Next: next}, signatures: c.signatures}
}

type clientOutbound struct {
	interceptor.ClientOutboundInterceptorBase
	signatures *signatures
}

func (c *clientOutbound) ExecuteWorkflow(ctx context.Context, in *interceptor.ClientExecuteWorkflowInput) (client.WorkflowRun, error) {
	if in.WorkflowType == job.WorkflowType {
		if err := c.check(in); err != nil {
			return nil, err
		}
	}
	return c.Next.ExecuteWorkflow(ctx, in)
}

// check refuses the start of a job with another number of arguments than its handler
// takes. Options of the caller's own type are left alone.
func (c *clientOutbound) check(in *interceptor.ClientExecuteWorkflowInput) error {
	if len(in.Args) == 0 {
		return nil
	}
	var options job.Options
	switch first := in.Args[0].(type) {
	case job.Options:
		options = first
	case converter.RawValue: // Enqueue's
		if first.Payload() == nil || options.UnmarshalJSON(first.Payload().GetData()) != nil {
			return nil // the workflow refuses it
		}
	default:
		return nil
	}
	return c.signatures.check(in.Options.TaskQueue, options, in.Args[1:])
}
