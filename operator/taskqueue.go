package operator

import (
	"context"
	"fmt"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	taskqueuepb "go.temporal.io/api/taskqueue/v1"
	"go.temporal.io/api/workflowservice/v1"
	"golang.org/x/sync/errgroup"
)

// TaskQueueType is which tasks of a queue are meant: a queue has both, and they are
// polled apart.
type TaskQueueType string

// The types of tasks.
const (
	WorkflowTasks TaskQueueType = "workflow"
	ActivityTasks TaskQueueType = "activity"
)

func (t TaskQueueType) enum() enumspb.TaskQueueType {
	if t == WorkflowTasks {
		return enumspb.TASK_QUEUE_TYPE_WORKFLOW
	}
	return enumspb.TASK_QUEUE_TYPE_ACTIVITY
}

// QueueName names the tasks of one type on a task queue.
type QueueName struct {
	TaskQueue string        `json:"task_queue"`
	Type      TaskQueueType `json:"type"`
}

func (q QueueName) String() string {
	return "task queue " + q.TaskQueue + " for " + string(q.Type) + " tasks"
}

// QueueState is who polls a task queue, as the server says it.
type QueueState struct {
	QueueName
	// Pollers counts the workers that have polled within the server's memory, which is
	// five minutes unless it is configured otherwise: one that has just stopped counts.
	Pollers int `json:"pollers"`
	// LastPollAt is when one of them asked for a task last, nil for none. A worker
	// that waits for tasks asks each minute; one that has its hands full does not.
	LastPollAt *time.Time `json:"last_poll_at"`
	// Backlog counts the tasks in the queue, about; nil when the server does not tell.
	// BacklogAge is the age of the oldest, zero when there is none.
	Backlog    *int64        `json:"backlog"`
	BacklogAge time.Duration `json:"-"`
	// ActivitiesOnly says that nobody polls for workflow tasks and somebody does for
	// activities: often a worker without the plugin. Only of type workflow.
	ActivitiesOnly bool `json:"activities_only,omitempty"`
}

// idlePoll is how long a poll of an idle worker lasts, and some.
const idlePoll = 90 * time.Second

// quiet reports whether the pollers have stopped asking.
func (s *QueueState) quiet() bool { return s.LastPollAt != nil && time.Since(*s.LastPollAt) > idlePoll }

// TaskQueue tells who polls a task queue for tasks of a type.
func (o *Operator) TaskQueue(ctx context.Context, name QueueName) (QueueState, error) {
	state, err := o.pollers(ctx, name)
	if err == nil && state.Pollers == 0 && name.Type == WorkflowTasks {
		var activities QueueState
		activities, err = o.pollers(ctx, QueueName{name.TaskQueue, ActivityTasks})
		state.ActivitiesOnly = activities.Pollers > 0
	}
	return state, err
}

func (o *Operator) pollers(ctx context.Context, name QueueName) (QueueState, error) {
	state := QueueState{QueueName: name}
	described, err := o.service.DescribeTaskQueue(ctx, &workflowservice.DescribeTaskQueueRequest{
		Namespace: o.namespace, ReportStats: true, TaskQueueType: name.Type.enum(),
		TaskQueue: &taskqueuepb.TaskQueue{Name: name.TaskQueue, Kind: enumspb.TASK_QUEUE_KIND_NORMAL},
	})
	if err != nil {
		return state, fmt.Errorf("operator: describe %s: %w", name, err)
	}
	state.Pollers = len(described.GetPollers())
	for _, poller := range described.GetPollers() {
		if at := timeOf(poller.GetLastAccessTime()); at != nil && (state.LastPollAt == nil || at.After(*state.LastPollAt)) {
			state.LastPollAt = at
		}
	}
	if stats := described.GetStats(); stats != nil {
		backlog := stats.GetApproximateBacklogCount()
		state.Backlog, state.BacklogAge = &backlog, stats.GetApproximateBacklogAge().AsDuration()
	}
	return state, nil
}

// queueStates asks for each queue once.
func (o *Operator) queueStates(ctx context.Context, names []QueueName) ([]QueueState, error) {
	states := make([]QueueState, len(names))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(jobsParallel)
	for i, name := range names {
		group.Go(func() (err error) {
			states[i], err = o.TaskQueue(ctx, name)
			return err
		})
	}
	return states, group.Wait()
}

// unpolled returns those that no worker polls.
func (o *Operator) unpolled(ctx context.Context, names []QueueName) ([]QueueState, error) {
	states, err := o.queueStates(ctx, names)
	if err != nil {
		return nil, err
	}
	var none []QueueState
	for _, state := range states {
		if state.Pollers == 0 {
			none = append(none, state)
		}
	}
	return none, nil
}

// NoPollers puts into words that no worker polls a task queue, and what to do.
func (s QueueState) NoPollers() string {
	text := fmt.Sprintf("no worker polls %s", s.QueueName)
	switch {
	case s.ActivitiesOnly:
		return text + ", only for activity tasks: do its workers lack the Deadletter plugin? client.NewClientFromExisting drops the plugins of a client: give them to the worker in worker.Options.Plugins"
	case s.Type == WorkflowTasks:
		return text + ": start one that has the Deadletter plugin"
	default:
		return text + ": start one"
	}
}
