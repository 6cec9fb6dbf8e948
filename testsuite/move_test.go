package testsuite_test

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"

	"github.com/deadletter-dev/deadletter"
	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/internal/devstack"
	"github.com/deadletter-dev/deadletter/job"
)

func fail(context.Context) error { return errors.New("boom") }

// TestKilledAfterCommit proves that a worker killed between the commit of a move
// and the activity's completion leaves one dead letter, one event and one list of
// attempts, and that the job still closes.
func TestKilledAfterCommit(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.startJobs(handlers{"Fail": fail})
	doomed := w.startProcess(roleDLQ, "RespondActivityTaskCompleted")
	run := w.enqueue(deadletter.Job{Type: "Fail", Policy: quick(1)})

	var exit *exec.ExitError
	require.ErrorAs(t, doomed.Wait(), &exit)
	require.Equal(t, syscall.SIGKILL, exit.Sys().(syscall.WaitStatus).Signal())
	before := w.dead(run) // committed
	require.Equal(t, "Running", w.status(run).String())

	w.startDLQ(nil)
	// The server learns of the lost worker only by the activity's timeout, a minute.
	require.ErrorContains(t, w.wait(run, nil), "dead-lettered: max_retries_exceeded after 1 attempts: boom")
	require.Equal(t, before, w.dead(run))
	w.movedOnce(run)
}

func (w *world) movedOnce(run client.WorkflowRun) {
	w.t.Helper()
	require.EqualValues(w.t, 1, w.count())
	require.Equal(w.t, []string{dlqstore.VerbMove}, w.verbs(w.key(run)))
	attempts, err := w.store.Attempts(w.t.Context(), w.key(run))
	require.NoError(w.t, err)
	require.Len(w.t, attempts, 1)
}

// TestCompletionLost proves the same for a completion that is lost on its way,
// three times over.
func TestCompletionLost(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var lost atomic.Int32
	plugin, err := deadletter.NewPlugin(deadletter.Options{Store: w.openStore()})
	require.NoError(t, err)
	options := w.options(plugin)
	options.ConnectionOptions.DialOptions = beforeCall("RespondActivityTaskCompleted", func() error {
		if lost.Add(1) <= 3 {
			return errors.New("lost on its way")
		}
		return nil
	})
	w.start(worker.New(w.dialWith(options), deadletter.DefaultTaskQueue, worker.Options{}))
	w.startJobs(handlers{"Fail": fail})

	run := w.enqueue(deadletter.Job{Type: "Fail", Policy: quick(1)})
	require.ErrorContains(t, w.wait(run, nil), "after 1 attempts")
	require.Greater(t, lost.Load(), int32(3), "the completion was never lost")
	w.movedOnce(run)
}

// TestFaultInsideMove proves that a fault at each statement of the move, and in
// the hook, leaves nothing visible, that the job waits without history growth,
// and that the move succeeds when the fault is gone.
func TestFaultInsideMove(t *testing.T) {
	t.Parallel()
	for _, place := range []string{"events", "dead_letters", "attempts", "hook"} {
		t.Run(place, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			db := w.connect()
			var broken atomic.Bool
			broken.Store(true)
			if place != "hook" {
				_, err := db.Exec(t.Context(), `create function public.fault() returns trigger language plpgsql as $$
					begin raise exception 'injected'; end $$`)
				require.NoError(t, err)
				_, err = db.Exec(t.Context(), fmt.Sprintf(
					`create trigger fault before insert on deadletter.%s for each row execute function public.fault()`, place))
				require.NoError(t, err)
			}
			w.startJobs(handlers{"Fail": fail})
			w.startDLQ(func(context.Context, pgx.Tx, *dlqstore.DeadLetter) error {
				if place == "hook" && broken.Load() {
					return errors.New("injected")
				}
				return nil
			})
			run := w.enqueue(deadletter.Job{Type: "Fail", Policy: quick(1)})

			require.Eventually(t, func() bool { return w.pendingMove(run).GetAttempt() >= 3 }, patience, 20*time.Millisecond)
			require.Contains(t, w.pendingMove(run).GetLastFailure().GetMessage(), "injected")
			length := len(settled(w.history(run)))
			for _, table := range []string{"events", "dead_letters", "attempts"} {
				require.Zero(t, w.rows(db, table), table)
			}

			broken.Store(false)
			if place != "hook" {
				_, err := db.Exec(t.Context(), fmt.Sprintf(`drop trigger fault on deadletter.%s`, place))
				require.NoError(t, err)
			}
			require.ErrorContains(t, w.wait(run, nil), "dead-lettered")
			w.movedOnce(run)
			require.Len(t, settled(w.history(run)), length+6, "the fault cost history events")
		})
	}
}

func (w *world) connect() *pgx.Conn {
	w.t.Helper()
	db, err := pgx.Connect(w.t.Context(), w.database)
	require.NoError(w.t, err)
	w.t.Cleanup(func() { _ = db.Close(context.WithoutCancel(w.t.Context())) })
	return db
}

func (w *world) rows(db *pgx.Conn, table string) (n int) {
	w.t.Helper()
	err := db.QueryRow(w.t.Context(), `select count(*) from `+pgx.Identifier{"deadletter", table}.Sanitize()).Scan(&n)
	require.NoError(w.t, err)
	return n
}

// pendingMove is the job's terminal activity, nil when it is not pending.
func (w *world) pendingMove(run client.WorkflowRun) *workflowpb.PendingActivityInfo {
	description, err := w.describe(run.GetID(), run.GetRunID())
	require.NoError(w.t, err)
	for _, pending := range description.GetPendingActivities() {
		if pending.GetActivityType().GetName() == job.MoveActivityType {
			return pending
		}
	}
	return nil
}

