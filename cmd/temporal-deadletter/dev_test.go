package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"

	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/internal/connect"
	"github.com/deadletter-dev/deadletter/internal/devstack"
	"github.com/deadletter-dev/deadletter/job"
)

// devLimit bounds a run of dev on a machine that is busy with other tests; one
// takes seconds.
const devLimit = 10 * time.Minute

// process is the program as users run it: a binary of its own, in an empty folder.
type process struct {
	t      *testing.T
	cmd    *exec.Cmd
	lines  *bufio.Scanner
	seen   strings.Builder // of standard output
	errw   bytes.Buffer
	folder string
}

// built compiles the program as users do.
func built(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), name)
	build := exec.CommandContext(t.Context(), "go", "build", "-o", binary, ".")
	output, err := build.CombinedOutput()
	require.NoError(t, err, string(output))
	return binary
}

// itself is this test binary, which runs as the program when it is told to; with
// -race the program is then checked for races too.
func itself(t *testing.T) string {
	t.Helper()
	binary, err := os.Executable()
	require.NoError(t, err)
	return binary
}

func startProcess(t *testing.T, binary string, args ...string) *process {
	t.Helper()
	return startInterrupted(t, "", binary, args...)
}

// startInterrupted is startProcess with a Ctrl-C before the program goes on from
// writing a text, unless that is empty. The binary must be this test's.
func startInterrupted(t *testing.T, at, binary string, args ...string) *process {
	t.Helper()
	// Where there is no Temporal CLI it is built now, however long that takes.
	_, err := devstack.TemporalCLI(t.Context(), os.Stderr)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), devLimit)
	t.Cleanup(cancel)
	p := &process{t: t, cmd: exec.CommandContext(ctx, binary, args...), folder: t.TempDir()}
	p.cmd.Dir = p.folder
	p.cmd.Env = append(cleanEnviron(), asProgram+"=1")
	if at != "" {
		p.cmd.Env = append(p.cmd.Env, interruptAt+"="+at)
	}
	p.cmd.Stderr = &p.errw
	out, err := p.cmd.StdoutPipe()
	require.NoError(t, err)
	p.lines = bufio.NewScanner(out)
	require.NoError(t, p.cmd.Start())
	t.Cleanup(func() { _ = p.cmd.Process.Kill() })
	return p
}

// cleanEnviron is ours without what names servers to use.
func cleanEnviron() []string {
	var environ []string
	for _, setting := range os.Environ() {
		variable, _, _ := strings.Cut(setting, "=")
		if variable == "TEMPORAL_CLI_PATH" || !strings.HasPrefix(variable, "TEMPORAL_") && !strings.Contains(variable, "DATABASE_URL") && !strings.HasPrefix(variable, "DEADLETTER_") {
			environ = append(environ, setting)
		}
	}
	return environ
}

// waitFor reads the output up to a line with the text.
func (p *process) waitFor(text string) {
	p.t.Helper()
	for p.lines.Scan() {
		fmt.Fprintln(&p.seen, p.lines.Text())
		if strings.Contains(p.lines.Text(), text) {
			return
		}
	}
	_ = p.cmd.Wait()
	require.Failf(p.t, "the program ended", "before it wrote %q:\n%s%s", text, p.seen.String(), p.errw.String())
}

// end reads the rest and returns the exit code.
func (p *process) end() int {
	p.t.Helper()
	for p.lines.Scan() {
		fmt.Fprintln(&p.seen, p.lines.Text())
	}
	_ = p.cmd.Wait()
	require.True(p.t, p.cmd.ProcessState.Exited(), "it ended by itself: %v", p.cmd.ProcessState)
	return p.cmd.ProcessState.ExitCode()
}

var listening = regexp.MustCompile(`127\.0\.0\.1:\d+`)

// leavesNothing proves that every server whose address was printed is gone, as
// are all processes and folders of it, and that the working folder is empty.
func (p *process) leavesNothing() {
	p.t.Helper()
	addresses := listening.FindAllString(p.seen.String(), -1)
	require.NotEmpty(p.t, addresses)
	for _, address := range addresses {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			conn.Close()
		}
		require.ErrorIs(p.t, err, syscall.ECONNREFUSED, address)
	}
	mine := regexp.MustCompile(fmt.Sprintf(`deadletter-(pg|temporal)-%d-`, p.cmd.Process.Pid))
	commands, err := filepath.Glob("/proc/[0-9]*/cmdline") // none but on Linux
	require.NoError(p.t, err)
	for _, path := range commands {
		command, _ := os.ReadFile(path) // it may have ended since
		require.False(p.t, mine.Match(command), "left running: %q", command)
	}
	for _, folder := range []string{os.TempDir(), "/tmp"} {
		left, err := filepath.Glob(filepath.Join(folder, fmt.Sprintf("deadletter-*-%d-*", p.cmd.Process.Pid)))
		require.NoError(p.t, err)
		require.Empty(p.t, left)
	}
	files, err := os.ReadDir(p.folder)
	require.NoError(p.t, err)
	require.Empty(p.t, files)
}

