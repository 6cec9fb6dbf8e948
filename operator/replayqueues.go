package operator

import (
	"context"
	"slices"

	"github.com/deadletter-dev/deadletter/dlqstore"
)

// maxPlanQueues bounds the task queues of a plan that are asked who polls them.
const maxPlanQueues = 50

// UnpolledByReplay returns the task queues that a replay of a dead letter needs and no
// worker polls: that of its workflow and that of its handler. The replay is started all
// the same; its job waits there. runID may be empty as for Replay.
func (o *Operator) UnpolledByReplay(ctx context.Context, workflowID, runID string) ([]QueueState, error) {
	key, err := o.store.Resolve(ctx, o.namespace, workflowID, runID)
	if err != nil {
		return nil, err
	}
	dl, err := o.store.Get(ctx, key)
	if err != nil {
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
	names := []QueueName{{o.taskQueue, WorkflowTasks}, {o.taskQueue, ActivityTasks}}
	for _, name := range namesOf(queues) {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return o.unpolled(ctx, names)
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
