package testsuite_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
	"google.golang.org/protobuf/proto"

	"github.com/deadletter-dev/deadletter"
	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/job"
)

// attempts returns the attempts of a dead job, which must be numbered from 1.
func (w *world) attempts(t *testing.T, run client.WorkflowRun) []dlqstore.Attempt {
	t.Helper()
	attempts, err := w.store.Attempts(t.Context(), w.key(run))
	require.NoError(t, err)
	for i, attempt := range attempts {
		require.Equal(t, i+1, attempt.Attempt)
	}
	return attempts
}

// TestWaits proves that the waits between attempts are the policy's: in their band,
// growing, at the cap exactly the cap, and that the server kept them.
func TestWaits(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.startJobs(handlers{"Fail": fail})
	w.startDLQ(nil)
	policy := deadletter.Policy{MaxAttempts: 4, BaseDelay: 2 * time.Second, BackoffMultiplier: 2, MaxDelay: 5 * time.Second, JitterMaxDelay: 500 * time.Millisecond}
	run := w.enqueue(deadletter.Job{Type: "Fail", Policy: policy})
	require.Error(t, w.wait(run, nil))
	attempts := w.attempts(t, run)
	require.Len(t, attempts, 4)
	for i, band := range []struct{ least, most time.Duration }{
		{2 * time.Second, 2500 * time.Millisecond}, {4 * time.Second, 4500 * time.Millisecond}, {5 * time.Second, 5 * time.Second},
	} {
		wait := attempts[i].Wait
		require.NotNil(t, wait)
		require.GreaterOrEqual(t, *wait, band.least)
		require.LessOrEqual(t, *wait, band.most)
		observed := attempts[i+1].StartedAt.Sub(*attempts[i].EndedAt)
		require.GreaterOrEqual(t, observed, *wait-100*time.Millisecond, "the server did not wait")
	}
	require.Nil(t, attempts[3].Wait, "nothing follows the last attempt")
	require.Equal(t, attempts[0].StartedAt, w.dead(run).FirstAttemptAt)
	require.Equal(t, attempts[3].StartedAt, w.dead(run).LastAttemptAt)
}

// TestThrottle proves what a throttle costs and how long it waits, plain and
// wrapped, and the reason when it spends the budget or the age.
func TestThrottle(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	busy := errors.New("429")
	w.startJobs(handlers{
		"Long":   func(context.Context) error { return deadletter.Throttled(busy, 10*time.Hour) },
		"AtOnce": func(context.Context) error { return deadletter.Throttled(busy, 0) },
		"Wrapped": func(context.Context) error {
			return fmt.Errorf("a: %w", fmt.Errorf("b: %w", errors.Join(errors.New("c"), deadletter.Throttled(busy, time.Second))))
		},
		"Foreign": func(context.Context) error {
			// As a handler in another language raises it.
			return temporal.NewApplicationErrorWithOptions("429", "deadletter.Throttled", temporal.ApplicationErrorOptions{NextRetryDelay: time.Second})
		},
	})
	w.startDLQ(nil)
	policy := deadletter.Policy{MaxAttempts: 2, MaxDelay: 2 * time.Second}
	runs := map[string]client.WorkflowRun{}
	for _, jobType := range []string{"Long", "AtOnce", "Wrapped", "Foreign"} {
		runs[jobType] = w.enqueue(deadletter.Job{Type: jobType, Policy: policy})
	}
	tooOld := w.enqueue(deadletter.Job{Type: "Long", Policy: deadletter.Policy{MaxJobAge: 10 * time.Minute}})
	for jobType, wait := range map[string]time.Duration{"Long": 2 * time.Second, "AtOnce": time.Millisecond, "Wrapped": time.Second, "Foreign": time.Second} {
		require.ErrorContains(t, w.wait(runs[jobType], nil), "dead-lettered: throttled after 2 attempts: ", jobType)
		attempts := w.attempts(t, runs[jobType])
		require.Len(t, attempts, 2, jobType)
		require.Equal(t, wait, *attempts[0].Wait, jobType)
		require.Equal(t, job.ThrottledErrorType, attempts[0].ErrorType)
	}
	err := w.wait(tooOld, nil)
	require.ErrorContains(t, err, "retry_lifetime_expired after 1 attempts: 429")
	for _, says := range []string{"created ", "the next attempt was planned for ", "max_job_age 10m0s ended "} {
		require.ErrorContains(t, err, says)
		require.Contains(t, w.dead(tooOld).ErrorMessage, says)
	}
}