// TestDevOnce proves that the demo goes through all of its steps on servers of
// its own, exits 0 and leaves nothing behind.
func TestDevOnce(t *testing.T) {
	t.Parallel()
	p := startProcess(t, built(t), "dev", "--once")
	require.Zero(t, p.end(), p.errw.String())
	require.Empty(t, p.errw.String())
	for _, part := range []string{
		"order 4712 is paid, on attempt 3", "max_retries_exceeded", "fatal_error", "timeout", "unknown_job_type", "cancelled",
		"Mended the handler ResizeImage", "cat.heic is 640 pixels wide", "resurrection_count = 1", "Stats",
	} {
		require.Contains(t, p.seen.String(), part)
	}
	p.leavesNothing()
}

// TestDevInterrupted proves that Ctrl-C at any point ends the demo at once, with
// exit code 1 before its end, and leaves nothing behind.
func TestDevInterrupted(t *testing.T) {
	t.Parallel()
	for _, at := range []string{"Postgres is ready", "Temporal is ready", "Starting 10 jobs", "demo-email-1", "The dead letters"} {
		t.Run(at, func(t *testing.T) {
			t.Parallel()
			p := startInterrupted(t, at, itself(t), "dev")
			require.Equal(t, exitFailed, p.end(), p.seen.String())
			require.Contains(t, p.seen.String(), at)
			require.Equal(t, "temporal-deadletter: interrupted\n", p.errw.String())
			p.leavesNothing()
		})
	}
}

// TestDevStaysUp proves that the servers stay until Ctrl-C, reachable with what
// was printed, and that this is the orderly end: exit 0.
func TestDevStaysUp(t *testing.T) {
	t.Parallel()
	p := startProcess(t, itself(t), "dev")
	p.waitFor("Try in another terminal")
	p.waitFor(" stats")
	exported := regexp.MustCompile(`export (TEMPORAL_ADDRESS=\S+) (TEMPORAL_NAMESPACE=\S+) (DEADLETTER_DATABASE_URL)='(\S+)'`).FindStringSubmatch(p.seen.String())
	require.NotNil(t, exported, p.seen.String())
	environ := []string{noEnv[0], exported[1], exported[2], exported[3] + "=" + exported[4]}
	for _, args := range [][]string{{"list"}, {"show", "-w", "demo-unknown"}, {"replay", "-w", "demo-resize"}, {"stats"}} {
		r := call(t, environ, nil, args...)
		require.Zero(t, r.code, r.errw)
	}
	ui := regexp.MustCompile(`Temporal UI +http://(127\.0\.0\.1:\d+)/namespaces/default/workflows`).FindStringSubmatch(p.seen.String())
	require.NotNil(t, ui, p.seen.String())
	conn, err := net.Dial("tcp", ui[1])
	require.NoError(t, err)
	conn.Close()

	require.NoError(t, p.cmd.Process.Signal(os.Interrupt))
	require.Zero(t, p.end(), p.errw.String())
	p.leavesNothing()
}

// TestDevOnGivenServers proves that dev says first which servers it was told to
// use, starts none, takes no dead letter of another job there, and that what stays
// is only what it says: dead letters and closed workflows, also when it is
// interrupted.
func TestDevOnGivenServers(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	// Not even a queue of the environment, which is that of the real jobs.
	b.environ = append(b.environ, "DEADLETTER_TASK_QUEUE=the-real-one")
	out := b.succeed("dev", "--once")
	require.Regexp(t, `^Using Temporal at `+b.address+` \(namespace default\), Postgres at 127\.0\.0\.1:\d+/\w+ \(schema deadletter\)\n`, out)
	require.NotContains(t, out, "Starting servers")
	require.Regexp(t, `a worker for queues (demo-\w{8})-dead-letters and demo-\w{8}\n`, out)
	_, err := b.dial().DescribeWorkflow(t.Context(), job.OperatorWorkflowID, "")
	require.ErrorAs(t, err, new(*serviceerror.NotFound), "it would stay there")
	for _, queue := range []string{"the-real-one", job.DefaultTaskQueue} {
		described, err := b.dial().DescribeTaskQueue(t.Context(), queue, enumspb.TASK_QUEUE_TYPE_ACTIVITY)
		require.NoError(t, err)
		require.Empty(t, described.GetPollers(), "it would take the dead letters of other jobs")
	}
	widths := regexp.MustCompile(`(?m)^  demo-\w{8}-\S+ +(?:SendEmail|ChargeCard|ResizeImage|ImportInvoice|BuildReport|NoSuchHandler) +`).FindAllString(out, -1)
	require.Len(t, widths, 10)
	for _, width := range widths {
		require.Len(t, width, len(widths[0]), "aligned")
	}
	require.EqualValues(t, 6, b.count())
	require.Contains(t, b.succeed("list"), "demo-")

	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	var interrupted, errw bytes.Buffer
	stdout := io.MultiWriter(&interrupted, onText{"-email-1", interrupt})
	require.Equal(t, exitFailed, run(ctx, []string{"dev", "--once"}, b.environ, strings.NewReader(""), stdout, &errw), errw.String())
	c := b.dial()
	// Other tests run demos in this namespace too, under other queues.
	for _, text := range []string{out, interrupted.String()} {
		queue := regexp.MustCompile(`a worker for queues \S+ and (demo-\w{8})\n`).FindStringSubmatch(text)
		require.NotNil(t, queue, text)
		// Visibility follows some moments later.
		require.Eventually(t, func() bool {
			running, err := c.CountWorkflow(t.Context(), &workflowservice.CountWorkflowExecutionsRequest{
				Namespace: "default", Query: `ExecutionStatus = "Running" and WorkflowId starts_with "` + queue[1] + `"`,
			})
			return err == nil && running.GetCount() == 0
		}, 2*time.Minute, 100*time.Millisecond)
	}
}

