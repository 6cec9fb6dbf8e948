package testsuite_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/deadletter-dev/deadletter"
	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/operator"
)

// waits returns what Show says that the job waits for, once it is of the kind.
func (w *world) waits(run client.WorkflowRun, kind operator.WaitKind) *operator.Waiting {
	w.t.Helper()
	var found *operator.Waiting
	require.Eventually(w.t, func() bool {
		shown, err := w.operator.Show(w.t.Context(), run.GetID(), run.GetRunID())
		if err != nil || shown.Live == nil {
			return false
		}
		found = shown.Live.Waiting
		return found != nil && found.Kind == kind
	}, patience, 20*time.Millisecond, "%s does not wait for %s", run.GetID(), kind)
	return found
}

// TestWaitingForTime proves that show says how long a job waits, why, and which
// attempt comes then.
func TestWaitingForTime(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.startGuarded(deadletter.CircuitBreaker{PerType: map[string]deadletter.CircuitBreaker{"Broken": {Threshold: 1, OpenTime: time.Hour}}}, handlers{
		"Fail": fail, "Broken": fail, "Snooze": func(context.Context) error { return deadletter.Snooze(time.Hour, "not yet") }, "Hang": hang,
	})
	for kind, c := range map[operator.WaitKind]struct {
		job     deadletter.Job
		attempt int
		text    string
	}{
		operator.WaitRetry:      {deadletter.Job{Type: "Fail", Policy: deadletter.Policy{BaseDelay: time.Hour}}, 2, "waits between two attempts until 20"},
		operator.WaitSnooze:     {deadletter.Job{Type: "Snooze"}, 1, "snoozes until 20"},
		operator.WaitStartDelay: {deadletter.Job{Type: "Fail", StartDelay: time.Hour}, 1, "was started with a delay, and waits until 20"},
		operator.WaitCircuitBreaker: {
			deadletter.Job{Type: "Broken", Policy: deadletter.Policy{BaseDelay: 10 * time.Millisecond, CircuitBreakerDelay: time.Hour}},
			2,
			"waits because the circuit breaker of its type was open until 20",
		},
		operator.WaitUnregisteredActivity: {
			deadletter.Job{Type: "Unknown", Policy: deadletter.Policy{BaseDelay: time.Hour, MaxDelay: time.Hour, UnknownTypeGrace: 2 * time.Hour}},
			1,
			"does not know Unknown: start one that does; it waits until 20",
		},
	} {
		waiting := w.waits(w.enqueue(c.job), kind)
		require.Equal(t, c.attempt, waiting.Attempt, kind)
		require.WithinDuration(t, time.Now().Add(time.Hour), *waiting.Until, 5*time.Minute, kind)
		require.Contains(t, waiting.Text, c.text)
		require.Contains(t, waiting.Text, fmt.Sprintf("Z, then attempt %d", c.attempt))
		require.Nil(t, waiting.Queue, kind)
	}

	paused := w.enqueue(deadletter.Job{Type: "Fail", Policy: deadletter.Policy{BaseDelay: time.Hour}})
	w.atAttempt(paused, 2)
	_, err := w.client.WorkflowService().PauseActivity(t.Context(), &workflowservice.PauseActivityRequest{
		Namespace: w.namespace, Execution: &commonpb.WorkflowExecution{WorkflowId: paused.GetID()}, Reason: "the bank is closed", Identity: "ann",
		Activity: &workflowservice.PauseActivityRequest_Type{Type: "Fail"},
	})
	require.NoError(t, err)
	waiting := w.waits(paused, operator.WaitPaused)
	require.Regexp(t, `^its activity is paused since 20\S+ \S+Z by ann \(the bank is closed\): unpause it`, waiting.Text)
	require.Nil(t, waiting.Until)

	running := w.enqueue(deadletter.Job{Type: "Hang"})
	w.pendingIn(enumspb.PENDING_ACTIVITY_STATE_STARTED)(running)
	shown, err := w.operator.Show(t.Context(), running.GetID(), "")
	require.NoError(t, err)
	require.Nil(t, shown.Live.Waiting, "an attempt runs")
}

