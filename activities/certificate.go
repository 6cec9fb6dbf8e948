package activities

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"

	commonpb "go.temporal.io/api/common/v1"
	failurepb "go.temporal.io/api/failure/v1"
	historypb "go.temporal.io/api/history/v1"
	"google.golang.org/protobuf/proto"

	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/internal/wire"
	"github.com/deadletter-dev/deadletter/job"
)

// certify writes the dead letter of a job: what the workflow told, and what its
// history holds. The key and the time of death are the caller's.
func certify(in job.MoveInput, t *trail) (*dlqstore.DeadLetter, []dlqstore.Attempt, error) {
	start := t.start.GetWorkflowExecutionStartedEventAttributes()
	dl := &dlqstore.DeadLetter{
		FirstRunID:        start.GetFirstExecutionRunId(),
		JobType:           in.JobType,
		TaskQueue:         in.TaskQueue,
		WorkflowTaskQueue: start.GetTaskQueue().GetName(),
		Reason:            in.Reason,
		RetryState:        t.retryState(),
		Tags:              in.Tags,
		EnqueuedAt:        timeOf(t.start.GetEventTime()),
		Generation:        in.Lineage.Generation,
	}
	if !in.Created.IsZero() {
		dl.EnqueuedAt = &in.Created // of the first run, when this one continues it
	}
	if in.Lineage.Generation > 0 {
		dl.ReplayedFromWorkflowID = &in.Lineage.ReplayedFromWorkflowID
		dl.ReplayedFromRunID = &in.Lineage.ReplayedFromRunID
	}
	if in.Policy.MaxAttempts > 0 {
		dl.MaxAttempts = &in.Policy.MaxAttempts
	}
	if err := keepInput(dl, in, t.start); err != nil {
		return nil, nil, err
	}
	said, err := keepError(dl, in, t)
	if err != nil {
		return nil, nil, err
	}
	attempts := knownAttempts(in, t, dl)
	keepAttemptTimes(dl, attempts, t)
	dl.Fingerprint = fingerprint(dl, said)
	// After the fingerprint: it has the particulars of this one job.
	if in.Note != "" {
		dl.ErrorMessage = strings.TrimLeft(dl.ErrorMessage+"\n("+in.Note+")", "\n")
	}
	return dl, attempts, nil
}

// keepInput keeps all that a faithful replay needs, as the wire held it, beside
// what a person can read.
func keepInput(dl *dlqstore.DeadLetter, in job.MoveInput, event *historypb.HistoryEvent) error {
	start := event.GetWorkflowExecutionStartedEventAttributes()
	var args []*commonpb.Payload
	if input := start.GetInput().GetPayloads(); len(input) > 0 {
		args = input[1:]
		if err := marshalInto(&dl.OptionsPayload, input[0]); err != nil {
			return err
		}
	}
	dl.PayloadJSON = wire.ReadableJSON(args)
	if in.OptionsReadable {
		options, err := json.Marshal(job.Options{Type: in.JobType, TaskQueue: in.TaskQueue, Policy: in.Policy, Tags: in.Tags})
		if err != nil {
			return fmt.Errorf("activities: encode options: %w", err)
		}
		dl.Options = options
	} else if input := start.GetInput().GetPayloads(); len(input) > 0 {
		// Refused, but perhaps not unreadable: what was sent says what is wrong.
		dl.Options = wire.ElementJSON(input[0])
	}
	priority, err := json.Marshal(job.Priority{
		PriorityKey:    start.GetPriority().GetPriorityKey(),
		FairnessKey:    start.GetPriority().GetFairnessKey(),
		FairnessWeight: finite(start.GetPriority().GetFairnessWeight()),
	})
	if err != nil {
		return fmt.Errorf("activities: encode priority: %w", err)
	}
	dl.Priority = priority
	for into, message := range map[*[]byte]proto.Message{
		&dl.Payloads:         &commonpb.Payloads{Payloads: args},
		&dl.Memo:             start.GetMemo(),
		&dl.SearchAttributes: start.GetSearchAttributes(),
		&dl.Header:           start.GetHeader(),
		&dl.UserMetadata:     event.GetUserMetadata(),
	} {
		if err := marshalInto(into, message); err != nil {
			return err
		}
	}
	return nil
}

// finite returns a weight that JSON can hold: the server takes NaN and infinity.
func finite(weight float32) float32 {
	switch w := float64(weight); {
	case math.IsNaN(w):
		return 0
	case math.IsInf(w, 0):
		return math.MaxFloat32
	}
	return weight
}

// keepError returns the failure that the words are of, nil when they are of none.
func keepError(dl *dlqstore.DeadLetter, in job.MoveInput, t *trail) (said *failurepb.Failure, err error) {
	failure := t.failure()
	said = failure
	if said == nil {
		said = t.pending.GetLastFailure()
	}
	switch {
	case in.ScheduledEventID == 0 && in.Attempts != nil && in.Fault != nil:
		// It ended between two executions: what failed the last one is not why.
		dl.ErrorType, dl.ErrorMessage, said = in.Fault.Type, in.Fault.Message, nil
	case said != nil:
		d := describe(said)
		dl.ErrorType, dl.ErrorMessage, dl.ErrorStack = d.kind, d.message, d.stack
	case in.Fault != nil:
		dl.ErrorType, dl.ErrorMessage = in.Fault.Type, in.Fault.Message
	}
	dl.LastHeartbeatDetails = t.checkpoint
	if failure == nil {
		return said, nil
	}
	return said, marshalInto(&dl.Failure, boundFailure(failure))
}

// maxFailure bounds the failure that is kept as the wire held it; the readable
// columns keep head and tail of a larger one.
const maxFailure = 256 << 10

// boundFailure returns the failure, or the innermost cause that is small enough,
// or an empty one.
func boundFailure(f *failurepb.Failure) *failurepb.Failure {
	for f != nil && proto.Size(f) > maxFailure {
		f = f.GetCause()
	}
	return f
}

// marshalInto leaves the target nil for an absent message.
func marshalInto(target *[]byte, message proto.Message) error {
	if !message.ProtoReflect().IsValid() {
		return nil
	}
	data, err := proto.MarshalOptions{Deterministic: true}.Marshal(message)
	if err != nil {
		return fmt.Errorf("activities: encode %s: %w", message.ProtoReflect().Descriptor().Name(), err)
	}
	if data == nil {
		data = []byte{}
	}
	*target = data
	return nil
}
