package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/client"

	"github.com/deadletter-dev/deadletter"
	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/internal/demo"
	"github.com/deadletter-dev/deadletter/internal/devstack/devtest"
	"github.com/deadletter-dev/deadletter/job"
	"github.com/deadletter-dev/deadletter/operator"
)

const secondRun = "0190a5d0-0000-7000-8000-000000000002"

// TestShowDead proves that show tells all that is stored, in words and in JSON,
// with the numbers of the arguments as they were.
func TestShowDead(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	key := b.move("show-dead")
	_, err := b.store.BeginReplay(t.Context(), dlqstore.ReplayRequest{Key: key, RequestID: "ticket-42", Actor: "oncall"})
	require.NoError(t, err)

	text := b.succeed("show", "-w", "show-dead")
	for _, part := range []string{
		key.RunID, "max_retries_exceeded at 2026-03-01 12:00:00Z", "3 of 3", "tenant=acme", "mailbox is full", "SMTPError", "send.go:42",
		"9007199254740993", "1.10", "first try", "3s", "second try", "ticket-42", "oncall", "not yet confirmed", "move", "replay", "1, the last at",
	} {
		require.Contains(t, text, part)
	}
	require.Equal(t, text, b.succeed("show", "show-dead"), "the id may be an argument")
	require.Equal(t, text, b.succeed("show", "-w", "show-dead", "-r", key.RunID))

	var shown map[string]any
	b.decode(&shown, "show", "-w", "show-dead", "-o", "json")
	require.Equal(t, json.Number("3"), shown["attempts"], "the column: a count")
	require.Len(t, shown["attempt_list"], 2)
	require.Len(t, shown["replays"], 1)
	require.Len(t, shown["events"], 2)
	require.Equal(t, []any{}, shown["dead_runs"])
	require.Equal(t, json.Number("1"), shown["resurrection_count"])
	argument := shown["payload_json"].([]any)[0].(map[string]any)
	require.Equal(t, map[string]any{"id": json.Number("9007199254740993"), "price": json.Number("1.10")}, argument)
	require.Equal(t, 1, strings.Count(b.succeed("show", "show-dead", "-o", "jsonl"), "\n"))
}

// TestShowUnreadable proves that show says so when the arguments are encrypted.
func TestShowUnreadable(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.move("show-encrypted", func(dl *dlqstore.DeadLetter) {
		dl.PayloadJSON, dl.Options = nil, nil
		dl.Payloads = encode(&commonpb.Payloads{Payloads: []*commonpb.Payload{
			{Metadata: map[string][]byte{"encoding": []byte("binary/encrypted")}, Data: []byte("0123456789")},
		}})
	})
	text := b.succeed("show", "show-encrypted")
	require.Regexp(t, `Options +not readable: encrypted, or not JSON`, text)
	require.Contains(t, text, "not readable here: encrypted, binary or beyond what Postgres holds as JSON (10 bytes, encoding binary/encrypted)")
	require.NotContains(t, text, "0123456789")
}

// TestShowLive proves that show tells the status of a job that is not dead, and
// how a workflow closed that has neither.
func TestShowLive(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	c := b.dial()
	run, err := c.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: "show-live", TaskQueue: "show-nobody"}, job.WorkflowType)
	require.NoError(t, err)

	text := b.succeed("show", "show-live")
	require.Contains(t, text, run.GetRunID())
	require.Regexp(t, `Status\s+queued`, text)
	key := `"workflow_id": "show-live", "run_id": "` + run.GetRunID() + `"`
	var live map[string]any
	b.decode(&live, "show", "show-live", "-o", "json")
	waiting := live["live"].(map[string]any)["waiting"].(map[string]any)
	require.Equal(t, "no_poller", waiting["kind"])
	require.Equal(t, "no worker polls task queue show-nobody for workflow tasks: start one that has the Deadletter plugin", waiting["text"])
	delete(live["live"].(map[string]any), "waiting")
	told, err := json.Marshal(live)
	require.NoError(t, err)
	require.JSONEq(t, `{"namespace": "default", `+key+`, "status": "queued", "live": {`+key+`, "job_type": "", "task_queue": "show-nobody",
		"state": "unscheduled", "attempt": 1, "max_attempts": null, "last_error_type": "", "last_error": "", "next_attempt_at": null, "age_limit_at": null}}`,
		string(told))

	refused := b.call("replay", "show-live")
	require.Equal(t, exitFailed, refused.code)
	require.Equal(t, "temporal-deadletter: show-live is no dead letter: it is queued\n", refused.errw)

	require.NoError(t, c.TerminateWorkflow(t.Context(), "show-live", "", "test"))
	require.Contains(t, b.call("replay", "show-live").errw, "show-live is no dead letter: it closed as Terminated")
	require.Regexp(t, `Closed as\s+Terminated, without a dead letter`, b.succeed("show", "show-live"))
	var shown map[string]any
	b.decode(&shown, "-o", "json", "show", "show-live")
	require.Nil(t, shown["status"])
	require.Equal(t, "Terminated", shown["closed_as"])
}

