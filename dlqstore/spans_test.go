package dlqstore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/job"
)

// TestSpans proves that spans count what a filter selects by reason, the most
// frequent first, between its oldest and its newest.
func TestSpans(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	for i := range 5 {
		dl := letter(keyOf(fmt.Sprint("w", i)))
		dl.DeadAt, dl.Reason = instant.Add(time.Duration(i)*time.Hour), job.ReasonTimeout
		if i%2 == 1 {
			dl.Reason = job.ReasonZombie
		}
		move(t, store, dl)
	}
	move(t, store, letter(dlqstore.Key{Namespace: "other", WorkflowID: "w", RunID: "r"}))
	at := func(hours int) time.Time { return instant.Add(time.Duration(hours) * time.Hour) }
	timeouts := dlqstore.Span{Reason: job.ReasonTimeout, Count: 3, Oldest: at(0), Newest: at(4)}
	zombies := dlqstore.Span{Reason: job.ReasonZombie, Count: 2, Oldest: at(1), Newest: at(3)}

	spans, err := store.Spans(t.Context(), dlqstore.Filter{Namespace: "default"})
	require.NoError(t, err)
	require.Equal(t, []dlqstore.Span{timeouts, zombies}, spans)
	after := at(1)
	spans, err = store.Spans(t.Context(), dlqstore.Filter{Namespace: "default", Reason: job.ReasonZombie, DeadAfter: &after})
	require.NoError(t, err)
	require.Equal(t, []dlqstore.Span{zombies}, spans)
	spans, err = store.Spans(t.Context(), dlqstore.Filter{JobType: "none"})
	require.NoError(t, err)
	require.Empty(t, spans)
}
