package testsuite_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/deadletter-dev/deadletter"
	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/job"
)

// record adds the histories of this run to histories/. One that is there already
// is never written again: it is what running jobs hold.
var record = flag.Bool("record", false, "add this run's histories to histories/ (use with -trimpath)")

const histories = "histories"

// TestRecordedHistories proves that jobs which were started by earlier versions
// replay on the workflow code of today, with the plugin, and that the replayer
// would tell if they did not: the bad-* ones must fail.
func TestRecordedHistories(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join(histories, "*.json"))
	require.NoError(t, err)
	bad := 0
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			err := newReplayer(t).ReplayWorkflowHistoryFromJSONFile(quiet(), file)
			if strings.HasPrefix(filepath.Base(file), "bad-") {
				bad++
				require.Error(t, err)
				return
			}
			require.NoError(t, err)
		})
	}
	for _, name := range slices.Concat(slices.Collect(maps.Keys(scenarios)), []string{"operator", "operator-dropped-signal", "operator-refused-signal", "continued", "carried-on", "doubled-options-accepted", "doubled-options-carried-on"}) {
		require.FileExists(t, filepath.Join(histories, name+".json"), "a path has no recorded history")
	}
	require.Positive(t, bad, "nothing proves that the replayer can fail")
}

func newReplayer(t testing.TB) worker.WorkflowReplayer {
	t.Helper()
	plugin, err := deadletter.NewPlugin(deadletter.Options{})
	require.NoError(t, err)
	replayer, err := worker.NewWorkflowReplayerWithOptions(worker.WorkflowReplayerOptions{Plugins: []worker.Plugin{plugin}})
	require.NoError(t, err)
	return replayer
}

