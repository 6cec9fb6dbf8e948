package operator_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"

	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/internal/devstack/devtest"
	"github.com/deadletter-dev/deadletter/job"
	"github.com/deadletter-dev/deadletter/operator"
)

func TestMain(m *testing.M) { devtest.Main(m) }

// TestFind proves that the reads keep to the operator's namespace, whatever a filter
// names, and need no Temporal server.
func TestFind(t *testing.T) {
	t.Parallel()
	url := devtest.Postgres(t)
	require.NoError(t, dlqstore.Migrate(t.Context(), url))
	store, err := dlqstore.Open(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(store.Close)
	nobody, err := client.NewLazyClient(client.Options{HostPort: "127.0.0.1:1"})
	require.NoError(t, err)
	t.Cleanup(nobody.Close)
	verbs, err := operator.New(operator.Config{Store: store, Client: nobody, Namespace: "mine"})
	require.NoError(t, err)
	died := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for _, key := range []dlqstore.Key{{Namespace: "mine", WorkflowID: "a", RunID: "r"}, {Namespace: "mine", WorkflowID: "b", RunID: "r"}, {Namespace: "other", WorkflowID: "c", RunID: "r"}} {
		_, err := store.Move(t.Context(), &dlqstore.DeadLetter{Key: key, JobType: "T", Reason: job.ReasonTimeout, Fingerprint: "f", DeadAt: died}, nil, "test", nil)
		require.NoError(t, err)
		died = died.Add(time.Minute)
	}
	foreign := dlqstore.Filter{Namespace: "other"}

	var exported []string
	for dl, err := range verbs.Export(t.Context(), dlqstore.ExportRequest{Filter: foreign, OldestFirst: true}) {
		require.NoError(t, err)
		exported = append(exported, dl.WorkflowID)
	}
	require.Equal(t, []string{"a", "b"}, exported)

	groups, more, err := verbs.Groups(t.Context(), foreign, 0)
	require.NoError(t, err)
	require.Zero(t, more)
	require.Len(t, groups, 1)
	require.EqualValues(t, 2, groups[0].Count)
	require.Equal(t, "b", groups[0].Sample.WorkflowID)

	tallies, more, err := verbs.StatsBy(t.Context(), dlqstore.ByJobType, 0)
	require.NoError(t, err)
	require.Zero(t, more)
	require.Equal(t, []dlqstore.Tally{{Value: "T", Count: 2}}, tallies)

	trend, err := verbs.Trend(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 2, trend.DeadLetter)
	require.EqualValues(t, 2, trend.Growth)
	require.Equal(t, "a", trend.Oldest.WorkflowID)
}