// TestWaitingForWorker proves that show and jobs name the task queue that no worker
// polls, of either type, and tell it from one whose workers are busy.
func TestWaitingForWorker(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.startJobs(handlers{"Fail": fail, "Fine": func(context.Context) error { return nil }})
	kinds := map[string]operator.WaitKind{}
	expect := func(run client.WorkflowRun, kind operator.WaitKind, queue string, tasks operator.TaskQueueType, text string) *operator.Waiting {
		t.Helper()
		waiting := w.waits(run, kind)
		require.Equal(t, operator.QueueName{TaskQueue: queue, Type: tasks}, waiting.Queue.QueueName)
		require.Contains(t, waiting.Text, text)
		kinds[run.GetID()] = kind
		return waiting
	}
	handler := w.bare(client.StartWorkflowOptions{}, map[string]any{"type": "Fine", "task_queue": "nobody"})
	w.pendingIn(enumspb.PENDING_ACTIVITY_STATE_SCHEDULED)(handler)
	waiting := expect(handler, operator.WaitNoPoller, "nobody", operator.ActivityTasks, "no worker polls task queue nobody for activity tasks: start one")
	require.Zero(t, waiting.Queue.Pollers)
	require.EqualValues(t, 1, *waiting.Queue.Backlog)
	lonely := w.enqueue(deadletter.Job{Type: "Fine", TaskQueue: "lonely"})
	expect(lonely, operator.WaitNoPoller, "lonely", operator.WorkflowTasks, "no worker polls task queue lonely for workflow tasks: start one that has the Deadletter plugin")
	moving := w.enqueue(deadletter.Job{Type: "Fail", Policy: quick(1)})
	expect(moving, operator.WaitNoPoller, deadletter.DefaultTaskQueue, operator.ActivityTasks, "no worker polls task queue deadletter for activity tasks")

	// A worker with its hands full.
	plugin, err := deadletter.NewPlugin(deadletter.Options{})
	require.NoError(t, err)
	busy := worker.New(w.dial(plugin), "busy", worker.Options{MaxConcurrentActivityExecutionSize: 1})
	busy.RegisterActivityWithOptions(hang, activity.RegisterOptions{Name: "Hang"})
	w.start(busy)
	first := w.enqueue(deadletter.Job{Type: "Hang", TaskQueue: "busy"})
	w.pendingIn(enumspb.PENDING_ACTIVITY_STATE_STARTED)(first)
	second := w.enqueue(deadletter.Job{Type: "Hang", TaskQueue: "busy"})
	w.pendingIn(enumspb.PENDING_ACTIVITY_STATE_SCHEDULED)(second)
	waiting = expect(second, operator.WaitPollersBusy, "busy", operator.ActivityTasks, "waits for a free worker on task queue busy for activity tasks, which 1 worker polls")
	require.Equal(t, 1, waiting.Queue.Pollers)
	require.NotNil(t, waiting.Queue.LastPollAt)
	for _, run := range []client.WorkflowRun{handler, lonely, second} {
		_, err = w.retryNow(run)
		require.ErrorContains(t, err, "it waits for a worker on task queue ")
	}

	w.running(5)
	found, err := w.operator.Jobs(t.Context(), operator.JobsRequest{MinAttempt: 1})
	require.NoError(t, err)
	listed := map[string]operator.WaitKind{}
	for _, live := range found.Jobs {
		if live.Waiting != nil {
			listed[live.WorkflowID] = live.Waiting.Kind
		}
	}
	require.Equal(t, kinds, listed, "and the first of the busy queue runs")
	require.Len(t, found.Queues, 4)
	for _, q := range found.Queues {
		require.Equal(t, 1, q.Waiting)
		require.Empty(t, q.Unknown)
		require.Equal(t, q.TaskQueue == "busy", q.Pollers > 0, q.TaskQueue)
	}
}

