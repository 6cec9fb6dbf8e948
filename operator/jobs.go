package operator

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"golang.org/x/sync/errgroup"

	"github.com/deadletter-dev/deadletter/dlqstore"
)

// Bounds of Jobs.
const (
	defaultJobs = 50
	// MaxJobs is the most jobs that Jobs returns.
	MaxJobs = 1000
	// DefaultJobsScan and MaxJobsScan are how many running jobs Jobs looks at.
	DefaultJobsScan = 1000
	MaxJobsScan     = 20_000
	jobsParallel    = 8
	jobsPage        = 500
)

// JobsRequest selects running jobs.
type JobsRequest struct {
	// Type is the job type, Queue the handler's task queue. Empty means any.
	Type  string
	Queue string
	// MinAttempt is the least attempt that the job is at or waits for. Zero means
	// jobs that have met an error: one that failed, snoozes, or was refused by a
	// circuit breaker. 1 means every job.
	MinAttempt int
	// Limit is the most jobs to return: 0 means 50, and MaxJobs is the maximum.
	Limit int
	// Scan is how many running jobs to look at one by one, those first that have been
	// due for the longest: 0 means DefaultJobsScan, and MaxJobsScan is the maximum.
	Scan int
}

func (r *JobsRequest) check() error {
	if r.Limit == 0 {
		r.Limit = defaultJobs
	}
	if r.Scan == 0 {
		r.Scan = DefaultJobsScan
	}
	switch {
	case r.Limit < 0 || r.Limit > MaxJobs:
		return fmt.Errorf("operator: jobs: a limit of %d: 1 to %d, 0 for %d", r.Limit, MaxJobs, defaultJobs)
	case r.Scan < 0 || r.Scan > MaxJobsScan:
		return fmt.Errorf("operator: jobs: a scan of %d: 1 to %d, 0 for %d", r.Scan, MaxJobsScan, DefaultJobsScan)
	case r.MinAttempt < 0:
		return fmt.Errorf("operator: jobs: an attempt of %d: it must not be negative", r.MinAttempt)
	}
	return nil
}

// LiveJob is a running job, as close to its death as its last fields say.
type LiveJob struct {
	WorkflowID string `json:"workflow_id"`
	RunID      string `json:"run_id"`
	// JobType and TaskQueue are the handler's, empty where Temporal does not tell.
	JobType   string `json:"job_type"`
	TaskQueue string `json:"task_queue"`
	// State is that of a PendingAttempt; waiting while the job snoozes, or after a
	// circuit breaker refused it; moving when the handler is through and the dead
	// letter is being written; unscheduled before its first attempt.
	State string `json:"state"`
	// Attempt runs or comes next. It and MaxAttempts, nil for no limit, count within
	// this execution of the handler: a snooze begins another with what is left.
	Attempt     int  `json:"attempt"`
	MaxAttempts *int `json:"max_attempts"`
	// LastErrorType and LastError are of the attempt before, bounded; of a job that
	// is moving, of the try to write the dead letter.
	LastErrorType string `json:"last_error_type"`
	LastError     string `json:"last_error"`
	// NextAttemptAt is nil while an attempt runs or only waits for a worker.
	NextAttemptAt *time.Time `json:"next_attempt_at"`
	// AgeLimitAt is when the job will be too old, nil for no limit.
	AgeLimitAt *time.Time `json:"age_limit_at"`
	// URL is the job's page in the Temporal UI, empty when Config.UIURL is.
	URL string `json:"url,omitempty"`
}

// Jobs are the jobs that were found, and how far the search went.
type Jobs struct {
	// Jobs are the closest to their death first: those that are moving, then by
	// attempts left, then by age left.
	Jobs []LiveJob `json:"jobs"`
	// Running counts the jobs that run and are due, as visibility has it, Looked
	// those that were looked at, Matched those of them that meet the request.
	Running int64 `json:"running"`
	Looked  int   `json:"looked"`
	Matched int   `json:"matched"`
	// Bounded says that there were more than Scan: one that was not looked at may be
	// closer to its death.
	Bounded bool `json:"bounded"`
}

// Jobs lists running jobs that are close to becoming dead letters. Temporal does
// not index attempts, so each job is looked at by itself, within JobsRequest.Scan.
func (o *Operator) Jobs(ctx context.Context, request JobsRequest) (Jobs, error) {
	if err := request.check(); err != nil {
		return Jobs{}, err
	}
	found := Jobs{Jobs: []LiveJob{}}
	query, err := o.oldestJobs(ctx, request.Scan, &found)
	if err != nil {
		return found, err
	}
	executions, err := o.runningJobs(ctx, query, request.Scan)
	if err != nil {
		return found, err
	}
	looked, err := o.lookAt(ctx, executions)
	if err != nil {
		return found, err
	}
	for _, live := range looked {
		if live == nil {
			continue // closed since it was listed
		}
		found.Looked++
		if request.matches(live) {
			found.Jobs = append(found.Jobs, *live)
		}
	}
	found.Matched = len(found.Jobs)
	slices.SortFunc(found.Jobs, closerToDeath)
	found.Jobs = found.Jobs[:min(len(found.Jobs), request.Limit)]
	return found, nil
}