// TestUnknownAndAmbiguousKeys proves that each verb with a key says what is wrong
// with it, lists the run ids to choose from, and takes one with -r.
func TestUnknownAndAmbiguousKeys(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	first := b.move("twice")
	b.move("twice", func(dl *dlqstore.DeadLetter) { dl.RunID = secondRun })
	for _, verb := range []string{"show", "replay", "purge"} {
		args := []string{verb}
		if verb == "purge" {
			args = append(args, "--yes")
		}
		r := b.call(append(args, "-w", "nobodys")...)
		require.Equal(t, exitFailed, r.code)
		require.Contains(t, r.errw, "nobodys")
		require.Contains(t, r.errw, "default/nobodys: not found; see `temporal-deadletter list`")
		require.Contains(t, r.errw, ", or `temporal-deadletter events -w ID`, if it may have been purged\n")

		r = b.call(append(args, "-w", "twice")...)
		require.Equal(t, exitFailed, r.code)
		require.Contains(t, r.errw, first.RunID)
		require.Contains(t, r.errw, secondRun)
		require.Contains(t, r.errw, "pass it with -r")
	}
	require.Regexp(t, `Also a dead letter\s+run `+first.RunID, b.succeed("show", "twice", "-r", secondRun))
	var shown map[string]any
	b.decode(&shown, "show", "twice", "-r", secondRun, "-o", "json")
	require.Equal(t, []any{first.RunID}, shown["dead_runs"])
	b.succeed("purge", "-w", "twice", "-r", secondRun, "--yes")
	require.Contains(t, b.succeed("show", "twice"), first.RunID)
}

// TestShowPending proves that show tells of a job that is retried, and of one that
// waits to be moved, what Temporal knows: the attempt and the last failure.
func TestShowPending(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	plugin, err := deadletter.NewPlugin(deadletter.Options{
		Store: b.store, TaskQueue: "show-dead", NoUpkeep: true,
		MoveTx: func(context.Context, pgx.Tx, *dlqstore.DeadLetter) error { return errors.New("the order is locked") },
	})
	require.NoError(t, err)
	c := devtest.Dial(t, client.Options{HostPort: b.address, Logger: silent, Plugins: []client.Plugin{plugin}})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- demo.Serve(ctx, c, demo.Queues{DeadLetters: "show-dead", Jobs: "show-jobs"}, new(demo.Handlers), nil)
	}()
	t.Cleanup(func() {
		stop()
		require.NoError(t, <-ended)
	})
	for id, policy := range map[string]deadletter.Policy{
		"show-retried": {MaxAttempts: 5, BaseDelay: time.Hour},
		"show-dying":   {MaxAttempts: 1},
	} {
		_, err := deadletter.Enqueue(t.Context(), c, deadletter.Job{ID: id, Type: demo.ResizeImage, TaskQueue: "show-jobs", Policy: policy}, demo.Image{})
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.TerminateWorkflow(context.WithoutCancel(t.Context()), id, "", "test") })
	}

	type shown struct {
		Status  string                   `json:"status"`
		Pending *operator.PendingAttempt `json:"pending"`
	}
	failed := func(id string) (s shown) {
		require.Eventually(t, func() bool {
			b.decode(&s, "show", id, "-o", "json")
			return s.Pending != nil && s.Pending.LastFailure != "" && (s.Pending.Moving || id == "show-retried")
		}, liveTimeout, 100*time.Millisecond)
		return s
	}
	require.Regexp(t, `(?m)^Too old at +2\d{3}-`, b.succeed("show", "show-retried"))
	five := 5
	retried := failed("show-retried")
	require.NotNil(t, retried.Pending.NextAttemptAt)
	require.WithinDuration(t, time.Now().Add(time.Hour), *retried.Pending.NextAttemptAt, 5*time.Minute)
	require.NotNil(t, retried.Pending.LastEndedAt)
	require.NotEmpty(t, retried.Pending.WorkerIdentity)
	retried.Pending.NextAttemptAt, retried.Pending.LastEndedAt, retried.Pending.WorkerIdentity, retried.Pending.LastFailureType = nil, nil, "", ""
	require.Equal(t, shown{"queued", &operator.PendingAttempt{
		Type: demo.ResizeImage, TaskQueue: "show-jobs", State: "scheduled", Attempt: 2, MaxAttempts: &five,
		LastFailure: "the image library cannot read this format",
	}}, retried)
	text := b.succeed("show", "show-retried")
	for _, line := range []string{
		`Job type +ResizeImage`, `Attempt +2 of 5, scheduled`, `Task queue +show-jobs`, `Next attempt +2\d{3}-`, `Last failure .*the image library cannot read`,
	} {
		require.Regexp(t, `(?m)^`+line, text)
	}

	dying := failed("show-dying")
	require.Equal(t, "processing", dying.Status)
	require.True(t, dying.Pending.Moving)
	require.Contains(t, dying.Pending.LastFailure, "the order is locked")
	require.Regexp(t, `(?m)^Waiting to be moved +attempt \d+, last failure .*the order is locked`, b.succeed("show", "show-dying"))
}

