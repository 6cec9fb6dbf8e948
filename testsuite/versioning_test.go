package testsuite_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"golang.org/x/sync/errgroup"

	"github.com/deadletter-dev/deadletter"
	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/job"
)

// lastBuild is the one whose handlers succeed.
const lastBuild = "v3"

// versioned are the options of a worker of a deployment, or of an unversioned one if
// the deployment has no name.
func versioned(deployment, build string, behavior workflow.VersioningBehavior) worker.Options {
	if deployment == "" {
		return worker.Options{}
	}
	return worker.Options{DeploymentOptions: worker.DeploymentOptions{
		UseVersioning: true, DefaultVersioningBehavior: behavior,
		Version: worker.WorkerDeploymentVersion{DeploymentName: deployment, BuildID: build},
	}}
}

// startBuild starts one build of deployment "team": a worker of the jobs' queue and one
// of the dead-letter queue.
func (w *world) startBuild(plugin client.Plugin, build string, behavior workflow.VersioningBehavior) (stop func()) {
	w.t.Helper()
	c := w.dialWith(w.options(plugin))
	jobs := worker.New(c, w.queue, versioned("team", build, behavior))
	for name, fn := range map[string]any{
		"Upgraded": func(context.Context) (string, error) {
			if build != lastBuild {
				return "", errors.New("not before " + lastBuild)
			}
			return build, nil
		},
		"Snoozed": func(context.Context) (string, error) {
			if build != lastBuild {
				return "", deadletter.Snooze(time.Second, "until "+lastBuild)
			}
			return build, nil
		},
		"Never": func(context.Context) error { return errors.New("boom") },
		"Fail": func(ctx context.Context, _ string) error {
			if strings.Contains(activity.GetInfo(ctx).WorkflowExecution.ID, "-replay-") {
				return nil
			}
			return errors.New("boom")
		},
	} {
		jobs.RegisterActivityWithOptions(fn, activity.RegisterOptions{Name: name})
	}
	stopJobs := w.start(jobs)
	stopDLQ := w.start(worker.New(c, deadletter.DefaultTaskQueue, versioned("team", build, behavior)))
	return func() {
		stopJobs()
		stopDLQ()
	}
}

func (w *world) buildPlugin(options deadletter.Options) *deadletter.Plugin {
	w.t.Helper()
	options.Store, options.SweepInterval, options.RetentionInterval = w.openStore(), -1, -1
	plugin, err := deadletter.NewPlugin(options)
	require.NoError(w.t, err)
	return plugin
}

// setCurrent makes a version current, as soon as the server knows it and each of the
// queues of the version before.
func (w *world) setCurrent(deployment, build string) {
	w.t.Helper()
	handle := w.client.WorkerDeploymentClient().GetHandle(deployment)
	require.Eventually(w.t, func() bool {
		_, err := handle.SetCurrentVersion(w.t.Context(), client.WorkerDeploymentSetCurrentVersionOptions{BuildID: build})
		return err == nil
	}, patience, 100*time.Millisecond, "%s of %s cannot be made current", build, deployment)
}

// drained waits until no running workflow needs a version of deployment "team".
func (w *world) drained(build string) {
	w.t.Helper()
	handle := w.client.WorkerDeploymentClient().GetHandle("team")
	require.Eventually(w.t, func() bool {
		version, err := handle.DescribeVersion(w.t.Context(), client.WorkerDeploymentDescribeVersionOptions{BuildID: build})
		return err == nil && version.Info.DrainageInfo != nil && version.Info.DrainageInfo.DrainageStatus == client.WorkerDeploymentVersionDrainageStatusDrained
	}, patience, 100*time.Millisecond, "%s does not drain", build)
}

func (w *world) versioningInfo(workflowID string) *workflowpb.WorkflowExecutionVersioningInfo {
	w.t.Helper()
	description, err := w.describe(workflowID, "")
	require.NoError(w.t, err)
	return description.GetWorkflowExecutionInfo().GetVersioningInfo()
}

