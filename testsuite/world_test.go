package testsuite_test

import (
	"context"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/worker"

	"github.com/deadletter-dev/deadletter"
	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/internal/devstack/devtest"
	"github.com/deadletter-dev/deadletter/operator"
)

// patience bounds the wait for anything that should happen: long enough for a
// busy machine, since a passing test never waits it out. An overloaded server may
// lose a task, which costs a minute, and so may the move that follows.
const patience = 3 * time.Minute

// grows waits until a count is as large as it should be. The whole may take a slow
// machine as long as it likes; each step of it is bounded by patience.
func (w *world) grows(want int, count func() int) {
	w.t.Helper()
	for n := count(); n < want; {
		before := n
		require.Eventually(w.t, func() bool {
			n = count()
			return n > before
		}, patience, 50*time.Millisecond, "it stays at %d of %d", before, want)
	}
}

// world is one test's own namespace, database and queues on the shared servers.
type world struct {
	t         testing.TB
	address   string
	namespace string
	database  string
	queue     string // of jobs
	store     *dlqstore.Store
	client    client.Client
	operator  *operator.Operator
}

// newWorld makes a migrated database, a namespace, and a client without plugin.
func newWorld(t testing.TB) *world {
	t.Helper()
	return newWorldOn(t, devtest.Postgres(t))
}

// newWorldOn is newWorld on a database that need not be migrated yet.
func newWorldOn(t testing.TB, database string) *world {
	t.Helper()
	address, namespace := devtest.Namespace(t)
	w := &world{t: t, address: address, database: database, namespace: namespace, queue: "jobs"}
	require.NoError(t, dlqstore.Migrate(t.Context(), w.database))
	w.store = w.openStore()
	w.client = w.dial(nil)
	var err error
	w.operator, err = operator.New(operator.Config{Store: w.store, Client: w.client, Namespace: w.namespace})
	require.NoError(t, err)
	return w
}

// quiet keeps the SDK's expected complaints out of the test output.
func quiet() log.Logger {
	if os.Getenv("DEADLETTER_TEST_LOG") != "" {
		return log.NewStructuredLogger(slog.Default())
	}
	return log.NewStructuredLogger(slog.New(slog.DiscardHandler))
}

// openStore opens a store that waits for locks as long as a busy machine makes it:
// fifty who want the same row stand in line.
func (w *world) openStore() *dlqstore.Store {
	w.t.Helper()
	store, err := dlqstore.Open(w.t.Context(), w.database, dlqstore.WithTimeout(5*time.Minute))
	require.NoError(w.t, err)
	w.t.Cleanup(store.Close)
	return store
}

// clientOptions are of every client here. The SDK would give a server that is busy
// five seconds for the first answer, and ten for each of the others.
func clientOptions(address, namespace string, plugins ...client.Plugin) client.Options {
	return client.Options{
		HostPort: address, Namespace: namespace, Logger: quiet(), Plugins: plugins, RPCTimeout: patience,
		ConnectionOptions: client.ConnectionOptions{GetSystemInfoTimeout: patience},
	}
}

func (w *world) options(plugins ...client.Plugin) client.Options {
	return clientOptions(w.address, w.namespace, plugins...)
}

func (w *world) dial(plugin *deadletter.Plugin) client.Client {
	w.t.Helper()
	options := w.options()
	options.Identity = "testsuite"
	if plugin != nil {
		options.Plugins = []client.Plugin{plugin}
	}
	return w.dialWith(options)
}

// dialWith makes a client that is closed when the test ends.
func (w *world) dialWith(options client.Options) client.Client {
	w.t.Helper()
	c, err := client.Dial(options)
	require.NoError(w.t, err)
	w.t.Cleanup(c.Close)
	return c
}

// handlers maps activity types to Go functions.
type handlers map[string]any

// startJobs starts a worker that runs jobs, as a team's own would: without a
// store. It stops with the test, or earlier by the returned function.
func (w *world) startJobs(h handlers) (stop func()) {
	w.t.Helper()
	return w.startJobsOn(w.queue, h)
}

