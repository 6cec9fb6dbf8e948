package operator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	taskqueuepb "go.temporal.io/api/taskqueue/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"

	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/internal/text"
	"github.com/deadletter-dev/deadletter/job"
)

// ErrJobRefused: the verb cannot be done on a job in that state, see JobRefusedError.
var ErrJobRefused = errors.New("refused")

// JobRefusedError says why a verb on a live job was refused. It is ErrJobRefused.
type JobRefusedError struct {
	WorkflowID string
	Verb       string // of the command line
	Cause      string
}

// Error gives the cause.
func (e *JobRefusedError) Error() string {
	return fmt.Sprintf("operator: %s %s: %v: %s", e.Verb, e.WorkflowID, ErrJobRefused, e.Cause)
}

// Unwrap returns ErrJobRefused.
func (e *JobRefusedError) Unwrap() error { return ErrJobRefused }

// JobRequest names a live job.
type JobRequest struct {
	// WorkflowID names the job. Required.
	WorkflowID string
	// RunID may name its run; empty means the current one.
	RunID string
	// Actor is who asks. Required.
	Actor string
}

// How says what a retry-now ended.
type How string

// What a retry-now ends.
const (
	HowBackoff How = "backoff" // between two attempts
	HowWait    How = "wait"    // a snooze, a circuit breaker's delay, or a start delay
)

// RetriedNow is what a retry-now did.
type RetriedNow struct {
	dlqstore.Key
	How How `json:"ended"`
	// WouldBeAt is when the next attempt had been due, nil when it is not known.
	WouldBeAt *time.Time `json:"would_be_at"`
}

// pauseReason marks the pause that is half of a retry-now, so that one which was
// interrupted can be told from a person's.
const pauseReason = "deadletter retry-now"

// RetryNow has a job's next attempt start at once instead of after its wait. The
// attempt budget and the age limit stay as they are. It is ErrJobRefused for a job
// that does not wait for time: its attempt runs, or waits for a worker, or a
// person has paused it, or its handler is through. dlqstore.ErrNotFound means that
// no job of that id runs.
//
// Between two attempts the server's way is to pause the activity and to unpause it.
// If the call is cut off between the two, the same call again finishes it.
func (o *Operator) RetryNow(ctx context.Context, request JobRequest) (RetriedNow, error) {
	described, key, err := o.runningJob(ctx, "retry-now", request)
	if err != nil {
		return RetriedNow{Key: key}, err
	}
	activity := handlerOf(described)
	done := RetriedNow{Key: key, How: HowWait}
	info := described.GetWorkflowExecutionInfo()
	delayed := info.GetExecutionTime().AsTime().After(info.GetStartTime().AsTime())
	if activity != nil {
		done.How, done.WouldBeAt = HowBackoff, timeOf(activity.GetNextAttemptScheduleTime())
	} else if due := info.GetExecutionTime(); delayed && due.AsTime().After(time.Now()) {
		done.WouldBeAt = timeOf(due)
	}
	if cause := notWaiting(described, activity); cause != "" {
		return done, o.refuse(ctx, "retry-now", dlqstore.VerbJobRetryNowRefused, key, request.Actor, cause)
	}
	event := dlqstore.JobEvent{Key: key, Verb: dlqstore.VerbJobRetryNow, Actor: request.Actor, Detail: map[string]string{"ended": string(done.How)}}
	if done.WouldBeAt != nil {
		event.Detail["would_be_at"] = done.WouldBeAt.UTC().Format(time.RFC3339)
	}
	err = o.store.RecordJobVerb(ctx, event, func(ctx context.Context) error {
		switch {
		case activity != nil:
			return o.endBackoff(ctx, key, activity)
		case delayed:
			return o.endStartDelay(ctx, key, info.GetTaskQueue())
		default:
			return o.client.SignalWorkflow(ctx, key.WorkflowID, key.RunID, job.RetryNowSignal, nil)
		}
	})
	switch {
	case wentOn(err):
		return done, o.refuse(ctx, "retry-now", dlqstore.VerbJobRetryNowRefused, key, request.Actor, wentOnCause)
	case err != nil:
		return done, fmt.Errorf("operator: retry-now %s: %w", key.WorkflowID, err)
	default:
		return done, nil
	}
}

const wentOnCause = "it went on, or closed, in this moment"

// wentOn reports whether a job is no more as it was when it was looked at.
func wentOn(err error) bool {
	var gone *serviceerror.NotFound
	var closed *serviceerror.WorkflowExecutionAlreadyStarted // of a signal-with-start
	return errors.As(err, &gone) || errors.As(err, &closed)
}

