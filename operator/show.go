package operator

import (
	"context"
	"errors"
	"fmt"
	"unicode/utf8"

	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"

	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/internal/resourceid"
	"github.com/deadletter-dev/deadletter/job"
)

// Shown is all there is to know of one job: exactly one of Status and
// DeadLetter is set, with two exceptions, see ClosedAs and Removed.
type Shown struct {
	dlqstore.Key
	// Status is set for a job that is live, or that ended without a dead letter.
	Status *job.Status
	// DeadLetter is set for a dead job, with all that belongs to it.
	DeadLetter *dlqstore.DeadLetter
	Attempts   []dlqstore.Attempt
	Replays    []dlqstore.Replay
	Events     []dlqstore.Event
	Revisions  []dlqstore.Revision // its edits
	Notes      []dlqstore.Note     // on it and on its fingerprint
	Lineage    dlqstore.Lineage
	// Causes are the levels of its failure, the outermost first; none when it was
	// not kept.
	Causes []FailureCause
	// Heartbeat is nil when the handler told nothing.
	Heartbeat *Heartbeat
	// DeadRuns are the other runs of the same workflow id that are dead letters.
	DeadRuns []string
	// ClosedAs is how Temporal says the workflow closed, "Terminated" say, when
	// there is neither a status for it nor a dead letter: it was ended from
	// outside, or its dead letter has been removed.
	ClosedAs string
	// Removed is set when the job had a dead letter that was removed for good. When
	// Temporal does not know the job either, it is all there is beside the Key.
	Removed *Removal
	// Left is set when the job closed, should have a dead letter, and the sweep could not
	// write it so far.
	Left *dlqstore.LeftJob
	// Trouble says why a running job makes no progress at all, empty for none.
	Trouble string
	// Live tells of a running job where it stands, as Jobs does, also between two
	// executions of its handler; nil for any other, and when the handler succeeded.
	Live *LiveJob
	// Pending is the attempt that a running job is at or waits for; nil when the
	// job has none: it is not yet due, not yet picked up, snoozing or closed. See
	// Live for those.
	Pending *PendingAttempt
}

// Show tells of one job, live or dead. An empty runID means the current run: the
// one that Temporal knows as the latest, else the only dead letter.
// dlqstore.ErrNotFound means that neither Temporal nor the store knows it, nor of a
// dead letter that was removed.
//
// The answer is never both live and dead, nor neither while the job dies: a dead
// letter is committed before its job closes, and Temporal is asked first.
func (o *Operator) Show(ctx context.Context, workflowID, runID string) (*Shown, error) {
	live, err := o.describe(ctx, workflowID, runID)
	if err != nil {
		return nil, err
	}
	key := dlqstore.Key{Namespace: o.namespace, WorkflowID: workflowID, RunID: runID}
	if live != nil {
		key.RunID = live.GetWorkflowExecutionInfo().GetExecution().GetRunId()
	} else if resolved, err := o.store.Resolve(ctx, o.namespace, workflowID, runID); err != nil {
		return orRemoved(ctx, o.store, key, err)
	} else {
		key = resolved
	}
	shown := &Shown{Key: key}
	shown.DeadLetter, err = o.store.Get(ctx, key)
	switch {
	case err == nil:
		err = o.readDead(ctx, shown)
	case errors.Is(err, dlqstore.ErrNotFound) && live != nil:
		err = o.readLive(ctx, shown, live)
	}
	if err != nil {
		return nil, err
	}
	shown.DeadRuns, err = o.otherDeadRuns(ctx, key)
	return shown, err
}

// ShowStored tells of a dead letter from Postgres alone, for when Temporal cannot
// be reached. An empty runID means the only dead letter of the workflow id;
// several are dlqstore.ErrAmbiguous. Whether a newer run of the id is live it
// cannot tell.
func ShowStored(ctx context.Context, store *dlqstore.Store, namespace, workflowID, runID string) (*Shown, error) {
	key, err := store.Resolve(ctx, namespace, workflowID, runID)
	if err != nil {
		return orRemoved(ctx, store, dlqstore.Key{Namespace: namespace, WorkflowID: workflowID, RunID: runID}, err)
	}
	o := Operator{store: store, namespace: namespace}
	shown := &Shown{Key: key}
	if shown.DeadLetter, err = store.Get(ctx, key); err != nil {
		return nil, err
	}
	if err := o.readDead(ctx, shown); err != nil {
		return nil, err
	}
	shown.DeadRuns, err = o.otherDeadRuns(ctx, key)
	return shown, err
}

