package workflows

import (
	"errors"
	"fmt"
	"time"

	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/deadletter-dev/deadletter/internal/lineage"
	"github.com/deadletter-dev/deadletter/job"
)

// Workflows is the set of workflows of one worker. It holds configuration only
// and is safe for concurrent use.
type Workflows struct {
	// TaskQueue is where the dead-letter activities are served. Required.
	TaskQueue string
}

// maxJobHistory is when a job that is snoozed again and again goes on in a new run.
const maxJobHistory = 1000

// unlimited stands for "no limit" where the server insists on a timeout.
const unlimited = 10 * 365 * 24 * time.Hour

// Job runs one job: registered as job.WorkflowType. Its first argument is a
// job.Options object, the handler's arguments follow, as many as MaxArguments.
//
// The arity is fixed because the SDK cannot register variadic workflows, and it
// drops arguments past the last parameter in silence: overflow is there to see
// the first of those. Every argument is taken raw, so that the handler gets the
// bytes that were sent, and so that options which do not decode reach our code
// instead of failing the workflow without a dead letter.
func (w Workflows) Job(
	ctx workflow.Context,
	options, a1, a2, a3, a4, a5, a6, a7, a8, overflow converter.RawValue,
) (any, error) {
	j, fault := accept(ctx, options, []converter.RawValue{a1, a2, a3, a4, a5, a6, a7, a8}, overflow)
	if fault != nil {
		return nil, w.bury(ctx, j, refused(fault))
	}
	// A job cancelled before its first task must not reach a handler at all.
	if ctx.Err() != nil {
		return nil, w.bury(ctx, j, j.cancelledWaiting())
	}
	if j.due.IsZero() {
		j.due = workflow.GetInfo(ctx).WorkflowStartTime.Add(j.startDelay(ctx))
	}
	for {
		left, expired := j.ageLeft(ctx)
		if expired != nil {
			return nil, w.bury(ctx, j, *expired)
		}
		dropRetryNow(ctx)
		result, err := j.execute(ctx, left)
		if err == nil {
			return w.succeed(ctx, j, result)
		}
		if !isEnding(err) {
			// The handler has succeeded; only its result cannot be read here, for want of
			// a key, say. Failing the task keeps the job for a worker that can.
			panic(fmt.Sprintf("deadletter: the handler's result cannot be read: %v", err))
		}
		free, ok := asFree(err)
		if !ok {
			free, ok = j.asUnknown(ctx, err)
		}
		if !ok || ctx.Err() != nil {
			return nil, w.bury(ctx, j, j.classify(err, ctx.Err() != nil))
		}
		if end := j.reschedule(ctx, free); end != nil {
			return nil, w.bury(ctx, j, *end)
		}
		if historyIsLong(ctx, maxJobHistory) {
			return nil, j.continueAsNew(ctx)
		}
	}
}

// execute runs the handler with the budget and the age that are left.
func (j *running) execute(ctx workflow.Context, ageLeft time.Duration) (any, error) {
	options := j.activityOptions(ageLeft, j.graceLeft(workflow.Now(ctx)) > 0)
	// Said aloud: an activity that is started eagerly does not inherit it.
	options.Priority = workflow.GetInfo(ctx).Priority
	ctx = workflow.WithActivityOptions(ctx, options)
	ctx = workflow.WithValue(ctx, planKey{}, job.Plan{
		Charged: j.charged, MaxDelay: j.options.Policy.MaxDelay, JitterMaxDelay: j.options.Policy.JitterMaxDelay,
	})
	var result converter.RawValue
	if err := workflow.ExecuteActivity(ctx, j.options.Type, j.args...).Get(ctx, &result); err != nil {
		return nil, err
	}
	if result.Payload() == nil {
		return nil, nil // a RawValue without a payload cannot be encoded
	}
	return result, nil
}

// isEnding tells the end of a handler from a result that does not decode.
func isEnding(err error) bool {
	var failed *temporal.ActivityError
	var cancelled *temporal.CanceledError
	return errors.As(err, &failed) || errors.As(err, &cancelled)
}

// running is one accepted job.
type running struct {
	options  job.Options
	readable bool // options decoded without a fault
	lineage  job.Lineage
	args     []any
	// input is the first argument as it came, for the next run.
	input converter.RawValue
	// created is when the first run started, due when the job was due.
	created, due time.Time
	// charged counts the attempts of executions that ended free of charge, and
	// attempts is their log.
	charged  int
	attempts []job.AttemptRecord
	// last is the free ending of the execution before, nil for the first.
	last *free
	// unknown is what the job knows of workers that did not know its type.
	unknown job.UnknownType
}

