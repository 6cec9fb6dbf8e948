package workflows

import (
	"fmt"

	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/deadletter-dev/deadletter/job"
)

// maxOperatorRequests bounds the replays by signal that run at once: the server
// allows a workflow 2,000 pending activities.
const maxOperatorRequests = 100

// maxOperatorHistory is when the operator workflow starts a new run even if the
// server has not suggested it yet.
const maxOperatorHistory = 4000

// Operator is the door for signals and updates: registered as
// job.OperatorWorkflowType, one instance, job.OperatorWorkflowID. It runs until
// it is cancelled, and finishes what it has accepted even then.
//
// Signal and update "replay" take a job.ReplayInput; the update returns a
// job.ReplayOutput.
func (w Workflows) Operator(ctx workflow.Context) error {
	err := workflow.SetUpdateHandlerWithOptions(ctx, job.ReplayMessage,
		func(ctx workflow.Context, in job.ReplayInput) (job.ReplayOutput, error) {
			return w.replay(ctx, in, "update", workflow.GetCurrentUpdateInfo(ctx).ID)
		},
		workflow.UpdateHandlerOptions{
			Description: "Starts a new job from a dead letter.",
			Validator: func(in job.ReplayInput) error {
				if in.WorkflowID == "" {
					return temporal.NewNonRetryableApplicationError("workflow_id is missing: name the dead letter to replay", job.RefusedErrorType, nil)
				}
				return nil
			},
		})
	if err != nil {
		return err
	}

	box := inbox{
		signals: workflow.GetSignalChannelWithOptions(ctx, job.ReplayMessage, workflow.SignalChannelOptions{
			Description: "Starts a new job from a dead letter, without an answer.",
		}),
		// A reset keeps this id, so a signal that runs again is the same request.
		origin: workflow.GetInfo(ctx).OriginalRunID,
	}
	for {
		err := workflow.Await(ctx, func() bool { return box.ready() || historyIsLong(ctx, maxOperatorHistory) })
		box.start(ctx, w)
		if err == nil && !historyIsLong(ctx, maxOperatorHistory) {
			continue
		}
		// Ends this run: all that was accepted first, signals that came meanwhile too.
		rest, _ := workflow.NewDisconnectedContext(ctx)
		_ = workflow.Await(rest, func() bool {
			return box.ready() || box.idle() && workflow.AllHandlersFinished(rest)
		})
		if box.ready() {
			continue
		}
		if err != nil {
			return err
		}
		return workflow.NewContinueAsNewError(ctx, job.OperatorWorkflowType)
	}
}

// historyIsLong reports whether the run should end and a new one go on.
func historyIsLong(ctx workflow.Context, limit int) bool {
	info := workflow.GetInfo(ctx)
	return info.GetContinueAsNewSuggested() || info.GetCurrentHistoryLength() >= limit
}

// inbox starts the requests that arrive by signal.
type inbox struct {
	signals  workflow.ReceiveChannel
	origin   string
	received int
	running  int
}

func (b *inbox) ready() bool { return b.signals.Len() > 0 && b.running < maxOperatorRequests }
func (b *inbox) idle() bool  { return b.signals.Len() == 0 && b.running == 0 }

func (b *inbox) start(ctx workflow.Context, w Workflows) {
	for b.ready() {
		// Taken raw: the SDK skips a signal that does not decode in silence, and the
		// count would then depend on which signals came together.
		var raw converter.RawValue
		if !b.signals.ReceiveAsync(&raw) {
			return
		}
		b.received++
		var in job.ReplayInput
		if err := converter.GetDefaultDataConverter().FromPayload(raw.Payload(), &in); err != nil {
			workflow.GetLogger(ctx).Error("deadletter: a signal does not decode and is dropped", "error", err)
			continue
		}
		id := fmt.Sprintf("%s-%d", b.origin, b.received)
		b.running++
		workflow.Go(ctx, func(ctx workflow.Context) {
			defer func() { b.running-- }()
			if _, err := w.replay(ctx, in, "signal", id); err != nil {
				workflow.GetLogger(ctx).Error("deadletter: a replay by signal failed", "workflow_id", in.WorkflowID, "error", err)
			}
		})
	}
}

// replay runs one request; via and id stand in for what the sender left out.
func (w Workflows) replay(ctx workflow.Context, in job.ReplayInput, via, id string) (job.ReplayOutput, error) {
	if in.RequestID == "" {
		in.RequestID = via + "-" + id
	}
	if in.Actor == "" {
		in.Actor = via
	}
	// What was accepted is finished, also when the operator workflow is cancelled.
	ctx, _ = workflow.NewDisconnectedContext(ctx)
	ctx = workflow.WithActivityOptions(ctx, w.storeActivityOptions())
	var out job.ReplayOutput
	err := workflow.ExecuteActivity(ctx, job.ReplayActivityType, in).Get(ctx, &out)
	return out, err
}
