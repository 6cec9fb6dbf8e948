// Package replay starts a new job from a dead letter: the one way that the CLI,
// the Go API, the activity and the operator workflow share.
package replay

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	sdkpb "go.temporal.io/api/sdk/v1"
	"go.temporal.io/api/serviceerror"
	taskqueuepb "go.temporal.io/api/taskqueue/v1"
	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/protobuf/proto"

	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/internal/lineage"
	"github.com/deadletter-dev/deadletter/job"
)

// Starter starts replays. It is safe for concurrent use.
//
// It talks to the service itself and not through an SDK client, for two reasons:
// payloads must go out as they were stored, without a pass through this
// process's codec, and only the raw call can carry a request id, which makes the
// start repeatable.
type Starter struct {
	Store   *dlqstore.Store
	Service workflowservice.WorkflowServiceClient
}

// requestNamespace turns request ids into the UUIDs that the server compares.
var requestNamespace = uuid.MustParse("6f3c1a52-8d0e-4f7b-9a43-5b1f0f6a7c11")

// MaxStartDelay is how long after the commit a start may still be repeated: the
// server knows a request id only while the run that it started is retained, and
// namespaces retain closed runs for a day at least.
const MaxStartDelay = 20 * time.Hour

// Replay counts the replay and starts its job. The same request id gives the
// same job, whatever failed in between. The error wraps dlqstore.ErrNotFound,
// ErrRequestConflict or ErrRefused when repeating cannot help.
func (s Starter) Replay(ctx context.Context, request dlqstore.ReplayRequest) (job.ReplayOutput, error) {
	start, err := s.Store.BeginReplay(ctx, request)
	if err != nil {
		return job.ReplayOutput{}, err
	}
	return s.Finish(ctx, start)
}

// Finish starts the job of a counted replay, or finds it started, and confirms
// it in the store. It may be repeated, by several processes at once.
func (s Starter) Finish(ctx context.Context, start *dlqstore.ReplayStart) (job.ReplayOutput, error) {
	runID, err := s.Start(ctx, start)
	if err != nil {
		return job.ReplayOutput{}, err
	}
	if start.Replay.NewRunID == nil {
		if err := s.Store.ConfirmReplay(ctx, start.Replay.RequestID, runID); err != nil {
			return job.ReplayOutput{}, err
		}
	}
	return job.ReplayOutput{WorkflowID: start.Replay.NewWorkflowID, RunID: runID}, nil
}

// Start is Finish without the confirmation, which is the caller's to write. A
// start that can never succeed is refused in the store; the error then wraps
// dlqstore.ErrRefused.
func (s Starter) Start(ctx context.Context, start *dlqstore.ReplayStart) (runID string, err error) {
	if start.Replay.NewRunID != nil {
		return *start.Replay.NewRunID, nil
	}
	newID := start.Replay.NewWorkflowID
	if age := time.Since(start.Replay.RequestedAt); age > MaxStartDelay {
		err := fmt.Errorf(
			"replay: request %s: %w: its start was never confirmed and is too long ago to be repeated safely; see whether workflow %s ran, and if it did not, replay under a new request id",
			start.Replay.RequestID, dlqstore.ErrRefused, newID)
		return "", s.Store.NoteRefusal(ctx, dlqstore.Asked{
			Verb: dlqstore.VerbReplay, Key: start.Replay.Key, Actor: start.Replay.Actor, RequestID: start.Replay.RequestID,
		}, err)
	}
	request, err := startRequest(start)
	if err != nil {
		return "", s.refuse(ctx, start, err)
	}
	runID, err = s.start(ctx, request)
	var refused *refusal
	if errors.As(err, &refused) {
		return "", s.refuse(ctx, start, refused.cause)
	}
	if err != nil {
		return "", fmt.Errorf("replay: start %s: %w", newID, err)
	}
	return runID, nil
}

// refusal is a start that the server will never accept.
type refusal struct{ cause error }

func (r *refusal) Error() string { return r.cause.Error() }

