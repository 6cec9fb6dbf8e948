package testsuite_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"

	"github.com/deadletter-dev/deadletter"
	"github.com/deadletter-dev/deadletter/job"
)

// TestSweepSchedule proves that several dead-letter workers make one schedule,
// which sweeps by itself, that they make it again when somebody deletes it, that
// another interval changes it and spares a pause, and that "off" leaves it alone.
func TestSweepSchedule(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	startEvery := func(interval time.Duration) (stop func()) {
		plugin, err := deadletter.NewPlugin(deadletter.Options{Store: w.openStore(), SweepInterval: interval, RetentionInterval: -1})
		require.NoError(t, err)
		return w.start(worker.New(w.dial(plugin), deadletter.DefaultTaskQueue, worker.Options{}))
	}
	handle := w.client.ScheduleClient().GetHandle(t.Context(), job.SweepScheduleID)
	every := func() time.Duration {
		description, err := handle.Describe(t.Context())
		if err != nil || len(description.Schedule.Spec.Intervals) != 1 {
			return 0
		}
		return description.Schedule.Spec.Intervals[0].Every
	}
	becomes := func(interval time.Duration) {
		require.Eventually(t, func() bool { return every() == interval }, patience, 20*time.Millisecond)
	}
	// The keeper starts the operator workflow first, so that has been settled too.
	startEvery(-1)
	w.waitOperator()
	require.Zero(t, every(), "it was made although it is off")

	stop1, stop2 := startEvery(time.Second), startEvery(time.Second)
	becomes(time.Second)
	run := w.enqueue(deadletter.Job{Type: "Any"})
	w.terminate(run, "")
	require.Eventually(t, func() bool { return w.count() == 1 }, patience, 20*time.Millisecond)
	w.dead(run)

	before, err := handle.Describe(t.Context())
	require.NoError(t, err)
	require.NoError(t, handle.Delete(t.Context()))
	var description *client.ScheduleDescription
	require.Eventually(t, func() bool {
		var err error
		description, err = handle.Describe(t.Context())
		return err == nil && description.Info.CreatedAt.After(before.Info.CreatedAt)
	}, patience, 20*time.Millisecond, "nobody made it again")
	becomes(time.Second)
	require.Equal(t, enumspb.SCHEDULE_OVERLAP_POLICY_SKIP, description.Schedule.Policy.Overlap)
	require.Equal(t, deadletter.DefaultTaskQueue, description.Schedule.Action.(*client.ScheduleWorkflowAction).TaskQueue)

	stop1()
	stop2()
	require.NoError(t, handle.Pause(t.Context(), client.SchedulePauseOptions{Note: "by a person"}))
	stop := startEvery(0)
	becomes(deadletter.DefaultSweepInterval)
	description, err = handle.Describe(t.Context())
	require.NoError(t, err)
	require.True(t, description.Schedule.State.Paused)
	stop()

	list, err := w.client.ScheduleClient().List(t.Context(), client.ScheduleListOptions{})
	require.NoError(t, err)
	schedules := 0
	for list.HasNext() {
		_, err := list.Next()
		require.NoError(t, err)
		schedules++
	}
	require.Equal(t, 1, schedules)

	_, err = deadletter.NewPlugin(deadletter.Options{SweepInterval: time.Millisecond})
	require.ErrorContains(t, err, "SweepInterval 1ms")
}
