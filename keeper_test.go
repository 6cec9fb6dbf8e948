package deadletter_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/worker"

	"github.com/deadletter-dev/deadletter"
	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/internal/devstack/devtest"
	"github.com/deadletter-dev/deadletter/job"
)

// TestUpkeepCompacts proves that a worker of the dead-letter queue folds what moves
// have appended to the store's summaries.
func TestUpkeepCompacts(t *testing.T) {
	t.Parallel()
	address, namespace := devtest.Temporal(t)
	store, dlq := newStore(t), "dlq-"+uuid.NewString()
	key := dlqstore.Key{Namespace: namespace, WorkflowID: "w", RunID: "r"}
	_, err := store.Move(t.Context(), &dlqstore.DeadLetter{Key: key, Reason: job.ReasonZombie}, nil, "test", nil)
	require.NoError(t, err)
	plugin, err := deadletter.NewPlugin(deadletter.Options{Store: store, TaskQueue: dlq})
	require.NoError(t, err)
	c := devtest.Dial(t, client.Options{HostPort: address, Namespace: namespace, Logger: quiet(), Plugins: []client.Plugin{plugin}})
	upkeep := worker.New(c, dlq, worker.Options{})
	require.NoError(t, upkeep.Start())
	t.Cleanup(upkeep.Stop)
	require.Eventually(t, func() bool {
		var fresh int
		err := store.Pool().QueryRow(t.Context(), `select count(*) from deadletter.dead_letter_counts where not folded`).Scan(&fresh)
		return err == nil && fresh == 0
	}, time.Minute, 50*time.Millisecond)
	count, err := store.CountDeadLetters(t.Context(), namespace)
	require.NoError(t, err)
	require.EqualValues(t, 1, count)
}

// TestUpkeepTellsOnce proves that a missing right is logged when it is found, not in
// every round, and again after it was granted and taken back; and that any other failure
// is logged each time.
func TestUpkeepTellsOnce(t *testing.T) {
	t.Parallel()
	var logged bytes.Buffer
	report := deadletter.NewReport(t.Context(), log.NewStructuredLogger(slog.New(slog.NewTextHandler(&logged, nil))))
	lacking := func(right string) error {
		return fmt.Errorf("compact: %w", &dlqstore.RightsError{Role: "worker", Rights: []string{right}, Object: "t", Cause: errors.New("42501")})
	}
	for i, round := range []struct {
		failed string
		err    error
		logged int
	}{
		{"a", lacking("DELETE"), 1},
		{"a", lacking("DELETE"), 1},
		{"b", lacking("DELETE"), 2}, // other work
		{"a", lacking("DELETE"), 2},
		{"a", lacking("INSERT"), 3},
		{"a", nil, 3},
		{"a", lacking("INSERT"), 4},
		{"a", dlqstore.ErrUnavailable, 5},
		{"a", dlqstore.ErrUnavailable, 6},
	} {
		report(round.failed, round.err)
		require.Equal(t, round.logged, strings.Count(logged.String(), "level=WARN"), "after round %d", i)
	}
	require.Contains(t, logged.String(), "DELETE")
}
