package deadletter_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/worker"

	"github.com/deadletter-dev/deadletter"
	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/internal/devstack/devtest"
	"github.com/deadletter-dev/deadletter/job"
)

func TestMain(m *testing.M) { devtest.Main(m) }

func quiet() log.Logger { return log.NewStructuredLogger(slog.New(slog.DiscardHandler)) }

func newStore(t *testing.T) *dlqstore.Store {
	t.Helper()
	url := devtest.Postgres(t)
	require.NoError(t, dlqstore.Migrate(t.Context(), url))
	store, err := dlqstore.Open(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(store.Close)
	return store
}

// TestAdoption proves that one plugin object works on the client, on the workers,
// and on both, without a panic or a double registration, and that a job of each
// runs and another is dead-lettered.
func TestAdoption(t *testing.T) {
	t.Parallel()
	for _, given := range []struct{ toClient, toWorkers bool }{{true, false}, {false, true}, {true, true}} {
		t.Run(fmt.Sprintf("client %v workers %v", given.toClient, given.toWorkers), func(t *testing.T) {
			t.Parallel()
			address, namespace := devtest.Temporal(t)
			store := newStore(t)
			queue, dlq := "jobs-"+uuid.NewString(), "dlq-"+uuid.NewString()
			plugin, err := deadletter.NewPlugin(deadletter.Options{Store: store, TaskQueue: dlq})
			require.NoError(t, err)
			options := client.Options{HostPort: address, Namespace: namespace, Logger: quiet()}
			var workerOptions worker.Options
			if given.toClient {
				options.Plugins = []client.Plugin{plugin}
			}
			if given.toWorkers {
				workerOptions.Plugins = []worker.Plugin{plugin}
			}
			c := devtest.Dial(t, options)
			calls := 0
			jobs := worker.New(c, queue, workerOptions)
			jobs.RegisterActivityWithOptions(func(_ context.Context, ok bool) error {
				calls++
				if !ok {
					return deadletter.Fatal(errors.New("no"))
				}
				return nil
			}, activity.RegisterOptions{Name: "Maybe"})
			for _, w := range []worker.Worker{jobs, worker.New(c, dlq, workerOptions)} {
				require.NoError(t, w.Start())
				t.Cleanup(w.Stop)
			}

			good, err := deadletter.Enqueue(t.Context(), c, deadletter.Job{Type: "Maybe", TaskQueue: queue}, true)
			require.NoError(t, err)
			require.NoError(t, good.Get(t.Context(), nil))
			bad, err := deadletter.Enqueue(t.Context(), c, deadletter.Job{Type: "Maybe", TaskQueue: queue}, false)
			require.NoError(t, err)
			details, ok := deadletter.AsDeadLettered(bad.Get(t.Context(), nil))
			require.True(t, ok)
			require.Equal(t, job.ReasonFatalError, details.Reason)
			require.Equal(t, 2, calls, "a handler ran twice: the interceptor or the registration is doubled")
			n, err := store.CountDeadLetters(t.Context(), namespace)
			require.NoError(t, err)
			require.EqualValues(t, 1, n)
		})
	}
}

// TestWithoutStore proves that a process without a store serves jobs, and is told
// at once that it cannot serve the dead-letter queue.
func TestWithoutStore(t *testing.T) {
	t.Parallel()
	address, namespace := devtest.Temporal(t)
	plugin, err := deadletter.NewPlugin(deadletter.Options{})
	require.NoError(t, err)
	c := devtest.Dial(t, client.Options{HostPort: address, Namespace: namespace, Logger: quiet(), Plugins: []client.Plugin{plugin}})
	require.PanicsWithError(t, `deadletter: a worker on the dead-letter queue "deadletter" needs Options.Store`, func() {
		worker.New(c, deadletter.DefaultTaskQueue, worker.Options{})
	})
	jobs := worker.New(c, "jobs-"+uuid.NewString(), worker.Options{})
	require.NoError(t, jobs.Start())
	jobs.Stop()
}

// TestPluginRefuses proves that contradictory options are an error at
// construction, and that one plugin does not serve two namespaces.
func TestPluginRefuses(t *testing.T) {
	t.Parallel()
	_, err := deadletter.NewPlugin(deadletter.Options{MoveTx: func(context.Context, pgx.Tx, *dlqstore.DeadLetter) error { return nil }})
	require.ErrorContains(t, err, "Options.Store")

	address, namespace := devtest.Temporal(t)
	plugin, err := deadletter.NewPlugin(deadletter.Options{})
	require.NoError(t, err)
	options := client.Options{HostPort: address, Namespace: namespace, Logger: quiet(), Plugins: []client.Plugin{plugin}}
	for range 2 {
		devtest.Dial(t, options).Close()
	}
	options.Namespace = "another"
	_, err = client.NewLazyClient(options)
	require.ErrorContains(t, err, `make another one with NewPlugin for namespace "another"`)
}

// TestWorkerDefaults proves that the plugin lets activities finish when a worker
// stops, which the SDK does not by itself.
func TestWorkerDefaults(t *testing.T) {
	t.Parallel()
	plugin, err := deadletter.NewPlugin(deadletter.Options{})
	require.NoError(t, err)
	var options worker.Options
	configure := worker.PluginConfigureWorkerOptions{WorkerInstanceKey: "k", TaskQueue: "jobs", WorkerOptions: &options}
	require.NoError(t, plugin.ConfigureWorker(t.Context(), configure))
	require.NoError(t, plugin.ConfigureWorker(t.Context(), configure))
	require.Equal(t, deadletter.DefaultWorkerStopTimeout, options.WorkerStopTimeout)
	require.Len(t, options.Interceptors, 2, "the interceptors are doubled")
	kept := worker.Options{WorkerStopTimeout: time.Second, MaxHeartbeatThrottleInterval: time.Minute}
	configure.WorkerInstanceKey, configure.WorkerOptions = "other", &kept
	require.NoError(t, plugin.ConfigureWorker(t.Context(), configure))
	require.Equal(t, time.Second, kept.WorkerStopTimeout)
	require.Equal(t, time.Minute, kept.MaxHeartbeatThrottleInterval)
}

// TestUnitTestEnvironment proves that a team can unit-test its own workflows with
// the plugin in Temporal's test environment, without any server.
func TestUnitTestEnvironment(t *testing.T) {
	t.Parallel()
	plugin, err := deadletter.NewPlugin(deadletter.Options{})
	require.NoError(t, err)
	var suite testsuite.WorkflowTestSuite
	suite.SetLogger(quiet())
	env := suite.NewTestWorkflowEnvironment()
	env.SetTestTimeout(time.Minute) // of the 3 seconds that it has, a busy machine can take all
	env.SetWorkerOptions(worker.Options{Plugins: []worker.Plugin{plugin}})
	env.RegisterActivityWithOptions(func(_ context.Context, name string) (string, error) { return "hello " + name, nil },
		activity.RegisterOptions{Name: "Greet"})
	env.ExecuteWorkflow(deadletter.WorkflowType, rawJSON(t, deadletter.JobOptions{Type: "Greet"}), rawJSON(t, "you"))
	require.True(t, env.IsWorkflowCompleted())
	require.NoError(t, env.GetWorkflowError())
	var greeting string
	require.NoError(t, env.GetWorkflowResult(&greeting))
	require.Equal(t, "hello you", greeting)
}

func rawJSON(t *testing.T, value any) converter.RawValue {
	t.Helper()
	payload, err := converter.GetDefaultDataConverter().ToPayload(value)
	require.NoError(t, err)
	return converter.NewRawValue(payload)
}

// TestArgumentCount proves that a job whose handler this process knows is refused
// when it brings another number of arguments, and that other jobs are not.
func TestArgumentCount(t *testing.T) {
	t.Parallel()
	address, namespace := devtest.Temporal(t)
	plugin, err := deadletter.NewPlugin(deadletter.Options{})
	require.NoError(t, err)
	c := devtest.Dial(t, client.Options{HostPort: address, Namespace: namespace, Logger: quiet(), Plugins: []client.Plugin{plugin}})
	queue := "jobs-" + uuid.NewString()
	jobs := worker.New(c, queue, worker.Options{})
	jobs.RegisterActivity(SendEmail)
	jobs.RegisterActivityWithOptions(func(context.Context, ...string) error { return nil }, activity.RegisterOptions{Name: "Variadic"})
	require.NoError(t, jobs.Start())
	t.Cleanup(jobs.Stop)

	enqueue := func(jobType, queue string, args ...any) error {
		_, err := deadletter.Enqueue(t.Context(), c, deadletter.Job{Type: jobType, TaskQueue: queue}, args...)
		return err
	}
	for _, args := range [][]any{nil, {EmailArgs{}, 2}} {
		err := enqueue("SendEmail", queue, args...)
		require.ErrorIs(t, err, deadletter.ErrInvalidJob)
		require.ErrorContains(t, err, "the handler SendEmail takes 1")
	}
	require.NoError(t, enqueue("SendEmail", queue, EmailArgs{To: "a@b.c"}))
	require.NoError(t, enqueue("Variadic", queue, "a", "b"))
	require.NoError(t, enqueue("SendEmail", "elsewhere-"+queue, 1, 2))
	require.NoError(t, enqueue("Unknown", queue, 1, 2))
}

// TestFatal proves what the error helpers say and keep.
func TestFatal(t *testing.T) {
	t.Parallel()
	require.NoError(t, deadletter.Fatal(nil))
	cause := errors.New("no such customer")
	err := deadletter.Fatal(cause)
	var failure *temporal.ApplicationError
	require.ErrorAs(t, err, &failure)
	require.True(t, failure.NonRetryable())
	require.Equal(t, "deadletter.Fatal", failure.Type())
	require.ErrorIs(t, err, cause)
	_, ok := deadletter.AsDeadLettered(err)
	require.False(t, ok)
	_, ok = deadletter.AsDeadLettered(nil)
	require.False(t, ok)
}
