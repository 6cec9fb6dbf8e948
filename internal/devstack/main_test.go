package devstack_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/deadletter-dev/deadletter/internal/devstack"
	"github.com/deadletter-dev/deadletter/internal/devstack/devtest"
)

// parentEnv makes the test binary a program that starts the stack and then ends
// as the variable says, without Stop.
const parentEnv = "DEVSTACK_TEST_PARENT"

func TestMain(m *testing.M) {
	if ending := os.Getenv(parentEnv); ending != "" {
		parent(ending)
	}
	os.Exit(m.Run())
}

// parent starts the stack, says so on standard output, waits for a line on
// standard input and ends.
func parent(ending string) {
	interrupted := make(chan os.Signal, 1)
	if signal.Ignored(os.Interrupt) { // as for whatever a script runs in the background
		signal.Notify(interrupted, os.Interrupt)
	}
	if _, err := devstack.Start(context.Background(), devstack.Options{Log: os.Stderr}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(3)
	}
	fmt.Println("started")
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
	switch ending {
	case "panic":
		panic("as the test wants")
	case "exit":
		os.Exit(0)
	case "signal":
		<-interrupted
		os.Exit(1)
	}
}

// tempFolder makes TMPDIR a new folder that is as open as /tmp, for servers run
// under another account, and returns it.
func tempFolder(t *testing.T) string {
	t.Helper()
	folder, err := os.MkdirTemp("", "devstack-test-")
	require.NoError(t, err)
	require.NoError(t, os.Chmod(folder, 0o777|os.ModeSticky))
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(folder)) })
	t.Setenv("TMPDIR", folder)
	return folder
}

// descendants returns the processes that a process started, and theirs, as id to
// command line.
func descendants(t *testing.T, ancestor int) map[int]string {
	t.Helper()
	devtest.Require(t, "ps", "apt-get install procps")
	out, err := exec.Command("ps", "-A", "-o", "pid=,ppid=,args=").Output()
	require.NoError(t, err)
	children := map[int][]int{}
	args := map[int]string{}
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		pid, err := strconv.Atoi(fields[0])
		require.NoError(t, err)
		ppid, err := strconv.Atoi(fields[1])
		require.NoError(t, err)
		children[ppid] = append(children[ppid], pid)
		args[pid] = strings.Join(fields[2:], " ")
	}
	found := map[int]string{}
	for todo := children[ancestor]; len(todo) > 0; todo = todo[1:] {
		if args[todo[0]] != "ps -A -o pid=,ppid=,args=" {
			found[todo[0]] = args[todo[0]]
			todo = append(todo, children[todo[0]]...)
		}
	}
	return found
}

// servers returns the descendants of a process once both servers are among them:
// without, what follows would prove nothing.
func servers(t *testing.T, ancestor int) map[int]string {
	t.Helper()
	var processes map[int]string
	require.Eventually(t, func() bool {
		processes = descendants(t, ancestor)
		all := fmt.Sprint(processes)
		// A child of the postmaster has its name some moments after its start.
		return strings.Contains(all, "start-dev") && strings.Contains(all, "checkpointer")
	}, time.Minute, 50*time.Millisecond)
	return processes
}

// requireNothingLeft waits until none of the processes and nothing in the folder
// exists.
func requireNothingLeft(t *testing.T, processes map[int]string, folder string) {
	t.Helper()
	left := func() string {
		var left []string
		for pid, args := range processes {
			// A zombie is an ended process whom init has not looked at yet.
			stat, err := exec.Command("ps", "-o", "stat=", "-p", strconv.Itoa(pid)).Output()
			if err == nil && !strings.HasPrefix(strings.TrimSpace(string(stat)), "Z") {
				left = append(left, fmt.Sprintf("process %d: %.80s", pid, args))
			}
		}
		paths, err := filepath.Glob(filepath.Join(folder, "*"))
		require.NoError(t, err)
		return strings.Join(append(left, paths...), "\n")
	}
	// A shell, its server and `rm -rf` have their turns when the machine is busy.
	deadline := time.Now().Add(90 * time.Second)
	require.Eventually(t, func() bool { return left() == "" || time.Now().After(deadline) }, 2*time.Minute, 50*time.Millisecond)
	require.Empty(t, left())
}

// lines is a log that calls back on each write.
type lines func(line string)

func (l lines) Write(p []byte) (int, error) {
	l(string(p))
	return len(p), nil
}

// script writes an executable shell script.
func script(t *testing.T, path, body string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\n"+body+"\n"), 0o755))
}
