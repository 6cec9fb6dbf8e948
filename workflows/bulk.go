package workflows

import (
	"fmt"
	"time"

	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/workflow"

	"github.com/deadletter-dev/deadletter/job"
)

const (
	// maxBulkHistory is when an operation goes on as a new run.
	maxBulkHistory = 1000
	// bulkActivityTime bounds one try of an operation's activity, bulkHeartbeat the
	// silence of its worker.
	bulkActivityTime = 15 * time.Minute
	bulkHeartbeat    = 5 * time.Second
	// bulkStuckWait is before the next stretch after one that ended no member.
	bulkStuckWait = 5 * time.Second
	// maxCanaryStep is where an operation with a canary stops to grow its steps.
	maxCanaryStep = 10_000
)

// BulkOperation applies a plan: registered as job.BulkWorkflowType, one run at a
// time under the id job.BulkWorkflowID. It goes on through any crash of its
// workers and ends by itself; its members and their ends are in Postgres.
//
// Signals pause, resume and cancel take a job.BulkControl, query progress answers
// with a job.BulkProgress, which is also the result. An operation that is paused
// or cancelled finishes the few members that it has in hand.
func (w Workflows) BulkOperation(ctx workflow.Context, in job.BulkInput) (job.BulkProgress, error) {
	if in.Actor == "" {
		in.Actor = "workflow" // started by hand: the audit says how
	}
	op := bulkOperation{input: in, progress: job.BulkProgress{PlanID: in.PlanID}, dropsMisshapen: before(ctx, heedMisshapen)}
	err := workflow.SetQueryHandlerWithOptions(ctx, job.BulkProgressQuery,
		func() (job.BulkProgress, error) { return op.progress, nil },
		workflow.QueryHandlerOptions{Description: "How far the operation is."})
	if err != nil {
		return op.progress, err
	}
	op.listen(ctx)
	// The end is noted also when the workflow is cancelled.
	rest, _ := workflow.NewDisconnectedContext(ctx)
	rest = workflow.WithActivityOptions(rest, w.bulkMarkOptions())
	if err := op.begin(rest); err != nil {
		return op.progress, err
	}
	for {
		if ctx.Err() != nil {
			op.cancelledBy = "temporal"
		}
		switch {
		case op.cancelledBy != "":
			if err := op.mark(rest, job.PlanCancelled, op.cancelledBy, ""); err != nil {
				return op.progress, err
			}
			return op.progress, ctx.Err()
		case op.progress.State.IsFinal(): // it was ended in the store
			return op.progress, nil
		case historyIsLong(ctx, maxBulkHistory):
			// The signals that are there take effect first: a new run does not get them.
			if workflow.Await(ctx, op.heard) == nil && op.cancelledBy == "" {
				return op.progress, op.goOn(ctx)
			}
			continue
		case op.carried.Paused:
			if err := op.pause(ctx, rest); err != nil {
				return op.progress, err
			}
			continue
		}
		ended, err := op.advance(workflow.WithActivityOptions(ctx, w.bulkActivityOptions()), rest)
		if err != nil || ended {
			return op.progress, err
		}
	}
}

func (w Workflows) bulkActivityOptions() workflow.ActivityOptions {
	options := w.storeActivityOptions()
	options.StartToCloseTimeout = bulkActivityTime
	options.HeartbeatTimeout = bulkHeartbeat
	options.WaitForCancellation = true
	return options
}

// bulkMarkOptions are of activities that do not heartbeat.
func (w Workflows) bulkMarkOptions() workflow.ActivityOptions {
	options := w.storeActivityOptions()
	options.StartToCloseTimeout = bulkActivityTime
	return options
}

type bulkOperation struct {
	input    job.BulkInput
	carried  job.BulkCarried
	progress job.BulkProgress
	// cancelledBy is who cancelled the operation, empty while nobody has.
	cancelledBy string
	controls    []workflow.ReceiveChannel
	// interrupt ends the activity that is under way, if there is one.
	interrupt workflow.CancelFunc
	// dropsMisshapen is true of runs that began before heedMisshapen.
	dropsMisshapen bool
}

