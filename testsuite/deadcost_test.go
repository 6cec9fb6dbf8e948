package testsuite_test

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"maps"
	"net"
	"net/url"
	"path"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"google.golang.org/grpc"

	"github.com/deadletter-dev/deadletter"
	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/internal/devstack/devtest"
)

// BenchmarkDeadJob measures jobs that die after three attempts against hand-written
// workflows that end with an activity which inserts one row, in turns on the same
// servers and workers. Metric time-ratio is the time of a job over that of such a
// workflow.
func BenchmarkDeadJob(b *testing.B) {
	d := newDeadJobs(b)
	const batch = 64 // at once
	runDead(b, batch, d.handWritten)
	runDead(b, batch, d.job)
	var handTime, jobTime time.Duration
	for b.Loop() {
		handTime += runDead(b, batch, d.handWritten)
		jobTime += runDead(b, batch, d.job)
	}
	b.ReportMetric(float64(jobTime)/float64(handTime), "time-ratio")
}

// TestDeadJobCost proves what a job that dies after three attempts costs: the calls to
// Temporal and the round trips to Postgres, beside those of a hand-written workflow
// that inserts one row. docs/cost.md has these numbers.
func TestDeadJobCost(t *testing.T) {
	t.Parallel()
	d := newDeadJobs(t)
	runDead(t, 1, d.handWritten) // the first prepares its statements
	runDead(t, 1, d.job)
	calls, trips := d.cost(func() { runDead(t, 1, d.handWritten) })
	require.Equal(t, map[string]int{
		"StartWorkflowExecution": 1, "RespondWorkflowTaskCompleted": 3, "RespondActivityTaskFailed": 3, "RespondActivityTaskCompleted": 1,
	}, calls)
	require.Equal(t, 1, trips)
	calls, trips = d.cost(func() { runDead(t, 1, d.job) })
	require.Equal(t, map[string]int{
		"StartWorkflowExecution": 1, "RespondWorkflowTaskCompleted": 3, "RespondActivityTaskFailed": 3, "RespondActivityTaskCompleted": 1,
		"GetWorkflowExecutionHistory": 1,
	}, calls)
	require.Equal(t, 1, trips)
}

// deadJobs runs both kinds on one client and counts what they cost.
type deadJobs struct {
	t      testing.TB
	client client.Client
	mu     sync.Mutex
	calls  map[string]int
	trips  atomic.Int64
}

func newDeadJobs(t testing.TB) *deadJobs {
	t.Helper()
	address, namespace := devtest.Namespace(t)
	d := &deadJobs{t: t, calls: make(map[string]int)}
	direct := devtest.Postgres(t)
	require.NoError(t, dlqstore.Migrate(t.Context(), direct))
	counted := d.countTrips(direct)
	store, err := dlqstore.Open(t.Context(), counted)
	require.NoError(t, err)
	t.Cleanup(store.Close)
	pool, err := pgxpool.New(t.Context(), counted)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	_, err = pool.Exec(t.Context(), `create table dead (workflow_id text primary key, error text not null, at timestamptz not null default now())`)
	require.NoError(t, err)

	plugin, err := deadletter.NewPlugin(deadletter.Options{Store: store, NoUpkeep: true})
	require.NoError(t, err)
	options := clientOptions(address, namespace, plugin)
	options.ConnectionOptions.DialOptions = []grpc.DialOption{grpc.WithChainUnaryInterceptor(d.countCall)}
	d.client, err = client.Dial(options)
	require.NoError(t, err)
	t.Cleanup(d.client.Close)

	jobs := worker.New(d.client, "jobs", worker.Options{})
	jobs.RegisterActivityWithOptions(func(context.Context, string) error { return errors.New("out of paper") }, activity.RegisterOptions{Name: "Fail"})
	jobs.RegisterWorkflowWithOptions(handWritten, workflow.RegisterOptions{Name: "HandWritten"})
	dlq := worker.New(d.client, deadletter.DefaultTaskQueue, worker.Options{})
	dlq.RegisterActivityWithOptions(func(ctx context.Context, message string) error {
		_, err := pool.Exec(ctx, `insert into dead (workflow_id, error) values ($1, $2) on conflict do nothing`, activity.GetInfo(ctx).WorkflowExecution.ID, message)
		return err
	}, activity.RegisterOptions{Name: "Insert"})
	for _, w := range []worker.Worker{jobs, dlq} {
		require.NoError(t, w.Start())
		t.Cleanup(w.Stop)
	}
	return d
}

