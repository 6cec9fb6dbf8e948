package deadletter_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
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
