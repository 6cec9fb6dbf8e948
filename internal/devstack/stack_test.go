package devstack_test

import (
	"bufio"
	"context"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/operatorservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/deadletter-dev/deadletter/internal/devstack"
	"github.com/deadletter-dev/deadletter/internal/devstack/devtest"
)

// TestStart proves that both servers do real work once Start returns: a workflow
// runs in the wanted namespace, the search attribute is known, the UI answers,
// Postgres executes SQL, and that Stop leaves neither process nor file.
func TestStart(t *testing.T) {
	folder := tempFolder(t)
	stack, err := devstack.Start(t.Context(), devstack.Options{
		Namespace:        "jobs",
		UI:               true,
		SearchAttributes: map[string]enums.IndexedValueType{"Color": enums.INDEXED_VALUE_TYPE_KEYWORD},
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, stack.Stop()) })

	c := devtest.Dial(t, client.Options{HostPort: stack.TemporalAddress, Namespace: stack.Namespace})
	require.Equal(t, "hello", runWorkflow(t, c))

	attributes, err := c.OperatorService().ListSearchAttributes(t.Context(), &operatorservice.ListSearchAttributesRequest{Namespace: "jobs"})
	require.NoError(t, err)
	require.Equal(t, enums.INDEXED_VALUE_TYPE_KEYWORD, attributes.GetCustomAttributes()["Color"])

	page, err := http.Get(stack.UIURL)
	require.NoError(t, err)
	defer page.Body.Close()
	require.Equal(t, http.StatusOK, page.StatusCode)

	conn, err := pgx.Connect(t.Context(), stack.DatabaseURL)
	require.NoError(t, err)
	defer conn.Close(context.Background())
	var encoding string
	require.NoError(t, conn.QueryRow(t.Context(), "show server_encoding").Scan(&encoding))
	require.Equal(t, "UTF8", encoding)

	processes := servers(t, os.Getpid())
	require.NoError(t, stack.Stop())
	require.NoError(t, stack.Stop(), "a second Stop does nothing")
	requireNothingLeft(t, processes, folder)
}

// runWorkflow runs a workflow on a worker and returns its result.
func runWorkflow(t *testing.T, c client.Client) string {
	t.Helper()
	w := worker.New(c, t.Name(), worker.Options{})
	w.RegisterWorkflowWithOptions(func(workflow.Context) (string, error) { return "hello", nil },
		workflow.RegisterOptions{Name: "greet"})
	require.NoError(t, w.Start())
	defer w.Stop()
	run, err := c.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{TaskQueue: t.Name()}, "greet")
	require.NoError(t, err)
	var result string
	require.NoError(t, run.Get(t.Context(), &result))
	return result
}

// TestStartUsesExisting proves that Start uses the servers it is given, leaves
// them running, and says which one does not answer.
func TestStartUsesExisting(t *testing.T) {
	t.Parallel()
	owner, err := devstack.Start(t.Context(), devstack.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, owner.Stop()) })

	existing := devstack.Options{TemporalAddress: owner.TemporalAddress, DatabaseURL: owner.DatabaseURL}
	for range 2 {
		guest, err := devstack.Start(t.Context(), existing)
		require.NoError(t, err)
		require.Equal(t, owner.TemporalAddress, guest.TemporalAddress)
		require.Equal(t, owner.DatabaseURL, guest.DatabaseURL)
		require.NoError(t, guest.Stop())
	}

	noDatabase := existing
	noDatabase.DatabaseURL = "postgres://127.0.0.1:1/nowhere"
	_, err = devstack.Start(t.Context(), noDatabase)
	require.ErrorContains(t, err, "devstack: existing Postgres")

	noNamespace := existing
	noNamespace.Namespace = "elsewhere"
	_, err = devstack.Start(t.Context(), noNamespace)
	require.ErrorContains(t, err, `namespace "elsewhere"`)
}

