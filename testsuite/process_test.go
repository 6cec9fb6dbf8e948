package testsuite_test

import (
	"context"
	"flag"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"google.golang.org/grpc"

	"github.com/deadletter-dev/deadletter"
	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/internal/devstack/devtest"
	"github.com/deadletter-dev/deadletter/operator"
)

// The roles in which this test binary runs itself again, to be killed or stopped.
const (
	roleEnv    = "DEADLETTER_TEST_ROLE"
	roleDLQ    = "dlq"    // a worker of the dead-letter queue
	roleJobs   = "jobs"   // a worker whose handler "Kill" kills it, and whose "Stay" stays
	roleReplay = "replay" // replays the dead letter DEADLETTER_TEST_WORKFLOW
)

// noCacheEnv makes every workflow task of the process replay its history.
const noCacheEnv = "DEADLETTER_TEST_NO_CACHE"

// requestID is the one that roleReplay uses.
const requestID = "interrupted"

func TestMain(m *testing.M) {
	if role := os.Getenv(roleEnv); role != "" {
		if err := play(role); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if os.Getenv(noCacheEnv) != "" {
		worker.SetStickyWorkflowCacheSize(0)
	}
	waitTogether()
	devtest.Main(m)
}

// waitTogether lets more tests run at once than there are cores, unless the command
// line says how many: they wait for servers much more than they work.
func waitTogether() {
	flag.Parse()
	chosen := false
	flag.Visit(func(f *flag.Flag) { chosen = chosen || f.Name == "test.parallel" })
	if !chosen {
		if err := flag.Set("test.parallel", "5"); err != nil {
			panic(err)
		}
	}
}

// startProcess runs this binary in a role. It kills itself, as kill -9 would,
// right before it makes the named call to Temporal; "after X" means right after,
// "move N" inside the transaction of its Nth move.
func (w *world) startProcess(role, killAt string, extra ...string) *exec.Cmd {
	w.t.Helper()
	executable, err := os.Executable()
	require.NoError(w.t, err)
	process := exec.Command(executable)
	process.Stderr = os.Stderr
	process.Env = append(os.Environ(), append(extra,
		roleEnv+"="+role,
		"DEADLETTER_TEST_KILL_AT="+killAt,
		"DEADLETTER_TEST_ADDRESS="+w.address,
		"DEADLETTER_TEST_NAMESPACE="+w.namespace,
		"DEADLETTER_TEST_DATABASE="+w.databaseAs(processName),
	)...)
	require.NoError(w.t, process.Start())
	w.t.Cleanup(func() { _ = process.Process.Kill() })
	return process
}

// processName is what Postgres calls the sessions of other processes.
const processName = "deadletter-test-process"

// databaseAs is the URL of the world's database for sessions of a name.
func (w *world) databaseAs(name string) string {
	w.t.Helper()
	database, err := url.Parse(w.database)
	require.NoError(w.t, err)
	query := database.Query()
	query.Set("application_name", name)
	database.RawQuery = query.Encode()
	return database.String()
}

// sessionsEnd waits until no process can commit any more. A session goes on for a
// moment when its client has been killed.
func (w *world) sessionsEnd() {
	w.t.Helper()
	require.Eventually(w.t, func() bool {
		var left int
		err := w.store.Pool().QueryRow(w.t.Context(),
			`select count(*) from pg_stat_activity where datname = current_database() and application_name = $1`, processName).Scan(&left)
		return err == nil && left == 0
	}, patience, 20*time.Millisecond, "a killed process is still in the database")
}

// play is the body of the other process. It returns only if nothing killed it: an
// error, or nil when roleJobs was asked to stop.
func play(role string) error {
	ctx := context.Background()
	store, err := dlqstore.Open(ctx, os.Getenv("DEADLETTER_TEST_DATABASE"))
	if err != nil {
		return err
	}
	killAt := os.Getenv("DEADLETTER_TEST_KILL_AT")
	options := clientOptions(os.Getenv("DEADLETTER_TEST_ADDRESS"), os.Getenv("DEADLETTER_TEST_NAMESPACE"))
	die := func() error { return syscall.Kill(os.Getpid(), syscall.SIGKILL) }
	if after, ok := strings.CutPrefix(killAt, "after "); ok {
		options.ConnectionOptions.DialOptions = afterCall(after, die)
	} else {
		options.ConnectionOptions.DialOptions = beforeCall(killAt, die)
	}
	if role == roleJobs {
		plugin, err := deadletter.NewPlugin(deadletter.Options{})
		if err != nil {
			return err
		}
		options.Plugins = []client.Plugin{plugin}
		c, err := client.Dial(options)
		if err != nil {
			return err
		}
		// Half of it is the handler's; the other half must be enough to report.
		jobs := worker.New(c, "jobs", worker.Options{WorkerStopTimeout: 20 * time.Second})
		jobs.RegisterActivityWithOptions(func(ctx context.Context) error {
			// Beat once, so that the server has seen the attempt alive.
			activity.RecordHeartbeat(ctx, "alive")
			return die()
		}, activity.RegisterOptions{Name: "Kill"})
		jobs.RegisterActivityWithOptions(func(ctx context.Context, _ string) error {
			activity.RecordHeartbeat(ctx, "here")
			return hang(ctx)
		}, activity.RegisterOptions{Name: "Stay"})
		return jobs.Run(worker.InterruptCh())
	}
	if role == roleReplay {
		c, err := client.Dial(options)
		if err != nil {
			return err
		}
		op, err := operator.New(operator.Config{Store: store, Client: c, Namespace: options.Namespace})
		if err != nil {
			return err
		}
		_, err = op.Replay(ctx, operator.ReplayRequest{
			WorkflowID: os.Getenv("DEADLETTER_TEST_WORKFLOW"), RequestID: requestID, Actor: "doomed",
		})
		if err != nil {
			return err
		}
		return die()
	}
	plugin, err := deadletter.NewPlugin(deadletter.Options{Store: store, MoveTx: dieAtMove(killAt, die), SweepInterval: -1, RetentionInterval: -1})
	if err != nil {
		return err
	}
	options.Plugins = []client.Plugin{plugin}
	c, err := client.Dial(options)
	if err != nil {
		return err
	}
	return worker.New(c, deadletter.DefaultTaskQueue, worker.Options{}).Run(nil)
}

// beforeCall runs fn before each call of a service method; its error is the call's.
func beforeCall(method string, fn func() error) []grpc.DialOption {
	return aroundCall(method, func(call func() error) error {
		if err := fn(); err != nil {
			return err
		}
		return call()
	})
}

// afterCall runs fn after each successful call of a service method.
func afterCall(method string, fn func() error) []grpc.DialOption {
	return aroundCall(method, func(call func() error) error {
		if err := call(); err != nil {
			return err
		}
		return fn()
	})
}

// aroundCall runs around in the place of each call of a service method.
func aroundCall(method string, around func(call func() error) error) []grpc.DialOption {
	return []grpc.DialOption{grpc.WithChainUnaryInterceptor(func(
		ctx context.Context, full string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
	) error {
		call := func() error { return invoke(ctx, full, req, reply, cc, opts...) }
		if path.Base(full) == method {
			return around(call)
		}
		return call()
	})}
}

// dieAtMove returns the hook of a process that is to be killed at "move N", nil
// for any other moment.
func dieAtMove(killAt string, die func() error) dlqstore.Hook {
	number, ok := strings.CutPrefix(killAt, "move ")
	if !ok {
		return nil
	}
	var moves atomic.Int32
	return func(context.Context, pgx.Tx, *dlqstore.DeadLetter) error {
		if strconv.Itoa(int(moves.Add(1))) == number {
			return die()
		}
		return nil
	}
}