// handWritten is what a team without the plugin would write.
func handWritten(ctx workflow.Context, in string) error {
	failed := workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		StartToCloseTimeout: time.Minute, HeartbeatTimeout: time.Minute,
		RetryPolicy: &temporal.RetryPolicy{InitialInterval: 10 * time.Millisecond, BackoffCoefficient: 1, MaximumAttempts: 3},
	}), "Fail", in).Get(ctx, nil)
	if failed == nil {
		return nil
	}
	insert := workflow.WithActivityOptions(ctx, workflow.ActivityOptions{TaskQueue: deadletter.DefaultTaskQueue, StartToCloseTimeout: time.Minute})
	if err := workflow.ExecuteActivity(insert, "Insert", failed.Error()).Get(ctx, nil); err != nil {
		return err
	}
	return failed
}

func (d *deadJobs) handWritten() (client.WorkflowRun, error) {
	return d.client.ExecuteWorkflow(d.t.Context(), client.StartWorkflowOptions{TaskQueue: "jobs"}, "HandWritten", "payload")
}

func (d *deadJobs) job() (client.WorkflowRun, error) {
	policy := quick(3)
	policy.JitterMaxDelay = -1
	return deadletter.Enqueue(d.t.Context(), d.client, deadletter.Job{Type: "Fail", TaskQueue: "jobs", Policy: policy}, "payload")
}

// runDead starts n at once and waits until all have failed.
func runDead(t testing.TB, n int, start func() (client.WorkflowRun, error)) time.Duration {
	t.Helper()
	began := time.Now()
	errs := make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			run, err := start()
			if err == nil {
				err = run.Get(t.Context(), nil)
			}
			errs[i] = err
		})
	}
	all.Wait()
	for _, err := range errs {
		require.ErrorContains(t, err, "out of paper")
	}
	return time.Since(began)
}

// cost returns the calls to Temporal and the round trips to Postgres that fn takes.
// Polls, and what the client waits with for a result, are not counted.
func (d *deadJobs) cost(fn func()) (calls map[string]int, trips int) {
	d.mu.Lock()
	clear(d.calls)
	d.mu.Unlock()
	before := d.trips.Load()
	fn()
	d.mu.Lock()
	defer d.mu.Unlock()
	return maps.Clone(d.calls), int(d.trips.Load() - before)
}

func (d *deadJobs) countCall(
	ctx context.Context, method string, request, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption,
) error {
	name := path.Base(method)
	wait, _ := request.(interface{ GetWaitNewEvent() bool })
	switch {
	case wait != nil && wait.GetWaitNewEvent():
	case name == "PollWorkflowTaskQueue", name == "PollActivityTaskQueue", name == "PollNexusTaskQueue", name == "RecordWorkerHeartbeat",
		name == "GetSystemInfo", name == "DescribeNamespace", name == "ShutdownWorker":
	default:
		d.mu.Lock()
		d.calls[name]++
		d.mu.Unlock()
	}
	return invoker(ctx, method, request, reply, cc, opts...)
}

// countTrips returns the database's URL through a proxy that counts how often the
// server says that it is ready for the next query.
func (d *deadJobs) countTrips(databaseURL string) string {
	d.t.Helper()
	database, err := url.Parse(databaseURL)
	require.NoError(d.t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(d.t, err)
	d.t.Cleanup(func() { listener.Close() })
	server := database.Host
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go d.proxy(conn, server)
		}
	}()
	database.Host = listener.Addr().String()
	return database.String()
}

func (d *deadJobs) proxy(conn net.Conn, server string) {
	defer conn.Close()
	upstream, err := net.Dial("tcp", server)
	if err != nil {
		return
	}
	defer upstream.Close()
	go func() {
		_, _ = io.Copy(upstream, conn)
		upstream.Close()
	}()
	// Each message of the server is a byte for its kind, its length, and the rest.
	var head [5]byte
	for {
		if _, err := io.ReadFull(upstream, head[:]); err != nil {
			return
		}
		switch head[0] {
		case 'Z':
			d.trips.Add(1)
		case 'I': // an empty query: the pool looks whether an idle connection still lives
			d.trips.Add(-1)
		}
		if _, err := conn.Write(head[:]); err != nil {
			return
		}
		if _, err := io.CopyN(conn, upstream, int64(binary.BigEndian.Uint32(head[1:]))-4); err != nil {
			return
		}
	}
}
