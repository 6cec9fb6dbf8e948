package deadletter

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"google.golang.org/grpc"

	"github.com/deadletter-dev/deadletter/activities"
	"github.com/deadletter-dev/deadletter/internal/lastbeat"
	"github.com/deadletter-dev/deadletter/internal/resourceid"
	"github.com/deadletter-dev/deadletter/job"
	"github.com/deadletter-dev/deadletter/workflows"
)

// PluginName is the name under which Temporal lists the plugin.
const PluginName = "deadletter.Plugin"

// Defaults that the plugin gives to a worker whose own option is zero.
const (
	// DefaultWorkerStopTimeout lets an activity in flight report when its worker
	// stops; the SDK's own default is not to wait at all.
	DefaultWorkerStopTimeout = 10 * time.Second
	// DefaultMaxHeartbeatThrottleInterval bounds how late a running handler learns
	// of a cancellation; the SDK's own default is a minute.
	DefaultMaxHeartbeatThrottleInterval = 10 * time.Second
)

// Both are called PluginBase; an alias each lets one type embed the two.
type (
	clientBase = client.PluginBase //nolint:unused // an unexported method of it makes Plugin a client.Plugin
	workerBase = worker.PluginBase
)

// Plugin makes Temporal clients and workers run jobs. Give the same object to
// the client, to its workers or to both, as often as you like: what it registers
// is registered once. One plugin serves one client's namespace.
//
// It is safe for concurrent use.
type Plugin struct {
	clientBase //nolint:unused // as above
	workerBase
	options  Options
	breakers *activities.Breakers
	handlers *signatures
	// heartbeats are those that travel with the failure of their attempt.
	heartbeats *lastbeat.Holder

	mu sync.Mutex
	// configured has the workers that are made and not yet started.
	configured map[string]configured
	replayers  map[string]bool
	keepers    map[string]*keeper
	// clientOptions are nil when the plugin was given to workers only.
	clientOptions *client.Options
}

// configured is a worker that is made and not yet started.
type configured struct {
	serves  bool            // the dead-letter queue
	options *worker.Options // which other plugins may still change
}

var (
	_ client.Plugin = (*Plugin)(nil)
	_ worker.Plugin = (*Plugin)(nil)
)

// NewPlugin returns a plugin, or an error that names every fault of the options.
func NewPlugin(options Options) (*Plugin, error) {
	if options.TaskQueue == "" {
		options.TaskQueue = DefaultTaskQueue
	}
	if options.SweepInterval == 0 {
		options.SweepInterval = DefaultSweepInterval
	}
	if options.RetentionInterval == 0 {
		options.RetentionInterval = DefaultRetentionInterval
	}
	if err := options.validate(); err != nil {
		return nil, err
	}
	return &Plugin{
		options:    options,
		breakers:   activities.NewBreakers(logged(options.CircuitBreaker)),
		handlers:   &signatures{counts: map[[2]string]int{}},
		heartbeats: lastbeat.NewHolder(),
		configured: map[string]configured{},
		replayers:  map[string]bool{},
		keepers:    map[string]*keeper{},
	}, nil
}

// Name returns PluginName.
func (p *Plugin) Name() string { return PluginName }

// logged adds a line in the process's log to each change of a breaker.
func logged(config CircuitBreaker) CircuitBreaker {
	told := config.OnStateChange
	config.OnStateChange = func(jobType, from, to string) {
		slog.Warn("deadletter: a circuit breaker changed", "job_type", jobType, "from", from, "to", to)
		if told != nil {
			told(jobType, from, to)
		}
	}
	return config
}

// ConfigureClient is called by the SDK. It has the starts of jobs looked at, and lets
// the client and its workers serve jobs whose id is not printable ASCII, and those of
// an application whose data converter does not write JSON. The log of attempts that a
// failed attempt leaves to the next one then travels with its failure.
func (p *Plugin) ConfigureClient(_ context.Context, o client.PluginConfigureClientOptions) error {
	connection := &o.ClientOptions.ConnectionOptions
	connection.DialOptions = slices.Concat([]grpc.DialOption{p.heartbeats.DialOption()}, connection.DialOptions,
		[]grpc.DialOption{resourceid.DialOption()})
	if data := o.ClientOptions.DataConverter; data != nil {
		o.ClientOptions.DataConverter = newWireConverter(data)
	}
	o.ClientOptions.Interceptors = append(o.ClientOptions.Interceptors, &clientInterceptor{signatures: p.handlers})
	return nil
}

// NewClient is called by the SDK. It remembers how the client connects, for the
// upkeep of the dead-letter queue.
func (p *Plugin) NewClient(
	ctx context.Context, o client.PluginNewClientOptions, next func(context.Context, client.PluginNewClientOptions) error,
) error {
	own := o.ClientOptions
	own.Plugins = nil
	p.mu.Lock()
	if seen := p.clientOptions; seen != nil && (seen.HostPort != own.HostPort || seen.Namespace != own.Namespace) {
		p.mu.Unlock()
		return fmt.Errorf("deadletter: this plugin serves namespace %q on %s already; make another one with NewPlugin for namespace %q on %s",
			seen.Namespace, seen.HostPort, own.Namespace, own.HostPort)
	}
	p.clientOptions = &own
	p.mu.Unlock()
	return next(ctx, o)
}

