package main

import (
	"testing"

	"github.com/stretchr/testify/require"

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
	}
	var stats operator.Stats
	b.decode(&stats, "-o", "jsonl", "stats")
	require.EqualValues(t, 2, stats.DeadLetter)
	require.Equal(t, stats.Total, stats.Queued+stats.Processing+stats.Done+stats.Cancelled+stats.DeadLetter)
	text := b.succeed("stats")
	require.Regexp(t, `(?m)^dead letters\s+2$`, text)
	for _, said := range []string{text, b.succeed("stats", "--help")} {
		require.Contains(t, said, "Cancelled means cancelled without a dead letter")
	}
}
