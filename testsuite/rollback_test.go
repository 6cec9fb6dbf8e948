package testsuite_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/deadletter-dev/deadletter"
	"github.com/deadletter-dev/deadletter/internal/devstack"
	"github.com/deadletter-dev/deadletter/internal/devstack/devtest"
	"github.com/deadletter-dev/deadletter/job"
)

// olderCommit is the build that TestRollBack goes back to. Its operator workflow and its
// bulk operations are unversioned, and it does not know what newerBuild records.
const olderCommit = "ab64176c4b7502f2d627d371341fd636be5819bf"

// buildOlder builds the reference worker of olderCommit.
func buildOlder(t testing.TB) (path string) {
	t.Helper()
	git := devtest.Require(t, "git", "apt-get install git")
	dir := filepath.Join(t.TempDir(), "older")
	run := func(in, name string, args ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), name, args...)
		cmd.Dir = in
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := run("..", git, "cat-file", "-e", olderCommit+"^{commit}"); err != nil {
		// No install brings it, so this is no failure with DEADLETTER_REQUIRE_ALL=1 either.
		t.Skipf("SKIPPED: this test needs commit %s in the repository's history; clone it whole: git fetch --unshallow (%s)", olderCommit, strings.TrimSpace(out))
	}
	root, err := filepath.Abs("..")
	require.NoError(t, err)
	for _, step := range []struct {
		in   string
		args []string
	}{
		{".", []string{git, "clone", "--quiet", "--shared", "--no-checkout", root, dir}},
		{dir, []string{git, "checkout", "--quiet", olderCommit}},
		{dir, []string{"go", "build", "-buildvcs=false", "-o", "older", "./worker"}},
	} {
		out, err := run(step.in, step.args[0], step.args[1:]...)
		require.NoError(t, err, "%v: %s", step.args, out)
	}
	return filepath.Join(dir, "older")
}

// startOlder starts the reference worker of an older build on the world's servers.
func (w *world) startOlder(path string) (stop func()) {
	w.t.Helper()
	older := exec.Command(path)
	older.Env = append(os.Environ(), "TEMPORAL_CONFIG_FILE=/nonexistent/temporal.toml", "TEMPORAL_ADDRESS="+w.address,
		"TEMPORAL_NAMESPACE="+w.namespace, "DEADLETTER_DATABASE_URL="+w.database)
	if os.Getenv("DEADLETTER_TEST_LOG") != "" {
		older.Stderr = os.Stderr
	}
	require.NoError(w.t, older.Start())
	stop = func() {
		_ = older.Process.Signal(syscall.SIGTERM)
		_ = older.Wait()
	}
	w.t.Cleanup(stop)
	return stop
}

// newerBuild makes the operator workflow and bulk operations record, at their start,
// what no older build knows. Runs that an older build began do not.
type newerBuild struct {
	interceptor.WorkerInterceptorBase
}

func (*newerBuild) InterceptWorkflow(_ workflow.Context, next interceptor.WorkflowInboundInterceptor) interceptor.WorkflowInboundInterceptor {
	return &newerRun{interceptor.WorkflowInboundInterceptorBase{Next: next}}
}

type newerRun struct {
	interceptor.WorkflowInboundInterceptorBase
}

func (r *newerRun) ExecuteWorkflow(ctx workflow.Context, in *interceptor.ExecuteWorkflowInput) (any, error) {
	switch workflow.GetInfo(ctx).WorkflowType.Name {
	case job.OperatorWorkflowType, job.BulkWorkflowType:
		if workflow.GetVersion(ctx, "of-a-newer-build", workflow.DefaultVersion, 1) == 1 {
			workflow.SideEffect(ctx, func(workflow.Context) any { return "new" })
		}
	default:
	}
	return r.Next.ExecuteWorkflow(ctx, in)
}

func (w *world) startNewer() (stop func()) {
	w.t.Helper()
	plugin, err := deadletter.NewPlugin(deadletter.Options{Store: w.openStore(), SweepInterval: time.Second, RetentionInterval: time.Second})
	require.NoError(w.t, err)
	c := w.dial(plugin)
	return w.start(worker.New(c, deadletter.DefaultTaskQueue, worker.Options{Interceptors: []interceptor.WorkerInterceptor{&newerBuild{}}}))
}

