package operator

import (
	"fmt"
	"strings"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"

	"github.com/deadletter-dev/deadletter/internal/text"
	"github.com/deadletter-dev/deadletter/job"
)

// WaitKind is why a job waits. The set is closed.
type WaitKind string

// The kinds of waits.
const (
	// For time: Until says when it is over.
	WaitStartDelay     WaitKind = "start_delay"
	WaitRetry          WaitKind = "retry" // between two attempts
	WaitSnooze         WaitKind = "snooze"
	WaitCircuitBreaker WaitKind = "circuit_breaker"
	// Until then too, for a worker that knows the job type: the last one did not, and the
	// grace of the policy is not over.
	WaitUnregisteredActivity WaitKind = "unregistered_activity"
	// For a person, who paused the activity.
	WaitPaused WaitKind = "paused"
	// For a worker of TaskQueue: none polls it, or those that do are busy. WaitWorker
	// is either of them, when the server did not say who polls.
	WaitNoPoller    WaitKind = "no_poller"
	WaitPollersBusy WaitKind = "pollers_busy"
	WaitWorker      WaitKind = "worker"
	// For another worker than that which takes its workflow tasks: that one does not
	// know deadletter.Job, or fails for another cause.
	WaitUnregisteredWorkflow WaitKind = "unregistered_workflow"
	WaitWorkflowTaskFailing  WaitKind = "workflow_task_failing"
)

// Waiting is what a running job waits for.
type Waiting struct {
	Kind WaitKind `json:"kind"`
	// Text says it in words, with what to do where a person can do something.
	Text string `json:"text"`
	// Attempt comes when the wait is over; of a workflow task, it is that of the task.
	Attempt int `json:"attempt"`
	// Until is when the wait is over, nil when it is not a wait for time.
	Until *time.Time `json:"until"`
	// Queue is that of the task which waits for a worker, nil for none.
	Queue *QueueState `json:"queue,omitempty"`
	// Failure and WorkerIdentity are of the workflow task that failed.
	Failure        string `json:"failure,omitempty"`
	WorkerIdentity string `json:"worker_identity,omitempty"`
}

// forWorker reports whether who polls the queue is still to be asked.
func (w *Waiting) forWorker() bool { return w != nil && w.Kind == WaitWorker }

// onFailingTask reports whether the job's own workflow code does not run.
func (w *Waiting) onFailingTask() bool {
	return w != nil && (w.Kind == WaitUnregisteredWorkflow || w.Kind == WaitWorkflowTaskFailing)
}

// timeForm writes a time of UTC into a text for people.
const timeForm = "2006-01-02 15:04:05Z"

// waitingForTime is over at a time.
func waitingForTime(kind WaitKind, what string, until *time.Time, attempt int) *Waiting {
	w := &Waiting{Kind: kind, Attempt: attempt, Until: until, Text: what}
	if until != nil {
		w.Text += " until " + until.UTC().Format(timeForm)
	}
	w.Text += fmt.Sprintf(", then attempt %d", attempt)
	return w
}

// waitingForWorker is for a worker: see answer.
func waitingForWorker(queue string, tasks TaskQueueType, attempt int) *Waiting {
	name := QueueName{queue, tasks}
	return &Waiting{Kind: WaitWorker, Attempt: attempt, Queue: &QueueState{QueueName: name}, Text: "waits for a worker on " + name.String()}
}

// answer says who polls the queue that the job waits on.
func (w *Waiting) answer(state QueueState) {
	w.Queue = &state
	switch {
	case state.Pollers == 0:
		w.Kind, w.Text = WaitNoPoller, state.NoPollers()
		return
	case state.quiet():
		w.Text = fmt.Sprintf("waits on %s: its workers have not asked for a task since %s: they are busy, or have stopped",
			state.QueueName, state.LastPollAt.UTC().Format(timeForm))
	default:
		w.Text = fmt.Sprintf("waits for a free worker on %s, which %s", state.QueueName, counted(state.Pollers, "worker polls", "workers poll"))
	}
	w.Kind = WaitPollersBusy
	if state.Backlog != nil && *state.Backlog > 0 {
		w.Text += fmt.Sprintf("; about %s in the queue, the oldest for %s", counted(int(*state.Backlog), "task is", "tasks are"), state.BacklogAge.Round(time.Second))
	}
}