// snoozes is how often TestSnooze snoozes one job: enough for several runs.
var snoozes = flag.Int("snoozes", 400, "how often TestSnooze snoozes one job")

// TestSnooze proves that a snooze costs no attempt, that the age bounds it, and
// that a job which is snoozed all the time keeps a bounded history, its bytes, its
// id and its lineage, with the dead letter under its final run.
func TestSnooze(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var calls sync.Map // job id → how often
	count := func(ctx context.Context) int32 {
		n, _ := calls.LoadOrStore(activity.GetInfo(ctx).WorkflowExecution.ID, new(atomic.Int32))
		return n.(*atomic.Int32).Add(1)
	}
	many := int32(*snoozes)
	w.startJobs(handlers{
		"Twice": func(ctx context.Context, end string) error {
			if count(ctx) <= 2 {
				return fmt.Errorf("not yet: %w", deadletter.Snooze(time.Millisecond, "the file is not there"))
			}
			if end == "succeed" {
				return nil
			}
			return errors.New("boom")
		},
		"Often": func(ctx context.Context, _ string) error {
			id := activity.GetInfo(ctx).WorkflowExecution.ID
			if count(ctx) <= many && !strings.Contains(id, "-replay-") {
				return deadletter.Snooze(0, "busy")
			}
			return errors.New("boom")
		},
		"Forever": func(context.Context) error { return deadletter.Snooze(time.Second, "for ever") },
		"Between": func(ctx context.Context) error { // fails, snoozes, fails
			if count(ctx) == 2 {
				return deadletter.Snooze(0, "in between")
			}
			return fmt.Errorf("boom")
		},
	})
	w.startDLQ(nil)
	good := w.enqueue(deadletter.Job{Type: "Twice", Policy: quick(2)}, "succeed")
	bad := w.enqueue(deadletter.Job{Type: "Twice", Policy: quick(2)}, "fail")
	often := w.enqueue(deadletter.Job{Type: "Often", Policy: quick(1), Tags: map[string]string{"k": "v"}}, "payload")
	between := w.enqueue(deadletter.Job{Type: "Between", Policy: quick(2)})
	forever := w.enqueue(deadletter.Job{Type: "Forever", Policy: deadletter.Policy{MaxJobAge: 5 * time.Second}})

	require.NoError(t, w.wait(good, nil))
	require.ErrorContains(t, w.wait(bad, nil), "max_retries_exceeded after 2 attempts: boom")
	require.ErrorContains(t, w.wait(between, nil), "max_retries_exceeded after 2 attempts: boom")
	require.Len(t, w.attempts(t, between), 2)
	require.ErrorContains(t, w.wait(forever, nil), "retry_lifetime_expired after 0 attempts: snoozed: for ever")

	first := often.GetRunID()
	ctx, cancel := context.WithTimeout(t.Context(), patience+time.Duration(many)*300*time.Millisecond)
	defer cancel()
	require.ErrorContains(t, often.Get(ctx, nil), "max_retries_exceeded after 1 attempts: boom")
	rows, _, err := w.store.List(t.Context(), dlqstore.Filter{Namespace: w.namespace, WorkflowID: often.GetID()}, dlqstore.Page{})
	require.NoError(t, err)
	require.Len(t, rows, 1)
	dl, err := w.store.Get(t.Context(), rows[0].Key)
	require.NoError(t, err)
	require.NotEqual(t, first, dl.RunID, "the job never went on in a new run")
	require.Equal(t, first, dl.FirstRunID)
	require.Equal(t, 1, *dl.Attempts)
	require.Equal(t, map[string]string{"k": "v"}, dl.Tags)
	require.JSONEq(t, `["payload"]`, string(dl.PayloadJSON))
	started := w.history(w.client.GetWorkflow(t.Context(), often.GetID(), first))[0]
	require.Equal(t, started.GetEventTime().AsTime().Truncate(time.Microsecond), *dl.EnqueuedAt, "enqueued_at is not the first run's")
	for _, run := range []string{first, dl.RunID} {
		require.Less(t, len(w.history(w.client.GetWorkflow(t.Context(), often.GetID(), run))), 1200)
	}
	// The replay starts with a fresh budget and age, not with what the run before carried.
	replayed := w.replay(w.client.GetWorkflow(t.Context(), dl.WorkflowID, dl.RunID), "")
	require.ErrorContains(t, w.wait(replayed, nil), "max_retries_exceeded after 1 attempts: boom")
}