// CancelJob asks a running job to stop. It returns when Temporal has taken the
// request; the job then ends with a dead letter of reason cancelled, or with none
// if its policy discards cancelled jobs. ErrJobRefused and dlqstore.ErrNotFound are
// as for RetryNow.
func (o *Operator) CancelJob(ctx context.Context, request JobRequest) (dlqstore.Key, error) {
	described, key, err := o.runningJob(ctx, "cancel", request)
	if err != nil {
		return key, err
	}
	if cause := notCancellable(described); cause != "" {
		return key, o.refuse(ctx, "cancel", dlqstore.VerbJobCancelRefused, key, request.Actor, cause)
	}
	event := dlqstore.JobEvent{Key: key, Verb: dlqstore.VerbJobCancel, Actor: request.Actor}
	err = o.store.RecordJobVerb(ctx, event, func(ctx context.Context) error {
		_, err := o.service.RequestCancelWorkflowExecution(ctx, &workflowservice.RequestCancelWorkflowExecutionRequest{
			Namespace: o.namespace, WorkflowExecution: execution(key), RequestId: uuid.NewString(),
			Identity: identity, Reason: text.Bounded("cancelled by "+request.Actor, maxPendingFailure),
		})
		return err
	})
	if err != nil { // not when it has closed in this moment: the server then agrees
		return key, fmt.Errorf("operator: cancel %s: %w", key.WorkflowID, err)
	}
	return key, nil
}

// identity is who changes a job, as Temporal shows it.
const identity = "deadletter operator"

func execution(key dlqstore.Key) *commonpb.WorkflowExecution {
	return &commonpb.WorkflowExecution{WorkflowId: key.WorkflowID, RunId: key.RunID}
}

// runningJob returns the job, or why there is none to act on.
func (o *Operator) runningJob(ctx context.Context, verb string, request JobRequest) (*workflowservice.DescribeWorkflowExecutionResponse, dlqstore.Key, error) {
	key := dlqstore.Key{Namespace: o.namespace, WorkflowID: request.WorkflowID, RunID: request.RunID}
	if request.Actor == "" {
		return nil, key, ErrNoActor
	}
	described, err := o.describe(ctx, request.WorkflowID, request.RunID)
	info := described.GetWorkflowExecutionInfo()
	switch {
	case err != nil:
		return nil, key, err
	case described == nil:
		err := fmt.Errorf("operator: %s %s: no such job: %w", verb, request.WorkflowID, dlqstore.ErrNotFound)
		asked := map[string]string{"retry-now": dlqstore.VerbJobRetryNow, "cancel": dlqstore.VerbJobCancel}[verb]
		err = o.store.NoteRefusal(ctx, o.asked(asked, request.WorkflowID, request.RunID, request.Actor, ""), err)
		return nil, key, err
	}
	key.RunID = info.GetExecution().GetRunId()
	cause, refused := "", map[string]string{"retry-now": dlqstore.VerbJobRetryNowRefused, "cancel": dlqstore.VerbJobCancelRefused}[verb]
	switch {
	case info.GetType().GetName() != job.WorkflowType:
		cause = "it is a workflow of type " + info.GetType().GetName() + ", not a job"
	case info.GetStatus() != enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING:
		cause = "it has closed as " + info.GetStatus().String()
	default:
		return described, key, nil
	}
	return nil, key, o.refuse(ctx, verb, refused, key, request.Actor, cause)
}

// refuse records that the verb was refused, and returns why.
func (o *Operator) refuse(ctx context.Context, verb, event string, key dlqstore.Key, actor, cause string) error {
	err := o.store.RecordJobVerb(ctx, dlqstore.JobEvent{Key: key, Verb: event, Actor: actor, Detail: map[string]string{"cause": cause}}, nil)
	return errors.Join(&JobRefusedError{WorkflowID: key.WorkflowID, Verb: verb, Cause: cause}, err)
}

// handlerOf returns the pending activity, nil for none.
func handlerOf(described *workflowservice.DescribeWorkflowExecutionResponse) *workflowpb.PendingActivityInfo {
	var found *workflowpb.PendingActivityInfo
	for _, activity := range described.GetPendingActivities() {
		if found == nil || job.IsOwnActivity(activity.GetActivityType().GetName()) {
			found = activity
		}
	}
	return found
}

