package main

import (
	"io"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// peakOf returns the most live heap that a garbage collection found while fn ran.
func peakOf(fn func()) (peak uint64) {
	defer debug.SetGCPercent(debug.SetGCPercent(20)) // to look often
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		ticker := time.NewTicker(time.Millisecond)
		defer ticker.Stop()
		for {
			metrics.Read(live)
			peak = max(peak, live[0].Value.Uint64())
			select {
			case <-stop:
				return
			case <-ticker.C:
			}
		}
	}()
	fn()
	close(stop)
	<-stopped
	return peak
}

// TestVerbsFlat proves that no verb on many dead letters holds more memory for ten
// times as many, the first time or the second. It runs alone: others would allocate
// too. TestExportFlat is the same of export.
func TestVerbsFlat(t *testing.T) { //nolint:paralleltest // it measures the heap of the process
	const few, many = 2_000, 20_000
	peaks := func(count int) map[string]uint64 {
		b := newBench(t)
		b.many(count)
		plan := b.newPlan("edit", "--all", "--set-queue", "q")
		all := strconv.Itoa(many)
		found := map[string]uint64{}
		for _, args := range []string{
			"list --limit 1000", "list --limit 1000 -o json", "groups", "stats --by type", "stats --by reason", "stats --hourly", "events",
			"plan replay --all", "plan purge --all", "plan edit --all --set-queue q2", "plan retag --all --set-tag a=b",
			"plan show " + plan, "plan items " + plan + " --limit 1000", "retention set p --all --keep-last 1000 --dry-run",
			"retention set p --all --keep-last 1000 --yes", "retention run --yes", "purge --all --limit " + all + " --yes",
		} {
			verb := strings.ReplaceAll(args, plan, "PLAN")
			found[verb] = peakOf(func() {
				code := run(t.Context(), strings.Fields(args), b.environ, strings.NewReader(""), io.Discard, io.Discard)
				require.Zero(t, code, verb)
			})
		}
		return found
	}
	little := peaks(few)
	for verb, peak := range peaks(many) {
		require.Less(t, peak, little[verb]+4<<20, "%s: the heap grew with the rows", verb)
	}
}