// TestDevOnGivenDatabase proves that dev with a Temporal of its own leaves the
// replays alone that wait in a given database: they would start there, and vanish.
func TestDevOnGivenDatabase(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	key := b.move("interrupted")
	_, err := b.store.BeginReplay(t.Context(), dlqstore.ReplayRequest{Key: key, RequestID: "ticket-1", Actor: "oncall"})
	require.NoError(t, err)
	_, err = b.store.Pool().Exec(t.Context(), `update deadletter.replays set requested_at = now() - interval '1 minute'`)
	require.NoError(t, err)
	r := call(t, []string{noEnv[0], "TEMPORAL_NAMESPACE=default", "DEADLETTER_DATABASE_URL=" + b.url}, nil, "dev", "--once")
	require.Zero(t, r.code, r.errw)
	require.Regexp(t, `^Using Postgres at .*\nStarting servers`, r.out)
	replays, err := b.store.Replays(t.Context(), key)
	require.NoError(t, err)
	require.Len(t, replays, 1)
	require.Nil(t, replays[0].NewRunID)
	left, err := b.store.CountDeadLetters(t.Context(), "default")
	require.NoError(t, err)
	require.EqualValues(t, 1, left, "the demo's are not among those of real jobs")
}

// TestDevNamesTheStep proves that a demo that goes wrong exits 1 and names the
// step: here each dead letter is stored with a wrong reason.
func TestDevNamesTheStep(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	_, err := b.store.Pool().Exec(t.Context(), `
create function deadletter.wrong() returns trigger language plpgsql as $$ begin new.reason = 'zombie'; return new; end $$;
create trigger wrong before insert on deadletter.dead_letters for each row execute function deadletter.wrong()`)
	require.NoError(t, err)
	r := call(t, b.environ, io.MultiReader(), "dev", "--once", "--task-queue", "deadletter-wrong")
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.out, "a worker for queues deadletter-wrong and demo-")
	require.Contains(t, r.errw, `step "list the dead letters"`)
	require.Contains(t, r.errw, "want reason fatal_error, and it is zombie")
	rows, err := b.store.Count(t.Context(), dlqstore.Filter{})
	require.NoError(t, err)
	require.EqualValues(t, 6, rows)
}

// TestDevBusyPort proves that a start that fails half-way ends what had started.
func TestDevBusyPort(t *testing.T) {
	t.Parallel()
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer busy.Close()
	p := startProcess(t, itself(t), "dev", "--once", "--ui-port", strconv.Itoa(busy.Addr().(*net.TCPAddr).Port))
	require.Equal(t, exitFailed, p.end())
	require.Equal(t, 1, strings.Count(p.errw.String(), "\n"), "one line: %s", p.errw.String())
	p.leavesNothing()
}

// TestDevExports proves that what dev prints for another terminal is complete,
// quoted, and without a password that was given.
func TestDevExports(t *testing.T) {
	t.Parallel()
	config := &connect.Config{
		Temporal:    client.Options{HostPort: "prod:7233", Namespace: "jobs"},
		DatabaseURL: "postgres://app:geheim@db/app", Schema: "it's mine",
	}
	line := `export TEMPORAL_ADDRESS=prod:7233 TEMPORAL_NAMESPACE=jobs`
	c := new(cli)
	require.Equal(t, []string{line + ` DEADLETTER_SCHEMA='it'\''s mine'`, "# and keep the DEADLETTER_DATABASE_URL that you have set"},
		c.exports(new(servers), config))
	config.Schema = dlqstore.DefaultSchema
	c.overrides = connect.Overrides{DatabaseURL: config.DatabaseURL, Profile: "prod"}
	require.Equal(t, []string{line + " TEMPORAL_PROFILE=prod", "# and export DEADLETTER_DATABASE_URL with the URL that you passed as --database-url"},
		c.exports(new(servers), config))
	own := &servers{postgres: &devstack.Postgres{URL: "postgres://own?x=y"}}
	require.Equal(t, []string{line + " DEADLETTER_DATABASE_URL='postgres://own?x=y'"}, new(cli).exports(own, config))
}
