package deadletter

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/google/uuid"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"github.com/deadletter-dev/deadletter/job"
)

// Job is one unit of work to enqueue.
type Job struct {
	// ID is the job id, which is the workflow id. A job with the same id that is
	// still running is returned instead of starting a second one. Empty means a
	// fresh UUIDv7.
	ID string
	// Type is the activity type of the handler, by default the name of its Go
	// function. Required.
	Type string
	// TaskQueue is where workers run the job and its handler. Required.
	TaskQueue string
	// Policy says how the job is retried. The zero value takes every default.
	Policy Policy
	// StartDelay is how long to wait before the job is due. Zero means at once. The
	// server makes delays below a second about a second long.
	StartDelay time.Duration
	// Priority orders the backlog. The zero value takes the server's defaults.
	Priority temporal.Priority
	// Tags are the operator's labels for finding a dead letter, kept in plain text.
	// At most 16 KiB in all.
	Tags map[string]string
	// Memo is attached to the workflow, as its own values.
	Memo map[string]any
	// SearchAttributes must be registered with the server.
	SearchAttributes temporal.SearchAttributes
	// IDReusePolicy says what happens to an ID whose job has closed. Unspecified
	// means the server's default: a new job is started.
	IDReusePolicy enumspb.WorkflowIdReusePolicy
	// Summary and Details tell a person in the Temporal UI what the job is. Empty
	// means words made of Type, Tags and Policy.
	Summary string
	Details string
}

// ErrInvalidJob is wrapped by the error of a job that Enqueue refuses.
var ErrInvalidJob = errors.New("invalid job")

// Enqueue starts a job whose handler gets args, at most MaxArguments of them. It
// returns when the server has accepted the job; the run's Get waits for the
// handler's result. Any Temporal client will do, with the plugin or without.
//
// An invalid job is refused with ErrInvalidJob and every fault in one error;
// nothing is started then. So are arguments above the server's size limit (2 MiB
// by default for all of them together).
//
// If the error is another one, the job may have been started all the same, as
// with any remote call: enqueue again under the same ID.
func Enqueue(ctx context.Context, c client.Client, j Job, args ...any) (client.WorkflowRun, error) {
	options := j.options()
	if err := j.validate(options, len(args)); err != nil {
		return nil, fmt.Errorf("deadletter: enqueue %q: %w:\n%w", j.Type, ErrInvalidJob, err)
	}
	id := j.ID
	if id == "" {
		fresh, err := uuid.NewV7()
		if err != nil {
			return nil, fmt.Errorf("deadletter: enqueue %q: make an id: %w", j.Type, err)
		}
		id = fresh.String()
	}
	run, err := c.ExecuteWorkflow(ctx, client.StartWorkflowOptions{
		ID:                    id,
		TaskQueue:             j.TaskQueue,
		WorkflowIDReusePolicy: j.IDReusePolicy,
		// An existing run is looked at before it is returned: it may be no job.
		WorkflowExecutionErrorWhenAlreadyStarted: true,
		StartDelay:                               j.StartDelay,
		Priority:                                 j.Priority,
		Memo:                                     j.Memo,
		TypedSearchAttributes:                    j.SearchAttributes,
		StaticSummary:                            j.summary(),
		StaticDetails:                            j.details(options),
	}, job.WorkflowType, append([]any{options}, args...)...)
	var exists *serviceerror.WorkflowExecutionAlreadyStarted
	var invalid *serviceerror.InvalidArgument
	switch {
	case err == nil:
		return run, nil
	case errors.As(err, &exists):
		if run, err = existing(ctx, c, id, exists.RunId); err == nil {
			return run, nil
		}
	case errors.As(err, &invalid):
		err = fmt.Errorf("%w: the server refuses it (if for its size: pass large data by reference): %w", ErrInvalidJob, err)
	}
	return nil, fmt.Errorf("deadletter: enqueue %q as %s: %w", j.Type, id, err)
}

// existing returns the run that has the id, if it is a job.
func existing(ctx context.Context, c client.Client, id, runID string) (client.WorkflowRun, error) {
	found, err := c.DescribeWorkflow(ctx, id, runID)
	if err != nil {
		return nil, fmt.Errorf("look at the workflow that has the id: %w", err)
	}
	if kind := found.WorkflowType.Name; kind != job.WorkflowType {
		return nil, fmt.Errorf("%w: id: a workflow of type %s has it", ErrInvalidJob, kind)
	}
	return c.GetWorkflow(ctx, id, runID), nil
}

// options is the job's first workflow argument, with its policy spelled out: a
// later change of a default never alters a job on its way.
func (j Job) options() job.Options {
	heartbeat := j.Policy.HeartbeatTimeout
	if heartbeat == 0 {
		heartbeat = job.DefaultEnqueueHeartbeatTimeout
	}
	policy := j.Policy.WithDefaults()
	policy.HeartbeatTimeout = heartbeat
	return job.Options{Type: j.Type, TaskQueue: j.TaskQueue, Policy: policy, Tags: j.Tags, StartDelay: &j.StartDelay}
}

func (j Job) validate(options job.Options, args int) error {
	var faults []error
	if err := options.Validate(); err != nil {
		faults = append(faults, err)
	}
	if j.TaskQueue == "" {
		faults = append(faults, errors.New("task_queue: missing; name the queue that the handler's workers poll"))
	}
	for _, r := range j.ID {
		if r < ' ' || r > '~' {
			faults = append(faults, fmt.Errorf("id: %q is not printable ASCII, which the Go SDK needs to route calls", j.ID))
			break
		}
	}
	if j.ID == job.OperatorWorkflowID {
		faults = append(faults, fmt.Errorf("id: %s is the operator workflow's", j.ID))
	}
	if w := float64(j.Priority.FairnessWeight); math.IsNaN(w) || math.IsInf(w, 0) {
		faults = append(faults, fmt.Errorf("priority: the fairness weight %v is no number", w))
	}
	if j.StartDelay < 0 {
		faults = append(faults, fmt.Errorf("start_delay: %s is negative", j.StartDelay))
	}
	if args > job.MaxArguments {
		faults = append(faults, fmt.Errorf("%d arguments; a handler gets at most %d: pass one object instead", args, job.MaxArguments))
	}
	return errors.Join(faults...)
}

// maxSummary is the server's limit, in bytes.
const maxSummary = 400

func (j Job) summary() string {
	if j.Summary != "" {
		return j.Summary
	}
	if len(j.Type) > maxSummary-len("Job ") {
		return "Job"
	}
	return "Job " + j.Type
}

func (j Job) details(options job.Options) string {
	if j.Details != "" {
		return j.Details
	}
	p := options.Policy
	attempts := fmt.Sprint(p.MaxAttempts)
	if p.MaxAttempts < 0 {
		attempts = "unlimited"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "Job **%s** on task queue **%s**.\n\n", j.Type, j.TaskQueue)
	fmt.Fprintf(&b, "At most %s attempts, the first retry after %s, within %s of its due time; then it is dead-lettered.\n",
		attempts, bound(p.BaseDelay), bound(p.MaxJobAge))
	return b.String()
}

func bound(d time.Duration) string {
	if d < 0 {
		return "no limit"
	}
	return d.String()
}