func (r *JobsRequest) matches(live *LiveJob) bool {
	switch {
	case r.Type != "" && live.JobType != r.Type, r.Queue != "" && live.TaskQueue != r.Queue:
		return false
	case r.MinAttempt == 0:
		return live.LastError != "" || live.LastErrorType != "" || live.State == stateMoving
	default:
		return live.Attempt >= r.MinAttempt || live.State == stateMoving
	}
}

func closerToDeath(a, b LiveJob) int {
	return cmp.Or(
		cmp.Compare(a.attemptsLeft(), b.attemptsLeft()),
		latestLast(a.AgeLimitAt, b.AgeLimitAt),
		cmp.Compare(a.WorkflowID, b.WorkflowID),
	)
}

// attemptsLeft counts those after the one that runs or comes next.
func (l *LiveJob) attemptsLeft() int {
	switch {
	case l.State == stateMoving:
		return -1
	case l.MaxAttempts == nil:
		return int(^uint(0) >> 1)
	default:
		return *l.MaxAttempts - l.Attempt
	}
}

func latestLast(a, b *time.Time) int {
	switch {
	case a == nil && b == nil:
		return 0
	case a == nil:
		return 1
	case b == nil:
		return -1
	default:
		return a.Compare(*b)
	}
}

// oldestJobs counts the jobs that run and are due, and returns the query for those
// that have been due for the longest, at most so many. No visibility store sorts
// the oldest first, hence the search for the time that parts them.
func (o *Operator) oldestJobs(ctx context.Context, most int, found *Jobs) (query string, err error) {
	before := func(at time.Time) string {
		return fmt.Sprintf("%s AND ExecutionStatus = 'Running' AND ExecutionTime <= '%s'", jobsQuery, at.UTC().Format(time.RFC3339Nano))
	}
	count := func(at time.Time) (n int64) {
		if err != nil {
			return 0
		}
		var response *workflowservice.CountWorkflowExecutionsResponse
		response, err = o.client.CountWorkflow(ctx, &workflowservice.CountWorkflowExecutionsRequest{Namespace: o.namespace, Query: before(at)})
		if err != nil {
			err = fmt.Errorf("operator: count running jobs: %w", err)
		}
		return response.GetCount()
	}
	now := time.Now()
	found.Running = count(now)
	if err != nil || found.Running <= int64(most) {
		return before(now), err
	}
	found.Bounded = true
	few, many := now.AddDate(-10, 0, 0), now
	for many.Sub(few) > time.Millisecond && err == nil {
		middle := few.Add(many.Sub(few) / 2)
		if count(middle) <= int64(most) {
			few = middle
		} else {
			many = middle
		}
	}
	if err == nil && count(few) == 0 {
		few = many // more than that became due in one instant
	}
	return before(few), err
}

func (o *Operator) runningJobs(ctx context.Context, query string, most int) ([]*workflowpb.WorkflowExecutionInfo, error) {
	var executions []*workflowpb.WorkflowExecutionInfo
	var token []byte
	for {
		page, err := o.client.ListWorkflow(ctx, &workflowservice.ListWorkflowExecutionsRequest{
			Namespace: o.namespace, PageSize: int32(min(most, jobsPage)), NextPageToken: token, Query: query,
		})
		if err != nil {
			return nil, fmt.Errorf("operator: list running jobs: %w", err)
		}
		executions = append(executions, page.GetExecutions()...)
		if token = page.GetNextPageToken(); len(token) == 0 || len(executions) >= most {
			return executions[:min(len(executions), most)], nil
		}
	}
}

// lookAt describes each, nil for one that has closed.
func (o *Operator) lookAt(ctx context.Context, executions []*workflowpb.WorkflowExecutionInfo) ([]*LiveJob, error) {
	looked := make([]*LiveJob, len(executions))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(jobsParallel)
	for i, execution := range executions {
		group.Go(func() error {
			described, err := o.describe(ctx, execution.GetExecution().GetWorkflowId(), execution.GetExecution().GetRunId())
			if err != nil || described.GetWorkflowExecutionInfo().GetStatus() != enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING {
				return err
			}
			looked[i], err = o.liveJob(ctx, described)
			return err
		})
	}
	return looked, group.Wait()
}

// JobPage is the address of a job in the Temporal UI, empty when Config.UIURL is.
func (o *Operator) JobPage(workflowID, runID string) string {
	return RunPage(o.uiURL, dlqstore.Key{Namespace: o.namespace, WorkflowID: workflowID, RunID: runID})
}

// RunPage is the address of a run in the Temporal UI at uiURL, such as
// http://localhost:8233; empty when that is.
func RunPage(uiURL string, key dlqstore.Key) string {
	if uiURL == "" {
		return ""
	}
	return fmt.Sprintf("%s/namespaces/%s/workflows/%s/%s/history", strings.TrimRight(uiURL, "/"),
		url.PathEscape(key.Namespace), url.PathEscape(key.WorkflowID), url.PathEscape(key.RunID))
}
