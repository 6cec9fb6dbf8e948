package operator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	commonpb "go.temporal.io/api/common/v1"
	failurepb "go.temporal.io/api/failure/v1"
	"google.golang.org/protobuf/proto"

	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/internal/text"
	"github.com/deadletter-dev/deadletter/internal/wire"
)

// FailureCause is one level of a failure: what failed, and then what caused it.
type FailureCause struct {
	// Type is the error's own type, or which kind of failure the server saw.
	Type    string `json:"type"`
	Message string `json:"message"` // bounded
}

// Heartbeat is what the handler last told with a heartbeat.
type Heartbeat struct {
	// Details is a JSON array, nil when Unreadable says why there is none.
	Details    json.RawMessage `json:"details"`
	Unreadable string          `json:"unreadable,omitempty"`
}

// Bounds of an error chain.
const (
	maxCauses       = 20
	maxCauseMessage = 2000 // bytes
)

// readDead reads all that belongs to a dead letter.
func (o *Operator) readDead(ctx context.Context, shown *Shown) error {
	dl := shown.DeadLetter
	shown.Causes, shown.Heartbeat = causesOf(dl), heartbeatOf(dl)
	var errs [6]error
	shown.Attempts, errs[0] = o.store.Attempts(ctx, shown.Key)
	shown.Replays, errs[1] = o.store.Replays(ctx, shown.Key)
	shown.Events, errs[2] = o.store.Events(ctx, shown.Key)
	shown.Revisions, errs[3] = o.store.Revisions(ctx, shown.Key)
	shown.Notes, errs[4] = o.store.Notes(ctx, shown.Key, dl.Fingerprint)
	shown.Lineage, errs[5] = o.store.Lineage(ctx, shown.Key)
	return errors.Join(errs[:]...)
}

// causesOf returns the levels of the final failure, the outermost first.
func causesOf(dl *dlqstore.DeadLetter) []FailureCause {
	var failure failurepb.Failure
	if len(dl.Failure) == 0 || proto.Unmarshal(dl.Failure, &failure) != nil {
		return nil
	}
	var causes []FailureCause
	for cause := &failure; cause != nil && len(causes) < maxCauses; cause = cause.GetCause() {
		causes = append(causes, FailureCause{
			Type:    text.Bounded(causeType(cause), maxCauseMessage),
			Message: text.Bounded(cause.GetMessage(), maxCauseMessage),
		})
	}
	return causes
}

func causeType(failure *failurepb.Failure) string {
	switch failure.GetFailureInfo().(type) {
	case *failurepb.Failure_CanceledFailureInfo:
		return "cancelled"
	case *failurepb.Failure_TerminatedFailureInfo:
		return "terminated"
	case *failurepb.Failure_ServerFailureInfo:
		return "server"
	case *failurepb.Failure_ActivityFailureInfo:
		return "activity"
	case *failurepb.Failure_ChildWorkflowExecutionFailureInfo:
		return "child workflow"
	default:
		return failureType(failure)
	}
}

// heartbeatOf returns nil for a handler that told nothing.
func heartbeatOf(dl *dlqstore.DeadLetter) *Heartbeat {
	if len(dl.LastHeartbeatDetails) == 0 {
		return nil
	}
	var details commonpb.Payloads
	if err := proto.Unmarshal(dl.LastHeartbeatDetails, &details); err != nil {
		return &Heartbeat{Unreadable: wire.ErrNotPayloads.Error()}
	}
	if readable := wire.ReadableJSON(details.GetPayloads()); readable != nil {
		return &Heartbeat{Details: readable}
	}
	var encodings []string
	size := 0
	for _, payload := range details.GetPayloads() {
		encodings = append(encodings, text.Bounded(wire.Encoding(payload), maxCauseMessage))
		size += len(payload.GetData())
	}
	slices.Sort(encodings)
	return &Heartbeat{Unreadable: fmt.Sprintf("encrypted, binary or no JSON (%d bytes, encoding %s)", size, strings.Join(slices.Compact(encodings), ", "))}
}