// TestShowWithoutTemporal proves that a dead letter can be shown while Temporal is
// down, which a line on standard error says, and that what cannot be told without
// Temporal is Temporal's error.
func TestShowWithoutTemporal(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	first := b.move("one-run")
	b.move("two-runs")
	b.move("two-runs", func(dl *dlqstore.DeadLetter) { dl.RunID = secondRun })
	b.environ = append(b.environ, noEnv[1])
	for _, args := range [][]string{{"show", "one-run"}, {"show", "two-runs", "-r", secondRun}, {"show", "one-run", "-r", first.RunID, "-o", "json"}} {
		r := b.call(args...)
		require.Zero(t, r.code, r.errw)
		require.Contains(t, r.out, "mailbox is full")
		require.Equal(t, "temporal-deadletter: cannot reach Temporal at 127.0.0.1:1: shown from Postgres alone\n", r.errw)
	}
	for _, args := range [][]string{{"show", "two-runs"}, {"show", "no-run"}, {"show", "one-run", "-r", secondRun}} {
		r := b.call(args...)
		require.Equal(t, exitFailed, r.code)
		require.Empty(t, r.out)
		require.Contains(t, r.errw, "cannot reach Temporal at 127.0.0.1:1: see")
	}
}

// TestShowOptionsAndReplays proves that options are shown as they were sent also
// when they were refused, and of each replay what became of it and when.
func TestShowOptionsAndReplays(t *testing.T) {
	t.Parallel()
	died, succeeded, run := job.OutcomeDeadLettered, job.OutcomeSucceeded, "run-2"
	yes, no, at := true, false, time.Date(2026, 3, 2, 9, 0, 0, 0, time.UTC)
	dl := deadLetter("refused")
	dl.Options = json.RawMessage(`{"policy": {"max_attempts": "many"}}`)
	var out bytes.Buffer
	require.NoError(t, printDead(&out, &operator.Shown{DeadLetter: dl, Replays: []dlqstore.Replay{
		{Actor: "a", NewWorkflowID: "w"},
		{Actor: "b", NewWorkflowID: "w", NewRunID: &run},
		{Actor: "c", NewWorkflowID: "w", NewRunID: &run, Outcome: &succeeded, FinishedAt: &at},
		{Actor: "d", NewWorkflowID: "w", NewRunID: &run, Outcome: &died, SameFingerprint: &yes, FinishedAt: &at},
		{Actor: "e", NewWorkflowID: "w", NewRunID: &run, Outcome: &died, SameFingerprint: &no, FinishedAt: &at},
	}}, ""))
	for _, line := range []string{
		`^Options +\{"policy": \{"max_attempts": "many"\}\}$`,
		` a +w +not yet confirmed +not yet$`,
		` b +w +started as run run-2 +not yet$`,
		` c +w +succeeded +2026-03-02 09:00:00Z$`,
		` d +w +dead_lettered, of the same cause +2026-03-02 09:00:00Z$`,
		` e +w +dead_lettered, of another cause +2026-03-02 09:00:00Z$`,
	} {
		require.Regexp(t, `(?m)`+line, out.String())
	}
}
