package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/client"

	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/job"
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
	require.JSONEq(t, `{"namespace": "default", "workflow_id": "show-live", "run_id": "`+run.GetRunID()+`", "status": "queued"}`,
		b.succeed("show", "show-live", "-o", "json"))

	require.NoError(t, c.TerminateWorkflow(t.Context(), "show-live", "", "test"))
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
		require.Contains(t, r.errw, "not found; see `temporal-deadletter list`")

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