// TestStartCancelled proves that a start which is given up at any moment leaves
// neither process nor file.
func TestStartCancelled(t *testing.T) {
	// Where there is no Temporal CLI it is built now: it is the servers' start that is
	// given up.
	_, err := devstack.TemporalCLI(t.Context(), os.Stderr)
	require.NoError(t, err)
	for _, after := range []time.Duration{0, 20, 100, 250, 500, 800, 1200, 1600} {
		t.Run((after * time.Millisecond).String(), func(t *testing.T) {
			folder := tempFolder(t)
			ctx, cancel := context.WithTimeout(t.Context(), after*time.Millisecond)
			defer cancel()
			stack, err := devstack.Start(ctx, devstack.Options{})
			if err == nil { // a fast machine
				require.NoError(t, stack.Stop())
			} else {
				require.ErrorIs(t, err, context.DeadlineExceeded)
			}
			require.Empty(t, descendants(t, os.Getpid()))
			requireNothingLeft(t, nil, folder)
		})
	}
}

// TestStartFailureStopsTheOther proves that when one server cannot start the
// other one is stopped, whether it was ready or still starting, and that a start
// which is given up stops the one that was ready.
func TestStartFailureStopsTheOther(t *testing.T) {
	for _, test := range []struct {
		name   string
		broken []string // binaries that do not start a server
		after  string   // they fail once this server is ready; empty means at once
		giveUp bool     // they do not fail, and the start is given up then
	}{
		{name: "Temporal at once", broken: []string{"temporal"}},
		{name: "Temporal after Postgres is ready", broken: []string{"temporal"}, after: "Postgres"},
		{name: "Postgres after Temporal is ready", broken: []string{"initdb", "postgres"}, after: "Temporal"},
		{name: "given up after Postgres is ready", broken: []string{"temporal"}, after: "Postgres", giveUp: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			scripts := tempFolder(t)
			ready := filepath.Join(scripts, "ready")
			wait := "until [ -e " + ready + " ]; do /bin/sleep 0.05; done; "
			if test.after == "" {
				wait = ""
			}
			for _, binary := range test.broken {
				script(t, filepath.Join(scripts, "bin", binary), wait+"echo no such luck; exit 7")
			}
			t.Setenv("PATH", filepath.Join(scripts, "bin")+":"+os.Getenv("PATH"))
			if test.broken[0] == "temporal" {
				t.Setenv("TEMPORAL_CLI_PATH", filepath.Join(scripts, "bin", "temporal"))
			}
			folder := tempFolder(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			_, err := devstack.Start(ctx, devstack.Options{Log: lines(func(line string) {
				switch {
				case !strings.Contains(line, test.after+" is ready on "):
				case test.giveUp:
					cancel()
				default:
					_ = os.WriteFile(ready, nil, 0o644)
				}
			})})
			if test.giveUp {
				require.ErrorIs(t, err, context.Canceled)
			} else {
				require.ErrorContains(t, err, "exit status 7")
				require.ErrorContains(t, err, "no such luck", "the server's own words")
			}
			require.Empty(t, descendants(t, os.Getpid()))
			requireNothingLeft(t, nil, folder)
		})
	}
}

// TestParentEnds proves that the servers end, and their folders go, when the
// process that started them ends in any way but Stop.
func TestParentEnds(t *testing.T) {
	for _, test := range []struct {
		name   string
		ending string
		signal syscall.Signal
	}{
		{name: "kill -9", ending: "signal", signal: syscall.SIGKILL},
		{name: "interrupt", ending: "signal", signal: syscall.SIGINT},
		{name: "quit, as go test does on a timeout", ending: "signal", signal: syscall.SIGQUIT},
		{name: "panic", ending: "panic"},
		{name: "os.Exit", ending: "exit"},
	} {
		t.Run(test.name, func(t *testing.T) {
			folder := tempFolder(t)
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), parentEnv+"="+test.ending)
			stdin, err := cmd.StdinPipe()
			require.NoError(t, err)
			stdout, err := cmd.StdoutPipe()
			require.NoError(t, err)
			require.NoError(t, cmd.Start())
			line, err := bufio.NewReader(stdout).ReadString('\n')
			require.NoError(t, err)
			require.Equal(t, "started\n", line)
			processes := servers(t, cmd.Process.Pid)

			if test.signal != 0 {
				require.NoError(t, cmd.Process.Signal(test.signal))
			}
			_, _ = stdin.Write([]byte("\n"))
			_ = cmd.Wait()
			requireNothingLeft(t, processes, folder)
		})
	}
}