func counted(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// waitingOf tells what a pending activity waits for, nil when it runs.
func waitingOf(activity *workflowpb.PendingActivityInfo, queue string) *Waiting {
	attempt := max(int(activity.GetAttempt()), 1)
	switch activity.GetState() {
	case enumspb.PENDING_ACTIVITY_STATE_PAUSED:
		return waitingPaused(activity.GetPauseInfo(), attempt)
	case enumspb.PENDING_ACTIVITY_STATE_SCHEDULED:
		if next := timeOf(activity.GetNextAttemptScheduleTime()); next != nil && next.After(time.Now()) {
			what := "waits between two attempts"
			if activity.GetActivityType().GetName() == job.MoveActivityType {
				what = "waits between two tries to write its dead letter"
			}
			return waitingForTime(WaitRetry, what, next, attempt)
		}
		if own := activity.GetActivityOptions().GetTaskQueue().GetName(); own != "" {
			queue = own
		}
		return waitingForWorker(queue, ActivityTasks, attempt)
	case enumspb.PENDING_ACTIVITY_STATE_STARTED, enumspb.PENDING_ACTIVITY_STATE_CANCEL_REQUESTED,
		enumspb.PENDING_ACTIVITY_STATE_PAUSE_REQUESTED, enumspb.PENDING_ACTIVITY_STATE_UNSPECIFIED:
	}
	return nil
}

func waitingPaused(pause *workflowpb.PendingActivityInfo_PauseInfo, attempt int) *Waiting {
	w := &Waiting{Kind: WaitPaused, Attempt: attempt, Text: "its activity is paused"}
	if at := timeOf(pause.GetPauseTime()); at != nil {
		w.Text += " since " + at.UTC().Format(timeForm)
	}
	if by := pause.GetManual(); by != nil {
		w.Text += " by " + text.Bounded(by.GetIdentity(), maxPendingFailure)
		if by.GetReason() != "" {
			w.Text += " (" + text.Bounded(by.GetReason(), maxPendingFailure) + ")"
		}
	}
	w.Text += ": unpause it with `temporal activity unpause`"
	return w
}

// waitingBetween tells what a job without a pending activity waits for.
func (l *LiveJob) waitingBetween(described *workflowservice.DescribeWorkflowExecutionResponse, events []*historypb.HistoryEvent) *Waiting {
	info := described.GetWorkflowExecutionInfo()
	task := described.GetPendingWorkflowTask()
	switch {
	case task.GetAttempt() > 1:
		return waitingFailing(task, info.GetTaskQueue(), events)
	case task.GetState() == enumspb.PENDING_WORKFLOW_TASK_STATE_SCHEDULED:
		return waitingForWorker(info.GetTaskQueue(), WorkflowTasks, l.Attempt)
	case task != nil:
		return nil // a worker has it
	case l.State == stateWaiting && l.LastErrorType == job.CircuitOpenErrorType:
		return waitingForTime(WaitCircuitBreaker, "waits because the circuit breaker of its type was open", l.NextAttemptAt, l.Attempt)
	case l.State == stateWaiting && job.IsUnknownType(l.LastErrorType, l.LastError, l.JobType):
		what := fmt.Sprintf("waits, free of charge, because a worker of task queue %s does not know %s: start one that does; it waits", l.TaskQueue, l.JobType)
		return waitingForTime(WaitUnregisteredActivity, what, l.NextAttemptAt, l.Attempt)
	case l.State == stateWaiting:
		return waitingForTime(WaitSnooze, "snoozes", l.NextAttemptAt, l.Attempt)
	case l.NextAttemptAt != nil:
		return waitingForTime(WaitStartDelay, "was started with a delay, and waits", l.NextAttemptAt, l.Attempt)
	default:
		return nil
	}
}

// waitingFailing tells of a workflow task that is tried again and again. Only its
// first failure is in the history.
func waitingFailing(task *workflowpb.PendingWorkflowTaskInfo, queue string, events []*historypb.HistoryEvent) *Waiting {
	w := &Waiting{
		Kind: WaitWorkflowTaskFailing, Attempt: int(task.GetAttempt()),
		Queue: &QueueState{QueueName: QueueName{queue, WorkflowTasks}},
		Text:  fmt.Sprintf("its workflow task on task queue %s fails again and again, or ends without an answer: attempt %d", queue, task.GetAttempt()),
	}
	for _, event := range events {
		failed := event.GetWorkflowTaskFailedEventAttributes()
		if event.GetEventType() == enumspb.EVENT_TYPE_WORKFLOW_TASK_COMPLETED {
			break // what failed before it is over
		}
		if failed == nil {
			continue
		}
		w.Failure = text.Bounded(failed.GetFailure().GetMessage(), maxPendingFailure)
		w.WorkerIdentity = text.Bounded(failed.GetIdentity(), maxPendingFailure)
		if isUnregistered(w.Failure) {
			w.Kind = WaitUnregisteredWorkflow
			w.Text = fmt.Sprintf("a worker of task queue %s, %s, takes its workflow tasks and does not know %s: it lacks the Deadletter plugin; "+
				"client.NewClientFromExisting drops the plugins of a client: give them to the worker in worker.Options.Plugins", queue, w.WorkerIdentity, job.WorkflowType)
		} else {
			w.Text += fmt.Sprintf(", first on worker %s: %s", w.WorkerIdentity, w.Failure)
		}
		break
	}
	return w
}

// isUnregistered reports whether a worker says that it does not know our workflow
// type. No SDK has a code for it that the others share; each names the type.
func isUnregistered(failure string) bool {
	if !strings.Contains(failure, job.WorkflowType) {
		return false
	}
	for _, words := range []string{
		"unable to find workflow type", // Go
		"is not registered",            // Python, .NET, Ruby
		"no such function",             // TypeScript
		"nknown workflow type",         // Java
	} {
		if strings.Contains(failure, words) {
			return true
		}
	}
	return false
}
