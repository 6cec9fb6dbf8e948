package deadletter

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	taskqueuepb "go.temporal.io/api/taskqueue/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/worker"
)

const (
	// pinnedInterval is how often a keeper looks for runs that are pinned to a worker
	// deployment version. While there are some it looks in each of its rounds.
	pinnedInterval = time.Minute
	// pinnedTime bounds one look.
	pinnedTime = time.Minute
	// pinnedBatch bounds how many runs one look takes.
	pinnedBatch = 100
)

// pinnedRuns are the plugin's own running workflows that stay on a version.
var pinnedRuns = "ExecutionStatus = 'Running' AND TemporalWorkflowVersioningBehavior = 'Pinned' AND WorkflowType IN ('" +
	strings.Join(slices.Sorted(maps.Keys(workflowsByType(""))), "', '") + "')"

// versioning looks after Worker Versioning for a keeper. Builds of the plugin before
// this one registered no versioning behavior, so that their runs are pinned where the
// team's default is Pinned. Such a run would stay on its version for ever, also when no
// worker of it is left. It is set to AutoUpgrade once its task queue has another version.
type versioning struct {
	client    client.Client
	namespace string
	logger    log.Logger
	taskQueue string
	// own is the version of the keeper's worker, the zero value if that is unversioned.
	own worker.WorkerDeploymentVersion
	// next is where the next look goes on in the list of pinned runs.
	next []byte
	// looked is when it last found no pinned run.
	looked time.Time
	// unrouted: it was said that the task queue has no current version.
	unrouted bool
}

// look does one round, if it is time for it.
func (v *versioning) look(ctx context.Context) error {
	if time.Since(v.looked) < pinnedInterval {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, pinnedTime)
	defer cancel()
	unrouted, err := v.checkOwn(ctx)
	if err != nil {
		return err
	}
	pinned, err := v.unpin(ctx)
	if err == nil && !pinned && !unrouted {
		v.looked = time.Now()
	}
	return err
}

// checkOwn reports, and logs once, that no task goes to the keeper's worker.
func (v *versioning) checkOwn(ctx context.Context) (unrouted bool, err error) {
	if v.own == (worker.WorkerDeploymentVersion{}) {
		return false, nil
	}
	routing, err := v.routing(ctx, v.taskQueue)
	if err != nil {
		return false, err
	}
	unrouted = routing.GetCurrentDeploymentVersion() == nil && routing.GetRampingDeploymentVersion() == nil
	if unrouted && !v.unrouted {
		v.logger.Warn("deadletter: the task queue has no current worker deployment version, so no versioned worker gets a task; "+
			"make one current with: temporal worker deployment set-current-version",
			"task_queue", v.taskQueue, "deployment_name", v.own.DeploymentName, "build_id", v.own.BuildID)
	}
	v.unrouted = unrouted
	return unrouted, nil
}

// unpin sets pinned runs to AutoUpgrade whose version is replaced, and reports whether
// there was any pinned run. It goes on where the last one stopped.
func (v *versioning) unpin(ctx context.Context) (found bool, err error) {
	page, err := v.client.ListWorkflow(ctx, &workflowservice.ListWorkflowExecutionsRequest{
		Namespace: v.namespace, Query: pinnedRuns, PageSize: pinnedBatch, NextPageToken: v.next,
	})
	v.next = page.GetNextPageToken()
	var unknown *serviceerror.InvalidArgument
	if errors.As(err, &unknown) {
		return false, nil // a server from before Worker Versioning has no such attributes
	}
	if err != nil {
		return false, err
	}
	routings := map[string]*taskqueuepb.TaskQueueVersioningInfo{}
	for _, run := range page.GetExecutions() {
		version, err := versionOf(run)
		if err != nil {
			return true, err
		}
		queue := run.GetTaskQueue()
		if _, known := routings[queue]; !known {
			if routings[queue], err = v.routing(ctx, queue); err != nil {
				return true, err
			}
		}
		if !routed(routings[queue], version) {
			if err := v.autoUpgrade(ctx, run.GetExecution()); err != nil {
				return true, err
			}
		}
	}
	return len(page.GetExecutions()) > 0, nil
}

// versionOf returns the version of a listed run, as deployment name, colon, build id.
func versionOf(run *workflowpb.WorkflowExecutionInfo) (version string, err error) {
	payload := run.GetSearchAttributes().GetIndexedFields()["TemporalWorkerDeploymentVersion"]
	err = converter.GetDefaultDataConverter().FromPayload(payload, &version)
	return version, err
}

// routing returns which versions get the tasks of a task queue.
func (v *versioning) routing(ctx context.Context, queue string) (*taskqueuepb.TaskQueueVersioningInfo, error) {
	description, err := v.client.WorkflowService().DescribeTaskQueue(ctx, &workflowservice.DescribeTaskQueueRequest{
		Namespace: v.namespace, TaskQueue: &taskqueuepb.TaskQueue{Name: queue}, TaskQueueType: enumspb.TASK_QUEUE_TYPE_WORKFLOW,
	})
	return description.GetVersioningInfo(), err
}

func routed(routing *taskqueuepb.TaskQueueVersioningInfo, version string) bool {
	current, ramping := routing.GetCurrentDeploymentVersion(), routing.GetRampingDeploymentVersion()
	return version == current.GetDeploymentName()+":"+current.GetBuildId() || version == ramping.GetDeploymentName()+":"+ramping.GetBuildId()
}

// autoUpgrade lets a run follow its task queue's current version, unless a person has
// pinned this very run.
func (v *versioning) autoUpgrade(ctx context.Context, run *commonpb.WorkflowExecution) error {
	description, err := v.client.DescribeWorkflow(ctx, run.GetWorkflowId(), run.GetRunId())
	if err == nil && description.RawResponse.GetWorkflowExecutionInfo().GetVersioningInfo().GetVersioningOverride() == nil {
		_, err = v.client.UpdateWorkflowExecutionOptions(ctx, client.UpdateWorkflowExecutionOptionsRequest{
			WorkflowId: run.GetWorkflowId(), RunId: run.GetRunId(),
			WorkflowExecutionOptionsChanges: client.WorkflowExecutionOptionsChanges{
				VersioningOverride: &client.VersioningOverrideChange{Value: &client.AutoUpgradeVersioningOverride{}},
			},
		})
	}
	var gone *serviceerror.NotFound
	if errors.As(err, &gone) {
		return nil // it has closed since it was listed
	}
	return err
}
