package activities

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	schedulepb "go.temporal.io/api/schedule/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/activity"
)

// askSchedule asks the schedule that started the activity's workflow how long the
// workflow waits until its next round, so that it stays and the schedule need not start
// one for each. Zero means that this round is its last: the schedule is paused or gone,
// it is no plain interval, or another workflow stays. So it is for a workflow that the
// schedule did not start.
//
// The schedule alone holds the interval and the pause. A worker of an earlier build
// does not ask, so that its workflow has one round, and the schedule starts the next.
func askSchedule(ctx context.Context, service workflowservice.WorkflowServiceClient, info activity.Info, scheduleID string) (every time.Duration, err error) {
	workflowID := info.WorkflowExecution.ID
	if !strings.HasPrefix(workflowID, scheduleID+"-") {
		return 0, nil
	}
	described, err := service.DescribeSchedule(ctx, &workflowservice.DescribeScheduleRequest{Namespace: info.Namespace, ScheduleId: scheduleID})
	if gone := (*serviceerror.NotFound)(nil); errors.As(err, &gone) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("activities: describe schedule %s: %w", scheduleID, err)
	}
	schedule := described.GetSchedule()
	intervals := schedule.GetSpec().GetInterval()
	overlap := schedule.GetPolicies().GetOverlapPolicy()
	switch {
	case schedule.GetState().GetPaused() || len(intervals) != 1,
		// Under any other policy the schedule would start more beside this one.
		overlap != enumspb.SCHEDULE_OVERLAP_POLICY_SKIP && overlap != enumspb.SCHEDULE_OVERLAP_POLICY_UNSPECIFIED,
		!isRunning(described.GetInfo(), workflowID):
		return 0, nil
	}
	return intervals[0].GetInterval().AsDuration(), nil
}

// isRunning reports whether the schedule counts the workflow as the one that runs. It
// does not count one that a person started beside it.
func isRunning(info *schedulepb.ScheduleInfo, workflowID string) bool {
	return slices.ContainsFunc(info.GetRunningWorkflows(), func(running *commonpb.WorkflowExecution) bool {
		return running.GetWorkflowId() == workflowID
	})
}