// scenarios are the paths through the workflow code, each with a run that took it.
var scenarios = map[string]func(w *world) client.WorkflowRun{
	"success":         func(w *world) client.WorkflowRun { return w.enqueue(deadletter.Job{Type: "Fine"}, "argument") },
	"retried-success": func(w *world) client.WorkflowRun { return w.enqueue(deadletter.Job{Type: "Second", Policy: quick(3)}) },
	"max-retries":     func(w *world) client.WorkflowRun { return w.enqueue(deadletter.Job{Type: "Fail", Policy: quick(2)}) },
	"fatal":           func(w *world) client.WorkflowRun { return w.enqueue(deadletter.Job{Type: "Fatal"}) },
	"unknown-job-type": func(w *world) client.WorkflowRun {
		return w.enqueue(deadletter.Job{Type: "NoSuch", Policy: noGrace(1)})
	},
	"unknown-job-type-grace": func(w *world) client.WorkflowRun {
		policy := quick(1)
		policy.UnknownTypeGrace = 2 * time.Second
		return w.enqueue(deadletter.Job{Type: "NoSuch", Policy: policy})
	},
	"unknown-job-type-foreign": func(w *world) client.WorkflowRun {
		w.startForeign()
		return w.bare(client.StartWorkflowOptions{}, map[string]any{"type": "Unknown", "task_queue": "foreign", "policy": map[string]any{"max_attempts": 1, "base_delay": "1s"}})
	},
	"timeout": func(w *world) client.WorkflowRun {
		return w.enqueue(deadletter.Job{Type: "Hang", Policy: deadletter.Policy{MaxAttempts: 1, AttemptTimeout: time.Second}})
	},
	"age-next-wait": func(w *world) client.WorkflowRun {
		return w.enqueue(deadletter.Job{Type: "Fail", Policy: deadletter.Policy{BaseDelay: time.Hour, MaxJobAge: time.Minute}})
	},
	"age-in-queue": func(w *world) client.WorkflowRun {
		return w.bare(client.StartWorkflowOptions{}, map[string]any{
			"type": "Fine", "task_queue": "nobody", "policy": map[string]any{"max_job_age": "2s"}, "start_delay": "0s",
		})
	},
	"age-before-start": func(w *world) client.WorkflowRun {
		delay := -time.Hour // due an hour before it started: too old at its first task
		return w.bare(client.StartWorkflowOptions{}, job.Options{Type: "Fine", Policy: deadletter.Policy{MaxJobAge: time.Minute}, StartDelay: &delay})
	},
	"start-delay-asked": func(w *world) client.WorkflowRun {
		return w.bare(client.StartWorkflowOptions{StartDelay: 2 * time.Second}, map[string]any{"type": "Fine", "policy": map[string]any{"max_job_age": "8s"}})
	},
	"invalid-options": func(w *world) client.WorkflowRun {
		return w.bare(client.StartWorkflowOptions{}, map[string]any{"policy": map[string]any{"max_attempts": 0.5}})
	},
	// Two histories of before it was refused lie beside its own: of a job that an earlier
	// build had accepted, and of one that went on in a new run.
	"doubled-options-refused": func(w *world) client.WorkflowRun {
		return w.bare(client.StartWorkflowOptions{}, json.RawMessage(`{"type":"Fine","type":"Fail"}`))
	},
	"nine-arguments": func(w *world) client.WorkflowRun {
		return w.bare(client.StartWorkflowOptions{}, map[string]any{"type": "Fine"}, 1, 2, 3, 4, 5, 6, 7, 8, 9)
	},
	"cancelled-before-start": func(w *world) client.WorkflowRun {
		return w.cancelled(deadletter.Job{Type: "Fine", StartDelay: time.Hour}, func(client.WorkflowRun) {})
	},
	"cancelled-running": func(w *world) client.WorkflowRun {
		return w.cancelled(deadletter.Job{Type: "Hang", Policy: deadletter.Policy{HeartbeatTimeout: 20 * time.Second}}, w.pendingIn(enumspb.PENDING_ACTIVITY_STATE_STARTED))
	},
	"cancelled-waiting": func(w *world) client.WorkflowRun {
		return w.cancelled(deadletter.Job{Type: "Fail", Policy: deadletter.Policy{BaseDelay: time.Hour, HeartbeatTimeout: -1}}, w.failedOnce)
	},
	"cancelled-discarded": func(w *world) client.WorkflowRun {
		return w.cancelled(deadletter.Job{Type: "Fail", Policy: deadletter.Policy{BaseDelay: time.Hour, DiscardCancelled: true}}, w.failedOnce)
	},
	"sweep": func(w *world) client.WorkflowRun {
		w.terminate(w.enqueue(deadletter.Job{Type: "Fine", StartDelay: time.Hour}), "")
		return w.startSweep()
	},
	"replay": func(w *world) client.WorkflowRun { return w.replay(w.deadJob(), "") },
	"replay-succeeds": func(w *world) client.WorkflowRun {
		dead := w.enqueue(deadletter.Job{Type: "Later", Policy: quick(1)})
		_ = w.wait(dead, nil)
		return w.replay(dead, "")
	},
	"bulk-finished": func(w *world) client.WorkflowRun {
		return w.bulk(job.BulkPurge, job.BulkSettings{})
	},
	"bulk-stopped-by-canary": func(w *world) client.WorkflowRun {
		return w.bulk(job.BulkReplay, job.BulkSettings{Canary: 1})
	},
	"bulk-paused-and-cancelled": func(w *world) client.WorkflowRun {
		run := w.bulk(job.BulkReplay, job.BulkSettings{Rate: 0.01}) // its first member is due in 100s
		for _, message := range []string{job.BulkPauseMessage, job.BulkResumeMessage, job.BulkCancelMessage} {
			require.NoError(w.t, w.client.SignalWorkflow(w.t.Context(), run.GetID(), "", message, job.BulkControl{Actor: "tester"}))
			want := map[string]job.PlanState{
				job.BulkPauseMessage: job.PlanPaused, job.BulkResumeMessage: job.PlanApplying, job.BulkCancelMessage: job.PlanCancelled,
			}[message]
			require.Eventually(w.t, func() bool {
				plan, err := w.operator.Plan(w.t.Context(), strings.TrimPrefix(run.GetID(), job.BulkWorkflowID("")))
				return err == nil && plan.State == want
			}, patience, 20*time.Millisecond, message)
		}
		return run
	},
	"throttled": func(w *world) client.WorkflowRun {
		return w.enqueue(deadletter.Job{Type: "Throttled", Policy: quick(2)})
	},
	// As the interceptor of any language would say it.
	"circuit-open":    func(w *world) client.WorkflowRun { return w.enqueue(deadletter.Job{Type: "Broken", Policy: quick(1)}) },
	"worker-shutdown": func(w *world) client.WorkflowRun { return w.enqueue(deadletter.Job{Type: "Stopped", Policy: quick(1)}) },
	"snoozed":         func(w *world) client.WorkflowRun { return w.enqueue(deadletter.Job{Type: "Snooze", Policy: quick(1)}) },
	"cancelled-snoozing": func(w *world) client.WorkflowRun {
		return w.cancelled(deadletter.Job{Type: "SnoozeLong"}, w.snoozing)
	},
	"retried-now": func(w *world) client.WorkflowRun {
		run := w.enqueue(deadletter.Job{Type: "SnoozeOnce", Policy: quick(1)})
		w.snoozing(run)
		require.NoError(w.t, w.client.SignalWorkflow(w.t.Context(), run.GetID(), run.GetRunID(), job.RetryNowSignal, nil))
		return run
	},
	"retried-now-delayed": func(w *world) client.WorkflowRun {
		run := w.enqueue(deadletter.Job{Type: "Fine", StartDelay: time.Hour})
		_, err := w.retryNow(run)
		require.NoError(w.t, err)
		return run
	},
	"retention": func(w *world) client.WorkflowRun { return w.startRetention() },
	"snoozed-by-foreign-worker": func(w *world) client.WorkflowRun {
		w.startForeign()
		return w.bare(client.StartWorkflowOptions{}, map[string]any{"type": "Foreign", "task_queue": "foreign"})
	},
	"zombie": func(w *world) client.WorkflowRun {
		w.startForeign()
		return w.bare(client.StartWorkflowOptions{}, map[string]any{"type": "Silent", "task_queue": "foreign", "policy": map[string]any{"heartbeat_timeout": "1s"}})
	},
}

