package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"

	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/converter"

	"github.com/deadletter-dev/deadletter"
	"github.com/deadletter-dev/deadletter/internal/connect"
	"github.com/deadletter-dev/deadletter/internal/demo"
)

// request is what the command line asks for.
type request struct {
	connect.Overrides
	job   deadletter.Job
	args  []any
	count int
	wait  bool
}

// parse reads the command line. It writes faults, a line each, and help to errw.
func parse(args []string, errw io.Writer) (*request, error) {
	r := &request{job: deadletter.Job{Tags: map[string]string{}}}
	flags := flag.NewFlagSet("starter", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // it would show the whole help at each fault
	flags.StringVar(&r.Address, "address", "", "Temporal server, host:port (TEMPORAL_ADDRESS)")
	flags.StringVar(&r.Namespace, "namespace", "", "Temporal namespace (TEMPORAL_NAMESPACE)")
	flags.StringVar(&r.Profile, "profile", "", "profile of Temporal's configuration file (TEMPORAL_PROFILE)")
	flags.StringVar(&r.job.Type, "type", demo.SendEmail, "job type: the activity type of the handler")
	flags.StringVar(&r.job.TaskQueue, "task-queue", demo.TaskQueue, "task queue of the handler's workers")
	flags.StringVar(&r.job.ID, "id", "", "job id; of several jobs the beginning of each (default a fresh one each)")
	flags.DurationVar(&r.job.StartDelay, "start-delay", 0, "how long until the job is due")
	flags.IntVar(&r.count, "n", 1, "how many jobs to start")
	flags.BoolVar(&r.wait, "wait", false, "wait for the jobs; exit 1 if one failed")
	flags.Func("arg", "`JSON` argument of the handler, passed as it is; repeat it for several", r.addArgument)
	flags.Func("tag", "`key=value`, for finding a dead letter; repeat it for several", r.addTag)

	p := &r.job.Policy // zero means the default, negative no limit
	flags.IntVar(&p.MaxAttempts, "max-attempts", 0, "attempts, the first included (default 3, -1 no limit)")
	flags.DurationVar(&p.BaseDelay, "base-delay", 0, "wait before the second attempt (default 3s)")
	flags.Float64Var(&p.BackoffMultiplier, "backoff-multiplier", 0, "growth of the wait (default 2)")
	flags.DurationVar(&p.MaxDelay, "max-delay", 0, "longest wait (default 1h)")
	flags.DurationVar(&p.JitterMaxDelay, "jitter-max-delay", 0, "most that chance adds to a wait (default 1s)")
	flags.DurationVar(&p.CircuitBreakerDelay, "circuit-breaker-delay", 0, "wait after an open breaker (default 5s)")
	flags.DurationVar(&p.MaxJobAge, "max-job-age", 0, "most that the job may take in all (default 24h)")
	flags.DurationVar(&p.AttemptTimeout, "attempt-timeout", 0, "most that one attempt may take (default 15m)")
	flags.DurationVar(&p.HeartbeatTimeout, "heartbeat-timeout", 0, "silence after which a worker counts as dead (default 1m)")
	flags.DurationVar(&p.UnknownTypeGrace, "unknown-type-grace", 0, "how long to wait, free of charge, for a worker that knows the job type (default 5m, -1s none)")
	flags.BoolVar(&p.RetryZombies, "retry-zombies", false, "retry an attempt whose worker died")
	flags.BoolVar(&p.DeadLetterTimeouts, "dead-letter-timeouts", false, "dead-letter the first attempt that times out")
	flags.BoolVar(&p.DiscardCancelled, "discard-cancelled", false, "keep no dead letter of a cancelled job")
	fault := flags.Parse(args)
	switch {
	case errors.Is(fault, flag.ErrHelp):
		help(flags, errw)
		return nil, fault
	case fault != nil:
	case flags.NArg() > 0:
		fault = fmt.Errorf("%q is no flag; pass the handler's arguments with --arg", flags.Arg(0))
	case r.count < 1:
		fault = fmt.Errorf("-n: %d is not a positive number", r.count)
	}
	if fault != nil {
		fmt.Fprintf(errw, "starter: %v; see starter --help\n", fault)
	}
	return r, fault
}

func help(flags *flag.FlagSet, errw io.Writer) {
	fmt.Fprintln(errw, "Starts jobs and prints a line for each: its workflow id and run id.\n\n"+
		`  starter --type ChargeCard --arg '{"order":4711,"succeeds_on":2}' --max-attempts 5 --wait`+"\n\nFlags:")
	flags.SetOutput(errw)
	flags.PrintDefaults()
	fmt.Fprintln(errw, "\nExit codes: 0 done; 1 failed, also when a job did that --wait waits for; 2 wrong usage.")
}

// addArgument keeps the JSON's bytes: numbers are not read and written again.
func (r *request) addArgument(text string) error {
	if !json.Valid([]byte(text)) {
		return errors.New(`it is not JSON; quote a text, as in --arg '"text"'`)
	}
	r.args = append(r.args, converter.NewRawValue(&commonpb.Payload{
		Metadata: map[string][]byte{converter.MetadataEncoding: []byte(converter.MetadataEncodingJSON)},
		Data:     []byte(text),
	}))
	return nil
}

func (r *request) addTag(text string) error {
	key, value, ok := strings.Cut(text, "=")
	if !ok || key == "" {
		return errors.New("it does not look like key=value")
	}
	r.job.Tags[key] = value
	return nil
}