// TestFatalInside proves that a fatal error means the same at any depth, and that a
// cancellation or deadline of the handler's own callee is an ordinary failure.
func TestFatalInside(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var calls atomic.Int32
	cases := map[string]struct {
		err    error
		reason job.Reason
		calls  int32
	}{
		"Deep":      {fmt.Errorf("a: %w", fmt.Errorf("b: %w", fmt.Errorf("c: %w", deadletter.Fatal(errors.New("no"))))), job.ReasonFatalError, 1},
		"Joined":    {errors.Join(temporal.NewApplicationError("soft", "Soft"), deadletter.Fatal(errors.New("no"))), job.ReasonFatalError, 1},
		"Cancelled": {fmt.Errorf("callee: %w", context.Canceled), job.ReasonMaxRetriesExceeded, 2},
		"Deadline":  {fmt.Errorf("callee: %w", context.DeadlineExceeded), job.ReasonMaxRetriesExceeded, 2},
		"Unasked":   {temporal.NewCanceledError("callee"), job.ReasonMaxRetriesExceeded, 2},
	}
	h := handlers{}
	for name, c := range cases {
		h[name] = func(context.Context) error { calls.Add(1); return c.err }
	}
	w.startJobs(h)
	w.startDLQ(nil)
	for name, c := range cases {
		calls.Store(0)
		run := w.enqueue(deadletter.Job{Type: name, Policy: quick(2)})
		require.ErrorContains(t, w.wait(run, nil), "dead-lettered: "+string(c.reason), name)
		require.Equal(t, c.calls, calls.Load(), name)
	}
}

// TestCircuitBreaker proves that an open breaker keeps the handler from being
// called without a charge, that it is per type and blind to fatal errors, that
// probes close it, and the reason when the age ends while it refuses.
func TestCircuitBreaker(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var mu sync.Mutex
	var changes []string
	plugin, err := deadletter.NewPlugin(deadletter.Options{CircuitBreaker: deadletter.CircuitBreaker{
		Threshold: 2, OpenTime: time.Second,
		PerType: map[string]deadletter.CircuitBreaker{"Broken": {Threshold: 1, OpenTime: time.Hour}},
		OnStateChange: func(jobType, from, to string) {
			mu.Lock()
			defer mu.Unlock()
			changes = append(changes, jobType+": "+from+" to "+to)
		},
	}})
	require.NoError(t, err)
	var flaky, broken atomic.Int32
	jobs := worker.New(w.dial(plugin), w.queue, worker.Options{})
	for name, fn := range (handlers{
		"Flaky": func(context.Context) error {
			if flaky.Add(1) <= 2 {
				return errors.New("down")
			}
			return nil
		},
		"Broken": func(context.Context) error { broken.Add(1); return errors.New("down") },
		"Fatal":  func(context.Context) error { return deadletter.Fatal(errors.New("no")) },
		"Fine":   func(context.Context) error { return nil },
	}) {
		jobs.RegisterActivityWithOptions(fn, activity.RegisterOptions{Name: name})
	}
	w.start(jobs)
	w.startDLQ(nil)

	// Two failures open it; the third attempt is refused at least once, then a probe
	// closes it. Three attempts suffice only if refusals cost none.
	policy := quick(3)
	policy.CircuitBreakerDelay = 200 * time.Millisecond
	require.NoError(t, w.wait(w.enqueue(deadletter.Job{Type: "Flaky", Policy: policy}), nil))
	require.EqualValues(t, 3, flaky.Load())
	mu.Lock()
	require.Equal(t, []string{"Flaky: closed to open", "Flaky: open to half-open", "Flaky: half-open to closed"}, changes)
	mu.Unlock()

	// An open one for ever: the age ends it, with the one attempt that was made.
	old := policy
	old.MaxJobAge = 6 * time.Second
	run := w.enqueue(deadletter.Job{Type: "Broken", Policy: old})
	require.ErrorContains(t, w.wait(run, nil), "dead-lettered: circuit_breaker_open after 1 attempts")
	require.EqualValues(t, 1, broken.Load())
	require.Equal(t, job.ReasonCircuitBreakerOpen, w.dead(run).Reason)

	for range 5 {
		require.ErrorContains(t, w.wait(w.enqueue(deadletter.Job{Type: "Fatal", Policy: policy}), nil), "fatal_error")
	}
	require.NoError(t, w.wait(w.enqueue(deadletter.Job{Type: "Fine"}), nil))
	mu.Lock()
	defer mu.Unlock()
	require.NotContains(t, strings.Join(changes, "\n"), "Fatal")
}

