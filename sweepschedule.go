package deadletter

import (
	"context"
	"errors"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"github.com/deadletter-dev/deadletter/job"
)

// DefaultSweepInterval is how often the sweep runs.
const DefaultSweepInterval = time.Minute

// sweepCatchup is the server's least: a sweep that was missed is not made up for,
// since the next one looks at everything that the missed one would have.
const sweepCatchup = 10 * time.Second

// ensureSweep makes the schedule of the sweep if it is missing. Its interval and
// queue are set right once per keeper, not in each round: two workers with
// different settings would change it back and forth. A pause is respected.
func (k *keeper) ensureSweep(c client.Client) error {
	interval := k.plugin.options.SweepInterval
	if interval < 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(k.ctx, keeperInterval)
	defer cancel()
	handle := c.ScheduleClient().GetHandle(ctx, job.SweepScheduleID)
	description, err := handle.Describe(ctx)
	var missing *serviceerror.NotFound
	switch {
	case errors.As(err, &missing):
		if err := k.createSweep(ctx, c); err != nil && !errors.Is(err, temporal.ErrScheduleAlreadyRunning) {
			return err
		}
		// Of several that create it at once one has won; the next round compares.
		return nil
	case err != nil:
		return err
	case k.sweepSet:
		return nil
	case !k.isSweep(description.Schedule):
		err := handle.Update(ctx, client.ScheduleUpdateOptions{DoUpdate: func(in client.ScheduleUpdateInput) (*client.ScheduleUpdate, error) {
			schedule := in.Description.Schedule
			schedule.Spec, schedule.Action = k.sweepSpec(), k.sweepAction()
			return &client.ScheduleUpdate{Schedule: &schedule}, nil
		}})
		if err != nil {
			return err
		}
	}
	k.sweepSet = true
	return nil
}

func (k *keeper) createSweep(ctx context.Context, c client.Client) error {
	_, err := c.ScheduleClient().Create(ctx, client.ScheduleOptions{
		ID:                 job.SweepScheduleID,
		Spec:               *k.sweepSpec(),
		Action:             k.sweepAction(),
		Overlap:            enumspb.SCHEDULE_OVERLAP_POLICY_SKIP,
		CatchupWindow:      sweepCatchup,
		TriggerImmediately: true,
		Note:               "Writes the dead letters of jobs that were terminated or timed out from outside",
	})
	return err
}

func (k *keeper) sweepSpec() *client.ScheduleSpec {
	return &client.ScheduleSpec{Intervals: []client.ScheduleIntervalSpec{{Every: k.plugin.options.SweepInterval}}}
}

func (k *keeper) sweepAction() *client.ScheduleWorkflowAction {
	return &client.ScheduleWorkflowAction{
		ID:            job.SweepScheduleID,
		Workflow:      job.SweepWorkflowType,
		TaskQueue:     k.plugin.options.TaskQueue,
		StaticSummary: "Looks for jobs that closed without a dead letter",
	}
}

// isSweep reports whether the schedule is as this plugin would make it.
func (k *keeper) isSweep(schedule client.Schedule) bool {
	action, ok := schedule.Action.(*client.ScheduleWorkflowAction)
	return ok && action.Workflow == job.SweepWorkflowType && action.TaskQueue == k.plugin.options.TaskQueue &&
		schedule.Spec != nil && len(schedule.Spec.Intervals) == 1 && schedule.Spec.Intervals[0].Every == k.plugin.options.SweepInterval &&
		len(schedule.Spec.Calendars) == 0
}
