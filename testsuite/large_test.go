package testsuite_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"google.golang.org/protobuf/proto"

	"github.com/deadletter-dev/deadletter"
)

// TestLargeArguments proves that 1.9 MiB of arguments, as text and as bytes, are
// dead-lettered and replayed, byte for byte.
func TestLargeArguments(t *testing.T) {
	t.Parallel()
	const size = 19 << 20 / 10
	w := newWorld(t)
	w.startJobs(handlers{"Fail": fail})
	w.startDLQ(nil)
	for name, arg := range map[string]any{"text": strings.Repeat("x", size), "bytes": make([]byte, size)} {
		t.Run(name, func(t *testing.T) {
			run := w.enqueue(deadletter.Job{Type: "Fail", Policy: quick(2), Tags: map[string]string{"t": strings.Repeat("y", 8<<10)}}, arg)
			require.ErrorContains(t, w.wait(run, nil), "max_retries_exceeded")
			again := w.replay(run, "")
			require.ErrorContains(t, w.wait(again, nil), "max_retries_exceeded")
			first, last := w.history(run)[0].GetWorkflowExecutionStartedEventAttributes(), w.history(again)[0].GetWorkflowExecutionStartedEventAttributes()
			require.True(t, proto.Equal(first.GetInput(), last.GetInput()))
			require.Equal(t, w.dead(run).Payloads, w.dead(again).Payloads)
			require.Greater(t, len(w.dead(run).Payloads), size)
		})
	}
}

// TestLongHistory proves that the move finds the job's input and failure also in a
// history of several pages.
func TestLongHistory(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	hold := make(chan struct{})
	w.startJobs(handlers{"Wait": func(context.Context) error { <-hold; return errors.New("at last") }})
	w.startDLQ(nil)
	run := w.enqueue(deadletter.Job{Type: "Wait", Policy: quick(1)}, "argument")
	w.pendingIn(enumspb.PENDING_ACTIVITY_STATE_STARTED)(run)
	for range 1200 { // the job ignores them; the history holds them
		require.NoError(t, w.client.SignalWorkflow(t.Context(), run.GetID(), "", "noise", strings.Repeat("z", 1000)))
	}
	close(hold)
	require.ErrorContains(t, w.wait(run, nil), "max_retries_exceeded after 1 attempts: at last")
	dl := w.dead(run)
	require.JSONEq(t, `["argument"]`, string(dl.PayloadJSON))
	require.Equal(t, "at last", dl.ErrorMessage)
	require.Equal(t, 1, *dl.Attempts)
}
