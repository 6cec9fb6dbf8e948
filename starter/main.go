// Command starter starts jobs from the command line and prints their ids:
//
//	starter --type ChargeCard --arg '{"order":4711,"succeeds_on":2}' --max-attempts 5 --wait
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/deadletter-dev/deadletter"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Environ(), os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

func run(ctx context.Context, args, environ []string, out, errw io.Writer) int {
	r, err := parse(args, errw)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	}
	err = r.do(ctx, environ, out)
	if err == nil {
		return 0
	}
	// The faults of a job come a line each.
	fmt.Fprintf(errw, "starter: %s\n", strings.ReplaceAll(err.Error(), "\n", "; "))
	if errors.Is(err, deadletter.ErrInvalidJob) {
		return 2
	}
	return 1
}
