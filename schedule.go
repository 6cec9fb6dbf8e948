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

const (
	// DefaultSweepInterval is how often the sweep runs.
	DefaultSweepInterval = time.Minute
	// DefaultRetentionInterval is how often retention policies are applied.
	DefaultRetentionInterval = time.Hour
)

// scheduleCatchup is the server's least: a run that was missed is not made up for,
// since the next one does everything that the missed one would have.
const scheduleCatchup = 10 * time.Second

// schedule is one that a keeper looks after.
type schedule struct {
	id, workflowType string
	every            time.Duration // negative for off
	taskQueue        string
	note, summary    string
	// set: it has been seen with these settings.
	set bool
}

func (p *Plugin) schedules() []*schedule {
	return []*schedule{
		{
			id: job.SweepScheduleID, workflowType: job.SweepWorkflowType, every: p.options.SweepInterval, taskQueue: p.options.TaskQueue,
			note:    "Writes the dead letters of jobs that were terminated or timed out from outside",
			summary: "Looks for jobs that closed without a dead letter",
		},
		{
			id: job.RetentionScheduleID, workflowType: job.RetentionWorkflowType, every: p.options.RetentionInterval, taskQueue: p.options.TaskQueue,
			note:    "Removes the dead letters that the retention policies let go",
			summary: "Applies the retention policies",
		},
	}
}

// ensure makes the schedule if it is missing. Its interval and queue are set right
// once per keeper, not in each round: two workers with different settings would
// change it back and forth. A pause is respected.
func (s *schedule) ensure(ctx context.Context, c client.Client) error {
	if s.every < 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, keeperInterval)
	defer cancel()
	handle := c.ScheduleClient().GetHandle(ctx, s.id)
	description, err := handle.Describe(ctx)
	var missing *serviceerror.NotFound
	switch {
	case errors.As(err, &missing):
		if err := s.create(ctx, c); err != nil && !errors.Is(err, temporal.ErrScheduleAlreadyRunning) {
			return err
		}
		// Of several that create it at once one has won; the next round compares.
		return nil
	case err != nil:
		return err
	case s.set:
		return nil
	case !s.is(description.Schedule):
		err := handle.Update(ctx, client.ScheduleUpdateOptions{DoUpdate: func(in client.ScheduleUpdateInput) (*client.ScheduleUpdate, error) {
			schedule := in.Description.Schedule
			schedule.Spec, schedule.Action = s.spec(), s.action()
			return &client.ScheduleUpdate{Schedule: &schedule}, nil
		}})
		if err != nil {
			return err
		}
	}
	s.set = true
	return nil
}

func (s *schedule) create(ctx context.Context, c client.Client) error {
	_, err := c.ScheduleClient().Create(ctx, client.ScheduleOptions{
		ID:                 s.id,
		Spec:               *s.spec(),
		Action:             s.action(),
		Overlap:            enumspb.SCHEDULE_OVERLAP_POLICY_SKIP,
		CatchupWindow:      scheduleCatchup,
		TriggerImmediately: true,
		Note:               s.note,
	})
	return err
}

func (s *schedule) spec() *client.ScheduleSpec {
	return &client.ScheduleSpec{Intervals: []client.ScheduleIntervalSpec{{Every: s.every}}}
}

func (s *schedule) action() *client.ScheduleWorkflowAction {
	return &client.ScheduleWorkflowAction{ID: s.id, Workflow: s.workflowType, TaskQueue: s.taskQueue, StaticSummary: s.summary}
}

// is reports whether the server's schedule is as this one would be made.
func (s *schedule) is(found client.Schedule) bool {
	action, ok := found.Action.(*client.ScheduleWorkflowAction)
	return ok && action.Workflow == s.workflowType && action.TaskQueue == s.taskQueue &&
		found.Spec != nil && len(found.Spec.Intervals) == 1 && found.Spec.Intervals[0].Every == s.every &&
		len(found.Spec.Calendars) == 0
}