// snoozing waits until the job waits in a timer.
func (w *world) snoozing(run client.WorkflowRun) {
	w.t.Helper()
	require.Eventually(w.t, func() bool {
		events := w.history(run)
		return events[len(events)-1].GetEventType() == enumspb.EVENT_TYPE_TIMER_STARTED
	}, patience, 20*time.Millisecond)
}

// startForeign starts a worker without the plugin, as one in another language is.
func (w *world) startForeign() {
	w.t.Helper()
	foreign := worker.New(w.client, "foreign", worker.Options{})
	var calls atomic.Int32
	foreign.RegisterActivityWithOptions(func(context.Context) error {
		if calls.Add(1) == 1 {
			return temporal.NewNonRetryableApplicationError("later", "deadletter.Snooze", nil, map[string]string{"delay": "10ms"})
		}
		return nil
	}, activity.RegisterOptions{Name: "Foreign"})
	foreign.RegisterActivityWithOptions(hang, activity.RegisterOptions{Name: "Silent"})
	var unknown atomic.Int32
	foreign.RegisterActivityWithOptions(func(context.Context) error {
		if unknown.Add(1) == 1 {
			return temporal.NewApplicationError("Activity function Unknown is not registered on this Worker, available activities: []", "NotFoundError")
		}
		return nil
	}, activity.RegisterOptions{Name: "Unknown"})
	w.start(foreign)
}

// bulk starts a bulk operation on one dead letter of its own.
func (w *world) bulk(verb job.BulkVerb, settings job.BulkSettings) client.WorkflowRun {
	w.t.Helper()
	plan := w.plan(dlqstore.PlanRequest{
		Verb: verb, Filter: dlqstore.Filter{WorkflowID: w.deadJob().GetID()}, Parameters: dlqstore.PlanParameters{BulkSettings: settings},
	})
	require.EqualValues(w.t, 1, plan.Members)
	w.apply(plan)
	return w.client.GetWorkflow(w.t.Context(), job.BulkWorkflowID(plan.ID), "")
}

