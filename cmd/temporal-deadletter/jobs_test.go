package main

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"

	"github.com/deadletter-dev/deadletter"
	"github.com/deadletter-dev/deadletter/internal/devstack/devtest"
)

// liveTimeout bounds the wait for what a worker does, its start included.
const liveTimeout = 2 * time.Minute

// alone gives the bench a namespace of its own.
func (b *bench) alone() client.Client {
	b.t.Helper()
	var namespace string
	b.address, namespace = devtest.Namespace(b.t)
	b.environ = append(slices.Clone(b.environ), "TEMPORAL_ADDRESS="+b.address, "TEMPORAL_NAMESPACE="+namespace)
	plugin, err := deadletter.NewPlugin(deadletter.Options{Store: b.store, SweepInterval: -1, RetentionInterval: -1})
	require.NoError(b.t, err)
	c := devtest.Dial(b.t, client.Options{HostPort: b.address, Namespace: namespace, Logger: silent, Plugins: []client.Plugin{plugin}})
	return c
}

// TestJobs goes through the verbs on live jobs as an operator does: the list, a
// retry now, a refusal, a cancellation that asks.
func TestJobs(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	c := b.alone()
	require.Equal(t, "None of the running jobs matches; 0 were looked at.\n", b.succeed("jobs"))
	jobs := worker.New(c, "jobs", worker.Options{})
	jobs.RegisterActivityWithOptions(func(context.Context) error { return errors.New("the bank says \x1b[31mno") }, activity.RegisterOptions{Name: "Charge"})
	dlq := worker.New(c, deadletter.DefaultTaskQueue, worker.Options{})
	for _, each := range []worker.Worker{jobs, dlq} {
		require.NoError(t, each.Start())
		t.Cleanup(each.Stop)
	}
	// The list has the one first that is too old first: two of one age are as far apart
	// as their starts, by the server's clock.
	for id, age := range map[string]time.Duration{"charge-1": 24 * time.Hour, "charge-2": 48 * time.Hour} {
		_, err := deadletter.Enqueue(t.Context(), c, deadletter.Job{
			ID: id, Type: "Charge", TaskQueue: "jobs", Policy: deadletter.Policy{MaxAttempts: 3, BaseDelay: time.Hour, MaxJobAge: age},
		})
		require.NoError(t, err)
	}
	lists := func(pattern string, args ...string) {
		t.Helper()
		var out string
		require.Eventually(t, func() bool {
			out = b.succeed(append([]string{"jobs"}, args...)...)
			return strings.Count(out, "2 of 3") == strings.Count(pattern, "2 of 3")
		}, liveTimeout, 50*time.Millisecond)
		require.Regexp(t, pattern, out)
	}
	lists(`^WORKFLOW ID +TYPE +ATTEMPT +STATE +NEXT TRY +TOO OLD AT +LAST ERROR\ncharge-1 +Charge +2 of 3 +retry +20\S+ \S+Z +20\S+ \S+Z +the bank says \x{FFFD}\[31mno\ncharge-2 +Charge +2 of 3 `)
	lists(`LAST ERROR\ncharge-1 .*2 of 3.*the bank says \x{FFFD}\[31mno\n1 more match: raise --limit`, "--ui-url", "http://ui", "--limit", "1")
	const page = `http://ui/namespaces/test-\d+/workflows/charge-1/[0-9a-f-]+/history`
	require.Regexp(t, `"url": "`+page, b.succeed("jobs", "--ui-url", "http://ui", "-o", "json"))
	require.Regexp(t, `Temporal UI +`+page, b.succeed("show", "charge-1", "--ui-url", "http://ui"))
	lists(`Only 1 of 2 running jobs were looked at.*raise --scan`, "--scan", "1", "--min-attempt", "3")

	var found struct {
		Jobs []struct {
			WorkflowID string `json:"workflow_id"`
			Attempt    int    `json:"attempt"`
		}
		Running int
	}
	b.decode(&found, "jobs", "-o", "json", "--type", "Charge", "--queue", "jobs")
	require.Equal(t, 2, found.Running)
	require.Equal(t, "charge-1", found.Jobs[0].WorkflowID)
	require.Equal(t, 2, strings.Count(b.succeed("jobs", "-o", "jsonl"), "\n"))

	require.Regexp(t, `^The next attempt of charge-1 starts now; it was due at 20`, b.succeed("jobs", "retry-now", "charge-1", "--actor", "oncall"))
	require.Eventually(t, func() bool { return strings.Contains(b.succeed("jobs"), "3 of 3") }, liveTimeout, 50*time.Millisecond)
	require.Regexp(t, `"ended": "backoff",\n  "would_be_at": "20`, b.succeed("jobs", "retry-now", "charge-1", "-o", "json"))
	// Its dead letter is there some moments before it has ended.
	_, died := deadletter.AsDeadLettered(c.GetWorkflow(t.Context(), "charge-1", "").Get(t.Context(), nil))
	require.True(t, died)
	require.Contains(t, b.succeed("show", "charge-1"), "max_retries_exceeded")
	r := b.call("jobs", "retry-now", "charge-1")
	require.Equal(t, exitFailed, r.code)
	require.Equal(t, 1, strings.Count(r.errw, "\n"), r.errw)
	require.True(t, strings.HasPrefix(r.errw, "temporal-deadletter: retry-now charge-1: refused: "), r.errw)
	require.Contains(t, b.succeed("show", "charge-1"), "job_retry_now")

	r = call(t, b.environ, person{strings.NewReader("n\n")}, "jobs", "cancel", "charge-2")
	require.Equal(t, exitFailed, r.code)
	require.Equal(t, "temporal-deadletter: nothing was cancelled: the answer was not yes\n", r.errw)
	require.Regexp(t, `^Cancel     workflow charge-2\nNamespace  test-\d+\nTemporal   127\.0\.0\.1:\d+\nCancel it\? \[y/N\] $`, r.out)
	r = call(t, b.environ, person{strings.NewReader("y\n")}, "jobs", "cancel", "charge-2", "--actor", "oncall")
	require.Zero(t, r.code, r.errw)
	require.Contains(t, r.out, "charge-2 has been asked to stop. Its dead letter, reason cancelled, appears when it has")
	var cancelled *temporal.CanceledError
	require.ErrorAs(t, c.GetWorkflow(t.Context(), "charge-2", "").Get(t.Context(), nil), &cancelled)
	require.Contains(t, b.succeed("list", "--reason", "cancelled"), "charge-2")

	for _, args := range [][]string{{"jobs", "cancel", "nobody", "--yes"}, {"jobs", "retry-now", "-w", "nobody"}} {
		r = b.call(args...)
		require.Equal(t, exitFailed, r.code)
		require.Equal(t, "temporal-deadletter: there is no job nobody; see `temporal-deadletter jobs --min-attempt 1`, and whether --namespace is the right one\n", r.errw)
	}
}