// ConfigureWorker is called by the SDK.
func (p *Plugin) ConfigureWorker(_ context.Context, o worker.PluginConfigureWorkerOptions) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, seen := p.configured[o.WorkerInstanceKey]; seen {
		return nil // given to the client and to the worker
	}
	serves := o.TaskQueue == p.options.TaskQueue
	if serves && p.options.Store == nil {
		return fmt.Errorf("deadletter: a worker on the dead-letter queue %q needs Options.Store", o.TaskQueue)
	}
	p.configured[o.WorkerInstanceKey] = configured{serves: serves, options: o.WorkerOptions}
	if o.WorkerOptions.WorkerStopTimeout == 0 {
		o.WorkerOptions.WorkerStopTimeout = DefaultWorkerStopTimeout
	}
	if o.WorkerOptions.MaxHeartbeatThrottleInterval == 0 {
		o.WorkerOptions.MaxHeartbeatThrottleInterval = DefaultMaxHeartbeatThrottleInterval
	}
	if registry := o.WorkerRegistryOptions; registry != nil {
		told := registry.OnRegisterActivity
		registry.OnRegisterActivity = func(fn any, options activity.RegisterOptions) {
			p.handlers.note(o.TaskQueue, fn, options)
			if told != nil {
				told(fn, options)
			}
		}
	}
	identity := o.WorkerOptions.Identity
	o.WorkerOptions.Interceptors = append(o.WorkerOptions.Interceptors,
		workflows.NewInterceptor(),
		activities.NewInterceptor(activities.InterceptorOptions{
			// The handler needs some of the time to return and be reported.
			StopGrace:     o.WorkerOptions.WorkerStopTimeout / 2,
			PlainFailures: p.plainFailures,
			Identity: func() string {
				if identity != "" {
					return identity
				}
				return p.clientIdentity()
			},
			DataConverter:  p.dataConverter,
			HoldHeartbeats: p.holdHeartbeats,
			Breakers:       p.breakers,
		}))
	return nil
}

func (p *Plugin) plainFailures() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.clientOptions == nil {
		return false
	}
	own := p.clientOptions.FailureConverter
	return own == nil || own == temporal.GetDefaultFailureConverter()
}

// dataConverter is nil when it is not known, or the default.
func (p *Plugin) dataConverter() converter.DataConverter {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.clientOptions == nil {
		return nil
	}
	return p.clientOptions.DataConverter
}

// holdHeartbeats does nothing when there is no client that could let them travel.
func (p *Plugin) holdHeartbeats(taskToken []byte) {
	p.mu.Lock()
	known := p.clientOptions != nil
	p.mu.Unlock()
	if known {
		p.heartbeats.Hold(taskToken)
	}
}

func (p *Plugin) clientIdentity() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.clientOptions == nil {
		return ""
	}
	return p.clientOptions.Identity
}

// StartWorker is called by the SDK. It registers what the worker serves.
func (p *Plugin) StartWorker(
	ctx context.Context, o worker.PluginStartWorkerOptions, next func(context.Context, worker.PluginStartWorkerOptions) error,
) error {
	p.mu.Lock()
	made, first := p.configured[o.WorkerInstanceKey]
	delete(p.configured, o.WorkerInstanceKey)
	p.mu.Unlock()
	if !first {
		return next(ctx, o)
	}
	p.registerWorkflows(o.WorkerRegistry)
	activities.RegisterForJobs(o.WorkerRegistry)
	if !made.serves {
		return next(ctx, o)
	}
	k := p.newKeeper(o.WorkerInstanceKey)
	if deployment := made.options.DeploymentOptions; deployment.UseVersioning {
		k.version = deployment.Version
	}
	(&activities.Activities{Store: p.options.Store, MoveTx: p.options.MoveTx, OnClient: k.start}).Register(o.WorkerRegistry)
	if err := next(ctx, o); err != nil {
		return err
	}
	if p.options.NoUpkeep {
		return nil
	}
	return k.startOwn()
}

// StopWorker is called by the SDK.
func (p *Plugin) StopWorker(
	ctx context.Context, o worker.PluginStopWorkerOptions, next func(context.Context, worker.PluginStopWorkerOptions),
) {
	p.mu.Lock()
	k := p.keepers[o.WorkerInstanceKey]
	delete(p.keepers, o.WorkerInstanceKey)
	p.mu.Unlock()
	if k != nil {
		k.stop()
	}
	next(ctx, o)
}

// ReplayWorkflow is called by the SDK. It lets a history replayer know the
// project's workflows.
func (p *Plugin) ReplayWorkflow(
	ctx context.Context, o worker.PluginReplayWorkflowOptions, next func(context.Context, worker.PluginReplayWorkflowOptions) error,
) error {
	p.mu.Lock()
	first := !p.replayers[o.WorkflowReplayerInstanceKey]
	p.replayers[o.WorkflowReplayerInstanceKey] = true
	p.mu.Unlock()
	if first {
		p.registerWorkflows(o.WorkflowReplayRegistry)
	}
	return next(ctx, o)
}

type workflowRegistry interface {
	RegisterWorkflowWithOptions(w any, options workflow.RegisterOptions)
}

// registerWorkflows registers the plugin's workflows as AutoUpgrade, whatever the
// default of the team's deployment is: the histories of earlier builds replay on this
// one, and the operator workflow never ends, so a version that it was pinned to would
// never drain.
func (p *Plugin) registerWorkflows(r workflowRegistry) {
	for name, fn := range workflowsByType(p.options.TaskQueue) {
		r.RegisterWorkflowWithOptions(fn, workflow.RegisterOptions{Name: name, VersioningBehavior: workflow.VersioningBehaviorAutoUpgrade})
	}
}

// workflowsByType are the plugin's workflows, all of them.
func workflowsByType(taskQueue string) map[string]any {
	w := workflows.Workflows{TaskQueue: taskQueue}
	return map[string]any{
		job.WorkflowType:          w.Job,
		job.OperatorWorkflowType:  w.Operator,
		job.BacklogWorkflowType:   w.Backlog,
		job.BulkWorkflowType:      w.BulkOperation,
		job.SweepWorkflowType:     w.Sweep,
		job.RetentionWorkflowType: w.Retention,
	}
}
