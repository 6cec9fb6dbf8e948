package testsuite_test

import (
	"context"
	"flag"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"

	"github.com/deadletter-dev/deadletter"
	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/job"
	"github.com/deadletter-dev/deadletter/workflows"
)

// flood is how many signals TestOperatorFlood sends: more than several runs of the
// operator workflow hold. With -flood 20000 the bounds are those of production.
var flood = flag.Int("flood", 600, "how many signals the operator workflow is flooded with")

// production is from how many signals on the runs have the bounds of production.
const production = 5000

// startOperator starts the operator workflow before any worker does, with runs that are
// short when the flood is small.
func (w *world) startOperator() {
	w.t.Helper()
	if *flood < production {
		w.startOperatorWith(job.OperatorInput{Version: job.OperatorVersion, MaxHistory: 300})
	} else {
		w.startOperatorWith(job.OperatorInput{Version: job.OperatorVersion})
	}
}

// startOperatorWith starts it with an input, or, as earlier versions did, without one.
func (w *world) startOperatorWith(input ...any) {
	w.t.Helper()
	_, err := w.client.ExecuteWorkflow(w.t.Context(), client.StartWorkflowOptions{
		ID: deadletter.OperatorWorkflowID, TaskQueue: deadletter.DefaultTaskQueue, WorkflowTaskTimeout: workflows.OperatorTaskTime,
	}, job.OperatorWorkflowType, input...)
	require.NoError(w.t, err)
}

// runsOfOperator are its runs, the newest first. Each but that one must have gone on in the next.
func (w *world) runsOfOperator() (runs []client.WorkflowRun) {
	w.t.Helper()
	for runID := w.operatorRun(); runID != ""; {
		run := w.client.GetWorkflow(w.t.Context(), deadletter.OperatorWorkflowID, runID)
		if len(runs) > 0 {
			require.Equal(w.t, enumspb.WORKFLOW_EXECUTION_STATUS_CONTINUED_AS_NEW, w.status(run), "run %s", runID)
		}
		runs = append(runs, run)
		runID = w.history(run)[0].GetWorkflowExecutionStartedEventAttributes().GetContinuedExecutionRunId()
	}
	return runs
}

func (w *world) operatorRun() string {
	w.t.Helper()
	description, err := w.describe(deadletter.OperatorWorkflowID, "")
	require.NoError(w.t, err)
	return description.GetWorkflowExecutionInfo().GetExecution().GetRunId()
}