// TestEveryAttemptIsKept proves that each attempt's error, times, worker and wait
// are in the dead letter, in order and bounded, panics and timeouts included, for
// no event more.
func TestEveryAttemptIsKept(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var calls atomic.Int32
	large := strings.Repeat("x", 1<<20)
	w.startJobs(handlers{
		"Various": func(ctx context.Context) error {
			switch n := calls.Add(1); n {
			case 2:
				panic("second")
			case 3:
				return hang(ctx) // until the attempt times out
			default:
				return fmt.Errorf("error %d", n)
			}
		},
		"Large": func(context.Context) error { return errors.New("head " + large + " tail") },
		"Panic": func(context.Context) error { panic("at the disco") },
	})
	w.startDLQ(nil)
	policy := quick(5)
	policy.AttemptTimeout = 3 * time.Second
	run := w.enqueue(deadletter.Job{Type: "Various", Policy: policy})
	panics := w.enqueue(deadletter.Job{Type: "Panic", Policy: quick(3)})
	big := w.enqueue(deadletter.Job{Type: "Large", Policy: quick(5)})

	require.ErrorContains(t, w.wait(run, nil), "after 5 attempts: error 5")
	attempts := w.attempts(t, run)
	require.Len(t, attempts, 5)
	for i, says := range []string{"error 1", "second", "timed out", "error 4", "error 5"} {
		require.Contains(t, attempts[i].ErrorMessage, says)
		if i == 2 {
			continue // its worker could not report it
		}
		require.Equal(t, "testsuite", attempts[i].WorkerIdentity)
		inOrder(t, attempts[i].StartedAt, attempts[i].EndedAt)
		require.Equal(t, i < 4, attempts[i].Wait != nil)
	}
	w.atMost(t, 17, run)

	require.Error(t, w.wait(panics, nil))
	attempts = w.attempts(t, panics)
	require.Len(t, attempts, 3)
	for _, attempt := range attempts {
		require.Equal(t, "at the disco", attempt.ErrorMessage)
		require.Equal(t, "PanicError", attempt.ErrorType)
	}
	require.Contains(t, w.dead(panics).ErrorStack, "policy_test.go")
	last := w.history(panics)
	require.NotEmpty(t, last[6].GetActivityTaskFailedEventAttributes().GetFailure().GetStackTrace(), "the Temporal UI shows no stack")

	require.Error(t, w.wait(big, nil))
	attempts = w.attempts(t, big)
	require.Len(t, attempts, 5)
	for _, attempt := range attempts {
		require.Contains(t, attempt.ErrorMessage, "head x")
		require.LessOrEqual(t, len(attempt.ErrorMessage), dlqstore.MaxErrorMessage)
	}
}

// TestCheckpoints proves that a handler's own heartbeat details reach its next
// attempt unharmed by ours, and that the dead letter keeps the last.
func TestCheckpoints(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var seen sync.Map
	w.startJobs(handlers{"Steps": func(ctx context.Context) error {
		attempt := activity.GetInfo(ctx).Attempt
		var at, extra string
		if activity.HasHeartbeatDetails(ctx) {
			if err := activity.GetHeartbeatDetails(ctx, &at, &extra); err != nil {
				return deadletter.Fatal(err)
			}
		}
		seen.Store(attempt, at+extra)
		if attempt != 2 { // the second stays silent: what the first left must survive it
			activity.RecordHeartbeat(ctx, fmt.Sprintf("step-%d", attempt), "!")
		}
		return errors.New("boom")
	}})
	w.startDLQ(nil)
	run := w.enqueue(deadletter.Job{Type: "Steps", Policy: quick(4)})
	require.ErrorContains(t, w.wait(run, nil), "max_retries_exceeded after 4 attempts")
	for attempt, want := range map[int32]string{1: "", 2: "step-1!", 3: "step-1!", 4: "step-3!"} {
		got, _ := seen.Load(attempt)
		require.Equal(t, want, got, "attempt %d", attempt)
	}
	var kept commonpb.Payloads
	require.NoError(t, proto.Unmarshal(w.dead(run).LastHeartbeatDetails, &kept))
	require.Len(t, kept.GetPayloads(), 2)
	require.JSONEq(t, `"step-4"`, string(kept.GetPayloads()[0].GetData()))
	require.Len(t, w.attempts(t, run), 4)
}

