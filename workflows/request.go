package workflows

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/deadletter-dev/deadletter/internal/text"
	"github.com/deadletter-dev/deadletter/job"
)

// maxRequest is the most that a request may take as JSON, in bytes: the server lets no
// payload be of more than 2 MiB, and JSON may be several times longer when it is passed
// on than as it came.
const maxRequest = 2<<20 - 4096

// errLeaving ends the wait for a request that is handed over.
var errLeaving = errors.New("the request is handed over")

// input is the input of an activity that the operator workflow runs for others.
type input[In any] interface {
	// Signed fills in what the sender left out.
	Signed(requestID, actor string) In
	// Misshapen is true of one that could not be read as a whole.
	Misshapen() bool
}

// take adds a slot for one kind of request, by signal and by update.
func take[In input[In], Out any](b *inbox, options workflow.ActivityOptions, message, activityType, does string) {
	s := &slot{message: message}
	b.slots = append(b.slots, s)
	s.readable = func(payload *commonpb.Payload) error {
		var in In
		if err := converter.GetDefaultDataConverter().FromPayload(payload, &in); err != nil {
			return err
		}
		if in.Misshapen() && b.dropsMisshapen {
			return errors.New("values of a wrong kind")
		}
		return nil
	}
	s.perform = func(ctx workflow.Context, r *request) error {
		var in In
		if err := converter.GetDefaultDataConverter().FromPayload(r.payload, &in); err != nil {
			return b.refuse(r, in.Signed(r.ID, r.Via), "the request cannot be read as JSON: its encoding is "+text.Clipped(encoding(r.payload), maxFaultText), false)
		}
		signed := in.Signed(r.ID, r.Via)
		if size := encodedSize(signed); size > maxRequest && !b.dropsMisshapen {
			// The server would end this workflow for it.
			tooLarge := fmt.Sprintf("the request takes %d bytes as JSON, and at most %d can be passed on", size, maxRequest)
			if b.fair {
				return b.refuse(r, signed, tooLarge, false)
			}
			var empty In // which the activity refuses, and leaves the event
			if _, err := execute[Out](ctx, b, options, activityType, empty.Signed(r.ID, r.Via)); errors.Is(err, errLeaving) {
				return err
			}
			return temporal.NewNonRetryableApplicationError(tooLarge, job.RefusedErrorType, nil)
		}
		options := options
		if b.fair {
			options.ScheduleToCloseTimeout = max(job.MaxRequestAge-workflow.Now(ctx).Sub(r.Accepted), time.Second)
		}
		out, err := execute[Out](ctx, b, options, activityType, signed, job.Sender{RequestID: r.ID, Actor: r.Via})
		r.out = out
		if err != nil && b.fair && !errors.Is(err, errLeaving) {
			return b.failed(r, signed, err)
		}
		return err
	}
	s.open = func(ctx workflow.Context) error {
		s.signals = workflow.GetSignalChannelWithOptions(ctx, message, workflow.SignalChannelOptions{Description: does + " It gives no answer."})
		// Without a validator: the activity refuses what is wrong, and leaves an event of it.
		return workflow.SetUpdateHandlerWithOptions(ctx, message, func(ctx workflow.Context, in In) (out Out, err error) {
			payload, err := converter.GetDefaultDataConverter().ToPayload(in)
			if err != nil {
				return out, err
			}
			id := requestID(message, "update", workflow.GetCurrentUpdateInfo(ctx).ID)
			r := b.add(s, job.AcceptedRequest{Via: "update", ID: id, Accepted: workflow.Now(ctx)}, payload)
			if !b.fair {
				b.finish(ctx, r)
			} else {
				s.urgent = append(s.urgent, r)
				// What was accepted is finished, also when the operator workflow is cancelled.
				ctx, _ := workflow.NewDisconnectedContext(ctx)
				_ = workflow.Await(ctx, func() bool { return r.done || b.leaving })
			}
			if !r.done {
				return out, temporal.NewApplicationError(
					"the operator workflow goes on in a new run, and the request is carried out: send the update again under its id, and it gets the answer",
					job.HandedOverErrorType)
			}
			out, _ = r.out.(Out)
			return out, r.err
		}, workflow.UpdateHandlerOptions{Description: does})
	}
}

// execute runs an activity until it ends or the run leaves, which is errLeaving.
func execute[Out any](ctx workflow.Context, b *inbox, options workflow.ActivityOptions, activityType string, args ...any) (out Out, err error) {
	// What was accepted is finished, also when the operator workflow is cancelled.
	ctx, _ = workflow.NewDisconnectedContext(ctx)
	future := workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, options), activityType, args...)
	if err := workflow.Await(ctx, func() bool { return future.IsReady() || b.leaving }); err != nil {
		return out, err
	}
	if !future.IsReady() {
		return out, errLeaving
	}
	err = future.Get(ctx, &out)
	return out, err
}