// stuck waits until a worker could not go on with a run that a newer build has begun.
func (w *world) stuck(workflowID string) {
	w.t.Helper()
	run := w.client.GetWorkflow(w.t.Context(), workflowID, "")
	require.Eventually(w.t, func() bool {
		for _, event := range w.history(run) {
			if event.GetWorkflowTaskFailedEventAttributes().GetCause() == enumspb.WORKFLOW_TASK_FAILED_CAUSE_NON_DETERMINISTIC_ERROR {
				return true
			}
		}
		return false
	}, patience, 50*time.Millisecond, "%s is not stuck", workflowID)
}

// upgradingCommand runs the command of docs/upgrading.md that begins so, and returns what
// it prints.
func (w *world) upgradingCommand(begins string) string {
	w.t.Helper()
	page, err := os.ReadFile("../docs/upgrading.md")
	require.NoError(w.t, err)
	found := regexp.MustCompile(`(?m)^`+begins+` (?:.*\\\n)*.*$`).FindAll(page, -1)
	require.Len(w.t, found, 1, "%s", begins)
	cli, err := devstack.TemporalCLI(w.t.Context(), os.Stderr)
	require.NoError(w.t, err)
	var out []byte
	require.Eventually(w.t, func() bool {
		command := exec.CommandContext(w.t.Context(), "sh", "-c", string(found[0]))
		command.Env = append(os.Environ(), "PATH="+filepath.Dir(cli)+":"+os.Getenv("PATH"), "TEMPORAL_ADDRESS="+w.address, "TEMPORAL_NAMESPACE="+w.namespace)
		out, err = command.CombinedOutput()
		// The page says to repeat it then.
		return !strings.Contains(string(out), "Max concurrent batch operations is reached")
	}, patience, time.Second)
	require.NoError(w.t, err, string(out))
	return string(out)
}

// backlogs waits until the documented command counts as many requests' workflows.
func (w *world) backlogs(want string) {
	w.t.Helper()
	require.Eventually(w.t, func() bool {
		return strings.TrimSpace(w.upgradingCommand("temporal workflow count")) == "Total: "+want
	}, patience, 200*time.Millisecond)
}

// countRuns counts runs in the server's list, which may be some moments old.
func (w *world) countRuns(query string) int64 {
	w.t.Helper()
	count, err := w.client.CountWorkflow(w.t.Context(), &workflowservice.CountWorkflowExecutionsRequest{Namespace: w.namespace, Query: query})
	require.NoError(w.t, err)
	return count.GetCount()
}

// triggered waits until something holds, and starts a schedule's next round meanwhile.
func (w *world) triggered(schedule string, holds func() bool) {
	w.t.Helper()
	handle := w.client.ScheduleClient().GetHandle(w.t.Context(), schedule)
	require.Eventually(w.t, func() bool {
		return holds() || handle.Trigger(w.t.Context(), client.ScheduleTriggerOptions{}) != nil
	}, patience, 500*time.Millisecond, "%s does nothing", schedule)
}