func (w *world) bare(options client.StartWorkflowOptions, args ...any) client.WorkflowRun {
	w.t.Helper()
	options.TaskQueue = w.queue
	run, err := w.client.ExecuteWorkflow(w.t.Context(), options, deadletter.WorkflowType, args...)
	require.NoError(w.t, err)
	return run
}

func (w *world) cancelled(j deadletter.Job, reached func(client.WorkflowRun)) client.WorkflowRun {
	w.t.Helper()
	run := w.enqueue(j)
	reached(run)
	require.NoError(w.t, w.client.CancelWorkflow(w.t.Context(), run.GetID(), run.GetRunID()))
	return run
}

// TestFreshHistories proves that what a server records of each path today replays,
// and keeps it for tomorrow when asked to.
func TestFreshHistories(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var second, later, snoozes, hurried, broken, stopped atomic.Int32
	once := func(calls *atomic.Int32, errorType string) func(context.Context) error {
		return func(context.Context) error {
			if calls.Add(1) == 1 {
				return temporal.NewNonRetryableApplicationError("not now", errorType, nil)
			}
			return nil
		}
	}
	w.startJobs(handlers{
		"Fine": func(context.Context) (string, error) { return "fine", nil }, "Fail": fail, "Hang": hang,
		"Fatal": func(context.Context) error { return deadletter.Fatal(errors.New("no")) },
		"Second": func(context.Context) error {
			if second.Add(1) == 1 {
				return errors.New("not yet")
			}
			return nil
		},
		"Later": func(context.Context) error {
			if later.Add(1) == 1 {
				return errors.New("not yet")
			}
			return nil
		},
		"Throttled":  func(context.Context) error { return deadletter.Throttled(errors.New("429"), 0) },
		"SnoozeLong": func(context.Context) error { return deadletter.Snooze(time.Hour, "not yet") },
		"SnoozeOnce": func(context.Context) error {
			if hurried.Add(1) == 1 {
				return deadletter.Snooze(time.Hour, "not yet")
			}
			return nil
		},
		"Broken":  once(&broken, job.CircuitOpenErrorType),
		"Stopped": once(&stopped, job.WorkerShutdownErrorType),
		"Snooze": func(context.Context) error {
			if snoozes.Add(1) <= 2 {
				return deadletter.Snooze(time.Second, "not yet")
			}
			return nil
		},
	})
	w.startDLQ(nil)
	runs := map[string]client.WorkflowRun{}
	for name, start := range scenarios {
		runs[name] = start(w)
	}
	for name, run := range runs {
		_ = w.wait(run, nil)
		w.replays(name, run)
	}
	w.continuation()
	// The operator workflow, in the middle of its life.
	w.waitOperator()
	dead := w.deadJob()
	in := job.ReplayInput{WorkflowID: dead.GetID(), Actor: "tester"}
	require.NoError(t, w.client.SignalWorkflow(t.Context(), deadletter.OperatorWorkflowID, "", "replay", in))
	require.NoError(t, w.update(in).Get(t.Context(), nil))
	require.Eventually(t, func() bool { return w.dead(dead).ResurrectionCount == 2 }, patience, 20*time.Millisecond)
	w.replays("operator", w.client.GetWorkflow(t.Context(), deadletter.OperatorWorkflowID, ""))
	doomed := w.deadJob()
	require.NoError(t, w.tell(job.EditMessage, job.EditInput{WorkflowID: dead.GetID(), Revision: 1, Edit: job.Edit{TaskQueue: "elsewhere"}}, &job.EditOutput{}))
	require.NoError(t, w.client.SignalWorkflow(t.Context(), deadletter.OperatorWorkflowID, "", job.PurgeMessage, job.PurgeInput{WorkflowID: doomed.GetID()}))
	w.purged(doomed)
	w.replays("operator-verbs", w.client.GetWorkflow(t.Context(), deadletter.OperatorWorkflowID, ""))
	// Histories of before that change have such a signal without an activity.
	for _, in := range []map[string]any{{"workflow_id": 5}, {"workflow_id": dead.GetID()}} {
		require.NoError(t, w.client.SignalWorkflow(t.Context(), deadletter.OperatorWorkflowID, "", job.PinMessage, in))
	}
	require.Eventually(t, func() bool { return w.dead(dead).Pinned }, patience, 20*time.Millisecond)
	w.replays("operator-refused-signal", w.client.GetWorkflow(t.Context(), deadletter.OperatorWorkflowID, ""))
}