// unhurried is a policy of jobs whose workers stop under them: the server may lose the
// task that it hands out in that moment, which then is a zombie.
func unhurried(delay, age time.Duration) deadletter.Policy {
	return deadletter.Policy{
		MaxAttempts: -1, BaseDelay: delay, BackoffMultiplier: 1, MaxJobAge: age, HeartbeatTimeout: 2 * time.Second, RetryZombies: true,
	}
}

// requests asks for replays of one dead letter, by signal and by update.
type requests struct {
	w       *world
	dead    client.WorkflowRun
	updates errgroup.Group
	sent    int
}

func (r *requests) send() {
	r.w.t.Helper()
	in := job.ReplayInput{WorkflowID: r.dead.GetID()}
	for range 3 {
		require.NoError(r.w.t, r.w.client.SignalWorkflow(r.w.t.Context(), deadletter.OperatorWorkflowID, "", job.ReplayMessage, in))
	}
	r.updates.Go(func() error { // which waits for a worker
		handle, err := r.w.client.UpdateWorkflow(r.w.t.Context(), client.UpdateWorkflowOptions{
			WorkflowID: deadletter.OperatorWorkflowID, UpdateName: job.ReplayMessage, WaitForStage: client.WorkflowUpdateStageCompleted, Args: []any{in},
		})
		if err != nil {
			return err
		}
		return handle.Get(r.w.t.Context(), nil)
	})
	r.sent += 4
}

// carriedOut waits until each request was carried out, once.
func (r *requests) carriedOut() {
	r.w.t.Helper()
	require.NoError(r.w.t, r.updates.Wait())
	r.w.grows(r.sent, func() int { return r.w.dead(r.dead).ResurrectionCount })
	require.Equal(r.w.t, r.sent, r.w.dead(r.dead).ResurrectionCount)
	r.w.grows(r.sent, func() int { return len(r.w.replaysOf(r.dead)) })
}

// plan12 plans to replay twelve dead letters of their own, under a name.
func (w *world) plan12(name string, rate float64) *dlqstore.Plan {
	w.t.Helper()
	tags := map[string]string{"plan": name}
	dead := w.enqueue(deadletter.Job{Type: "Fail", Policy: quick(1), Tags: tags}, "payload")
	require.ErrorContains(w.t, w.wait(dead, nil), "dead-lettered")
	w.cloneDead(dead, name+"-", 11)
	plan := w.plan(dlqstore.PlanRequest{
		Verb: job.BulkReplay, Filter: dlqstore.Filter{Tags: tags}, Parameters: dlqstore.PlanParameters{BulkSettings: job.BulkSettings{Rate: rate}},
	})
	require.EqualValues(w.t, 12, plan.Members)
	return plan
}

// applyFirst applies a plan and waits for its first member.
func (w *world) applyFirst(plan *dlqstore.Plan) {
	w.t.Helper()
	w.apply(plan)
	require.Eventually(w.t, func() bool {
		now, err := w.operator.Plan(w.t.Context(), plan.ID)
		return err == nil && now.Done > 0
	}, patience, 20*time.Millisecond)
}

