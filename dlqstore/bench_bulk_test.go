package dlqstore_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/job"
)

// BenchmarkBulkPurge measures a purge by plan of 100,000 dead letters, in the
// batches of an operation, while moves go on. Metrics: rows/s; slowest-batch-ms, the
// longest that any lock of the purge is held; slowest-move-ms, the longest that a
// move waited meanwhile; and moves, how many there were.
func BenchmarkBulkPurge(b *testing.B) {
	const members, batch = 100_000, 100
	store := openStore(b)
	move(b, store, letter(keyOf("template")))
	var took, slowestBatch, slowestMove time.Duration
	moves, round := 0, 0
	for b.Loop() {
		round++
		b.StopTimer()
		run(b, store, `
insert into deadletter.dead_letters
select (json_populate_record(d, json_build_object('workflow_id', 'purged-' || i, 'dead_at', d.dead_at + i * interval '1 ms'))).*
from deadletter.dead_letters d, generate_series(1, `+fmt.Sprint(members)+`) i
where d.workflow_id = 'template'`)
		request := dlqstore.PlanRequest{Verb: job.BulkPurge, Filter: dlqstore.Filter{DeadAfter: ptr(letter(keyOf("x")).DeadAt.Add(time.Microsecond))}, Limit: members}
		made := begun(b, store, plan(b, store, request))
		ctx, stop := context.WithCancel(b.Context())
		var moving sync.WaitGroup
		moving.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				dl := letter(keyOf(fmt.Sprintf("moved-%d-%d", round, i)))
				dl.DeadAt = instant
				began := time.Now()
				if _, err := store.Move(b.Context(), dl, nil, "bench", nil); err != nil {
					b.Error(err)
					return
				}
				slowestMove = max(slowestMove, time.Since(began))
				moves++
			}
		})
		b.StartTimer()
		began, after := time.Now(), 0
		for {
			chosen, err := store.Members(b.Context(), made.ID, after, batch)
			require.NoError(b, err)
			if len(chosen) == 0 {
				break
			}
			after = chosen[len(chosen)-1].Position
			since := time.Now()
			require.NoError(b, store.PurgeMembers(b.Context(), made, chosen))
			if d := time.Since(since); d > 300*time.Millisecond {
				b.Log(after, d)
			}
			slowestBatch = max(slowestBatch, time.Since(since))
		}
		took += time.Since(began)
		stop()
		moving.Wait()
		made, err := store.Plan(b.Context(), "default", made.ID)
		require.NoError(b, err)
		require.EqualValues(b, members, made.Done)
	}
	b.ReportMetric(float64(round*members)/took.Seconds(), "rows/s")
	b.ReportMetric(float64(slowestBatch.Milliseconds()), "slowest-batch-ms")
	b.ReportMetric(float64(slowestMove.Milliseconds()), "slowest-move-ms")
	b.ReportMetric(float64(moves), "moves")
}
