package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"

	"github.com/deadletter-dev/deadletter"
	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/internal/devstack"
)

// TestNoWorker proves that each verb which needs a worker names the task queue that
// none polls, does what it was asked for, and exits 0.
func TestNoWorker(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	c := b.alone()
	says := func(r result, lines ...string) string {
		t.Helper()
		require.Zero(t, r.code, r.errw)
		want := ""
		for _, line := range lines {
			want += "temporal-deadletter: no worker polls task queue " + line + "\n"
		}
		require.Equal(t, want, r.errw)
		return r.out
	}
	const (
		noWorkflows = " for workflow tasks: start one that has the Deadletter plugin"
		noHandlers  = " for activity tasks: start one"
		noDLQ       = "deadletter for activity tasks: start one"
	)
	namespace := strings.TrimPrefix(b.environ[len(b.environ)-1], "TEMPORAL_NAMESPACE=")
	here := func(dl *dlqstore.DeadLetter) { dl.Namespace = namespace }
	for _, id := range []string{"dead-1", "dead-2", "dead-3"} {
		b.move(id, here)
	}

	out := says(b.call("replay", "dead-1"), "emails"+noWorkflows, "emails"+noHandlers)
	require.Contains(t, out, "New workflow id")
	replays, err := b.store.Replays(t.Context(), dlqstore.Key{Namespace: namespace, WorkflowID: "dead-1", RunID: deadLetter("").RunID})
	require.NoError(t, err)
	replayed, err := c.DescribeWorkflow(t.Context(), replays[0].NewWorkflowID, "")
	require.NoError(t, err)
	require.Equal(t, enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING, replayed.Status)
	var started struct {
		Unpolled []struct{ TaskQueue, Type string }
	}
	b.decode(&started, "replay", "dead-1", "--yes", "-o", "json")
	require.Len(t, started.Unpolled, 2)
	says(b.call("edit", "dead-2", "--queue", "nobody", "--replay", "--yes"), "emails"+noWorkflows, "nobody"+noHandlers)

	_, err = deadletter.Enqueue(t.Context(), c, deadletter.Job{ID: "lonely", Type: "Fine", TaskQueue: "lonely"})
	require.NoError(t, err)
	require.Regexp(t, `(?m)^Why it waits +no worker polls task queue lonely`+noWorkflows+`$`, b.succeed("show", "lonely"))
	require.Eventually(t, func() bool {
		out = b.succeed("jobs", "--min-attempt", "1")
		return strings.Contains(out, "1 of 4 jobs cannot continue")
	}, liveTimeout, 50*time.Millisecond)
	require.Regexp(t, `(?m)^lonely .*no poller`, out)
	require.Regexp(t, `(?m)^3 of 4 jobs cannot continue: no worker polls task queue emails`+noWorkflows+`\.$`, out)
	says(b.call("jobs", "cancel", "lonely", "--yes"), "lonely"+noWorkflows, noDLQ)

	plan := b.newPlan("replay", "--all")
	says(b.call("apply", plan, "--yes", "--detach"), "deadletter"+noWorkflows, noDLQ, "emails"+noWorkflows, "emails"+noHandlers)
	says(b.call("plan", "cancel", plan), "deadletter"+noWorkflows, noDLQ)
}

// TestJobsLimited proves that a person is told once why a verb is slow when the server
// refuses requests for its limits, and that the verb succeeds.
func TestJobsLimited(t *testing.T) {
	t.Parallel()
	server, err := devstack.StartTemporal(t.Context(), devstack.TemporalOptions{DynamicConfig: []string{
		"frontend.namespaceRPS.visibility=4", "frontend.namespaceBurstRatio.visibility=1",
	}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop()) })
	b := newBench(t)
	b.environ = append(b.environ, "TEMPORAL_ADDRESS="+server.Address)
	c, err := client.Dial(client.Options{HostPort: server.Address, Logger: silent})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	for i := range 3 {
		_, err := deadletter.Enqueue(t.Context(), c, deadletter.Job{ID: fmt.Sprintf("job-%d", i), Type: "Fine", TaskQueue: "nobody"})
		require.NoError(t, err)
	}
	var told []string
	require.Eventually(t, func() bool {
		r := b.call("jobs", "--scan", "1", "--min-attempt", "1")
		require.Zero(t, r.code, r.errw)
		told = strings.Split(strings.TrimSuffix(r.errw, "\n"), "\n")
		return strings.Contains(r.out, "Only 1 of 3 running jobs were looked at") // visibility lags by moments
	}, liveTimeout, 50*time.Millisecond)
	require.Contains(t, told[0], "temporal-deadletter: the Temporal server refuses requests above the rate limit of the namespace (namespace rate limit exceeded): this command continues more slowly")
	require.NotContains(t, strings.Join(told[1:], "\n"), "refuses")
}