// writeRefusal returns what writes the event of a request that is refused already. It is
// tried without limit.
func (b *inbox) writeRefusal(options workflow.ActivityOptions) func(workflow.Context, *request) error {
	return func(ctx workflow.Context, r *request) error {
		var in job.RefuseInput
		if err := converter.GetDefaultDataConverter().FromPayload(r.payload, &in); err != nil {
			return err
		}
		_, err := execute[struct{}](ctx, b, options, job.RefuseActivityType, in)
		return err
	}
}

// refuse has the event of a refusal written, and returns the refusal.
func (b *inbox) refuse(r *request, signed any, cause string, unlessDone bool) error {
	detail, err := json.Marshal(map[string]string{"cause": cause})
	if err != nil {
		return err
	}
	refusal := refusalOf(r, signed)
	refusal.Detail, refusal.UnlessDone = detail, unlessDone
	if err := b.addRefusal(r, refusal); err != nil {
		return err
	}
	return temporal.NewNonRetryableApplicationError(cause, job.RefusedErrorType, nil)
}

func (b *inbox) addRefusal(r *request, refusal job.RefuseInput) error {
	payload, err := converter.GetDefaultDataConverter().ToPayload(refusal)
	if err != nil {
		return err
	}
	s := b.slot(job.RefuseMessage)
	s.waiting = append(s.waiting, b.add(s, job.AcceptedRequest{Via: r.Via, ID: r.ID, Accepted: r.Accepted}, payload))
	return nil
}

// failed makes sure that a request which its activity did not carry out has its event.
func (b *inbox) failed(r *request, signed any, err error) error {
	failure := (*temporal.ApplicationError)(nil)
	if errors.As(err, &failure) && isRefusal(failure.Type()) {
		if !failure.HasDetails() {
			return err // the activity has written it
		}
		var refusal job.RefuseInput
		if failure.Details(&refusal) == nil && b.addRefusal(r, refusal) == nil {
			return err
		}
	}
	cause := "its activity was ended from outside"
	ended := (*temporal.ActivityError)(nil)
	if temporal.IsTimeoutError(err) || errors.As(err, &ended) && ended.RetryState() == enumspb.RETRY_STATE_TIMEOUT {
		cause = fmt.Sprintf("it could not be done within %s", job.MaxRequestAge)
	}
	return b.refuse(r, signed, cause, true)
}

// isRefusal reports whether an error type says that no retry mends a request.
func isRefusal(errorType string) bool {
	switch errorType {
	case job.NotFoundErrorType, job.AmbiguousErrorType, job.ConflictErrorType, job.RefusedErrorType:
		return true
	default:
		return false
	}
}

// refusalOf tells which request is refused, as far as it can be read.
func refusalOf(r *request, signed any) job.RefuseInput {
	switch in := signed.(type) {
	case job.ReplayInput:
		return job.RefuseInput{Verb: r.Message, WorkflowID: in.WorkflowID, RunID: in.RunID, RequestID: in.RequestID, Actor: in.Actor}
	case job.PurgeInput:
		return job.RefuseInput{Verb: r.Message, WorkflowID: in.WorkflowID, RunID: in.RunID, RequestID: in.RequestID, Actor: in.Actor}
	case job.EditInput:
		return job.RefuseInput{Verb: r.Message, WorkflowID: in.WorkflowID, RunID: in.RunID, RequestID: in.RequestID, Actor: in.Actor}
	case job.NoteInput:
		return job.RefuseInput{Verb: r.Message, WorkflowID: in.WorkflowID, RunID: in.RunID, RequestID: in.RequestID, Actor: in.Actor}
	case job.PlanInput:
		return job.RefuseInput{Verb: r.Message, RequestID: in.RequestID, Actor: in.Actor}
	case job.PinInput:
		verb := r.Message
		if in.Unpin {
			verb = "unpin"
		}
		return job.RefuseInput{Verb: verb, WorkflowID: in.WorkflowID, RunID: in.RunID, RequestID: r.ID, Actor: in.Actor}
	default:
		return job.RefuseInput{Verb: r.Message, RequestID: r.ID, Actor: r.Via}
	}
}

func encoding(payload *commonpb.Payload) string {
	return string(payload.GetMetadata()[converter.MetadataEncoding])
}

func encodedSize(request any) int {
	payload, err := converter.GetDefaultDataConverter().ToPayload(request)
	if err != nil {
		return 0 // which the activity's converter tells in its turn
	}
	return len(payload.GetData())
}
