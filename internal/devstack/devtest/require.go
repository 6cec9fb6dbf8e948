package devtest

import (
	"fmt"
	"os"
	"os/exec"
	"testing"
)

// requireAllEnv makes a missing program a failure: the continuous build installs all of them.
const requireAllEnv = "DEADLETTER_REQUIRE_ALL"

// Require returns the path of a program that a test needs beyond Go, Postgres and
// Temporal. Without it the test is skipped, with one line that says how to install
// it; with DEADLETTER_REQUIRE_ALL=1 it fails. The line is also written to the terminal:
// go test shows the output of a package that passes with -v only.
func Require(tb testing.TB, program, install string) string {
	tb.Helper()
	path, err := exec.LookPath(program)
	if err != nil && os.Getenv(requireAllEnv) == "1" {
		tb.Fatalf("%s is missing and %s=1 asks for it; install it with: %s", program, requireAllEnv, install)
	}
	if err != nil {
		line := fmt.Sprintf("SKIPPED: %s needs %s; install it with: %s", tb.Name(), program, install)
		if terminal, err := os.OpenFile("/dev/tty", os.O_WRONLY, 0); err == nil {
			_, _ = fmt.Fprintln(terminal, line)
			_ = terminal.Close()
		}
		tb.Skip(line)
	}
	return path
}
