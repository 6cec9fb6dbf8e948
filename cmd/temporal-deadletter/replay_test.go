package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"

	"github.com/deadletter-dev/deadletter/dlqstore"
)

// TestReplay proves that replay starts a job with the same bytes, tells its ids,
// counts it, names the actor, and is repeatable by its request id.
func TestReplay(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	key := b.move("replay-1")
	c := b.dial()

	type started struct {
		WorkflowID string `json:"workflow_id"`
		RunID      string `json:"run_id"`
		RequestID  string `json:"request_id"`
	}
	var first, again, other started
	b.decode(&first, "replay", "-w", "replay-1", "--request-id", "ticket-1", "--actor", "oncall", "-o", "json")
	t.Cleanup(func() { _ = c.TerminateWorkflow(t.Context(), first.WorkflowID, "", "test") })
	require.Equal(t, "ticket-1", first.RequestID)
	require.NotEqual(t, "replay-1", first.WorkflowID)
	b.decode(&again, "replay", "replay-1", "--request-id", "ticket-1", "-o", "jsonl")
	require.Equal(t, first, again)
	b.decode(&other, "-o", "json", "replay", "replay-1")
	require.NotEqual(t, first.WorkflowID, other.WorkflowID)
	require.NotEmpty(t, other.RequestID)

	history := c.GetWorkflowHistory(t.Context(), first.WorkflowID, first.RunID, false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	event, err := history.Next()
	require.NoError(t, err)
	input := event.GetWorkflowExecutionStartedEventAttributes().GetInput().GetPayloads()
	require.Len(t, input, 2)
	require.Equal(t, exactArgument, string(input[1].GetData()))

	dl, err := b.store.Get(t.Context(), key)
	require.NoError(t, err)
	require.Equal(t, 2, dl.ResurrectionCount)
	replays, err := b.store.Replays(t.Context(), key)
	require.NoError(t, err)
	require.Len(t, replays, 2)
	require.Equal(t, "oncall", replays[0].Actor)
	require.NotEmpty(t, replays[1].Actor, "the user's name")

	require.Regexp(t, `New workflow id\s+replay-1-replay-\S+\nNew run id\s+\S+\nRequest id\s+\S+\n$`, b.succeed("replay", "-w", "replay-1"))
	r := b.call("replay", "-w", "replay-1", "--request-id", "ticket-1", "-r", "0190a5d0-0000-7000-8000-00000000000f")
	require.Equal(t, exitFailed, r.code)
	require.NotContains(t, r.errw, "repeat it safely", "that cannot help")
}

// TestReplayInterrupted proves that a replay which fails half-way names its
// request id, and that repeating it with that id makes one job, counted once.
func TestReplayInterrupted(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	key := b.move("replay-2")
	_, err := b.store.Pool().Exec(t.Context(), `
create function fail() returns trigger language plpgsql as $$ begin raise exception 'no'; end $$;
create trigger fail before update on deadletter.replays execute function fail()`)
	require.NoError(t, err)
	r := b.call("replay", "-w", "replay-2")
	require.Equal(t, exitFailed, r.code)
	advice := regexp.MustCompile(`repeat it safely with --request-id (\S+)\n`).FindStringSubmatch(r.errw)
	require.NotNil(t, advice, r.errw)

	_, err = b.store.Pool().Exec(t.Context(), `drop trigger fail on deadletter.replays`)
	require.NoError(t, err)
	b.succeed("replay", "-w", "replay-2", "--request-id", advice[1])
	dl, err := b.store.Get(t.Context(), key)
	require.NoError(t, err)
	require.Equal(t, 1, dl.ResurrectionCount)
	replays, err := b.store.Replays(t.Context(), dlqstore.Key{Namespace: "default", WorkflowID: "replay-2", RunID: key.RunID})
	require.NoError(t, err)
	require.Len(t, replays, 1)
	require.NotNil(t, replays[0].NewRunID)
}

// TestReplayAgain proves that a replay which would repeat the work of an earlier one
// is asked about at a terminal and told to a script, and that --yes and a request id
// that was used before mean it.
func TestReplayAgain(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	key := b.move("again-1")
	b.succeed("replay", "again-1", "--request-id", "first")
	r := b.call("replay", "again-1", "--request-id", "first")
	require.Zero(t, r.code)
	require.NotContains(t, r.errw, "under way")
	r = call(t, b.environ, person{strings.NewReader("n\n")}, "replay", "again-1")
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.errw, "a replay of it is under way, as again-1-replay-")
	require.Contains(t, r.errw, "nothing was replayed: the answer was not yes")
	r = b.call("replay", "again-1")
	require.Zero(t, r.code)
	require.Contains(t, r.errw, "a replay of it is under way")
	require.NotContains(t, b.call("replay", "again-1", "--yes").errw, "under way")
	dl, err := b.store.Get(t.Context(), key)
	require.NoError(t, err)
	require.Equal(t, 3, dl.ResurrectionCount)

	line := b.move("line-1")
	b.succeed("replay", "line-1")
	replays, err := b.store.Replays(t.Context(), line)
	require.NoError(t, err)
	second := replays[0].NewWorkflowID
	_, err = b.store.Pool().Exec(t.Context(), `update deadletter.replays set outcome = 'dead_lettered' where new_workflow_id = $1`, second)
	require.NoError(t, err)
	b.move(second)
	b.succeed("replay", second)
	b.succeed("purge", "--workflow-id", second, "--yes")
	r = b.call("replay", "line-1")
	require.Zero(t, r.code)
	require.Contains(t, r.errw, "a replay of it is under way, as line-1-replay-", "down its line")
	require.NotContains(t, r.errw, second)
}
