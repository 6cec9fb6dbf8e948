package dlqstore

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/deadletter-dev/deadletter/job"
)

const selectPlanQueues = `
select distinct d.workflow_task_queue, d.task_queue
from {schema}.plan_items i
join {schema}.dead_letters d on d.namespace = i.namespace and d.workflow_id = i.workflow_id and d.run_id = i.run_id
where i.plan_id = @id and i.state = 'pending'
order by d.workflow_task_queue, d.task_queue
limit @limit`

// JobQueues are the task queues of a job: that of its workflow, and that of its handler.
type JobQueues struct {
	WorkflowTaskQueue string
	TaskQueue         string
}

// PlanQueues returns the task queues, at most limit pairs, on which the jobs will be
// that a plan has still to replay; none for a plan of another verb.
func (s *Store) PlanQueues(ctx context.Context, plan *Plan, limit int) ([]JobQueues, error) {
	if plan.Verb != job.BulkReplay {
		return nil, nil
	}
	queues, err := query(ctx, s, selectPlanQueues, pgx.NamedArgs{"id": plan.ID, "limit": limit}, pgx.RowToStructByPos[JobQueues])
	if err != nil {
		return nil, fmt.Errorf("task queues of plan %s: %w", plan.ID, err)
	}
	return queues, nil
}
