package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/job"
	"github.com/deadletter-dev/deadletter/operator"
)

// TestStats proves that stats counts the table exactly and prints the operator's
// own JSON.
func TestStats(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.move("order-1")
	b.move("order-2")
	var fields map[string]any
	b.decode(&fields, "stats", "-o", "json")
	for _, field := range []string{"total", "queued", "processing", "done", "cancelled", "dead_letter"} {
		require.Contains(t, fields, field)
		delete(fields, field)
	}
	delete(fields, "split_estimated")
	require.Empty(t, fields)
	var stats operator.Stats
	b.decode(&stats, "-o", "jsonl", "stats")
	require.EqualValues(t, 2, stats.DeadLetter)
	require.Equal(t, stats.Total, stats.Queued+stats.Processing+stats.Done+stats.Cancelled+stats.DeadLetter)
	text := b.succeed("stats")
	require.Regexp(t, `(?m)^dead letters\s+2$`, text)
	require.Regexp(t, `(?m)^Oldest dead letter\s+2026-03-01 12:00:00Z, order-1$`, text)
	require.Regexp(t, `(?m)^Last 24 hours\s+\+2: 2 died, 0 purged, 0 pruned by retention; 0 replayed$`, text)
	for _, said := range []string{text, b.succeed("stats", "--help")} {
		require.Contains(t, said, "Cancelled means cancelled without a dead letter")
	}
}

// TestStatsBy proves the counts by each dimension in each form, the largest first,
// and that what a limit leaves out is said.
func TestStatsBy(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.move("order-1")
	b.move("order-2")
	b.move("charge-1", func(dl *dlqstore.DeadLetter) {
		dl.JobType, dl.TaskQueue, dl.Reason = "Ch\x1barge", "cards", job.ReasonTimeout
	})
	b.move("elsewhere", func(dl *dlqstore.DeadLetter) { dl.Namespace = "another" })
	require.Equal(t, "TYPE       DEAD LETTERS\nSendEmail  2\nCh\ufffdarge    1\n", b.succeed("stats", "--by", "type", "--address", nowhere))
	require.JSONEq(t, `{"counts": [{"task_queue": "emails", "dead_letter": 2}, {"task_queue": "cards", "dead_letter": 1}], "more": 0}`,
		b.succeed("stats", "--by", "queue", "-o", "json"))
	lines := strings.Split(b.succeed("stats", "--by", "reason", "-o", "jsonl"), "\n")
	require.Len(t, lines, 3)
	require.JSONEq(t, `{"dead_letter": 2, "reason": "max_retries_exceeded"}`, lines[0])
	require.JSONEq(t, `{"dead_letter": 1, "reason": "timeout"}`, lines[1])
	r := b.call("stats", "--by", "type", "--limit", "1")
	require.Zero(t, r.code)
	require.Equal(t, "temporal-deadletter: values left out: 1; raise --limit to see them\n", r.errw)
}

// TestStatsHourly proves that the last 24 hours are all there, with what happened in
// this one.
func TestStatsHourly(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.move("order-1")
	key := b.move("order-2")
	_, err := b.store.BeginReplay(t.Context(), dlqstore.ReplayRequest{Key: key, RequestID: "r", Actor: "test"})
	require.NoError(t, err)
	require.NoError(t, b.store.ConfirmReplay(t.Context(), "r", "run"))
	require.NoError(t, b.store.Purge(t.Context(), key, "test"))
	for _, id := range []string{"old-1", "old-2"} {
		b.move(id, func(dl *dlqstore.DeadLetter) { dl.JobType = "Old" })
	}
	b.succeed("retention", "set", "old", "--type", "Old", "--keep", "1h", "--yes")
	b.succeed("retention", "run", "--yes")
	var trend dlqstore.Trend
	b.decode(&trend, "stats", "--hourly", "-o", "json", "--address", nowhere)
	require.Len(t, trend.Hours, 24)
	require.EqualValues(t, 1, trend.Growth)
	require.EqualValues(t, 1, trend.DeadLetter)
	require.Equal(t, "order-1", trend.Oldest.WorkflowID)

	lines := strings.Split(strings.TrimSpace(b.succeed("stats", "--hourly", "-o", "jsonl")), "\n")
	require.Len(t, lines, 24)
	var sum dlqstore.Hour
	for _, line := range lines {
		var hour dlqstore.Hour
		require.NoError(t, json.Unmarshal([]byte(line), &hour))
		require.Zero(t, hour.Hour.Truncate(time.Hour).Sub(hour.Hour))
		sum.Dead, sum.Replayed = sum.Dead+hour.Dead, sum.Replayed+hour.Replayed
		sum.Purged, sum.Pruned = sum.Purged+hour.Purged, sum.Pruned+hour.Pruned
	}
	require.Equal(t, dlqstore.Hour{Dead: 4, Replayed: 1, Purged: 1, Pruned: 2}, sum)
	text := b.succeed("stats", "--hourly")
	require.Contains(t, text, "HOUR               DEAD  REPLAYED  PURGED  PRUNED\n")
	require.Contains(t, text, "+1: 4 died, 1 purged, 2 pruned by retention; 1 replayed")
}
