package workflows

import (
	"encoding/json"
	"fmt"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/deadletter-dev/deadletter/job"
)

const (
	// maxOperatorHistory is when the operator workflow hands over to a new run even if the
	// server has not suggested it yet.
	maxOperatorHistory = 4000
	// lastOperatorHistory and lastOperatorBytes are when it waits no longer for what is
	// running: far below 10,000 signals, 51,200 events and 50 MB, where the server refuses
	// signals or ends the run.
	lastOperatorHistory = 8000
	lastOperatorBytes   = 16 << 20
	// handOverGrace is how long a run that is to be handed over waits for what is running.
	handOverGrace = 5 * time.Second
	// handOverStep is after how many events an old run asks again whether it may hand over.
	handOverStep = 1000
)

// OperatorTaskTime is the workflow task timeout of the operator workflow and of backlogs:
// one task may bring 10,000 signals, and a busy machine takes long to read them.
const OperatorTaskTime = 30 * time.Second

const (
	// planTime is longer than the store gives a plan to be frozen.
	planTime = 6 * time.Minute
	// planHeartbeat is how long it takes until a plan whose worker was killed is asked
	// for again.
	planHeartbeat = 30 * time.Second
)

const (
	// heedMisshapen is the change since when a signal with values of a wrong kind is no
	// longer dropped in silence: the activity of a request refuses it, with an event, and a
	// pause, resume or cancel takes effect.
	heedMisshapen = "heed-misshapen-signals"
	// readsInput is the change since when the operator workflow has an input. A run with an
	// input that lacks it was begun by a worker of an older build.
	readsInput = "operator-reads-input"
	// handsOver is the change since when it hands over what is not finished. Its version 2
	// is that of job.OperatorVersion.
	handsOver = "operator-hands-over"
)

// Operator is the door for signals and updates: registered as
// job.OperatorWorkflowType, one instance, job.OperatorWorkflowID. It runs until
// it is cancelled. What it has accepted is carried out or refused, with an event, even
// then: a run that ends hands what it has not finished to a Backlog.
//
// Signals and updates "replay", "purge", "edit", "plan", "note" and "pin" take the
// input of that name of package job. The updates of replay and edit return a
// job.ReplayOutput and a job.EditOutput, that of plan the JSON of a dlqstore.Plan. An
// update whose run ends first fails with job.HandedOverErrorType: sent again under its
// own id, it gets the answer.
func (w Workflows) Operator(ctx workflow.Context, in job.OperatorInput) error {
	box := w.newInbox(ctx)
	box.dropsMisshapen = before(ctx, heedMisshapen)
	box.fair = in.Version > 0 && !before(ctx, readsInput)
	if in.Version == 1 {
		box.keep = maxHandedOver
	}
	if in.MaxHistory > 0 {
		box.maxHistory = min(in.MaxHistory, maxOperatorHistory)
	}
	if err := box.open(ctx); err != nil {
		return err
	}
	box.accept(in.Requests)
	serve := box.serve
	if !box.fair {
		serve = box.serveAsBefore
	}
	if err := serve(ctx); err != nil {
		return err
	}
	return workflow.NewContinueAsNewError(workflow.WithWorkflowTaskTimeout(ctx, OperatorTaskTime), job.OperatorWorkflowType,
		job.OperatorInput{Version: job.OperatorVersion, MaxHistory: in.MaxHistory, Requests: box.unfinished()})
}

