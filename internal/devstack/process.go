package devstack

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// Bounds on waiting for a process that was told to stop.
const (
	stopGrace = 8 * time.Second // after the polite signal
	killGrace = 5 * time.Second // after KILL
)

// errEnded marks a process that ended although nobody stopped it.
var errEnded = errors.New("ended by itself")

// account is whom a process runs as; a nil *account is ourselves.
type account struct{ uid, gid uint32 }

// command is a process to start. It must not outlive us.
type command struct {
	name string   // for messages and the log file
	path string   // absolute
	args []string // without the path
	env  []string // complete
	dir  *tempDir // its working folder; holds the log
	as   *account
	// stopSignal ends it: on stop, and when we die. A name as in `kill -s`.
	stopSignal string
}

// process is a started command. Its methods may be called concurrently.
type process struct {
	command
	control *os.File      // a line is a signal to send; closing it stops the process
	done    chan struct{} // closed when the process has ended
	err     error         // how it ended; read after done
}

// watcher runs a server as its child and stops it when told to or when we die.
//
// Parent-death signals would do on Linux only and are bound to an OS thread,
// which the Go runtime may end; a pipe that closes works everywhere and however
// we die. Being the parent, the shell cannot signal a recycled process id. Once
// the server has ended, TERM to the shell's own process group takes the reader
// of the pipe, its sleep and the server's stray children.
const watcher = `
dir=$1 stop=$2
shift 2
PATH=$PATH:/usr/bin:/bin
"$@" 3<&- &
server=$!
{
	while read -r signal <&3; do kill -s "$signal" "$server"; done
	: >"$dir/abandoned"
	kill -s "$stop" "$server"
	sleep 8
	kill -s KILL "$server"
} 2>/dev/null &
wait "$server"
status=$?
trap '' TERM
kill -s TERM 0
wait
if [ -e "$dir/abandoned" ]; then
	cd / && rm -rf "$dir"
fi
exit "$status"
`

// start runs the command under the watcher and returns at once.
func (c command) start() (*process, error) {
	log, err := os.OpenFile(c.logPath(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("devstack: start %s: %w", c.name, err)
	}
	defer log.Close()
	reader, control, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("devstack: start %s: %w", c.name, err)
	}
	defer reader.Close()

	args := append([]string{"-c", watcher, "sh", c.dir.path, c.stopSignal, c.path}, c.args...)
	cmd := exec.Command("/bin/sh", args...)
	cmd.Dir = c.dir.path
	cmd.Env = c.env
	// Files, not pipes: a server that outlives us for a moment can still write,
	// and nobody who waits for our output waits for the server's.
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = []*os.File{reader}
	cmd.SysProcAttr = detached(c.as)
	if err := cmd.Start(); err != nil {
		control.Close()
		return nil, fmt.Errorf("devstack: start %s: %w", c.name, err)
	}
	p := &process{command: c, control: control, done: make(chan struct{})}
	go func() {
		p.err = cmd.Wait()
		control.Close()
		close(p.done)
	}()
	return p, nil
}

// stop ends the process: with signal, and if that does not help with KILL. It is
// a no-op for a process that has ended.
func (p *process) stop(signal string) error {
	for _, try := range []struct {
		signal string
		grace  time.Duration
	}{{signal, stopGrace}, {"KILL", killGrace}} {
		// An error means that the watcher is gone, and the server with it.
		_, _ = io.WriteString(p.control, try.signal+"\n")
		select {
		case <-p.done:
			return nil
		case <-time.After(try.grace):
		}
	}
	_ = p.control.Close()
	return fmt.Errorf("devstack: stop %s: still running %s after KILL", p.name, killGrace)
}

// ended describes a process that ended by itself; call it after done.
func (p *process) ended() error {
	//nolint:errorlint // how it ended is for people; callers act on errEnded
	return fmt.Errorf("devstack: %s %w (%v); its last output:\n%s", p.name, errEnded, p.err, p.lastOutput())
}

func (c command) logPath() string { return filepath.Join(c.dir.path, c.name+".log") }

// lastOutput returns the end of the log, which is where servers say why they
// ended.
func (c command) lastOutput() string {
	const limit = 2000
	log, err := os.ReadFile(c.logPath())
	if err != nil {
		return err.Error()
	}
	return string(log[max(0, len(log)-limit):])
}