// readLive reads what there is of a job without a dead letter.
func (o *Operator) readLive(ctx context.Context, shown *Shown, described *workflowservice.DescribeWorkflowExecutionResponse) (err error) {
	shown.Status, shown.ClosedAs = statusOf(described)
	shown.Pending = pendingOf(described)
	info := described.GetWorkflowExecutionInfo()
	if info.GetStatus() == enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING {
		if info.GetType().GetName() == job.WorkflowType {
			shown.Trouble = troubleOf(described)
			shown.Live, err = o.liveJob(ctx, described)
		}
		if shown.Live != nil {
			o.askQueues(ctx, []*LiveJob{shown.Live})
		}
		return err
	}
	if shown.Removed, err = o.lastRemoval(ctx, shown.Key); err != nil {
		return err
	}
	left, err := o.store.LeftJobs(ctx, o.namespace, shown.RunID)
	if len(left) > 0 {
		shown.Left = &left[0]
	}
	return err
}

// troubleOf tells of a job that its own worker cannot name. The plugin's client can, so
// that the worker's must be another; a job that starts has had its first task by then.
func troubleOf(described *workflowservice.DescribeWorkflowExecutionResponse) string {
	task := described.GetPendingWorkflowTask()
	if resourceid.Printable(described.GetWorkflowExecutionInfo().GetExecution().GetWorkflowId()) || task.GetAttempt() < 2 {
		return ""
	}
	return fmt.Sprintf("its workflow task has failed %d times, and its workflow id is not printable ASCII: "+
		"its worker's client must be made with the plugin in client.Options.Plugins", task.GetAttempt()-1)
}

// describe returns nil for a workflow that Temporal does not know.
func (o *Operator) describe(ctx context.Context, workflowID, runID string) (*workflowservice.DescribeWorkflowExecutionResponse, error) {
	if !utf8.ValidString(workflowID) {
		return nil, nil //nolint:nilnil // as below: no workflow has such an id
	}
	description, err := o.service.DescribeWorkflowExecution(ctx, &workflowservice.DescribeWorkflowExecutionRequest{
		Namespace: o.namespace, Execution: &commonpb.WorkflowExecution{WorkflowId: workflowID, RunId: runID},
	})
	var notFound *serviceerror.NotFound
	var invalid *serviceerror.InvalidArgument
	var unsent *serviceerror.Internal
	switch {
	case errors.As(err, &notFound), errors.As(err, &invalid):
		return nil, nil //nolint:nilnil // absence is an answer here
	case errors.As(err, &unsent) && !resourceid.Printable(workflowID):
		return nil, fmt.Errorf("operator: describe workflow %s: its id is not printable ASCII, and Operator's client was made without the plugin: "+
			"give client.Options.Plugins one of deadletter.NewPlugin: %w", workflowID, err)
	case err != nil:
		return nil, fmt.Errorf("operator: describe workflow %s: %w", workflowID, err)
	}
	return description, nil
}

// otherDeadRuns lists the first runs of the same id beside the one shown.
func (o *Operator) otherDeadRuns(ctx context.Context, key dlqstore.Key) ([]string, error) {
	rows, _, err := o.store.List(ctx, dlqstore.Filter{Namespace: key.Namespace, WorkflowID: key.WorkflowID}, dlqstore.Page{})
	var runs []string
	for i := range rows {
		if rows[i].RunID != key.RunID {
			runs = append(runs, rows[i].RunID)
		}
	}
	return runs, err
}

// statusOf returns the status of a job without a dead letter, or how it closed
// where no status says that.
func statusOf(live *workflowservice.DescribeWorkflowExecutionResponse) (*job.Status, string) {
	status := job.StatusQueued
	switch closed := live.GetWorkflowExecutionInfo().GetStatus(); closed {
	case enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED:
		status = job.StatusDone
	case enumspb.WORKFLOW_EXECUTION_STATUS_CANCELED:
		status = job.StatusCancelled
	case enumspb.WORKFLOW_EXECUTION_STATUS_FAILED, enumspb.WORKFLOW_EXECUTION_STATUS_TERMINATED, enumspb.WORKFLOW_EXECUTION_STATUS_TIMED_OUT:
		return nil, closed.String()
	default: // running, or about to go on in another run
		for _, pending := range live.GetPendingActivities() {
			if pending.GetState() != enumspb.PENDING_ACTIVITY_STATE_SCHEDULED || pending.GetActivityType().GetName() == job.MoveActivityType {
				status = job.StatusProcessing
			}
		}
	}
	return &status, ""
}