// TestWorkerWithoutPlugin proves that a job on a queue whose workers lack the plugin
// is told from one that waits for a worker: such a worker polls for activities only, as
// those of other languages do that have no workflows, or it takes the job's workflow
// tasks and fails them, as every other worker in Go does.
func TestWorkerWithoutPlugin(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	plugin, err := deadletter.NewPlugin(deadletter.Options{})
	require.NoError(t, err)
	// This is how the plugins of a client are lost.
	from, err := client.NewClientFromExisting(w.dial(plugin), w.options())
	require.NoError(t, err)
	w.t.Cleanup(from.Close)
	activities := worker.New(from, "activities", worker.Options{DisableWorkflowWorker: true})
	activities.RegisterActivityWithOptions(fail, activity.RegisterOptions{Name: "Fail"})
	w.start(activities)
	other := worker.New(from, "other", worker.Options{Identity: "their-worker"})
	other.RegisterWorkflowWithOptions(func(workflow.Context) error { return nil }, workflow.RegisterOptions{Name: "Theirs"})
	w.start(other)

	run, err := deadletter.Enqueue(t.Context(), from, deadletter.Job{Type: "Fail", TaskQueue: "activities"})
	require.NoError(t, err)
	var waiting *operator.Waiting
	require.Eventually(t, func() bool {
		shown, err := w.operator.Show(t.Context(), run.GetID(), run.GetRunID())
		if err != nil || shown.Live == nil || shown.Live.Waiting == nil {
			return false
		}
		waiting = shown.Live.Waiting
		return waiting.Kind == operator.WaitNoPoller && waiting.Queue.ActivitiesOnly // once its worker has polled
	}, patience, 20*time.Millisecond)
	require.Contains(t, waiting.Text, "no worker polls task queue activities for workflow tasks, only for activity tasks: do its workers lack the Deadletter plugin?")

	run, err = deadletter.Enqueue(t.Context(), from, deadletter.Job{Type: "Fail", TaskQueue: "other"})
	require.NoError(t, err)
	waiting = w.waits(run, operator.WaitUnregisteredWorkflow)
	require.Equal(t, operator.QueueName{TaskQueue: "other", Type: operator.WorkflowTasks}, waiting.Queue.QueueName)
	require.Equal(t, "their-worker", waiting.WorkerIdentity)
	require.Contains(t, waiting.Failure, "unable to find workflow type: deadletter.Job")
	require.Greater(t, waiting.Attempt, 1)
	require.Contains(t, waiting.Text, "a worker of task queue other, their-worker, takes its workflow tasks and does not know deadletter.Job")
	require.Contains(t, waiting.Text, "worker.Options.Plugins")
	w.running(2)
	found, err := w.operator.Jobs(t.Context(), operator.JobsRequest{})
	require.NoError(t, err)
	require.Len(t, found.Jobs, 1, "a workflow task that fails is an error that the job has met")
	require.Equal(t, operator.WaitUnregisteredWorkflow, found.Jobs[0].Waiting.Kind)

	// The fix that the text names.
	mended := worker.New(from, "other", worker.Options{Plugins: []worker.Plugin{plugin}})
	mended.RegisterActivityWithOptions(fail, activity.RegisterOptions{Name: "Fail"})
	other.Stop()
	w.start(mended)
	require.Eventually(t, func() bool {
		shown, err := w.operator.Show(t.Context(), run.GetID(), run.GetRunID())
		return err == nil && shown.Pending != nil && shown.Pending.Type == "Fail"
	}, patience, 50*time.Millisecond)
}

// TestUnpolled proves that a replay and a plan of replays say which task queues no
// worker polls, each once.
func TestUnpolled(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	stop := w.startJobsOn("fleeting", handlers{"Fail": fail})
	stopDLQ := w.startDLQ(nil)
	for range 3 {
		run := w.enqueue(deadletter.Job{Type: "Fail", TaskQueue: "fleeting", Policy: quick(1)})
		require.ErrorContains(t, w.wait(run, nil), "dead-lettered")
	}
	stop()
	stopDLQ()
	plan, err := w.operator.CreatePlan(t.Context(), dlqstore.PlanRequest{Verb: "replay", All: true, Actor: "tester"})
	require.NoError(t, err)
	unpolled, err := w.operator.UnpolledByPlan(t.Context(), plan)
	require.NoError(t, err)
	require.Empty(t, unpolled, "the server remembers the workers for five minutes")

	// What an edit has sent elsewhere.
	rows, _, err := w.operator.List(t.Context(), dlqstore.Filter{}, dlqstore.Page{})
	require.NoError(t, err)
	pool := w.store.Pool()
	_, err = pool.Exec(t.Context(), `update deadletter.dead_letters set task_queue = 'nobody', workflow_task_queue = 'nowhere'`)
	require.NoError(t, err)
	names := func(states []operator.QueueState, err error) (names []operator.QueueName) {
		require.NoError(t, err)
		for _, s := range states {
			require.Zero(t, s.Pollers)
			names = append(names, s.QueueName)
		}
		return names
	}
	want := []operator.QueueName{{TaskQueue: "nowhere", Type: operator.WorkflowTasks}, {TaskQueue: "nobody", Type: operator.ActivityTasks}}
	require.Equal(t, want, names(w.operator.UnpolledByPlan(t.Context(), plan)))
	require.Equal(t, want, names(w.operator.UnpolledByReplay(t.Context(), rows[0].WorkflowID, "")))
}
