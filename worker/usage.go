package main

import (
	"fmt"
	"io"
)

const usage = `The reference worker serves the dead-letter queue, and sample handlers on task
queue "demo". It takes no arguments. SIGTERM stops it in order.

Environment:
  TEMPORAL_ADDRESS         Temporal server, host:port (default localhost:7233)
  TEMPORAL_NAMESPACE       Temporal namespace (default "default")
  TEMPORAL_PROFILE         profile of Temporal's configuration file; TLS and API
                           keys come from it, or from further TEMPORAL_ variables
  DEADLETTER_DATABASE_URL  Postgres with the dead letters; else DATABASE_URL
  DEADLETTER_SCHEMA        its schema (default "deadletter")
  DEADLETTER_TASK_QUEUE    task queue of the dead-letter activities
                           (default "deadletter")
  DEADLETTER_MIGRATE       "true" creates or upgrades the schema first

Exit codes: 0 stopped in order, 1 failed, 2 wrong usage.
`

// answer deals with arguments, of which only those that ask for help are right.
// It reports whether the program ends with that, and its exit code.
func answer(args []string, out, errw io.Writer) (code int, ends bool) {
	if len(args) == 0 {
		return 0, false
	}
	if args[0] == "-h" || args[0] == "--help" {
		fmt.Fprint(out, usage)
		return 0, true
	}
	fmt.Fprintf(errw, "worker: it takes no arguments, and %q is one; see worker --help\n", args[0])
	return 2, true
}