// notWaiting says why there is no wait to end, empty if there is one.
func notWaiting(described *workflowservice.DescribeWorkflowExecutionResponse, activity *workflowpb.PendingActivityInfo) string {
	if cause := notCancellable(described); cause != "" {
		return cause
	}
	if task := described.GetPendingWorkflowTask(); activity == nil && task != nil {
		return "it waits for a worker on task queue " + described.GetWorkflowExecutionInfo().GetTaskQueue() + " that serves " + job.WorkflowType + ", not for time"
	}
	if activity == nil {
		return "" // in a timer of its workflow, or before its first task
	}
	switch activity.GetState() {
	case enumspb.PENDING_ACTIVITY_STATE_STARTED, enumspb.PENDING_ACTIVITY_STATE_CANCEL_REQUESTED:
		return "its attempt is running"
	case enumspb.PENDING_ACTIVITY_STATE_PAUSED, enumspb.PENDING_ACTIVITY_STATE_PAUSE_REQUESTED:
		if activity.GetPauseInfo().GetManual().GetReason() == pauseReason {
			return ""
		}
		return "its activity is paused: unpause it, which starts the attempt too"
	case enumspb.PENDING_ACTIVITY_STATE_SCHEDULED:
		if activity.GetNextAttemptScheduleTime() == nil {
			return "it waits for a worker on task queue " + activity.GetActivityOptions().GetTaskQueue().GetName() + ", not for time"
		}
	case enumspb.PENDING_ACTIVITY_STATE_UNSPECIFIED:
	}
	return ""
}

// notCancellable says why it is too late to change how the job ends, empty if it
// is not.
func notCancellable(described *workflowservice.DescribeWorkflowExecutionResponse) string {
	if described.GetWorkflowExtendedInfo().GetCancelRequested() {
		return "it has been asked to stop already"
	}
	for _, activity := range described.GetPendingActivities() {
		switch activity.GetActivityType().GetName() {
		case job.MoveActivityType:
			return "its handler is through, and its dead letter is being written"
		case job.SettleActivityType:
			return "its handler has succeeded"
		}
	}
	return ""
}

// endStartDelay signals a job that was started with a delay. Only this form of a
// signal makes the server forget what is left of one; in any later wait it is a
// signal like others. It can start nothing: the id is taken.
func (o *Operator) endStartDelay(ctx context.Context, key dlqstore.Key, taskQueue string) error {
	_, err := o.service.SignalWithStartWorkflowExecution(ctx, &workflowservice.SignalWithStartWorkflowExecutionRequest{
		Namespace: o.namespace, WorkflowId: key.WorkflowID, WorkflowType: &commonpb.WorkflowType{Name: job.WorkflowType},
		TaskQueue: &taskqueuepb.TaskQueue{Name: taskQueue}, SignalName: job.RetryNowSignal,
		Identity: identity, RequestId: uuid.NewString(),
		WorkflowIdReusePolicy:    enumspb.WORKFLOW_ID_REUSE_POLICY_REJECT_DUPLICATE,
		WorkflowIdConflictPolicy: enumspb.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING,
	})
	return err
}

// unpauseTries and unpauseWait are how hard a pause of ours is taken back.
const (
	unpauseTries = 5
	unpauseWait  = 200 * time.Millisecond
)

// endBackoff pauses the activity and unpauses it: the server then schedules the next
// attempt at once, with the number and the deadline that it had. A reset would
// start the budget anew.
func (o *Operator) endBackoff(ctx context.Context, key dlqstore.Key, activity *workflowpb.PendingActivityInfo) error {
	service := o.service
	_, err := service.PauseActivity(ctx, &workflowservice.PauseActivityRequest{
		Namespace: o.namespace, Execution: execution(key), Identity: identity, Reason: pauseReason,
		Activity: &workflowservice.PauseActivityRequest_Id{Id: activity.GetActivityId()},
	})
	var unknown *serviceerror.Unimplemented
	switch {
	case errors.As(err, &unknown):
		return fmt.Errorf("this Temporal server cannot pause activities, use a newer one: %w", err)
	case err != nil:
		return fmt.Errorf("pause the activity: %w", err)
	}
	// From here on it must be unpaused, also when the caller goes away.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	for try := 1; ; try++ {
		_, err = service.UnpauseActivity(ctx, &workflowservice.UnpauseActivityRequest{
			Namespace: o.namespace, Execution: execution(key), Identity: identity,
			Activity: &workflowservice.UnpauseActivityRequest_Id{Id: activity.GetActivityId()},
		})
		var gone *serviceerror.NotFound
		if err == nil || errors.As(err, &gone) { // gone: the attempt has ended since
			return nil
		}
		if try == unpauseTries {
			return fmt.Errorf("the activity is paused and could not be unpaused: repeat the command: %w", err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(unpauseWait):
		}
	}
}
