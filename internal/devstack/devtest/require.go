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
	if err != nil {
		Missing(tb, program, "install it with: "+install)
	}
	return path
}

// Missing skips a test, or fails it, as Require does: what is missing, and how to get it.
func Missing(tb testing.TB, what, remedy string) {
	tb.Helper()
	if os.Getenv(requireAllEnv) == "1" {
		tb.Fatalf("%s is missing and %s=1 asks for it; %s", what, requireAllEnv, remedy)
	}
	tb.Skipf("SKIPPED: this test needs %s; %s", what, remedy)
}
