package workflows

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/deadletter-dev/deadletter/job"
)

// maxOperatorRequests bounds the replays by signal that run at once: the server
// allows a workflow 2,000 pending activities.
const maxOperatorRequests = 100

// maxRequest is the most that a request may take as JSON, in bytes: the server lets no
// payload be of more than 2 MiB, and JSON may be several times longer when it is passed
// on than as it came.
const maxRequest = 2<<20 - 4096

// maxOperatorHistory is when the operator workflow starts a new run even if the
// server has not suggested it yet.
const maxOperatorHistory = 4000

const (
	// planTime is longer than the store gives a plan to be frozen.
	planTime = 6 * time.Minute
	// planHeartbeat is how long it takes until a plan whose worker was killed is asked
	// for again.
	planHeartbeat = 30 * time.Second
)

// Operator is the door for signals and updates: registered as
// job.OperatorWorkflowType, one instance, job.OperatorWorkflowID. It runs until
// it is cancelled, and finishes what it has accepted even then.
//
// Signals and updates "replay", "purge", "edit", "plan", "note" and "pin" take the
// input of that name of package job. The updates of replay and edit return a
// job.ReplayOutput and a job.EditOutput, that of plan the JSON of a dlqstore.Plan.
func (w Workflows) Operator(ctx workflow.Context) error {
	// A reset keeps this id, so a signal that runs again is the same request.
	box := inbox{origin: workflow.GetInfo(ctx).OriginalRunID, dropsMisshapen: before(ctx, heedMisshapen)}
	options := w.storeActivityOptions()
	patient := options
	patient.StartToCloseTimeout, patient.HeartbeatTimeout = planTime, planHeartbeat
	if err := errors.Join(
		open[job.ReplayInput, job.ReplayOutput](ctx, &box, options, job.ReplayMessage, job.ReplayActivityType, "Starts a new job from a dead letter."),
		open[job.PurgeInput, struct{}](ctx, &box, options, job.PurgeMessage, job.PurgeActivityType, "Removes a dead letter for good."),
		open[job.EditInput, job.EditOutput](ctx, &box, options, job.EditMessage, job.EditActivityType, "Makes a new revision of a dead letter."),
		open[job.PlanInput, json.RawMessage](ctx, &box, patient, job.PlanMessage, job.PlanActivityType, "Freezes which dead letters a bulk operation would touch."),
		open[job.NoteInput, struct{}](ctx, &box, options, job.NoteMessage, job.NoteActivityType, "Leaves a note on a dead letter or a fingerprint."),
		open[job.PinInput, struct{}](ctx, &box, options, job.PinMessage, job.PinActivityType, "Keeps a dead letter from every retention policy, or lets it go again."),
	); err != nil {
		return err
	}
	for {
		err := workflow.Await(ctx, func() bool { return box.ready() || historyIsLong(ctx, maxOperatorHistory) })
		box.start(ctx)
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

// heedMisshapen is the change since when a signal with values of a wrong kind is no
// longer dropped in silence: the activity of a request refuses it, with an event, and a
// pause, resume or cancel takes effect.
const heedMisshapen = "heed-misshapen-signals"

// before reports whether the run began before a change. It must be asked when a run
// begins, whatever comes: what is misshapen depends on the types of this very build.
func before(ctx workflow.Context, change string) bool {
	return workflow.GetVersion(ctx, change, workflow.DefaultVersion, 1) == workflow.DefaultVersion
}

// request is the input of an activity that the operator workflow runs for others.
type request[In any] interface {
	// Signed fills in what the sender left out.
	Signed(requestID, actor string) In
	// Misshapen is true of one that could not be read as a whole.
	Misshapen() bool
}

// open takes one kind of request, by signal and by update.
func open[In request[In], Out any](
	ctx workflow.Context, box *inbox, options workflow.ActivityOptions, message, activityType, does string,
) error {
	run := func(ctx workflow.Context, in In, via, id string) (out Out, err error) {
		if message != job.ReplayMessage { // whose ids are older than the others
			id = message + "-" + id
		}
		// What was accepted is finished, also when the operator workflow is cancelled.
		ctx, _ = workflow.NewDisconnectedContext(ctx)
		ctx = workflow.WithActivityOptions(ctx, options)
		signed := in.Signed(via+"-"+id, via)
		if size := encodedSize(signed); size > maxRequest && !box.dropsMisshapen {
			// The server would end this workflow for it. Without its contents it is refused
			// by the activity too, which leaves the event.
			var empty In
			_ = workflow.ExecuteActivity(ctx, activityType, empty.Signed(via+"-"+id, via)).Get(ctx, nil)
			return out, temporal.NewNonRetryableApplicationError(
				fmt.Sprintf("the request takes %d bytes as JSON, and at most %d can be passed on", size, maxRequest), job.RefusedErrorType, nil)
		}
		err = workflow.ExecuteActivity(ctx, activityType, signed).Get(ctx, &out)
		return out, err
	}
	box.slots = append(box.slots, &slot{
		message: message,
		signals: workflow.GetSignalChannelWithOptions(ctx, message, workflow.SignalChannelOptions{Description: does + " It gives no answer."}),
		accept: func(raw converter.RawValue, id string) (func(workflow.Context) error, error) {
			var in In
			if err := converter.GetDefaultDataConverter().FromPayload(raw.Payload(), &in); err != nil {
				return nil, err
			}
			if in.Misshapen() && box.dropsMisshapen {
				return nil, errors.New("values of a wrong kind")
			}
			return func(ctx workflow.Context) error {
				_, err := run(ctx, in, "signal", id)
				return err
			}, nil
		},
	})
	// Without a validator: the activity refuses what is wrong, and leaves an event of it.
	return workflow.SetUpdateHandlerWithOptions(ctx, message,
		func(ctx workflow.Context, in In) (Out, error) {
			return run(ctx, in, "update", workflow.GetCurrentUpdateInfo(ctx).ID)
		},
		workflow.UpdateHandlerOptions{Description: does})
}

func encodedSize(request any) int {
	payload, err := converter.GetDefaultDataConverter().ToPayload(request)
	if err != nil {
		return 0 // which the activity's converter tells in its turn
	}
	return len(payload.GetData())
}

// historyIsLong reports whether the run should end and a new one go on.
func historyIsLong(ctx workflow.Context, limit int) bool {
	info := workflow.GetInfo(ctx)
	return info.GetContinueAsNewSuggested() || info.GetCurrentHistoryLength() >= limit
}

// inbox starts the requests that arrive by signal.
type inbox struct {
	slots   []*slot
	origin  string
	running int
	// dropsMisshapen is true of runs that began before heedMisshapen, which also pass on
	// whatever its size is.
	dropsMisshapen bool
}

// slot takes one kind of signal.
type slot struct {
	message string
	signals workflow.ReceiveChannel
	// received makes the ids of requests that bring none.
	received int
	// accept decodes a request, and returns what carries it out.
	accept func(raw converter.RawValue, id string) (func(workflow.Context) error, error)
}

func (b *inbox) waiting() bool {
	for _, s := range b.slots {
		if s.signals.Len() > 0 {
			return true
		}
	}
	return false
}

func (b *inbox) ready() bool { return b.waiting() && b.running < maxOperatorRequests }
func (b *inbox) idle() bool  { return !b.waiting() && b.running == 0 }

func (b *inbox) start(ctx workflow.Context) {
	for _, s := range b.slots {
		for s.signals.Len() > 0 && b.running < maxOperatorRequests {
			// Taken raw: the SDK skips a signal that does not decode in silence, and the
			// count would then depend on which signals came together.
			var raw converter.RawValue
			if !s.signals.ReceiveAsync(&raw) {
				break
			}
			s.received++
			carryOut, err := s.accept(raw, fmt.Sprintf("%s-%d", b.origin, s.received))
			if err != nil {
				workflow.GetLogger(ctx).Error("deadletter: a signal does not decode and is dropped", "signal", s.message, "error", err)
				continue
			}
			b.running++
			workflow.Go(ctx, func(ctx workflow.Context) {
				defer func() { b.running-- }()
				if err := carryOut(ctx); err != nil {
					workflow.GetLogger(ctx).Error("deadletter: a request by signal failed", "signal", s.message, "error", err)
				}
			})
		}
	}
}