// TestRollBack proves that the documented way back to an older build keeps every request
// that the operator workflow has taken, before and during, and every bulk operation, and
// repeats none; that the sweep and the retention go on; that a request which was handed
// over, and a job that has waited for a worker which knows its type, wait for the newer
// build; and that this can come again.
func TestRollBack(t *testing.T) {
	t.Parallel()
	path := buildOlder(t)
	w := newWorld(t)
	stopJobs := w.startJobs(handlers{"Fail": fail})
	stopNewer := w.startNewer()
	w.waitOperator()
	running := w.plan12("running", 2)
	paused := w.plan12("paused", 2)
	dead, locked := w.deadJob(), w.deadJob()
	stopJobs() // the replays' own jobs are of no interest
	stopOthers := w.startJobsOn("late", handlers{"Other": fail})
	late, err := w.client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{TaskQueue: deadletter.DefaultTaskQueue}, job.WorkflowType, map[string]any{
		"type": "Late", "task_queue": "late", "policy": map[string]any{"base_delay": "2s", "backoff_multiplier": 1},
	})
	require.NoError(t, err)

	// What hangs when the operator workflow ends goes to a workflow of its own.
	unlock := w.lockRow(locked.GetID())
	w.signal(job.PurgeMessage, job.PurgeInput{WorkflowID: locked.GetID(), RequestID: "hung"})
	require.Eventually(t, func() bool { return w.waitingForLocks() > 0 }, patience, 20*time.Millisecond)
	first := w.operatorRun()
	require.NoError(t, w.client.CancelWorkflow(t.Context(), deadletter.OperatorWorkflowID, first))
	w.backlogs("1")
	w.startOperatorWith(job.OperatorInput{Version: job.OperatorVersion}) // as a worker does once a minute

	sent := 0
	signal := func() {
		for _, id := range []string{"", "", w.namespace + time.Now().String()} {
			w.signal(job.ReplayMessage, job.ReplayInput{WorkflowID: dead.GetID(), RequestID: id})
			sent++
		}
	}
	carriedOut := func() {
		w.grows(sent, func() int { return w.dead(dead).ResurrectionCount })
		require.Equal(t, sent, w.dead(dead).ResurrectionCount)
	}
	signal()
	require.NoError(t, w.update(job.ReplayInput{WorkflowID: dead.GetID()}).Get(t.Context(), nil))
	sent++
	carriedOut()
	w.applyFirst(paused)
	require.NoError(t, w.operator.PausePlan(t.Context(), paused.ID, "carl"))
	w.inState(paused, job.PlanPaused)
	w.applyFirst(running)
	for _, kind := range []string{job.SweepWorkflowType, job.RetentionWorkflowType} {
		require.Eventually(t, func() bool {
			return w.countRuns("ExecutionStatus = 'Running' AND WorkflowType = '"+kind+"'") == 1
		}, patience, 50*time.Millisecond, "%s does not stay", kind)
	}
	require.Eventually(t, func() bool {
		return slices.ContainsFunc(w.history(late), func(e *historypb.HistoryEvent) bool { return e.GetMarkerRecordedEventAttributes() != nil })
	}, patience, 50*time.Millisecond, "%s has no grace", late.GetID())
	stopOthers()
	stopNewer()
	signal() // which no worker has seen
	terminated := w.enqueue(deadletter.Job{Type: "Fail", TaskQueue: "nobody"})
	w.terminate(terminated, "")
	stopOlder := w.startOlder(path)
	w.stuck(deadletter.OperatorWorkflowID)
	w.stuck(job.BulkWorkflowID(running.ID))
	signal()
	update := make(chan error, 1)
	go func() { update <- w.persistentUpdate(t.Context(), job.ReplayInput{WorkflowID: dead.GetID()}) }()
	sent++

	w.upgradingCommand("temporal workflow reset")
	w.upgradingCommand("temporal workflow terminate")
	signal()
	require.NoError(t, <-update)
	carriedOut()
	running = w.ended(running)
	require.Equal(t, job.BulkProgress{PlanID: running.ID, State: job.PlanFinished, Members: 12, Done: 12}, running.Progress())
	require.Equal(t, job.PlanPaused, w.inState(paused, job.PlanPaused).State)
	w.triggered(job.SweepScheduleID, func() bool {
		_, err := w.store.Get(t.Context(), w.key(terminated))
		return err == nil
	})
	w.triggered(job.RetentionScheduleID, func() bool {
		return w.countRuns("ExecutionStatus = 'Completed' AND WorkflowType = '"+job.RetentionWorkflowType+"'") > 0
	})
	w.stuck(late.GetID())
	w.backlogs("1")

	stopOlder()
	signal()
	w.startNewer()
	w.startJobsOn("late", handlers{"Late": func(context.Context) error { return nil }})
	unlock()
	carriedOut()
	require.NoError(t, w.operator.ResumePlan(t.Context(), paused.ID, "carl"))
	paused = w.ended(paused)
	require.EqualValues(t, 12, paused.Done)
	require.Len(t, w.replaysOf(dead), sent)
	started, distinct := w.started()
	require.Equal(t, []int{24 + sent, 25}, []int{started, distinct})
	require.NoError(t, w.wait(late, nil))
	w.backlogs("0")
	require.Equal(t, []string{"move", "purge"}, w.verbs(w.key(locked)))
}

// persistentUpdate asks until there is an answer, as a caller does whose update was cut
// off: with the same update id, which is the same request.
func (w *world) persistentUpdate(ctx context.Context, in job.ReplayInput) error {
	for {
		handle, err := w.client.UpdateWorkflow(ctx, client.UpdateWorkflowOptions{
			WorkflowID: deadletter.OperatorWorkflowID, UpdateName: job.ReplayMessage, UpdateID: "persistent",
			WaitForStage: client.WorkflowUpdateStageCompleted, Args: []any{in},
		})
		if err == nil {
			err = handle.Get(ctx, nil)
		}
		if err == nil || ctx.Err() != nil {
			return errors.Join(err, ctx.Err())
		}
		w.t.Log("an update was cut off: ", err)
	}
}
