package testsuite_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"golang.org/x/sync/errgroup"

	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/job"
)

// BenchmarkBulkReplay measures a bulk replay, from its apply to its end, against a
// bare loop of starts with the same arguments and concurrency, in turns on the same
// server. Metric rate-ratio is the rate of the replay over that of the loop.
func BenchmarkBulkReplay(b *testing.B) {
	const members, concurrency = 2000, 16
	w := newWorld(b)
	stop := w.startJobs(handlers{"Fail": fail})
	w.startDLQ(nil)
	dead := w.deadJob()
	stop()
	dl := w.dead(dead)
	clones := dl.DeadAt.Add(time.Microsecond)
	loop := func(round int) time.Duration {
		began := time.Now()
		group := errgroup.Group{}
		group.SetLimit(concurrency)
		for i := range members {
			group.Go(func() error {
				_, err := w.client.ExecuteWorkflow(b.Context(), client.StartWorkflowOptions{
					ID: "bare-" + strconv.Itoa(round) + "-" + strconv.Itoa(i), TaskQueue: w.queue, Memo: map[string]any{"a": "b"},
				}, "Bare", dl.Options, "payload")
				return err
			})
		}
		require.NoError(b, group.Wait())
		return time.Since(began)
	}
	loop(-1)
	var bare, bulk time.Duration
	round := 0
	for b.Loop() {
		bare += loop(round)
		w.cloneDead(dead, "bulk-"+strconv.Itoa(round)+"-", members)
		no := false
		plan := w.plan(dlqstore.PlanRequest{
			Verb: job.BulkReplay, Filter: dlqstore.Filter{Replayed: &no, DeadAfter: &clones}, Limit: members,
			Parameters: dlqstore.PlanParameters{BulkSettings: job.BulkSettings{Rate: -1, Concurrency: concurrency}},
		})
		began := time.Now()
		w.apply(plan)
		plan = w.ended(plan)
		bulk += plan.FinishedAt.Sub(began) // its follower looks twice a second only
		require.EqualValues(b, members, plan.Done)
		round++
	}
	b.ReportMetric(float64(bare)/float64(bulk), "rate-ratio")
	b.ReportMetric(float64(members*round)/bare.Seconds(), "bare/s")
	b.ReportMetric(float64(members*round)/bulk.Seconds(), "bulk/s")
}
