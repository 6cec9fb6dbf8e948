package operator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"

	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/internal/closed"
	"github.com/deadletter-dev/deadletter/job"
)

const (
	// reconcilePage is how many closed jobs one question to Temporal and one to
	// Postgres are about.
	reconcilePage = 200
	// maxMissing bounds the jobs that a Reconciliation names; it counts all of them.
	maxMissing = 100
)

// Reconciliation compares the jobs that Temporal has as closed with what the database
// knows of them.
type Reconciliation struct {
	Since time.Time `json:"since"`
	// Compared counts the jobs that closed since then in a way that may leave a dead
	// letter.
	Compared int64 `json:"compared"`
	// Known counts those of them that the database knows: their dead letters are there,
	// or were purged or pruned.
	Known int64 `json:"known"`
	// NotDead counts those that need no dead letter, such as a discarded cancellation or
	// a job that lives on after a reset.
	NotDead int64 `json:"not_dead"`
	// MissingCount counts those that should have a dead letter and have none. Missing
	// names the first 100 of them.
	MissingCount int64        `json:"missing_count"`
	Missing      []MissingJob `json:"missing,omitempty"`
	// Left are the jobs whose dead letters the sweep could not write, 100 at most.
	Left []dlqstore.LeftJob `json:"left,omitempty"`
}

// MissingJob is a closed job whose dead letter is missing.
type MissingJob struct {
	dlqstore.Key
	Reason   job.Reason `json:"reason"`
	ClosedAt time.Time  `json:"closed_at"`
}

// Reconcile compares Temporal with the database and changes nothing. A job that closed
// moments ago may count as missing until the sweep has seen it.
func (o *Operator) Reconcile(ctx context.Context, since time.Time) (Reconciliation, error) {
	found := Reconciliation{Since: since.UTC()}
	request := &workflowservice.ListWorkflowExecutionsRequest{
		Namespace: o.namespace, PageSize: reconcilePage,
		Query: fmt.Sprintf("%s AND %s AND CloseTime >= '%s'", jobsQuery, closed.Statuses, since.UTC().Format(time.RFC3339Nano)),
	}
	for {
		page, err := o.service.ListWorkflowExecutions(ctx, request)
		if err != nil {
			return found, fmt.Errorf("operator: reconcile: list closed jobs: %w", err)
		}
		if err := o.comparePage(ctx, page, &found); err != nil {
			return found, err
		}
		if request.NextPageToken = page.GetNextPageToken(); len(request.NextPageToken) == 0 {
			break
		}
	}
	var err error
	found.Left, err = o.Left(ctx)
	return found, err
}

func (o *Operator) comparePage(ctx context.Context, page *workflowservice.ListWorkflowExecutionsResponse, found *Reconciliation) error {
	keys := make([]dlqstore.Key, len(page.GetExecutions()))
	closedAt := make(map[dlqstore.Key]time.Time, len(keys))
	for i, listed := range page.GetExecutions() {
		keys[i] = dlqstore.Key{Namespace: o.namespace, WorkflowID: listed.GetExecution().GetWorkflowId(), RunID: listed.GetExecution().GetRunId()}
		closedAt[keys[i]] = listed.GetCloseTime().AsTime()
	}
	unmoved, err := o.store.Unmoved(ctx, keys)
	if err != nil {
		return err
	}
	found.Compared += int64(len(keys))
	found.Known += int64(len(keys) - len(unmoved))
	for _, key := range unmoved {
		verdict, err := closed.Judge(ctx, closed.Run{Service: o.service, Namespace: o.namespace, Execution: &commonpb.WorkflowExecution{WorkflowId: key.WorkflowID, RunId: key.RunID}})
		var gone *serviceerror.NotFound
		switch {
		case errors.As(err, &gone), err == nil && !verdict.Dead:
			found.NotDead++ // or its retention has ended since it was listed
		case err != nil:
			return fmt.Errorf("operator: reconcile: %w", err)
		default:
			found.MissingCount++
			if len(found.Missing) < maxMissing {
				found.Missing = append(found.Missing, MissingJob{key, verdict.Reason, closedAt[key]})
			}
		}
	}
	return nil
}

// WriteMissing has the dead-letter workers write the dead letters that are missing of
// jobs that closed since then, and waits for it: a sweep that looks back as far. It does
// all that any sweep does, MoveTx included, and may be repeated. Result Moved counts what
// it wrote, Left what it could not; LastError says why.
func (o *Operator) WriteMissing(ctx context.Context, since time.Time) (job.SweepState, error) {
	var state job.SweepState
	since = since.UTC()
	run, err := o.client.ExecuteWorkflow(ctx, client.StartWorkflowOptions{
		ID: "deadletter-reconcile-" + uuid.NewString(), TaskQueue: o.taskQueue, StaticSummary: "Writes the dead letters that the database lacks",
	}, job.SweepWorkflowType, job.SweepState{From: &since})
	if err == nil {
		err = run.Get(ctx, &state)
	}
	if err != nil {
		return state, fmt.Errorf("operator: reconcile: %w", err)
	}
	return state, nil
}