// listen has the signals take effect as they come.
func (op *bulkOperation) listen(ctx workflow.Context) {
	on := func(name string, act func(actor string)) {
		signals := workflow.GetSignalChannelWithOptions(ctx, name, workflow.SignalChannelOptions{Description: name + " the operation"})
		op.controls = append(op.controls, signals)
		workflow.Go(ctx, func(ctx workflow.Context) {
			// Not Receive: a signal that it has been given and not yet acted upon is one
			// that heard does not see.
			for workflow.Await(ctx, func() bool { return signals.Len() > 0 }) == nil {
				var raw converter.RawValue // without an argument the payload is nil
				if !signals.ReceiveAsync(&raw) {
					continue
				}
				var control job.BulkControl
				var err error
				if raw.Payload() != nil {
					err = converter.GetDefaultDataConverter().FromPayload(raw.Payload(), &control)
				}
				if (err != nil || control.Misshapen()) && op.dropsMisshapen {
					continue
				}
				if control.Actor == "" {
					control.Actor = "signal"
				}
				act(control.Actor)
			}
		})
	}
	on(job.BulkPauseMessage, func(actor string) {
		op.carried.Paused, op.carried.PausedBy = true, actor
		op.stopActivity()
	})
	on(job.BulkResumeMessage, func(actor string) { op.carried.Paused, op.carried.PausedBy = false, actor })
	on(job.BulkCancelMessage, func(actor string) {
		op.cancelledBy = actor
		op.stopActivity()
	})
}

// heard reports whether every signal has taken effect.
func (op *bulkOperation) heard() bool {
	for _, signals := range op.controls {
		if signals.Len() > 0 {
			return false
		}
	}
	return true
}

func (op *bulkOperation) stopActivity() {
	if op.interrupt != nil {
		op.interrupt()
	}
}

func (op *bulkOperation) begin(ctx workflow.Context) error {
	// Only a run that goes on carries anything: what a person sends under this name does
	// not spare the operation its checks.
	if op.input.Carried != nil && workflow.GetInfo(ctx).ContinuedExecutionRunID != "" {
		paused, by := op.carried.Paused, op.carried.PausedBy // a signal may have come before
		op.carried = *op.input.Carried
		op.progress = op.carried.Progress
		if by != "" {
			op.carried.Paused, op.carried.PausedBy = paused, by
		}
		return nil
	}
	var plan job.BulkPlan
	if err := workflow.ExecuteActivity(ctx, job.BulkBeginActivityType, op.input).Get(ctx, &plan); err != nil {
		return err
	}
	op.carried.Verb, op.carried.Settings, op.carried.Step = plan.Verb, plan.Settings, plan.Settings.Canary
	op.progress = plan.Progress
	if plan.Progress.State != job.PlanPaused || op.carried.Paused {
		return nil
	}
	// The operation was terminated while it was paused, and is applied again.
	return op.mark(ctx, job.PlanApplying, op.input.Actor, "")
}

// goOn starts a new run.
func (op *bulkOperation) goOn(ctx workflow.Context) error {
	op.carried.Progress = op.progress
	// Not a copy of the input, which would be written as it came if there was more in it.
	next := job.BulkInput{PlanID: op.input.PlanID, Actor: op.input.Actor, Settings: op.input.Settings, Carried: &op.carried}
	return workflow.NewContinueAsNewError(ctx, job.BulkWorkflowType, next)
}

func (op *bulkOperation) pause(ctx, rest workflow.Context) error {
	if err := op.mark(rest, job.PlanPaused, op.carried.PausedBy, ""); err != nil {
		return err
	}
	over := func() bool { return !op.carried.Paused || op.cancelledBy != "" || historyIsLong(ctx, maxBulkHistory) }
	if workflow.Await(ctx, over) != nil || op.cancelledBy != "" || op.carried.Paused {
		return nil // which the caller sees next
	}
	return op.mark(rest, job.PlanApplying, op.carried.PausedBy, "")
}