// TestGracefulShutdown proves that a handler which its worker's stop interrupts is
// run again, once, without a charge, even on the last attempt of a budget of one.
func TestGracefulShutdown(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var calls atomic.Int32
	h := handlers{"Slow": func(ctx context.Context, end string) error {
		if calls.Add(1) == 1 {
			return hang(ctx)
		}
		if end == "fail" {
			return errors.New("boom")
		}
		return nil
	}}
	w.startDLQ(nil)
	for _, end := range []string{"succeed", "fail"} {
		calls.Store(0)
		stop := w.startJobs(h)
		run := w.enqueue(deadletter.Job{Type: "Slow", Policy: quick(1)}, end)
		require.Eventually(t, func() bool { return calls.Load() == 1 }, patience, 10*time.Millisecond)
		stop()
		stop = w.startJobs(h)
		err := w.wait(run, nil)
		if end == "succeed" {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, "max_retries_exceeded after 1 attempts: boom")
		}
		require.EqualValues(t, 2, calls.Load())
		stop()
	}
}

// TestRollingDeploy proves that a job whose type the old workers do not know runs
// when a new one comes up before the budget is spent.
func TestRollingDeploy(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	stop := w.startJobs(handlers{"Old": fail})
	policy := quick(-1)
	run := w.enqueue(deadletter.Job{Type: "New", Policy: policy})
	w.failedOnce(run)
	w.startJobs(handlers{"Old": fail, "New": func(context.Context) (string, error) { return "ran", nil }})
	stop()
	var result string
	require.NoError(t, w.wait(run, &result))
	require.Equal(t, "ran", result)
}

// TestReplayOutcome proves that the row of a replay learns how its job ended, and
// that a job which a person reset and that then succeeded marks its old dead letter.
func TestReplayOutcome(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var how atomic.Value
	how.Store("fail")
	w.startJobs(handlers{"Vary": func(ctx context.Context) error {
		switch how.Load() {
		case "fail":
			return errors.New("boom 1")
		case "fail otherwise":
			return errors.New("another cause")
		case "hang":
			return hang(ctx)
		default:
			return nil
		}
	}})
	w.startDLQ(nil)
	policy := quick(1)
	policy.HeartbeatTimeout = 2 * time.Second
	dead := w.enqueue(deadletter.Job{Type: "Vary", Policy: policy})
	require.Error(t, w.wait(dead, nil))

	for i, c := range []struct {
		how     string
		outcome job.Outcome
		same    *bool
	}{
		{"fail", job.OutcomeDeadLettered, ptr(true)},
		{"fail otherwise", job.OutcomeDeadLettered, ptr(false)},
		{"succeed", job.OutcomeSucceeded, nil},
		{"hang", job.OutcomeCancelled, ptr(false)},
	} {
		how.Store(c.how)
		run := w.replay(dead, "")
		if c.how == "hang" {
			w.pendingIn(enumspb.PENDING_ACTIVITY_STATE_STARTED)(run)
			require.NoError(t, w.client.CancelWorkflow(t.Context(), run.GetID(), ""))
		}
		_ = w.wait(run, nil)
		replays, err := w.store.Replays(t.Context(), w.key(dead))
		require.NoError(t, err)
		require.Len(t, replays, i+1)
		for _, r := range replays {
			if r.NewWorkflowID == run.GetID() {
				require.NotNil(t, r.Outcome, c.how)
				require.Equal(t, c.outcome, *r.Outcome)
				require.Equal(t, c.same, r.SameFingerprint, c.how)
				require.NotNil(t, r.FinishedAt)
			}
		}
	}

	// Reset to before the handler was scheduled, and it succeeds.
	how.Store("succeed")
	reset := w.resetToStart(dead)
	require.NoError(t, w.wait(reset, nil))
	row := w.dead(dead)
	require.NotNil(t, row.SupersededAt)
	require.Equal(t, reset.GetRunID(), *row.SupersededByRunID)
	require.Contains(t, w.verbs(row.Key), dlqstore.VerbSupersede)
}