// TestPostgresOutage proves that jobs which die while Postgres is down for a
// minute wait for it, without history growth, and are all there afterwards.
func TestPostgresOutage(t *testing.T) {
	t.Parallel()
	const jobs, outage = 50, time.Minute
	w := newWorld(t)
	postgres, err := devstack.StartPostgres(t.Context(), devstack.PostgresOptions{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, postgres.Stop()) })
	w.database = postgres.URL
	require.NoError(t, dlqstore.Migrate(t.Context(), w.database))
	w.store = w.openStore()
	w.startJobs(handlers{"Fail": fail})
	w.startDLQ(nil)

	require.NoError(t, postgres.Crash())
	down := time.Now()
	runs := make([]client.WorkflowRun, jobs)
	for i := range runs {
		runs[i] = w.enqueue(deadletter.Job{Type: "Fail", Policy: quick(1)}, i)
	}
	lengths := make([]int, jobs)
	for i, run := range runs {
		require.Eventually(t, func() bool { return w.pendingMove(run).GetAttempt() >= 2 }, patience, 50*time.Millisecond)
		lengths[i] = len(w.history(run))
	}
	require.Eventually(t, func() bool { return time.Since(down) > outage }, 2*outage, 100*time.Millisecond)
	for i, run := range runs {
		require.Len(t, w.history(run), lengths[i], "the outage cost history events")
	}

	require.NoError(t, postgres.Restart(t.Context()))
	for i, run := range runs {
		require.ErrorContains(t, w.wait(run, nil), "dead-lettered")
		require.JSONEq(t, fmt.Sprintf("[%d]", i), string(w.dead(run).PayloadJSON))
		w.atMost(t, 17, run)
	}
	require.EqualValues(t, jobs, w.count())
}

// TestMoveTx proves that a row of a legacy table which the hook deletes is gone
// exactly when the dead letter is there, seen from outside at every moment.
func TestMoveTx(t *testing.T) {
	t.Parallel()
	const jobs = 20
	w := newWorld(t)
	db := w.connect()
	_, err := db.Exec(t.Context(), `create table legacy_jobs (id text primary key)`)
	require.NoError(t, err)
	w.startJobs(handlers{"Fail": fail})
	var tried sync.Map
	w.startDLQ(func(ctx context.Context, tx pgx.Tx, dl *dlqstore.DeadLetter) error {
		// Not qualified: the hook's statements run under the caller's search path.
		if _, err := tx.Exec(ctx, `delete from legacy_jobs where id = $1`, dl.WorkflowID); err != nil {
			return err
		}
		if _, again := tried.LoadOrStore(dl.WorkflowID, true); !again {
			return errors.New("each job's first call fails")
		}
		return nil
	})
	runs := make([]client.WorkflowRun, jobs)
	for i := range runs {
		id := fmt.Sprintf("legacy-%d", i)
		_, err := db.Exec(t.Context(), `insert into legacy_jobs values ($1)`, id)
		require.NoError(t, err)
		runs[i] = w.enqueue(deadletter.Job{ID: id, Type: "Fail", Policy: quick(1)})
	}
	require.Eventually(t, func() bool {
		var legacy, dead int
		require.NoError(t, db.QueryRow(t.Context(),
			`select (select count(*) from legacy_jobs), (select count(*) from deadletter.dead_letters)`).Scan(&legacy, &dead))
		require.Equal(t, jobs, legacy+dead, "a job was in both tables, or in neither")
		return dead == jobs
	}, patience, time.Millisecond)
	for _, run := range runs {
		require.Error(t, w.wait(run, nil))
	}
}

// TestWorkerRestarts proves that every job ends once when its workers stop and
// start in the middle, and that no handler runs more often than it must.
//
// A task that the server hands out in the moment in which a poll is given up is
// lost until its heartbeat expires: it never ran, so these jobs retry it.
func TestWorkerRestarts(t *testing.T) {
	t.Parallel()
	const jobs, attempts = 200, 4
	w := newWorld(t)
	var calls [jobs]atomic.Int32
	h := handlers{"Odd": func(_ context.Context, i int) (int, error) {
		calls[i].Add(1)
		if i%2 == 1 {
			return 0, errors.New("odd")
		}
		return i, nil
	}}
	policy := quick(attempts)
	// An attempt that ran must have reported by then: else it runs again.
	policy.HeartbeatTimeout, policy.RetryZombies = 30*time.Second, true

	stopJobs, stopDLQ := w.startJobs(h), w.startDLQ(nil)
	runs := make([]client.WorkflowRun, jobs)
	for i := range runs {
		runs[i] = w.enqueue(deadletter.Job{Type: "Odd", Policy: policy}, i)
		if i == jobs/2 {
			stopJobs()
			stopDLQ()
		}
	}
	w.startJobs(h)
	w.startDLQ(nil)
	for i, run := range runs {
		err := w.wait(run, nil)
		if i%2 == 0 {
			require.NoError(t, err)
			require.EqualValues(t, 1, calls[i].Load(), "job %d ran twice", i)
			continue
		}
		// Its last attempt may have been a lost one; then it is a zombie.
		require.ErrorContains(t, err, "dead-lettered: ")
		require.ErrorContains(t, err, "after 4 attempts")
		require.Equal(t, []string{dlqstore.VerbMove}, w.verbs(w.key(run)))
		require.LessOrEqual(t, calls[i].Load(), int32(attempts))
	}
	require.EqualValues(t, jobs/2, w.count())
}