// newInbox returns one that takes every kind of request, with its doors closed.
func (w Workflows) newInbox(ctx workflow.Context) *inbox {
	// A reset keeps this id, so a signal that runs again is the same request.
	box := &inbox{origin: workflow.GetInfo(ctx).OriginalRunID, maxHistory: maxOperatorHistory}
	options := w.storeActivityOptions()
	patient := options
	patient.StartToCloseTimeout, patient.HeartbeatTimeout = planTime, planHeartbeat
	take[job.ReplayInput, job.ReplayOutput](box, options, job.ReplayMessage, job.ReplayActivityType, "Starts a new job from a dead letter.")
	take[job.PurgeInput, struct{}](box, options, job.PurgeMessage, job.PurgeActivityType, "Removes a dead letter for good.")
	take[job.EditInput, job.EditOutput](box, options, job.EditMessage, job.EditActivityType, "Makes a new revision of a dead letter.")
	take[job.PlanInput, json.RawMessage](box, patient, job.PlanMessage, job.PlanActivityType, "Freezes which dead letters a bulk operation would touch.")
	take[job.NoteInput, struct{}](box, options, job.NoteMessage, job.NoteActivityType, "Leaves a note on a dead letter or a fingerprint.")
	take[job.PinInput, struct{}](box, options, job.PinMessage, job.PinActivityType, "Keeps a dead letter from every retention policy, or lets it go again.")
	box.slots = append(box.slots, &slot{message: job.RefuseMessage, perform: box.writeRefusal(options)})
	return box
}

// serve returns when the run is to be continued as new, or the error of its cancellation,
// with all that is left in another run's hands. A box without doors is served until it
// is empty.
func (b *inbox) serve(ctx workflow.Context) error {
	for {
		err := workflow.Await(ctx, func() bool {
			return b.waiting() || b.startable() || b.served() || historyIsLong(ctx, b.maxHistory)
		})
		if err != nil || historyIsLong(ctx, b.maxHistory) {
			b.handOver(ctx, err)
			return err
		}
		if b.served() {
			return nil
		}
		b.receive(ctx)
		if !b.start(ctx) {
			_ = workflow.Sleep(ctx, time.Millisecond) // the rest goes with the next workflow task
			b.started = 0
		}
	}
}

// serveAsBefore goes by the rules of runs without an input, as their histories demand: it
// waits until it is idle before it ends. At each step past its bound it looks whether it
// may hand over instead, which it may not where it is told what an older build has done.
func (b *inbox) serveAsBefore(ctx workflow.Context) error {
	// A worker of an older build began this run, and does not know of these.
	late := len(b.live) > 0
	for {
		err := workflow.Await(ctx, func() bool { return b.ready() || late || historyIsLong(ctx, maxOperatorHistory) })
		b.startSignals(ctx)
		if err == nil && !late && !historyIsLong(ctx, maxOperatorHistory) {
			continue
		}
		step := handOverStep
		if late {
			step = 1
		}
		length := func() int { return workflow.GetInfo(ctx).GetCurrentHistoryLength() / step }
		now := length()
		asks := err == nil || late
		if asks {
			version := workflow.GetVersion(ctx, fmt.Sprintf("%s-%d", handsOver, now*step), workflow.DefaultVersion, 2)
			if version == 1 {
				b.keep = maxHandedOver
			}
			if version != workflow.DefaultVersion {
				b.fair = true
				b.handOver(ctx, err)
				return err
			}
		}
		// Ends this run: all that was accepted first, signals that came meanwhile too.
		rest, _ := workflow.NewDisconnectedContext(ctx)
		ended := func() bool { return !late && b.idle() && workflow.AllHandlersFinished(rest) }
		_ = workflow.Await(rest, func() bool { return b.ready() || ended() || asks && length() > now })
		if !b.ready() && ended() {
			return err
		}
	}
}

// before reports whether the run began before a change. It must be asked when a run
// begins, whatever comes: what is misshapen depends on the types of this very build.
func before(ctx workflow.Context, change string) bool {
	return workflow.GetVersion(ctx, change, workflow.DefaultVersion, 1) == workflow.DefaultVersion
}

// historyIsLong reports whether the run should end and a new one go on.
func historyIsLong(ctx workflow.Context, limit int) bool {
	info := workflow.GetInfo(ctx)
	return info.GetContinueAsNewSuggested() || info.GetCurrentHistoryLength() >= limit
}