// accept reads the options and arguments. With a fault, what could be read is
// returned all the same: the dead letter says it.
func accept(ctx workflow.Context, options converter.RawValue, args []converter.RawValue, overflow converter.RawValue) (running, *job.Fault) {
	info := workflow.GetInfo(ctx)
	j := running{lineage: lineage.FromMemo(info.Memo), input: options, created: info.WorkflowStartTime}
	carried := carriedFrom(ctx)
	if carried != nil {
		j.charged, j.created, j.due, j.attempts = carried.Charged, carried.Created, carried.Due, carried.Attempts
		j.unknown = carried.Unknown
	}

	err := j.readOptions(ctx, options, carried != nil)
	if j.options.TaskQueue == "" {
		j.options.TaskQueue = info.TaskQueueName
	}
	if err != nil {
		return j, invalidJob(fmt.Sprintf("the job's options are refused:\n%v", err))
	}
	if overflow.Payload() != nil {
		return j, invalidJob(fmt.Sprintf("the job has more than %d arguments: pass one object instead", job.MaxArguments))
	}
	for _, arg := range args {
		if arg.Payload() == nil {
			break
		}
		j.args = append(j.args, arg)
	}
	return j, nil
}

// refuseDoubledKeys is the change since when options with a key that is given twice are
// refused. Only a job that has some asks for its version: an ordinary job's history gets
// no event for it.
const refuseDoubledKeys = "refuse-doubled-keys"

// readOptions reads the first argument. A job that goes on in a new run has been accepted
// by the run before.
func (j *running) readOptions(ctx workflow.Context, options converter.RawValue, goesOn bool) error {
	payload := options.Payload()
	if payload == nil {
		return fmt.Errorf("the first argument, the options object, is missing")
	}
	if encoding := string(payload.GetMetadata()[converter.MetadataEncoding]); encoding != converter.MetadataEncodingJSON {
		return fmt.Errorf("the options object has encoding %q, which is not %s: does this worker lack the client's codec?", encoding, converter.MetadataEncodingJSON)
	}
	err := j.options.UnmarshalJSON(payload.GetData())
	if errors.Is(err, job.ErrDoubledKey) &&
		(goesOn || workflow.GetVersion(ctx, refuseDoubledKeys, workflow.DefaultVersion, 1) == workflow.DefaultVersion) {
		err = j.options.UnmarshalLast(payload.GetData())
	}
	j.options.Policy = j.options.Policy.WithDefaults()
	j.readable = err == nil
	return err
}

func (j *running) activityOptions(ageLeft time.Duration, grace bool) workflow.ActivityOptions {
	p := j.options.Policy
	retry := &temporal.RetryPolicy{
		InitialInterval:    max(p.BaseDelay, time.Millisecond), // the server refuses 0
		BackoffCoefficient: p.BackoffMultiplier,
		MaximumInterval:    unlimited,
		// These come back to us, whoever raised them; see asFree.
		NonRetryableErrorTypes: job.FreeErrorTypes(),
	}
	if p.MaxAttempts > 0 {
		retry.MaximumAttempts = int32(p.MaxAttempts - j.charged)
	}
	if p.MaxDelay > 0 {
		retry.MaximumInterval = p.MaxDelay
	}
	retry.InitialInterval = min(retry.InitialInterval, retry.MaximumInterval)
	if grace {
		// Only this one: what other SDKs answer has types that handlers raise too, and a
		// handler's failure is for the server to retry.
		retry.NonRetryableErrorTypes = append(retry.NonRetryableErrorTypes, job.GoUnknownType)
	}
	if !p.RetryZombies {
		retry.NonRetryableErrorTypes = append(retry.NonRetryableErrorTypes, "TemporalTimeout:Heartbeat")
	}
	if p.DeadLetterTimeouts {
		retry.NonRetryableErrorTypes = append(retry.NonRetryableErrorTypes, "TemporalTimeout:StartToClose")
	}
	options := workflow.ActivityOptions{
		TaskQueue:              j.options.TaskQueue,
		ScheduleToCloseTimeout: ageLeft,
		StartToCloseTimeout:    unlimited,
		HeartbeatTimeout:       max(p.HeartbeatTimeout, 0),
		RetryPolicy:            retry,
	}
	if p.AttemptTimeout > 0 {
		options.StartToCloseTimeout = p.AttemptTimeout
	}
	// Without heartbeats a cancellation cannot reach the handler; waiting for it
	// would hold the job until the handler ends by itself.
	options.WaitForCancellation = options.HeartbeatTimeout > 0
	return options
}