// TestWorkerVersions proves that the plugin's workflows follow the current version of a
// deployment whatever its default behavior is: what waits for a retry, in a snooze or in
// a bulk operation while versions change, and what is asked for by signal and by update
// meanwhile, is carried out once; no job outlives its age; and a replaced version drains.
func TestWorkerVersions(t *testing.T) {
	t.Parallel()
	for name, behavior := range map[string]workflow.VersioningBehavior{
		"Pinned": workflow.VersioningBehaviorPinned, "AutoUpgrade": workflow.VersioningBehaviorAutoUpgrade, "none": workflow.VersioningBehaviorUnspecified,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			start := func(build string) (stop func()) {
				return w.startBuild(w.buildPlugin(deadletter.Options{}), build, behavior)
			}
			stop1 := start("v1")
			w.setCurrent("team", "v1")
			w.waitOperator()
			plan := w.plan12("bulk", 1)
			asked := requests{w: w, dead: w.deadJob()}
			backoff := w.enqueue(deadletter.Job{Type: "Upgraded", Policy: unhurried(time.Second, 0)})
			snoozed := w.enqueue(deadletter.Job{Type: "Snoozed", Policy: unhurried(time.Second, 0)})
			aged := w.enqueue(deadletter.Job{Type: "Never", Policy: unhurried(2*time.Second, 7*time.Second)})
			w.atAttempt(backoff, 2)
			w.snoozing(snoozed)
			asked.send()
			w.applyFirst(plan)

			stop2 := start("v2")
			asked.send()
			w.setCurrent("team", "v2")
			asked.send()
			stop1()
			asked.send()
			w.drained("v1")

			stop2() // before there is another version
			asked.send()
			start("v3")
			w.setCurrent("team", "v3")
			asked.send()

			for _, run := range []client.WorkflowRun{backoff, snoozed} {
				var build string
				require.NoError(t, w.wait(w.client.GetWorkflow(t.Context(), run.GetID(), ""), &build))
				require.Equal(t, lastBuild, build)
			}
			require.ErrorContains(t, w.wait(aged, nil), "retry_lifetime_expired")
			require.Equal(t, job.ReasonRetryLifetimeExpired, w.dead(aged).Reason)
			plan = w.ended(plan)
			require.Equal(t, job.BulkProgress{PlanID: plan.ID, State: job.PlanFinished, Members: 12, Done: 12}, plan.Progress())
			asked.carriedOut()
			started, distinct := w.started()
			require.Equal(t, []int{12 + asked.sent, 13}, []int{started, distinct})
			w.drained("v2")
			info := w.versioningInfo(deadletter.OperatorWorkflowID)
			require.Equal(t, enumspb.VERSIONING_BEHAVIOR_AUTO_UPGRADE, info.GetBehavior())
			require.Equal(t, "v3", info.GetDeploymentVersion().GetBuildId())
			require.Nil(t, info.GetVersioningOverride(), "it followed by itself")
		})
	}
}

// olderPlugin registers the workflows as builds before the plugin named a behavior did.
type olderPlugin struct{ *deadletter.Plugin }

func (p olderPlugin) StartWorker(
	ctx context.Context, o worker.PluginStartWorkerOptions, next func(context.Context, worker.PluginStartWorkerOptions) error,
) error {
	registry := o.WorkerRegistry
	o.WorkerRegistry = olderRegistry{registry.(worker.Registry)}
	return p.Plugin.StartWorker(ctx, o, func(ctx context.Context, o worker.PluginStartWorkerOptions) error {
		o.WorkerRegistry = registry
		return next(ctx, o)
	})
}

type olderRegistry struct{ worker.Registry }

func (r olderRegistry) RegisterWorkflowWithOptions(w any, options workflow.RegisterOptions) {
	options.VersioningBehavior = workflow.VersioningBehaviorUnspecified
	r.Registry.RegisterWorkflowWithOptions(w, options)
}

