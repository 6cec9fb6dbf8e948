package workflows

import (
	"fmt"
	"time"

	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/deadletter-dev/deadletter/job"
)

// Workflows is the set of workflows of one worker. It holds configuration only
// and is safe for concurrent use.
type Workflows struct {
	// TaskQueue is where the dead-letter activities are served. Required.
	TaskQueue string
}

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
		return nil, w.bury(ctx, j, ending{reason: job.ReasonCancelled, attempts: count(0), text: "cancelled before the first attempt"})
	}
	left, expired := j.ageLeft(ctx)
	if expired != nil {
		return nil, w.bury(ctx, j, *expired)
	}

	var result converter.RawValue
	handler := workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, j.activityOptions(left)), j.options.Type, j.args...)
	if err := handler.Get(ctx, &result); err != nil {
		return nil, w.bury(ctx, j, classify(err, ctx.Err() != nil, j.options.Policy))
	}
	if result.Payload() == nil {
		return nil, nil // a RawValue without a payload cannot be encoded
	}
	return result, nil
}

// running is one accepted job.
type running struct {
	options  job.Options
	readable bool // options decoded without a fault
	lineage  job.Lineage
	args     []any
}

// accept reads the options and arguments. With a fault, what could be read is
// returned all the same: the dead letter says it.
func accept(ctx workflow.Context, options converter.RawValue, args []converter.RawValue, overflow converter.RawValue) (running, *job.Fault) {
	info := workflow.GetInfo(ctx)
	j := running{lineage: readLineage(info)}

	err := j.readOptions(options)
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

func (j *running) readOptions(options converter.RawValue) error {
	payload := options.Payload()
	if payload == nil {
		return fmt.Errorf("the first argument, the options object, is missing")
	}
	if encoding := string(payload.GetMetadata()[converter.MetadataEncoding]); encoding != converter.MetadataEncodingJSON {
		return fmt.Errorf("the options object has encoding %q, which is not %s: does this worker lack the client's codec?", encoding, converter.MetadataEncodingJSON)
	}
	err := j.options.UnmarshalJSON(payload.GetData())
	j.options.Policy = j.options.Policy.WithDefaults()
	j.readable = err == nil
	return err
}

// readLineage reads the memo that a replay wrote, in plain JSON whatever codec
// the job's own client uses. Anything else there is not a replay's.
func readLineage(info *workflow.Info) job.Lineage {
	var lineage job.Lineage
	payload := info.Memo.GetFields()[job.LineageMemoKey]
	if payload == nil || converter.GetDefaultDataConverter().FromPayload(payload, &lineage) != nil {
		return job.Lineage{}
	}
	return lineage
}

func (j *running) activityOptions(ageLeft time.Duration) workflow.ActivityOptions {
	p := j.options.Policy
	retry := &temporal.RetryPolicy{
		InitialInterval:    max(p.BaseDelay, time.Millisecond), // the server refuses 0
		BackoffCoefficient: p.BackoffMultiplier,
		MaximumInterval:    unlimited,
		MaximumAttempts:    int32(max(p.MaxAttempts, 0)), // 0 is the server's "no limit"
	}
	if p.MaxDelay > 0 {
		retry.MaximumInterval = p.MaxDelay
	}
	retry.InitialInterval = min(retry.InitialInterval, retry.MaximumInterval)
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