// continuation takes the path of a job whose history is long when it ends free of
// charge: it goes on in a second run.
func (w *world) continuation() {
	w.t.Helper()
	const queue = "long"
	run := w.enqueue(deadletter.Job{Type: "Snooze", TaskQueue: queue, Policy: quick(1)}, "argument")
	for range 1000 { // the job ignores them; the history holds them
		require.NoError(w.t, w.client.SignalWorkflow(w.t.Context(), run.GetID(), "", "noise", nil))
	}
	var calls atomic.Int32
	w.startJobsOn(queue, handlers{"Snooze": func(context.Context, string) error {
		if calls.Add(1) == 1 {
			return deadletter.Snooze(0, "not yet")
		}
		return nil
	}})
	first, last := w.client.GetWorkflow(w.t.Context(), run.GetID(), run.GetRunID()), w.client.GetWorkflow(w.t.Context(), run.GetID(), "")
	require.NoError(w.t, w.wait(run, nil))
	require.Equal(w.t, enumspb.WORKFLOW_EXECUTION_STATUS_CONTINUED_AS_NEW, w.status(first))
	w.replays("continued", first)
	w.replays("carried-on", last)
}

// TestWithoutCache proves the paths of a job and of the operator workflow once
// more in a process that keeps no workflow in memory, so that each task replays
// all that went before.
func TestWithoutCache(t *testing.T) {
	t.Parallel()
	executable, err := os.Executable()
	require.NoError(t, err)
	again := exec.CommandContext(t.Context(), executable, "-test.run", "^(TestSuccess|TestCancelled|TestReplayDoors)$", "-test.v")
	again.Env = append(os.Environ(), noCacheEnv+"=1")
	out, err := again.CombinedOutput()
	require.NoError(t, err, "%s", out)
	for _, name := range []string{"TestSuccess", "TestCancelled", "TestReplayDoors"} {
		require.Contains(t, string(out), "--- PASS: "+name+" ")
	}
}

// replays replays the history of a run, and records it under its name, if it has
// one and that is asked for.
func (w *world) replays(name string, run client.WorkflowRun) {
	w.t.Helper()
	history := &historypb.History{Events: w.history(run)}
	require.NoError(w.t, newReplayer(w.t).ReplayWorkflowHistory(quiet(), history), name)
	if !*record || name == "" {
		return
	}
	const readable = 100 // events; of more nobody reads one by one, and the file is half the size
	data, err := protojson.MarshalOptions{Multiline: len(history.GetEvents()) <= readable}.Marshal(history)
	require.NoError(w.t, err)
	// Sticky queues are named after the machine.
	host, err := os.Hostname()
	require.NoError(w.t, err)
	data = bytes.ReplaceAll(data, []byte(`"`+host+`:`), []byte(`"host:`))
	keep(w.t, name, data)
	if name == "max-retries" {
		keep(w.t, "bad-other-activity", bytes.ReplaceAll(data, []byte(job.MoveActivityType), []byte("deadletter.Elsewhere")))
	}
}

func keep(t testing.TB, name string, data []byte) {
	t.Helper()
	file, err := os.OpenFile(filepath.Join(histories, name+".json"), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, os.ErrExist) {
		return
	}
	require.NoError(t, err)
	_, err = file.Write(data)
	require.NoError(t, errors.Join(err, file.Close()))
}
