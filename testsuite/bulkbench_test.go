package testsuite_test

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	sdkpb "go.temporal.io/api/sdk/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/proto"

	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/job"
)

// BenchmarkBulkReplay measures a bulk replay, from its apply to its end, against a
// bare loop of starts with the same arguments, summary, details and concurrency, in
// turns on the same server. Metric rate-ratio is the rate of the replay over that of
// the loop over all turns, median-ratio that of the middle turn, which says more on a
// machine with other work. The number of turns should be even:
//
//	go test ./testsuite -run '^$' -bench BulkReplay -benchtime 12x -timeout 30m
func BenchmarkBulkReplay(b *testing.B) {
	const members, concurrency = 2500, 16
	w := newWorld(b)
	stop := w.startJobs(handlers{"Fail": fail})
	w.startDLQ(nil)
	dead := w.deadJob()
	stop()
	dl := w.dead(dead)
	var about sdkpb.UserMetadata
	require.NoError(b, proto.Unmarshal(dl.UserMetadata, &about))
	var summary, details string
	require.NoError(b, converter.GetDefaultDataConverter().FromPayload(about.GetSummary(), &summary))
	require.NoError(b, converter.GetDefaultDataConverter().FromPayload(about.GetDetails(), &details))
	clones := dl.DeadAt.Add(time.Microsecond)
	loop := func(round int) time.Duration {
		began := time.Now()
		group := errgroup.Group{}
		group.SetLimit(concurrency)
		for i := range members {
			group.Go(func() error {
				_, err := w.client.ExecuteWorkflow(b.Context(), client.StartWorkflowOptions{
					ID: "bare-" + strconv.Itoa(round) + "-" + strconv.Itoa(i), TaskQueue: w.queue, Memo: map[string]any{"a": "b"},
					StaticSummary: summary, StaticDetails: details,
				}, "Bare", dl.Options, "payload")
				return err
			})
		}
		require.NoError(b, group.Wait())
		return time.Since(began)
	}
	replay := func(round int) time.Duration {
		w.cloneDead(dead, "bulk-"+strconv.Itoa(round)+"-", members)
		no := false
		plan := w.plan(dlqstore.PlanRequest{
			Verb: job.BulkReplay, Filter: dlqstore.Filter{Replayed: &no, DeadAfter: &clones}, Limit: members,
			Parameters: dlqstore.PlanParameters{BulkSettings: job.BulkSettings{Rate: -1, Concurrency: concurrency}},
		})
		began := time.Now()
		w.apply(plan)
		plan = w.ended(plan)
		require.EqualValues(b, members, plan.Done)
		return plan.FinishedAt.Sub(began) // its follower looks twice a second only
	}
	loop(-1)
	var bare, bulk time.Duration
	var ratios []float64
	round := 0
	for b.Loop() {
		// The server slows down as its database grows: each of the two goes first as often.
		var turn struct{ bare, bulk time.Duration }
		if round%2 == 0 {
			turn.bare = loop(round)
			turn.bulk = replay(round)
		} else {
			turn.bulk = replay(round)
			turn.bare = loop(round)
		}
		bare, bulk = bare+turn.bare, bulk+turn.bulk
		ratios = append(ratios, float64(turn.bare)/float64(turn.bulk))
		round++
	}
	slices.Sort(ratios)
	b.ReportMetric(float64(bare)/float64(bulk), "rate-ratio")
	b.ReportMetric((ratios[(len(ratios)-1)/2]+ratios[len(ratios)/2])/2, "median-ratio")
	b.ReportMetric(float64(members*round)/bare.Seconds(), "bare/s")
	b.ReportMetric(float64(members*round)/bulk.Seconds(), "bulk/s")
}
