package operator

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"golang.org/x/sync/errgroup"
)

const (
	jobsPage = 500
	// enough is the part of JobsRequest.Scan with which the search for the oldest jobs
	// is content: servers allow ten counts per second.
	enough = 0.9
	// maxJobQueues bounds the task queues that are asked who polls them, and
	// jobQueuesTimeout how long that may take.
	maxJobQueues     = 20
	jobQueuesTimeout = 10 * time.Second
)

// scan looks at running jobs. With an error it returns those that it has looked at.
func (o *Operator) scan(ctx context.Context, request *JobsRequest, found *Jobs) ([]*LiveJob, error) {
	queries, err := o.oldestJobs(ctx, request.Scan, found)
	if err != nil {
		return nil, err
	}
	var executions []*workflowpb.WorkflowExecutionInfo
	for _, query := range queries {
		more, err := o.runningJobs(ctx, query, request.Scan-len(executions))
		if err != nil {
			return nil, err
		}
		executions = append(executions, more...)
	}
	slices.SortFunc(executions, func(a, b *workflowpb.WorkflowExecutionInfo) int {
		return cmp.Or(a.GetExecutionTime().AsTime().Compare(b.GetExecutionTime().AsTime()),
			cmp.Compare(a.GetExecution().GetWorkflowId(), b.GetExecution().GetWorkflowId()))
	})
	return o.lookAt(ctx, request, executions)
}

// oldestJobs counts the jobs that run and are due, and returns the queries for those
// that have been due for the longest, at most so many. No visibility store sorts
// the oldest first, hence the search for the time that parts them.
func (o *Operator) oldestJobs(ctx context.Context, most int, found *Jobs) (queries []string, err error) {
	count := func(query string) (n int64) {
		if err != nil {
			return 0
		}
		response, failed := o.service.CountWorkflowExecutions(ctx, &workflowservice.CountWorkflowExecutionsRequest{Namespace: o.namespace, Query: query})
		if failed != nil {
			err = fmt.Errorf("operator: count running jobs: %w", failed)
		}
		return response.GetCount()
	}
	now := time.Now()
	found.Running = count(dueBefore(now))
	if err != nil || found.Running <= int64(most) {
		return []string{dueBefore(now)}, err
	}
	found.StoppedBy = StoppedByScan
	// Between few and many the count passes the limit: backwards in longer and longer
	// steps, then by halves.
	few, many, sofar := now, now, found.Running
	for step := time.Minute; sofar > int64(most) && step < longestRun && err == nil; step *= 10 {
		few, many = now.Add(-step), few
		sofar = count(dueBefore(few))
	}
	for float64(sofar) < float64(most)*enough && many.Sub(few) > time.Millisecond && err == nil {
		middle := few.Add(many.Sub(few) / 2)
		if n := count(dueBefore(middle)); n <= int64(most) {
			few, sofar = middle, n
		} else {
			many = middle
		}
	}
	if float64(sofar) >= float64(most)*enough {
		return []string{dueBefore(few)}, err
	}
	// More than that became due in one instant: some of those.
	return []string{dueBefore(few), dueBefore(many) + fmt.Sprintf(" AND ExecutionTime > '%s'", few.UTC().Format(time.RFC3339Nano))}, err
}

// longestRun is how far back jobs are looked for.
const longestRun = 20 * 365 * 24 * time.Hour

func dueBefore(at time.Time) string {
	return fmt.Sprintf("%s AND ExecutionStatus = 'Running' AND ExecutionTime <= '%s'", jobsQuery, at.UTC().Format(time.RFC3339Nano))
}

func (o *Operator) runningJobs(ctx context.Context, query string, most int) ([]*workflowpb.WorkflowExecutionInfo, error) {
	var executions []*workflowpb.WorkflowExecutionInfo
	var token []byte
	for most > 0 {
		page, err := o.service.ListWorkflowExecutions(ctx, &workflowservice.ListWorkflowExecutionsRequest{
			Namespace: o.namespace, PageSize: int32(min(most, jobsPage)), NextPageToken: token, Query: query,
		})
		if err != nil {
			return nil, fmt.Errorf("operator: list running jobs: %w", err)
		}
		executions = append(executions, page.GetExecutions()...)
		if token = page.GetNextPageToken(); len(token) == 0 || len(executions) >= most {
			break
		}
	}
	return executions[:min(len(executions), most)], nil
}

