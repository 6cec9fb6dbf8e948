package main

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/worker"

	"github.com/deadletter-dev/deadletter"
	"github.com/deadletter-dev/deadletter/operator"
)

// TestShowWaiting proves that show tells of a job that snoozes, and of one that is
// not due yet, what verb jobs knows: the state, the next try, the age limit, and why
// it snoozes.
func TestShowWaiting(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	c := b.alone()
	jobs := worker.New(c, "jobs", worker.Options{})
	jobs.RegisterActivityWithOptions(func(context.Context) error { return deadletter.Snooze(time.Hour, "not \x1b[2Jyet") }, activity.RegisterOptions{Name: "Wait"})
	require.NoError(t, jobs.Start())
	t.Cleanup(jobs.Stop)
	for id, delay := range map[string]time.Duration{"snoozing": 0, "delayed": time.Hour} {
		_, err := deadletter.Enqueue(t.Context(), c, deadletter.Job{
			ID: id, Type: "Wait", TaskQueue: "jobs", Policy: deadletter.Policy{MaxAttempts: 4}, StartDelay: delay,
		})
		require.NoError(t, err)
	}
	type shown struct {
		Status string            `json:"status"`
		Live   *operator.LiveJob `json:"live"`
	}
	var snoozing, delayed shown
	require.Eventually(t, func() bool {
		snoozing = shown{}
		b.decode(&snoozing, "show", "snoozing", "-o", "json")
		return snoozing.Live != nil && snoozing.Live.State == "waiting"
	}, liveTimeout, 50*time.Millisecond)
	require.Equal(t, "queued", snoozing.Status)
	require.Equal(t, "snoozed: not \x1b[2Jyet", snoozing.Live.LastError)
	require.WithinDuration(t, time.Now().Add(time.Hour), *snoozing.Live.NextAttemptAt, 5*time.Minute)
	text := b.succeed("show", "snoozing")
	for _, line := range []string{
		`Status +queued`, `Job type +Wait`, `Attempt +1 of 4, waiting`, `Task queue +jobs`, `Next attempt +2\d{3}-`, `Too old at +2\d{3}-`,
		`Last failure +.*snoozed: not \x{FFFD}\[2Jyet`,
	} {
		require.Regexp(t, `(?m)^`+line, text)
	}
	b.decode(&delayed, "show", "delayed", "-o", "json")
	require.Equal(t, "unscheduled", delayed.Live.State)
	require.WithinDuration(t, time.Now().Add(time.Hour), *delayed.Live.NextAttemptAt, 5*time.Minute)
	require.Regexp(t, `(?m)^Attempt +1 of 4, unscheduled\nTask queue +jobs\nNext attempt +2\d{3}-.*\nToo old at +2\d{3}-`, b.succeed("show", "delayed"))
}
