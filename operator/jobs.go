package operator

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

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
)

// JobsRequest selects running jobs.
type JobsRequest struct {
	// Type is the job type, Queue the handler's task queue. Empty means any.
	Type  string
	Queue string
	// MinAttempt is the least attempt that the job is at or waits for. Zero means
	// jobs that have met an error: one that failed, snoozes, or was refused by a
	// circuit breaker, or whose workflow task fails. 1 means every job.
	MinAttempt int
	// Limit is the most jobs to return: 0 means 50, and MaxJobs is the maximum.
	Limit int
	// Scan is how many running jobs to look at one by one, those first that have been
	// due for the longest: 0 means DefaultJobsScan, and MaxJobsScan is the maximum.
	Scan int
	// Timeout is how long to look: what was found until then is the answer. 0 means as
	// long as it takes.
	Timeout time.Duration
	// Progress, if not nil, is told after each job that was looked at. It is never
	// called twice at once.
	Progress func(looked, of int)
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
	case r.Timeout < 0:
		return fmt.Errorf("operator: jobs: a timeout of %s: it must not be negative", r.Timeout)
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
	// Waiting says why nothing happens at the moment, nil while an attempt runs.
	Waiting *Waiting `json:"waiting"`
	// URL is the job's page in the Temporal UI, empty when Config.UIURL is.
	URL string `json:"url,omitempty"`
}

// JobsStop is what kept Jobs from looking at every running job. The set is closed.
type JobsStop string

// What stops Jobs; empty when it looked at all.
const (
	StoppedByScan      JobsStop = "scan"    // JobsRequest.Scan
	StoppedByTimeout   JobsStop = "timeout" // JobsRequest.Timeout
	StoppedByInterrupt JobsStop = "interrupt"
	StoppedByError     JobsStop = "error"
)

// JobQueue is a task queue on which jobs wait for a worker.
type JobQueue struct {
	QueueState
	// Waiting counts the jobs that do, of those that were looked at.
	Waiting int `json:"waiting"`
	// Unknown is why the rest is not known, empty when it is.
	Unknown string `json:"unknown,omitempty"`
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
	// Bounded says that not all were looked at: one that was not may be closer to its
	// death. StoppedBy says why.
	Bounded   bool     `json:"bounded"`
	StoppedBy JobsStop `json:"stopped_by"`
	// Queues are those on which jobs wait for a worker, whether they match or not, the
	// most waited for first.
	Queues []JobQueue `json:"queues"`
}

// Jobs lists running jobs that are close to becoming dead letters. Temporal does
// not index attempts, so each job is looked at by itself, within JobsRequest.Scan,
// those first that have been due for the longest. With an error, also that of ctx,
// it returns what it has found until then.
func (o *Operator) Jobs(ctx context.Context, request JobsRequest) (Jobs, error) {
	if err := request.check(); err != nil {
		return Jobs{}, err
	}
	scanning := ctx
	if request.Timeout > 0 {
		var cancel context.CancelFunc
		scanning, cancel = context.WithTimeout(ctx, request.Timeout)
		defer cancel()
	}
	found := Jobs{Jobs: []LiveJob{}}
	looked, err := o.scan(scanning, &request, &found)
	switch {
	case err == nil:
	case ctx.Err() != nil:
		found.StoppedBy, err = StoppedByInterrupt, ctx.Err()
	case scanning.Err() != nil:
		found.StoppedBy, err = StoppedByTimeout, nil
	default:
		found.StoppedBy = StoppedByError
	}
	found.Bounded = found.StoppedBy != ""
	found.Looked = len(looked)
	found.Queues = o.askQueues(ctx, looked)
	for _, live := range looked {
		if request.matches(live) {
			found.Jobs = append(found.Jobs, *live)
		}
	}
	found.Matched = len(found.Jobs)
	slices.SortFunc(found.Jobs, closerToDeath)
	found.Jobs = found.Jobs[:min(len(found.Jobs), request.Limit)]
	return found, err
}

func (r *JobsRequest) matches(live *LiveJob) bool {
	switch {
	case r.Type != "" && live.JobType != r.Type, r.Queue != "" && live.TaskQueue != r.Queue:
		return false
	case r.MinAttempt == 0 && live.Waiting.onFailingTask():
		return true
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