// mark notes where the operation stands.
func (op *bulkOperation) mark(ctx workflow.Context, state job.PlanState, actor, cause string) error {
	mark := job.BulkMark{PlanID: op.input.PlanID, State: state, Actor: actor, Cause: cause}
	return workflow.ExecuteActivity(ctx, job.BulkMarkActivityType, mark).Get(ctx, &op.progress)
}

// advance takes one stretch, or looks at what became of the stretch before, and
// reports whether the operation has ended.
func (op *bulkOperation) advance(ctx, rest workflow.Context) (ended bool, err error) {
	if op.carried.Step == 0 || op.carried.Taken < op.carried.Step {
		var stepped job.BulkStepped
		ended := op.progress.Ended()
		step := job.BulkStep{PlanID: op.input.PlanID, Limit: op.carried.Step - op.carried.Taken, Ended: &ended}
		if done, err := op.run(ctx, job.BulkStepActivityType, step, &stepped); !done {
			return false, err
		}
		stuck := stepped.Progress == op.progress && !op.carried.Paused && op.cancelledBy == ""
		op.progress = stepped.Progress
		if op.carried.Step > 0 {
			op.carried.Taken += stepped.Taken
		}
		if stuck && op.progress.Pending > 0 {
			// Another worker has the same members in hand, which it may take a while to end.
			_ = workflow.Sleep(ctx, bulkStuckWait)
		}
	}
	if op.progress.State.IsFinal() {
		return true, nil
	}
	if op.carried.Step > 0 && (op.carried.Taken >= op.carried.Step || op.progress.Pending == 0) {
		passed, stopped, err := op.judge(ctx, rest)
		if !passed || stopped || err != nil {
			return stopped, err
		}
	}
	if op.progress.Pending > 0 {
		return false, nil
	}
	return true, op.mark(rest, job.PlanFinished, op.input.Actor, "")
}

// judge stops the operation when too many of its jobs died again, and makes the
// next step longer when not. It waits for the canary's outcomes, and only looks
// at those of later steps that are known. Neither passed nor stopped means that it is
// not known yet, or that a signal came first.
func (op *bulkOperation) judge(ctx, rest workflow.Context) (passed, stopped bool, err error) {
	canary := op.carried.Step == op.carried.Settings.Canary
	limit := job.DefaultMaxRefail
	if given := op.carried.Settings.MaxRefail; given != nil {
		limit = *given
	}
	var outcomes job.BulkOutcomes
	watch := job.BulkWatch{PlanID: op.input.PlanID, Wait: canary, MaxRefail: limit}
	if done, err := op.run(ctx, job.BulkWatchActivityType, watch, &outcomes); !done {
		return false, false, err
	}
	share := outcomes.RefailShare()
	if canary {
		share = outcomes.LeastRefailShare() // of which no outcome to come can make a lower one
	}
	switch {
	case share > limit:
		cause := fmt.Sprintf("of %d replayed jobs %d died again and the end of %d is not known yet, and %d did not start: more than the limit of %.0f %%",
			outcomes.Replayed, outcomes.Refailed, outcomes.Open, outcomes.NotStarted, limit*100)
		return false, true, op.mark(rest, job.PlanStopped, "canary", cause)
	case canary && outcomes.Open > 0:
		return false, false, nil
	}
	op.carried.Step, op.carried.Taken = min(op.carried.Step*2, maxCanaryStep), 0
	return true, false, nil
}

// run runs an activity that a signal may interrupt: done is false, without an
// error, when one has.
func (op *bulkOperation) run(ctx workflow.Context, activityType string, in, out any) (done bool, err error) {
	if op.carried.Paused || op.cancelledBy != "" {
		return false, nil
	}
	ctx, op.interrupt = workflow.WithCancel(ctx)
	defer func() {
		op.interrupt()
		op.interrupt = nil
	}()
	err = workflow.ExecuteActivity(ctx, activityType, in).Get(ctx, out)
	if err != nil && ctx.Err() != nil {
		// Any error is the interruption's: the server retries nothing that has been told
		// to stop, so a worker that was lost then ends it with a timeout.
		return false, nil
	}
	return err == nil, err
}
