package deadletter

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"

	"github.com/deadletter-dev/deadletter/internal/resourceid"
	"github.com/deadletter-dev/deadletter/job"
)

// Job is one unit of work to enqueue.
type Job struct {
	// ID is the job id, which is the workflow id. A job with the same id that is
	// still running is returned instead of starting a second one. Empty means the
	// type and a fresh UUIDv7: SendEmail-0196f0c3-…. It is UTF-8 without control
	// characters; one that is not ASCII needs a client that has the plugin.
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
	// means the server's default: a new job is started. A policy that lets none start
	// makes Enqueue return a NotStartedError.
	IDReusePolicy enumspb.WorkflowIdReusePolicy
	// Summary and Details tell a person in the Temporal UI what the job is. Empty
	// means words made of Type, Tags and Policy.
	Summary string
	Details string
}

// ErrInvalidJob is wrapped by the error of a job that Enqueue refuses.
var ErrInvalidJob = errors.New("invalid job")

// NotStartedError is the error of Enqueue when the job's IDReusePolicy lets no job start,
// because one with the same ID has closed: it may have run to its end long ago.
type NotStartedError struct {
	ID string
	// RunID and Status are those of the job that has closed.
	RunID  string
	Status enumspb.WorkflowExecutionStatus
}

// Error names the job that has closed.
func (e *NotStartedError) Error() string {
	return fmt.Sprintf("no job was started: the id reuse policy allows none after job %s, run %s, which is %s", e.ID, e.RunID, strings.ToLower(e.Status.String()))
}

// Enqueue starts a job whose handler gets args, at most MaxArguments of them. It
// returns when the server has accepted the job; the run's Get waits for the
// handler's result. Any Temporal client will do, with the plugin or without.
//
// An invalid job is refused with ErrInvalidJob and every fault in one error;
// nothing is started then. So are arguments above the server's size limit (2 MiB
// by default for all of them together).
//
// If a job of the same ID has closed and IDReusePolicy lets no other start, the error
// is a *NotStartedError.
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
		id = idPrefix(j.Type) + fresh.String()
	}
	first, err := wireOptions(options)
	if err != nil {
		return nil, fmt.Errorf("deadletter: enqueue %q: encode its options: %w", j.Type, err)
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
	}, job.WorkflowType, append([]any{first}, args...)...)
	var exists *serviceerror.WorkflowExecutionAlreadyStarted
	var invalid *serviceerror.InvalidArgument
	var internal *serviceerror.Internal // gRPC refuses a header
	switch {
	case err == nil:
		return run, nil
	case errors.As(err, &exists):
		if run, err = existing(ctx, c, j.IDReusePolicy, id, exists.RunId); err == nil {
			return run, nil
		}
	case errors.As(err, &internal) && !resourceid.Printable(id):
		err = fmt.Errorf("the id is not printable ASCII, which needs a client with the plugin in client.Options.Plugins: %w", err)
	case errors.As(err, &invalid):
		err = fmt.Errorf("%w: the server refuses it (if for its size: pass large data by reference): %w", ErrInvalidJob, err)
	}
	return nil, fmt.Errorf("deadletter: enqueue %q as %s: %w", j.Type, id, err)
}

// maxIDPrefix keeps the type in a default id short.
const maxIDPrefix = 64

// idPrefix is a type's part of a default id, with the hyphen behind it: its ASCII letters,
// digits, dots and underscores. Other characters are hyphens, so that clients without the
// plugin can name the job; a type with nothing else has no part.
func idPrefix(jobType string) string {
	var b strings.Builder
	for _, r := range jobType {
		switch {
		case b.Len() == maxIDPrefix:
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '.', r == '_':
			b.WriteRune(r)
		case b.Len() > 0 && !strings.HasSuffix(b.String(), "-"):
			b.WriteByte('-')
		}
	}
	prefix := strings.TrimSuffix(b.String(), "-")
	if prefix == "" {
		return ""
	}
	return prefix + "-"
}

// wireOptions is the options object as it travels: as JSON, whatever converter the client
// has. A codec of the client's still applies.
func wireOptions(options job.Options) (converter.RawValue, error) {
	payload, err := converter.NewJSONPayloadConverter().ToPayload(options)
	return converter.NewRawValue(payload), err
}

// existing returns the run that has the id, if it is a job, and not one that has closed
// under a policy that lets no other start.
func existing(ctx context.Context, c client.Client, reuse enumspb.WorkflowIdReusePolicy, id, runID string) (client.WorkflowRun, error) {
	found, err := c.DescribeWorkflow(ctx, id, runID)
	if err != nil {
		return nil, fmt.Errorf("look at the workflow that has the id: %w", err)
	}
	if kind := found.WorkflowType.Name; kind != job.WorkflowType {
		return nil, fmt.Errorf("%w: id: a workflow of type %s has it", ErrInvalidJob, kind)
	}
	// Under the other policies it was running when the server answered.
	once := reuse == enumspb.WORKFLOW_ID_REUSE_POLICY_REJECT_DUPLICATE || reuse == enumspb.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE_FAILED_ONLY
	if once && found.Status != enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING {
		return nil, &NotStartedError{ID: id, RunID: runID, Status: found.Status}
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
	if !utf8.ValidString(j.ID) || strings.ContainsFunc(j.ID, unicode.IsControl) {
		faults = append(faults, fmt.Errorf("id: %q has control characters, or is not UTF-8", j.ID))
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