// signalUntilTaken sends a signal as a sender should: again, when the server refuses it.
func (w *world) signalUntilTaken(message string, in any) error {
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	for {
		err := w.client.SignalWorkflow(ctx, deadletter.OperatorWorkflowID, "", message, in)
		if err == nil || ctx.Err() != nil {
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// requestOf is the nth request of a flood: a note on one of the clones, or a purge of what
// is none, which is refused.
func requestOf(n int) (message string, in any) {
	id := fmt.Sprintf("flood-%d", n)
	if n%4 == 0 {
		return job.PurgeMessage, job.PurgeInput{WorkflowID: "nobody", RequestID: id}
	}
	return job.NoteMessage, job.NoteInput{WorkflowID: fmt.Sprintf("clone-%d", 1+n%50), Text: "x", RequestID: id}
}

// answeredOf counts the requests of a flood that have an event, and the events.
func (w *world) answeredOf(ctx context.Context) (requests, events int) {
	w.t.Helper()
	require.NoError(w.t, w.store.Pool().QueryRow(ctx, `
select count(distinct request_id), count(*) from deadletter.events
where request_id like 'flood-%' and verb in ('note', 'purge_refused')`).Scan(&requests, &events))
	return requests, events
}

// TestOperatorFlood proves that each request which the server took is carried out or
// refused, once, with its event: signals from 16 senders, with the worker killed twice.
func TestOperatorFlood(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.notedClones()
	w.startOperator()
	worker := w.startProcess(roleDLQ, "never")
	var next atomic.Int64
	sent := make(chan error, 16)
	for range 16 {
		go func() {
			for n := int(next.Add(1)); n <= *flood; n = int(next.Add(1)) {
				message, in := requestOf(n)
				sent <- w.signalUntilTaken(message, in)
			}
		}()
	}
	for n := 1; n <= *flood; n++ {
		require.NoError(t, <-sent)
		if n == *flood/3 || n == *flood*2/3 {
			require.NoError(t, worker.Process.Kill())
			_ = worker.Wait()
			worker = w.startProcess(roleDLQ, "never")
		}
	}
	w.grows(*flood, func() int { n, _ := w.answeredOf(t.Context()); return n })
	_, events := w.answeredOf(t.Context())
	require.Equal(t, *flood, events, "a request has one event")
	runs := w.runsOfOperator()
	// How often depends on how many signals come while no worker runs.
	require.Greater(t, len(runs), 1, "the bound was not crossed")
	for _, run := range runs {
		w.replays("", run)
	}
	w.replaysBacklogs()
	t.Logf("%d signals, %d runs", *flood, len(runs))
}

// notedClones makes the dead letters that a flood is about, with a worker of its own.
func (w *world) notedClones() {
	w.t.Helper()
	stop := w.startJobs(handlers{"Fail": fail})
	stopDLQ := w.startDLQ(nil)
	dead := w.deadJob()
	stop()
	stopDLQ()
	w.cloneDead(dead, "clone-", 50)
	// The worker has started the operator workflow; each test starts its own.
	w.waitOperator()
	require.NoError(w.t, w.client.TerminateWorkflow(w.t.Context(), deadletter.OperatorWorkflowID, "", "a new one is started"))
}

// replaysBacklogs replays what the runs could not take along.
func (w *world) replaysBacklogs() {
	w.t.Helper()
	for _, run := range w.runsOfOperator() {
		for _, backlog := range w.backlogsOf(run) {
			require.NoError(w.t, w.wait(backlog, nil))
			w.replays("", backlog)
		}
	}
}

// backlogsOf are the workflows that a run of the operator workflow has given requests to.
func (w *world) backlogsOf(run client.WorkflowRun) (backlogs []client.WorkflowRun) {
	w.t.Helper()
	for _, event := range w.history(run) {
		if started := event.GetChildWorkflowExecutionStartedEventAttributes(); started != nil {
			backlogs = append(backlogs, w.client.GetWorkflow(w.t.Context(), started.GetWorkflowExecution().GetWorkflowId(), ""))
		}
	}
	return backlogs
}

// TestOperatorBacklog proves that a run which has answered many updates and finds most
// signals that a run may take, when its worker comes back, loses none of them.
func TestOperatorBacklog(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.notedClones()
	w.startOperator()
	stop := w.startDLQ(nil)
	updates := min(480, *flood/20)
	signals := min(9990, *flood/2)
	send := func(from, to int, send func(n int) error) {
		var next atomic.Int64
		next.Store(int64(from))
		var senders sync.WaitGroup
		for range 16 {
			senders.Go(func() {
				for n := int(next.Add(1)); n <= to; n = int(next.Add(1)) {
					if err := send(n); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		senders.Wait()
	}
	send(0, updates, func(n int) error {
		id := fmt.Sprintf("flood-%d", n)
		return w.updateUntilAnswered(job.NoteMessage, id, job.NoteInput{WorkflowID: "clone-1", Text: "x", RequestID: id})
	})
	stop()
	send(updates, updates+signals, func(n int) error {
		message, in := requestOf(n)
		return w.signalUntilTaken(message, in)
	})
	w.startDLQ(nil)
	w.grows(updates+signals, func() int { n, _ := w.answeredOf(t.Context()); return n })
	_, events := w.answeredOf(t.Context())
	require.Equal(t, updates+signals, events, "a request has one event")
	runs := w.runsOfOperator()
	require.Greater(t, len(runs), 1)
	for _, run := range runs {
		w.replays("", run)
	}
	w.replaysBacklogs()
	t.Logf("%d updates, %d signals, %d runs", updates, signals, len(runs))
}

// updateUntilAnswered sends an update as a sender should: again under its id, when its
// run ends first.
func (w *world) updateUntilAnswered(message, id string, in any) error {
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	for {
		handle, err := w.client.UpdateWorkflow(ctx, client.UpdateWorkflowOptions{
			WorkflowID: deadletter.OperatorWorkflowID, UpdateName: message, UpdateID: id, Args: []any{in},
			WaitForStage: client.WorkflowUpdateStageCompleted,
		})
		if err == nil {
			err = handle.Get(ctx, nil)
		}
		if err == nil || ctx.Err() != nil || !hasErrorType(err, job.HandedOverErrorType) {
			return err
		}
	}
}

// TestHungRequests proves that requests which hang, on a row that is locked, hold up
// neither the other verbs nor the end of the run; they are carried out once the row is free.
func TestHungRequests(t *testing.T) {
	t.Parallel()
	const hung, others = 20, 100
	w := newWorld(t)
	w.notedClones()
	w.startOperatorWith(job.OperatorInput{Version: job.OperatorVersion, MaxHistory: 300})
	w.startDLQ(nil)
	unlock := w.lockRow("clone-50")
	for n := range hung {
		w.signal(job.PurgeMessage, job.PurgeInput{WorkflowID: "clone-50", RequestID: fmt.Sprint("hung-", n)})
	}
	require.Eventually(t, func() bool { return w.waitingForLocks() > 0 }, patience, 20*time.Millisecond)
	update := make(chan error, 1)
	go func() {
		update <- w.updateUntilAnswered(job.PurgeMessage, uuid.NewString(), job.PurgeInput{WorkflowID: "clone-50", RequestID: "hung-0"})
	}()
	first := w.operatorRun()
	for n := range others {
		w.signal(job.NoteMessage, job.NoteInput{WorkflowID: "clone-1", Text: "x", RequestID: fmt.Sprint("flood-", n)})
	}
	w.grows(others, func() int { n, _ := w.answeredOf(t.Context()); return n })
	require.Eventually(t, func() bool { return w.operatorRun() != first }, patience, 50*time.Millisecond, "the run is held open")
	require.Positive(t, w.waitingForLocks(), "nothing hangs any more")
	unlock()
	w.grows(hung, func() (n int) {
		require.NoError(t, w.store.Pool().QueryRow(t.Context(), `select count(*) from deadletter.events where request_id like 'hung-%'`).Scan(&n))
		return n
	})
	if err := <-update; err != nil { // another request may have been the one that purged it
		requireErrorType(t, err, job.NotFoundErrorType)
	}
	_, err := w.store.Get(t.Context(), dlqstore.Key{Namespace: w.namespace, WorkflowID: "clone-50"})
	require.ErrorIs(t, err, dlqstore.ErrNotFound)
	var purged int
	require.NoError(t, w.store.Pool().QueryRow(t.Context(), `select count(*) from deadletter.events where verb = 'purge'`).Scan(&purged))
	require.Equal(t, 1, purged)
}

// lockRow keeps others from a dead letter until the returned function is called.
func (w *world) lockRow(workflowID string) (unlock func()) {
	w.t.Helper()
	tx, err := w.store.Pool().Begin(w.t.Context())
	require.NoError(w.t, err)
	unlock = func() { _ = tx.Rollback(context.WithoutCancel(w.t.Context())) }
	w.t.Cleanup(unlock)
	locked, err := tx.Exec(w.t.Context(), `select 1 from deadletter.dead_letters where workflow_id = $1 for update`, workflowID)
	require.NoError(w.t, err)
	require.EqualValues(w.t, 1, locked.RowsAffected())
	return unlock
}

// TestOperatorHandsOver proves that a request which hangs goes into a workflow of its own
// when the run of the operator workflow ends, also when an earlier version began the run.
// The next run is told nothing, as a worker of an older build would not read it; one of
// version 1 goes by its own rule, and its next run takes the request along until it ends.
func TestOperatorHandsOver(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		input []any
		batch int // how many requests are sent at once
	}{
		"now":       {[]any{job.OperatorInput{Version: job.OperatorVersion, MaxHistory: 40}}, 1},
		"version 1": {[]any{job.OperatorInput{Version: 1, MaxHistory: 40}}, 1},
		"before":    {nil, 100},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.notedClones()
			w.startOperatorWith(test.input...)
			first := w.client.GetWorkflow(t.Context(), deadletter.OperatorWorkflowID, w.operatorRun())
			w.startDLQ(nil)
			unlock := w.lockRow("clone-50")
			w.signal(job.PurgeMessage, job.PurgeInput{WorkflowID: "clone-50", RequestID: "hung"})
			require.Eventually(t, func() bool { return w.waitingForLocks() > 0 }, patience, 20*time.Millisecond)
			for n := 0; w.status(first) == enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING; n++ {
				w.signal(job.NoteMessage, job.NoteInput{WorkflowID: "clone-1", Text: "x", RequestID: fmt.Sprint("flood-", n)})
				if sent := n + 1; sent%test.batch == 0 {
					w.grows(sent, func() int { n, _ := w.answeredOf(t.Context()); return n })
				}
			}
			w.replays(map[string]string{"now": "operator-gave-all", "version 1": "operator-handed-over"}[name], first)

			second := w.client.GetWorkflow(t.Context(), deadletter.OperatorWorkflowID, w.operatorRun())
			require.NoError(t, w.client.CancelWorkflow(t.Context(), second.GetID(), second.GetRunID()))
			require.True(t, temporal.IsCanceledError(second.GetWithOptions(t.Context(), nil, client.WorkflowRunGetOptions{DisableFollowingRuns: true})))
			w.replays(map[string]string{"version 1": "operator-cancelled"}[name], second)
			var next job.OperatorInput
			require.NoError(t, converter.GetDefaultDataConverter().FromPayloads(w.history(second)[0].GetWorkflowExecutionStartedEventAttributes().GetInput(), &next))
			require.Equal(t, job.OperatorVersion, next.Version)
			giver := first
			if name == "version 1" {
				require.NotEmpty(t, next.Requests)
				giver = second
			} else {
				require.Empty(t, next.Requests)
			}
			backlogs := w.backlogsOf(giver)
			require.Len(t, backlogs, 1, "the request was left behind")
			backlog := backlogs[0]
			unlock()
			require.NoError(t, w.wait(backlog, nil))
			w.replays(map[string]string{"now": "backlog"}[name], backlog)
			var actors []string
			require.NoError(t, w.store.Pool().QueryRow(t.Context(),
				`select array_agg(verb || ' by ' || actor) from deadletter.events where request_id = 'hung'`).Scan(&actors))
			require.Equal(t, []string{"purge by signal"}, actors)
		})
	}
}

// waitingForLocks counts sessions of this database that wait for a lock.
func (w *world) waitingForLocks() (n int) {
	w.t.Helper()
	require.NoError(w.t, w.store.Pool().QueryRow(w.t.Context(),
		`select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`).Scan(&n))
	return n
}
