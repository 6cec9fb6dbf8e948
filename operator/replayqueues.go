package operator

import (
	"context"
	"errors"
	"slices"

	enumspb "go.temporal.io/api/enums/v1"

	"github.com/deadletter-dev/deadletter/dlqstore"
)

// maxPlanQueues bounds the task queues of a plan that are asked who polls them.
const maxPlanQueues = 50

// UnpolledByReplay returns the task queues that a replay of a dead letter needs and no
// worker polls: that of its workflow and that of its handler. The replay is started all
// the same; its job waits there. None is returned for a dead letter that was purged
// meanwhile. runID may be empty as for Replay.
func (o *Operator) UnpolledByReplay(ctx context.Context, workflowID, runID string) ([]QueueState, error) {
	key, err := o.store.Resolve(ctx, o.namespace, workflowID, runID)
	var dl *dlqstore.DeadLetter
	if err == nil {
		dl, err = o.store.Get(ctx, key)
	}
	switch {
	case errors.Is(err, dlqstore.ErrNotFound):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return o.unpolled(ctx, namesOf([]dlqstore.JobQueues{{WorkflowTaskQueue: dl.WorkflowTaskQueue, TaskQueue: dl.TaskQueue}}))
}

// UnpolledByPlan returns the task queues that no worker polls, of those that the
// operation of a plan needs: the dead-letter queue and, for a replay, those of up to 50
// pairs of queues of its pending members.
func (o *Operator) UnpolledByPlan(ctx context.Context, plan *dlqstore.Plan) ([]QueueState, error) {
	queues, err := o.store.PlanQueues(ctx, plan, maxPlanQueues)
	if err != nil {
		return nil, err
	}
	return o.unpolled(ctx, namesOf(append([]dlqstore.JobQueues{{WorkflowTaskQueue: o.taskQueue, TaskQueue: o.taskQueue}}, queues...)))
}

// UnpolledByControl returns those of the dead-letter queue's tasks that no worker
// polls: without one an operation does not hear PausePlan, ResumePlan or CancelPlan.
func (o *Operator) UnpolledByControl(ctx context.Context) ([]QueueState, error) {
	return o.unpolled(ctx, namesOf([]dlqstore.JobQueues{{WorkflowTaskQueue: o.taskQueue, TaskQueue: o.taskQueue}}))
}

// UnpolledByJob returns the task queues that a running job needs for its next step and
// no worker polls: that of its workflow, that of its pending handler, and the
// dead-letter queue, where it goes when it is cancelled or its budget is spent. None is
// returned for a job that has closed.
func (o *Operator) UnpolledByJob(ctx context.Context, key dlqstore.Key) ([]QueueState, error) {
	described, err := o.describe(ctx, key.WorkflowID, key.RunID)
	if err != nil || described.GetWorkflowExecutionInfo().GetStatus() != enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING {
		return nil, err
	}
	return o.unpolled(ctx, namesOf([]dlqstore.JobQueues{
		{WorkflowTaskQueue: described.GetWorkflowExecutionInfo().GetTaskQueue(), TaskQueue: handlerOf(described).GetActivityOptions().GetTaskQueue().GetName()},
		{TaskQueue: o.taskQueue},
	}))
}

// namesOf returns each once.
func namesOf(queues []dlqstore.JobQueues) []QueueName {
	var names []QueueName
	for _, q := range queues {
		for _, name := range []QueueName{{q.WorkflowTaskQueue, WorkflowTasks}, {q.TaskQueue, ActivityTasks}} {
			if name.TaskQueue != "" && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}
