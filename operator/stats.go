package operator

import (
	"context"
	"fmt"
	"math"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/converter"
	"golang.org/x/sync/errgroup"

	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/job"
)

// Stats counts the jobs of a namespace. Closed jobs are counted as far back as
// the namespace retains them, dead letters since ever.
type Stats struct {
	// Total is the sum of the others.
	Total int64 `json:"total"`
	// Queued and Processing together are the running job workflows.
	Queued     int64 `json:"queued"`
	Processing int64 `json:"processing"`
	Done       int64 `json:"done"`
	// Cancelled are those that never had a dead letter.
	Cancelled int64 `json:"cancelled"`
	// DeadLetter is the count of the table, exact.
	DeadLetter int64 `json:"dead_letter"`
	// SplitEstimated says that the split into Queued and Processing is scaled up
	// from a sample: there are more running jobs than were looked at.
	SplitEstimated bool `json:"split_estimated,omitempty"`
	// Left counts the closed jobs whose dead letter the sweep could not write so far. It
	// is no part of Total. See Operator.Left.
	Left int64 `json:"left,omitempty"`
}

const (
	// splitSample is how many running jobs Stats looks at one by one.
	splitSample = 100
	// splitParallel is how many of them at once.
	splitParallel = 8
)

// Stats counts the jobs. Counts of live and closed jobs come from Temporal's
// visibility, which lags by moments.
func (o *Operator) Stats(ctx context.Context) (Stats, error) {
	var stats Stats
	counts, err := o.countByStatus(ctx)
	if err != nil {
		return stats, err
	}
	stats.Done = counts[enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED]
	if stats.Cancelled, err = o.cancelledAlive(ctx, counts[enumspb.WORKFLOW_EXECUTION_STATUS_CANCELED]); err != nil {
		return stats, err
	}
	if err := o.split(ctx, counts[enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING], &stats); err != nil {
		return stats, err
	}
	if stats.DeadLetter, err = o.store.CountDeadLetters(ctx, o.namespace); err != nil {
		return stats, err
	}
	if stats.Left, err = o.store.CountLeft(ctx, o.namespace); err != nil {
		return stats, err
	}
	stats.Total = stats.Queued + stats.Processing + stats.Done + stats.Cancelled + stats.DeadLetter
	return stats, nil
}

// Left returns the closed jobs whose dead letter the sweep could not write, 100 at most,
// with the reason. The sweep tries each again by itself.
func (o *Operator) Left(ctx context.Context) ([]dlqstore.LeftJob, error) {
	return o.store.LeftJobs(ctx, o.namespace, "")
}

const jobsQuery = "WorkflowType = '" + job.WorkflowType + "'"

func (o *Operator) countByStatus(ctx context.Context) (map[enumspb.WorkflowExecutionStatus]int64, error) {
	response, err := o.service.CountWorkflowExecutions(ctx, &workflowservice.CountWorkflowExecutionsRequest{
		Namespace: o.namespace,
		Query:     jobsQuery + " GROUP BY ExecutionStatus",
	})
	if err != nil {
		return nil, fmt.Errorf("operator: count jobs: %w", err)
	}
	counts := map[enumspb.WorkflowExecutionStatus]int64{}
	for _, group := range response.GetGroups() {
		var name string
		if err := converter.GetDefaultDataConverter().FromPayload(group.GetGroupValues()[0], &name); err != nil {
			return nil, fmt.Errorf("operator: count jobs: %w", err)
		}
		status, err := enumspb.WorkflowExecutionStatusFromString(name)
		if err != nil {
			return nil, fmt.Errorf("operator: count jobs: %w", err)
		}
		counts[status] = group.GetCount()
	}
	return counts, nil
}

// cancelledAlive takes those that had a dead letter, which may have been removed since,
// off the cancelled jobs that Temporal still retains.
func (o *Operator) cancelledAlive(ctx context.Context, cancelled int64) (int64, error) {
	if cancelled == 0 {
		return 0, nil
	}
	namespace, err := o.service.DescribeNamespace(ctx, &workflowservice.DescribeNamespaceRequest{Namespace: o.namespace})
	if err != nil {
		return 0, fmt.Errorf("operator: describe namespace %s: %w", o.namespace, err)
	}
	since := time.Now().Add(-namespace.GetConfig().GetWorkflowExecutionRetentionTtl().AsDuration())
	moved, err := o.store.CountCancelledMoves(ctx, o.namespace, since)
	return max(cancelled-moved, 0), err
}

// split looks at running jobs one by one, up to splitSample of them.
func (o *Operator) split(ctx context.Context, running int64, stats *Stats) error {
	if running == 0 {
		return nil
	}
	page, err := o.service.ListWorkflowExecutions(ctx, &workflowservice.ListWorkflowExecutionsRequest{
		Namespace: o.namespace,
		PageSize:  splitSample,
		Query:     jobsQuery + " AND ExecutionStatus = 'Running'",
	})
	if err != nil {
		return fmt.Errorf("operator: list running jobs: %w", err)
	}
	processing := make([]bool, len(page.GetExecutions()))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(splitParallel)
	for i, info := range page.GetExecutions() {
		group.Go(func() error {
			var err error
			processing[i], err = o.isProcessing(ctx, info.GetExecution())
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	var seen int64
	for _, is := range processing {
		if is {
			seen++
		}
	}
	stats.Processing = seen
	if looked := int64(len(processing)); looked > 0 && running > looked {
		stats.SplitEstimated = true
		stats.Processing = int64(math.Round(float64(seen) * float64(running) / float64(looked)))
	}
	stats.Processing = min(stats.Processing, running)
	stats.Queued = running - stats.Processing
	return nil
}

func (o *Operator) isProcessing(ctx context.Context, execution *commonpb.WorkflowExecution) (bool, error) {
	live, err := o.describe(ctx, execution.GetWorkflowId(), execution.GetRunId())
	if err != nil || live == nil {
		return false, err
	}
	status, _ := statusOf(live)
	return status != nil && *status == job.StatusProcessing, nil
}
