package devtest

import (
	"os"
	"os/exec"
	"testing"
)

// requireAllEnv makes a missing program a failure: the continuous build installs all of them.
const requireAllEnv = "DEADLETTER_REQUIRE_ALL"

// Require returns the path of a program that a test needs beyond Go, Postgres and
// Temporal. Without it the test is skipped, with one line that says how to install
// it; with DEADLETTER_REQUIRE_ALL=1 it fails.
func Require(tb testing.TB, program, install string) string {
	tb.Helper()
	path, err := exec.LookPath(program)
	if err != nil && os.Getenv(requireAllEnv) == "1" {
		tb.Fatalf("%s is missing and %s=1 asks for it; install it with: %s", program, requireAllEnv, install)
	}
	if err != nil {
		tb.Skipf("SKIPPED: this test needs %s; install it with: %s", program, install)
	}
	return path
}