// lookAt looks at each, in their order; one that has closed is left out.
func (o *Operator) lookAt(ctx context.Context, request *JobsRequest, executions []*workflowpb.WorkflowExecutionInfo) ([]*LiveJob, error) {
	var mu sync.Mutex
	looked := make([]*LiveJob, 0, len(executions))
	done := 0
	group, looking := errgroup.WithContext(ctx)
	group.SetLimit(jobsParallel)
	for _, execution := range executions {
		if looking.Err() != nil {
			break
		}
		group.Go(func() error {
			live, err := o.look(looking, request, execution)
			if err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			if live != nil {
				looked = append(looked, live)
			}
			done++
			if request.Progress != nil {
				request.Progress(done, len(executions))
			}
			return nil
		})
	}
	err := group.Wait()
	if err == nil {
		err = ctx.Err()
	}
	return looked, err
}

// look returns nil for a job that has closed.
func (o *Operator) look(ctx context.Context, request *JobsRequest, execution *workflowpb.WorkflowExecutionInfo) (*LiveJob, error) {
	described, err := o.describe(ctx, execution.GetExecution().GetWorkflowId(), execution.GetExecution().GetRunId())
	if err != nil || described.GetWorkflowExecutionInfo().GetStatus() != enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING {
		return nil, err
	}
	if request.MinAttempt == 0 && isUntouched(described) {
		// It is not listed, so its history need not be read.
		live := o.newLiveJob(described)
		live.Waiting = live.waitingBetween(described, nil)
		return live, nil
	}
	return o.liveJob(ctx, described)
}

// isUntouched reports whether no worker has taken the job up yet: all that it has is
// its start and its first workflow task.
func isUntouched(described *workflowservice.DescribeWorkflowExecutionResponse) bool {
	return described.GetWorkflowExecutionInfo().GetHistoryLength() <= 2 && len(described.GetPendingActivities()) == 0 &&
		described.GetPendingWorkflowTask().GetAttempt() <= 1
}

// askQueues asks once for each task queue on which jobs wait for a worker, and tells
// the jobs. What it cannot learn stays open.
func (o *Operator) askQueues(ctx context.Context, jobs []*LiveJob) []JobQueue {
	ctx, cancel := context.WithTimeout(ctx, jobQueuesTimeout)
	defer cancel()
	waiting := map[QueueName]int{}
	for _, live := range jobs {
		if live.Waiting.forWorker() {
			waiting[live.Waiting.Queue.QueueName]++
		}
	}
	queues := make([]JobQueue, 0, len(waiting))
	for name, n := range waiting {
		queues = append(queues, JobQueue{QueueState: QueueState{QueueName: name}, Waiting: n})
	}
	slices.SortFunc(queues, func(a, b JobQueue) int {
		return cmp.Or(cmp.Compare(b.Waiting, a.Waiting), cmp.Compare(a.TaskQueue, b.TaskQueue), cmp.Compare(a.Type, b.Type))
	})
	var group errgroup.Group
	group.SetLimit(jobsParallel)
	for i := range queues {
		queue := &queues[i]
		if i >= maxJobQueues {
			queue.Unknown = fmt.Sprintf("the jobs wait on more than %d task queues", maxJobQueues)
			continue
		}
		group.Go(func() error {
			state, err := o.TaskQueue(ctx, queue.QueueName)
			if err != nil {
				queue.Unknown = err.Error()
			} else {
				queue.QueueState = state
			}
			return nil
		})
	}
	_ = group.Wait() // none has an error
	answers := map[QueueName]*JobQueue{}
	for i := range queues {
		answers[queues[i].QueueName] = &queues[i]
	}
	for _, live := range jobs {
		if !live.Waiting.forWorker() {
			continue
		}
		if answer := answers[live.Waiting.Queue.QueueName]; answer.Unknown == "" {
			live.Waiting.answer(answer.QueueState)
		} else {
			live.Waiting.Text += "; who polls it is not known: " + answer.Unknown
		}
	}
	return queues
}