func (s Starter) start(ctx context.Context, request *workflowservice.StartWorkflowExecutionRequest) (string, error) {
	started, err := s.Service.StartWorkflowExecution(ctx, request)
	var exists *serviceerror.WorkflowExecutionAlreadyStarted
	var invalid *serviceerror.InvalidArgument
	switch {
	case err == nil:
		return started.GetRunId(), nil
	case errors.As(err, &exists) && exists.StartRequestId == request.GetRequestId():
		return exists.RunId, nil
	case errors.As(err, &exists):
		return "", &refusal{fmt.Errorf("workflow id %s is taken by another workflow", request.GetWorkflowId())}
	case errors.As(err, &invalid):
		return "", &refusal{err}
	default:
		return "", err
	}
}

// refuse takes the count back: nothing was started.
func (s Starter) refuse(ctx context.Context, start *dlqstore.ReplayStart, cause error) error {
	if err := s.Store.RefuseReplay(ctx, start.Replay.RequestID, cause.Error()); err != nil {
		return err
	}
	return fmt.Errorf("replay: start %s: %w: %w", start.Replay.NewWorkflowID, dlqstore.ErrRefused, cause)
}

func startRequest(start *dlqstore.ReplayStart) (*workflowservice.StartWorkflowExecutionRequest, error) {
	dl := start.DeadLetter
	var priority job.Priority
	if err := json.Unmarshal(dl.Priority, &priority); err != nil {
		return nil, fmt.Errorf("stored priority: %w", err)
	}
	var options commonpb.Payload
	var args commonpb.Payloads
	var memo commonpb.Memo
	var attributes commonpb.SearchAttributes
	var header commonpb.Header
	var about sdkpb.UserMetadata
	for _, stored := range []struct {
		name string
		data []byte
		into proto.Message
	}{
		{"options", dl.OptionsPayload, &options},
		{"payloads", dl.Payloads, &args},
		{"memo", dl.Memo, &memo},
		{"search attributes", dl.SearchAttributes, &attributes},
		{"header", dl.Header, &header},
		{"user metadata", dl.UserMetadata, &about},
	} {
		if err := proto.Unmarshal(stored.data, stored.into); err != nil {
			return nil, fmt.Errorf("stored %s: %w", stored.name, err)
		}
	}
	delete(header.GetFields(), job.CarriedHeader) // the budget and age of the job that died
	input := &commonpb.Payloads{}
	if dl.OptionsPayload != nil {
		input.Payloads = append([]*commonpb.Payload{&options}, args.GetPayloads()...)
	}
	// The job's own memo, with the lineage of the replay in it.
	withLineage, err := lineage.InMemo(&memo, job.Lineage{
		Generation:             dl.Generation + 1,
		ReplayedFromWorkflowID: dl.WorkflowID,
		ReplayedFromRunID:      dl.RunID,
		RequestID:              start.Replay.RequestID,
		Actor:                  start.Replay.Actor,
	})
	if err != nil {
		return nil, err
	}
	return &workflowservice.StartWorkflowExecutionRequest{
		Namespace:                dl.Namespace,
		WorkflowId:               start.Replay.NewWorkflowID,
		WorkflowType:             &commonpb.WorkflowType{Name: job.WorkflowType},
		TaskQueue:                &taskqueuepb.TaskQueue{Name: dl.WorkflowTaskQueue, Kind: enumspb.TASK_QUEUE_KIND_NORMAL},
		Input:                    input,
		Identity:                 "deadletter replay by " + start.Replay.Actor,
		RequestId:                uuid.NewSHA1(requestNamespace, []byte(start.Replay.RequestID)).String(),
		WorkflowIdReusePolicy:    enumspb.WORKFLOW_ID_REUSE_POLICY_REJECT_DUPLICATE,
		WorkflowIdConflictPolicy: enumspb.WORKFLOW_ID_CONFLICT_POLICY_FAIL,
		Memo:                     withLineage,
		SearchAttributes:         &attributes,
		Header:                   &header,
		UserMetadata:             &about,
		Priority: &commonpb.Priority{
			PriorityKey: priority.PriorityKey, FairnessKey: priority.FairnessKey, FairnessWeight: priority.FairnessWeight,
		},
	}, nil
}
