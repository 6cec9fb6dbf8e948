package operator

import (
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	failurepb "go.temporal.io/api/failure/v1"
	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/deadletter-dev/deadletter/internal/text"
	"github.com/deadletter-dev/deadletter/job"
)

// PendingAttempt is what Temporal tells of the activity of a running job: its
// handler, or the move of its dead letter.
type PendingAttempt struct {
	// Moving says that the handler is through: the job waits for its dead letter
	// to be written, and the rest tells of the tries to do so.
	Moving bool `json:"moving"`
	// Type is the activity type: of a handler, the job type.
	Type      string `json:"type"`
	TaskQueue string `json:"task_queue"` // empty when the server does not tell
	// State is scheduled, started, cancel_requested, paused or pause_requested.
	State string `json:"state"`
	// Attempt counts from 1 within this execution of the activity: a snooze, say,
	// begins another with the budget that is left.
	Attempt int `json:"attempt"`
	// MaxAttempts is that budget, nil for no limit.
	MaxAttempts *int `json:"max_attempts"`
	// LastFailureType and LastFailure are of the attempt before, bounded; empty
	// when none has failed.
	LastFailureType string `json:"last_failure_type"`
	LastFailure     string `json:"last_failure"`
	// NextAttemptAt is set while the activity waits for its next attempt.
	NextAttemptAt *time.Time `json:"next_attempt_at"`
	// StartedAt is set while the attempt runs.
	StartedAt *time.Time `json:"started_at"`
	// LastEndedAt is when the attempt before ended, nil when there was none.
	LastEndedAt    *time.Time `json:"last_ended_at"`
	WorkerIdentity string     `json:"worker_identity"` // of the latest attempt
}

// maxPendingFailure bounds the texts of a failure in a PendingAttempt, in bytes.
const maxPendingFailure = 2000

// pendingOf returns the job's activity. A handler that is told to stop may still
// run beside the move, which then counts.
func pendingOf(live *workflowservice.DescribeWorkflowExecutionResponse) *PendingAttempt {
	activities := live.GetPendingActivities()
	if len(activities) == 0 {
		return nil
	}
	info := activities[0]
	for _, other := range activities[1:] {
		if other.GetActivityType().GetName() == job.MoveActivityType {
			info = other
		}
	}
	pending := &PendingAttempt{
		Moving:          info.GetActivityType().GetName() == job.MoveActivityType,
		Type:            info.GetActivityType().GetName(),
		TaskQueue:       info.GetActivityOptions().GetTaskQueue().GetName(),
		State:           stateName(info.GetState()),
		Attempt:         int(info.GetAttempt()),
		LastFailureType: text.Bounded(failureType(info.GetLastFailure()), maxPendingFailure),
		LastFailure:     text.Bounded(info.GetLastFailure().GetMessage(), maxPendingFailure),
		StartedAt:       timeOf(info.GetLastStartedTime()),
		LastEndedAt:     timeOf(info.GetLastAttemptCompleteTime()),
		WorkerIdentity:  info.GetLastWorkerIdentity(),
	}
	if limit := int(info.GetMaximumAttempts()); limit > 0 {
		pending.MaxAttempts = &limit
	}
	if info.GetState() == enumspb.PENDING_ACTIVITY_STATE_SCHEDULED {
		pending.NextAttemptAt = timeOf(info.GetNextAttemptScheduleTime())
	}
	return pending
}

// stateName is the server's name in the form of our other words.
func stateName(state enumspb.PendingActivityState) string {
	switch state {
	case enumspb.PENDING_ACTIVITY_STATE_SCHEDULED:
		return "scheduled"
	case enumspb.PENDING_ACTIVITY_STATE_STARTED:
		return "started"
	case enumspb.PENDING_ACTIVITY_STATE_CANCEL_REQUESTED:
		return "cancel_requested"
	case enumspb.PENDING_ACTIVITY_STATE_PAUSED:
		return "paused"
	case enumspb.PENDING_ACTIVITY_STATE_PAUSE_REQUESTED:
		return "pause_requested"
	case enumspb.PENDING_ACTIVITY_STATE_UNSPECIFIED:
	}
	return "unknown"
}

// failureType is the error's own type, or which timeout it was.
func failureType(failure *failurepb.Failure) string {
	switch {
	case failure.GetApplicationFailureInfo() != nil:
		return failure.GetApplicationFailureInfo().GetType()
	case failure.GetTimeoutFailureInfo() != nil:
		return failure.GetTimeoutFailureInfo().GetTimeoutType().String() + " timeout"
	default:
		return ""
	}
}

func timeOf(at *timestamppb.Timestamp) *time.Time {
	if at == nil {
		return nil
	}
	t := at.AsTime()
	return &t
}
