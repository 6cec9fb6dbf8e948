package activities

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"

	"github.com/deadletter-dev/deadletter/job"
)

func ofType(jobType string) activity.Info {
	return activity.Info{ActivityType: activity.Type{Name: jobType}}
}

// TestBreaker proves when a breaker opens, that half-open it lets exactly the
// configured probes through, what closes and reopens it, and that types are apart.
func TestBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBreakers(CircuitBreaker{Threshold: 3, Window: time.Minute, OpenTime: 10 * time.Second, HalfOpenProbes: 2})
		run := func(jobType string, result error) error {
			report, refused := b.allow(ofType(jobType))
			if refused == nil {
				report(result)
			}
			return refused
		}
		down := errors.New("down")
		require.NoError(t, run("A", down))
		require.NoError(t, run("A", down))
		time.Sleep(2 * time.Minute) // the fake clock: out of the window
		for range 3 {
			require.NoError(t, run("A", temporal.NewNonRetryableApplicationError("no", "", nil)), "a fatal error counts")
			require.NoError(t, run("A", down), "failures outside the window count")
		}
		var failure *temporal.ApplicationError
		require.ErrorAs(t, run("A", nil), &failure)
		require.Equal(t, job.CircuitOpenErrorType, failure.Type())
		require.True(t, failure.NonRetryable())
		require.NoError(t, run("B", nil), "types are not apart")

		time.Sleep(11 * time.Second)
		first, refused := b.allow(ofType("A"))
		require.NoError(t, refused)
		second, refused := b.allow(ofType("A"))
		require.NoError(t, refused)
		_, refused = b.allow(ofType("A"))
		require.Error(t, refused, "a third probe got through")
		first(nil)
		second(down)
		require.Error(t, run("A", nil), "a failed probe did not reopen it")

		time.Sleep(11 * time.Second)
		require.NoError(t, run("A", nil))
		require.NoError(t, run("A", nil))
		for range 5 {
			require.NoError(t, run("A", nil), "two good probes did not close it")
		}
	})
}

// TestNoBreaker proves that none refuses where none is configured.
func TestNoBreaker(t *testing.T) {
	t.Parallel()
	require.Nil(t, NewBreakers(CircuitBreaker{}))
	own := NewBreakers(CircuitBreaker{PerType: map[string]CircuitBreaker{"A": {Threshold: 1}}})
	for _, c := range []struct {
		breakers *Breakers
		jobType  string
		refuses  bool
	}{{nil, "A", false}, {own, "B", false}, {own, "A", true}} {
		report, refused := c.breakers.allow(ofType(c.jobType))
		require.NoError(t, refused)
		report(errors.New("down"))
		_, refused = c.breakers.allow(ofType(c.jobType))
		require.Equal(t, c.refuses, refused != nil)
	}
}
