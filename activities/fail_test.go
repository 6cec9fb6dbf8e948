package activities

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"

	"github.com/deadletter-dev/deadletter/job"
)

// TestBackoff proves the formula for any policy and any attempt: the first wait is
// the base, waits never shrink, never pass the cap, never overflow.
func TestBackoff(t *testing.T) {
	t.Parallel()
	defaults := temporal.RetryPolicy{InitialInterval: 3 * time.Second, BackoffCoefficient: 2, MaximumInterval: time.Hour}
	for n, want := range map[int]time.Duration{
		1: 3 * time.Second, 2: 6 * time.Second, 3: 12 * time.Second, 11: 3072 * time.Second, 12: time.Hour, 10_000: time.Hour, math.MaxInt32: time.Hour,
	} {
		require.Equal(t, want, Backoff(defaults, n, 0), "attempt %d", n)
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 10_000 {
		policy := temporal.RetryPolicy{
			InitialInterval:    time.Duration(random.Int64N(math.MaxInt64)),
			BackoffCoefficient: math.Exp(random.Float64() * 700),
			MaximumInterval:    time.Duration(random.Int64N(math.MaxInt64)),
		}
		n := 1 + int(random.Int64N(20_000))
		jitter := time.Duration(random.Int64N(math.MaxInt64))
		wait := Backoff(policy, n, jitter)
		require.GreaterOrEqual(t, wait, min(policy.InitialInterval, policy.MaximumInterval), "%+v, attempt %d", policy, n)
		require.LessOrEqual(t, wait, policy.MaximumInterval)
		require.GreaterOrEqual(t, Backoff(policy, n+1, 0), Backoff(policy, n, 0))
	}
}

// TestJitter proves that a thousand waits differ, fill the band, and keep the cap.
func TestJitter(t *testing.T) {
	t.Parallel()
	a := attempt{
		info: activity.Info{Attempt: 1, RetryPolicy: &temporal.RetryPolicy{InitialInterval: 3 * time.Second, BackoffCoefficient: 2, MaximumInterval: time.Hour}},
		plan: job.Plan{MaxDelay: time.Hour, JitterMaxDelay: time.Second},
	}
	seen := map[time.Duration]bool{}
	least, most := time.Hour, time.Duration(0)
	for range 1000 {
		wait := a.wait(verdict{})
		seen[wait] = true
		least, most = min(least, wait), max(most, wait)
	}
	require.Greater(t, len(seen), 990)
	require.GreaterOrEqual(t, least, 3*time.Second)
	require.Less(t, least, 3100*time.Millisecond)
	require.LessOrEqual(t, most, 4*time.Second)
	require.Greater(t, most, 3900*time.Millisecond)
	a.info.Attempt = 10_000
	require.Equal(t, time.Hour, a.wait(verdict{}), "at the cap exactly the cap")
}

// TestGaps proves that an attempt which left no record, because its worker was lost,
// has one by the next that fails, and that the log does not grow with their number.
func TestGaps(t *testing.T) {
	t.Parallel()
	a := attempt{info: activity.Info{Attempt: 4}, plan: job.Plan{Charged: 2}}
	a.heart.log = []job.AttemptRecord{{Attempt: 3, Message: "boom"}}
	require.Equal(t, []job.AttemptRecord{
		{Attempt: 3, Message: "boom"}, {Attempt: 4, Message: notRecorded}, {Attempt: 5, Message: notRecorded},
	}, a.withGaps())
	a.heart.log = nil
	a.info.Attempt = 1000
	log := a.withGaps()
	require.LessOrEqual(t, len(log), 50)
	require.Equal(t, 1001, log[len(log)-1].Attempt)
}
