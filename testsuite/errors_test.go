package testsuite_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"github.com/deadletter-dev/deadletter"
	"github.com/deadletter-dev/deadletter/job"
)

// TestFatalInside proves that a fatal error means the same at any depth, and that a
// cancellation or deadline of the handler's own callee is an ordinary failure.
func TestFatalInside(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var calls atomic.Int32
	cases := map[string]struct {
		err    error
		reason job.Reason
		calls  int32
	}{
		"Deep":      {fmt.Errorf("a: %w", fmt.Errorf("b: %w", fmt.Errorf("c: %w", deadletter.Fatal(errors.New("no"))))), job.ReasonFatalError, 1},
		"Joined":    {errors.Join(temporal.NewApplicationError("soft", "Soft"), deadletter.Fatal(errors.New("no"))), job.ReasonFatalError, 1},
		"Cancelled": {fmt.Errorf("callee: %w", context.Canceled), job.ReasonMaxRetriesExceeded, 2},
		"Deadline":  {fmt.Errorf("callee: %w", context.DeadlineExceeded), job.ReasonMaxRetriesExceeded, 2},
		"Unasked":   {temporal.NewCanceledError("callee"), job.ReasonMaxRetriesExceeded, 2},
	}
	h := handlers{}
	for name, c := range cases {
		h[name] = func(context.Context) error { calls.Add(1); return c.err }
	}
	w.startJobs(h)
	w.startDLQ(nil)
	for name, c := range cases {
		calls.Store(0)
		run := w.enqueue(deadletter.Job{Type: name, Policy: quick(2)})
		require.ErrorContains(t, w.wait(run, nil), "dead-lettered: "+string(c.reason), name)
		require.Equal(t, c.calls, calls.Load(), name)
	}
}

// TestErrorType proves that a dead letter has the type of the last error, also of
// one that is wrapped, and the errors of the attempts that the history holds.
func TestErrorType(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var calls atomic.Int32
	w.startJobs(handlers{
		"Typed": func(context.Context) error {
			return temporal.NewApplicationError(fmt.Sprint("try ", calls.Add(1)), "SMTPError")
		},
		"Wrapped": func(context.Context) error {
			return fmt.Errorf("send: %w", temporal.NewApplicationError("550", "SMTPError"))
		},
	})
	w.startDLQ(nil)
	typed := w.enqueue(deadletter.Job{Type: "Typed", Policy: quick(3)})
	require.Error(t, w.wait(typed, nil))
	dl := w.dead(typed)
	require.Equal(t, "SMTPError", dl.ErrorType)
	require.Equal(t, "try 3", dl.ErrorMessage)
	attempts, err := w.store.Attempts(t.Context(), dl.Key)
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(attempts), 2)
	for _, attempt := range attempts {
		require.Equal(t, "SMTPError", attempt.ErrorType)
		require.Equal(t, fmt.Sprint("try ", attempt.Attempt), attempt.ErrorMessage)
	}
	wrapped := w.enqueue(deadletter.Job{Type: "Wrapped", Policy: quick(1)})
	require.Error(t, w.wait(wrapped, nil))
	require.Equal(t, "SMTPError", w.dead(wrapped).ErrorType)

	require.NotEqual(t, dl.Fingerprint, w.dead(wrapped).Fingerprint, "two causes, one fingerprint")
	other := w.enqueue(deadletter.Job{Type: "Typed", Policy: quick(1)})
	require.Error(t, w.wait(other, nil))
	require.Equal(t, dl.Fingerprint, w.dead(other).Fingerprint, "one cause, two fingerprints")
}