// TestPinnedByAnOlderBuild proves that what an older build of the plugin has pinned to
// its version goes on when that version is replaced and has no worker any more: the
// operator workflow, a bulk operation and jobs. What a person has pinned stays.
func TestPinnedByAnOlderBuild(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.queue = `the team's \jobs`
	older := olderPlugin{w.buildPlugin(deadletter.Options{NoUpkeep: true})}
	stop := w.startBuild(older, "v1", workflow.VersioningBehaviorPinned)
	w.setCurrent("team", "v1")
	_, err := w.client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: deadletter.OperatorWorkflowID, TaskQueue: deadletter.DefaultTaskQueue}, job.OperatorWorkflowType)
	require.NoError(t, err)
	plan := w.plan12("bulk", 2)
	asked := requests{w: w, dead: w.deadJob()}
	asked.send()
	waiting := deadletter.Job{Type: "Upgraded", Policy: unhurried(time.Second, 0)}
	backoff, pinned := w.enqueue(waiting), w.enqueue(waiting)
	aged := w.enqueue(deadletter.Job{Type: "Never", Policy: unhurried(2*time.Second, 7*time.Second)})
	w.atAttempt(backoff, 2)
	w.atAttempt(pinned, 2)
	override := func(value client.VersioningOverride) {
		_, err := w.client.UpdateWorkflowExecutionOptions(t.Context(), client.UpdateWorkflowExecutionOptionsRequest{
			WorkflowId:                      pinned.GetID(),
			WorkflowExecutionOptionsChanges: client.WorkflowExecutionOptionsChanges{VersioningOverride: &client.VersioningOverrideChange{Value: value}},
		})
		require.NoError(t, err)
	}
	override(&client.PinnedVersioningOverride{Version: worker.WorkerDeploymentVersion{DeploymentName: "team", BuildID: "v1"}})
	w.applyFirst(plan)
	for _, id := range []string{deadletter.OperatorWorkflowID, job.BulkWorkflowID(plan.ID), backoff.GetID()} {
		require.Equal(t, enumspb.VERSIONING_BEHAVIOR_PINNED, w.versioningInfo(id).GetBehavior())
	}
	stop()
	asked.send()
	w.startBuild(w.buildPlugin(deadletter.Options{}), "v3", workflow.VersioningBehaviorPinned)
	w.setCurrent("team", "v3")
	asked.send()

	asked.carriedOut()
	var build string
	require.NoError(t, w.wait(backoff, &build))
	require.Equal(t, "v3", build)
	require.ErrorContains(t, w.wait(aged, nil), "retry_lifetime_expired")
	plan = w.ended(plan)
	require.Equal(t, job.BulkProgress{PlanID: plan.ID, State: job.PlanFinished, Members: 12, Done: 12}, plan.Progress())
	started, distinct := w.started()
	require.Equal(t, []int{12 + asked.sent, 13}, []int{started, distinct})

	require.Equal(t, "v1", w.versioningInfo(pinned.GetID()).GetVersioningOverride().GetPinned().GetVersion().GetBuildId())
	require.Equal(t, enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING, w.status(pinned))
	override(nil) // the person lets it go
	require.NoError(t, w.wait(pinned, &build))
	w.drained("v1")
}

// TestVersionedQueues proves that jobs and dead letters are served whatever deployments
// their two queues belong to, as soon as these have a current version, and that the
// worker of a queue without one says so.
func TestVersionedQueues(t *testing.T) {
	t.Parallel()
	for _, queues := range [][2]string{{"", "dlq"}, {"team", ""}, {"team", "team"}, {"team", "dlq"}} {
		t.Run(fmt.Sprintf("%q,%q", queues[0], queues[1]), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			var logged lines
			options := w.options()
			options.Logger = log.NewStructuredLogger(slog.New(slog.NewTextHandler(&logged, nil)))
			plugin, err := deadletter.NewPlugin(deadletter.Options{Store: w.openStore(), SweepInterval: time.Second})
			require.NoError(t, err)
			options.Plugins = []client.Plugin{plugin}
			c := w.dialWith(options)
			jobs := worker.New(c, w.queue, versioned(queues[0], "v1", workflow.VersioningBehaviorUnspecified))
			jobs.RegisterActivityWithOptions(fail, activity.RegisterOptions{Name: "Fail"})
			w.start(jobs)
			w.start(worker.New(c, deadletter.DefaultTaskQueue, versioned(queues[1], "v1", workflow.VersioningBehaviorUnspecified)))
			dead := w.enqueue(deadletter.Job{Type: "Fail", Policy: quick(1)})
			w.waitOperator()
			const warning = "no current worker deployment version"
			if queues[1] != "" {
				require.Eventually(t, func() bool { return strings.Contains(logged.String(), warning) }, patience, 20*time.Millisecond)
			}
			for _, deployment := range queues {
				if deployment != "" {
					w.setCurrent(deployment, "v1")
				}
			}
			require.ErrorContains(t, w.wait(dead, nil), "max_retries_exceeded")
			require.NoError(t, w.tell(job.NoteMessage, job.NoteInput{WorkflowID: dead.GetID(), Text: "seen"}, nil))
			terminated := w.enqueue(deadletter.Job{Type: "Fail", TaskQueue: "nobody"})
			w.terminate(terminated, "")
			require.Eventually(t, func() bool {
				_, err := w.store.Get(t.Context(), w.key(terminated))
				return err == nil
			}, patience, 50*time.Millisecond, "no sweep")
			require.Equal(t, queues[1] != "", strings.Contains(logged.String(), warning))
		})
	}
}

// lines collects what is logged.
type lines struct {
	mu     sync.Mutex
	buffer bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buffer.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buffer.String()
}