// startJobsOn is startJobs on another queue than the world's.
func (w *world) startJobsOn(queue string, h handlers) (stop func()) {
	w.t.Helper()
	plugin, err := deadletter.NewPlugin(deadletter.Options{})
	require.NoError(w.t, err)
	jobs := worker.New(w.dial(plugin), queue, worker.Options{})
	for name, fn := range h {
		jobs.RegisterActivityWithOptions(fn, activity.RegisterOptions{Name: name})
	}
	return w.start(jobs)
}

// startDLQ starts a worker of the dead-letter queue, on a store of its own. It
// schedules neither sweep nor retention: a test that needs one says when.
func (w *world) startDLQ(hook dlqstore.Hook) (stop func()) {
	w.t.Helper()
	plugin, err := deadletter.NewPlugin(deadletter.Options{Store: w.openStore(), MoveTx: hook, SweepInterval: -1, RetentionInterval: -1})
	require.NoError(w.t, err)
	return w.start(worker.New(w.dial(plugin), deadletter.DefaultTaskQueue, worker.Options{}))
}

func (w *world) start(running worker.Worker) (stop func()) {
	w.t.Helper()
	require.NoError(w.t, running.Start())
	stopped := false
	stop = func() {
		if !stopped {
			stopped = true
			running.Stop()
		}
	}
	w.t.Cleanup(stop)
	return stop
}

// enqueue starts a job on the world's queue.
func (w *world) enqueue(j deadletter.Job, args ...any) client.WorkflowRun {
	w.t.Helper()
	if j.TaskQueue == "" {
		j.TaskQueue = w.queue
	}
	run, err := deadletter.Enqueue(w.t.Context(), w.client, j, args...)
	require.NoError(w.t, err)
	return run
}

// wait waits for the job's end and returns the error that it closed with.
func (w *world) wait(run client.WorkflowRun, result any) error {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	err := run.Get(ctx, result)
	require.NoError(w.t, ctx.Err(), "job %s did not end", run.GetID())
	return err
}

// dead returns the dead letter of a job that must have one.
func (w *world) dead(run client.WorkflowRun) *dlqstore.DeadLetter {
	w.t.Helper()
	dl, err := w.store.Get(w.t.Context(), w.key(run))
	require.NoError(w.t, err)
	return dl
}

func (w *world) key(run client.WorkflowRun) dlqstore.Key {
	return dlqstore.Key{Namespace: w.namespace, WorkflowID: run.GetID(), RunID: run.GetRunID()}
}

func (w *world) count() int64 {
	w.t.Helper()
	n, err := w.store.CountDeadLetters(w.t.Context(), w.namespace)
	require.NoError(w.t, err)
	return n
}

func (w *world) history(run client.WorkflowRun) []*historypb.HistoryEvent {
	w.t.Helper()
	var events []*historypb.HistoryEvent
	pages := w.client.GetWorkflowHistory(w.t.Context(), run.GetID(), run.GetRunID(), false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for pages.HasNext() {
		event, err := pages.Next()
		require.NoError(w.t, err)
		events = append(events, event)
	}
	return events
}

func (w *world) describe(workflowID, runID string) (*workflowservice.DescribeWorkflowExecutionResponse, error) {
	description, err := w.client.DescribeWorkflow(w.t.Context(), workflowID, runID)
	if err != nil {
		return nil, err
	}
	return description.RawResponse, nil
}

func (w *world) status(run client.WorkflowRun) enumspb.WorkflowExecutionStatus {
	w.t.Helper()
	description, err := w.describe(run.GetID(), run.GetRunID())
	require.NoError(w.t, err)
	return description.GetWorkflowExecutionInfo().GetStatus()
}

// quick is a policy whose waits are short.
func quick(attempts int) deadletter.Policy {
	return deadletter.Policy{MaxAttempts: attempts, BaseDelay: 10 * time.Millisecond, BackoffMultiplier: 1}
}

// noGrace is quick without patience for a type that no worker knows.
func noGrace(attempts int) deadletter.Policy {
	policy := quick(attempts)
	policy.UnknownTypeGrace = -1
	return policy
}
