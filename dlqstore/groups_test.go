package dlqstore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/job"
)

// TestGroups proves what a group tells, the order, the limit, and that a filter
// which the summary answers and one which it cannot agree.
func TestGroups(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	for i := range 10 {
		dl := letter(keyOf(fmt.Sprint("w", i)))
		dl.Fingerprint, dl.TaskQueue = fmt.Sprint("f", min(i/2, 2)), fmt.Sprint("q", i%2)
		dl.DeadAt, dl.ErrorMessage = instant.Add(time.Duration(i)*time.Minute), fmt.Sprint("message ", i)
		move(t, store, dl)
	}
	foreign := letter(dlqstore.Key{Namespace: "other", WorkflowID: "w", RunID: "r"})
	foreign.Fingerprint = "f2"
	move(t, store, foreign)
	require.NoError(t, store.Purge(t.Context(), keyOf("w9"), "me"))

	groups, more, err := store.Groups(t.Context(), dlqstore.Filter{Namespace: "default"}, 2)
	require.NoError(t, err)
	require.Equal(t, 1, more)
	require.Len(t, groups, 2)
	require.Equal(t, dlqstore.Group{
		Fingerprint: "f2", Count: 5, FirstDeadAt: instant.Add(4 * time.Minute), LastDeadAt: instant.Add(8 * time.Minute), TaskQueues: []string{"q0", "q1"},
		JobType: "SendEmail", Reason: "max_retries_exceeded", ErrorType: "SMTP", ErrorMessage: "message 8", Sample: keyOf("w8"),
	}, groups[0])
	require.Equal(t, "f0", groups[1].Fingerprint, "of two groups of one size the first by fingerprint")

	for name, test := range map[string]struct {
		filter dlqstore.Filter
		want   map[string]int64
	}{
		"all":         {dlqstore.Filter{}, map[string]int64{"f0": 2, "f1": 2, "f2": 6}},
		"queue":       {dlqstore.Filter{TaskQueue: "q1"}, map[string]int64{"f0": 1, "f1": 1, "f2": 2}},
		"type":        {dlqstore.Filter{JobType: "none"}, map[string]int64{}},
		"reason":      {dlqstore.Filter{Reason: job.ReasonZombie}, map[string]int64{}},
		"fingerprint": {dlqstore.Filter{Fingerprint: "f1"}, map[string]int64{"f1": 2}},
		"dead after":  {dlqstore.Filter{Namespace: "default", DeadAfter: ptr(instant.Add(7 * time.Minute))}, map[string]int64{"f2": 2}},
		"error text":  {dlqstore.Filter{ErrorText: "message 1", TaskQueue: "q1"}, map[string]int64{"f0": 1}},
	} {
		groups, more, err := store.Groups(t.Context(), test.filter, 0)
		require.NoError(t, err, name)
		require.Zero(t, more, name)
		got := map[string]int64{}
		for _, group := range groups {
			got[group.Fingerprint] = group.Count
		}
		require.Equal(t, test.want, got, name)
	}
}

// TestGroupsBothWays proves that the summary and the table give the same groups.
func TestGroupsBothWays(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	copyRows(t, store, 5000)
	for _, filter := range []dlqstore.Filter{{}, {Namespace: "other"}, {Namespace: "default", JobType: "type-1"}, {Reason: job.ReasonTimeout, TaskQueue: "queue-3"}} {
		summary, more, err := store.Groups(t.Context(), filter, 20)
		require.NoError(t, err)
		filter.DeadAfter = &rowsBegin // all of them, but not a matter of the summary
		table, moreInTable, err := store.Groups(t.Context(), filter, 20)
		require.NoError(t, err)
		require.NotEmpty(t, table)
		require.Equal(t, table, summary)
		require.Equal(t, moreInTable, more)
	}
}
