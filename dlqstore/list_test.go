package dlqstore_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/job"
)

// listAll pages through a list; after each page between is called.
func listAll(t *testing.T, store *dlqstore.Store, f dlqstore.Filter, page dlqstore.Page, between func(last dlqstore.Key)) []dlqstore.Key {
	t.Helper()
	var keys []dlqstore.Key
	for {
		rows, next, err := store.List(t.Context(), f, page)
		require.NoError(t, err)
		require.LessOrEqual(t, len(rows), page.Limit)
		for _, row := range rows {
			keys = append(keys, row.Key)
			require.Nil(t, row.Payloads)
		}
		if next == "" {
			return keys
		}
		require.Len(t, rows, page.Limit)
		page.Cursor = next
		between(rows[len(rows)-1].Key)
	}
}

// TestListPages proves that paging is complete, without repeats and in one order
// under equal times, in both directions, also when the row that a cursor names is
// purged meanwhile.
func TestListPages(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	for i := range 23 {
		key := dlqstore.Key{Namespace: fmt.Sprint("n", i%2), WorkflowID: fmt.Sprint("w", i%5), RunID: fmt.Sprint("r", i)}
		dl := letter(key)
		dl.DeadAt = instant.Add(time.Duration(i%3) * time.Microsecond)
		move(t, store, dl)
	}
	nothing := func(dlqstore.Key) {}
	whole := listAll(t, store, dlqstore.Filter{}, dlqstore.Page{Limit: 1000}, nothing)
	require.Len(t, whole, 23)
	for limit := range 24 {
		if limit == 0 {
			continue
		}
		require.Equal(t, whole, listAll(t, store, dlqstore.Filter{}, dlqstore.Page{Limit: limit}, nothing))
		backwards := listAll(t, store, dlqstore.Filter{}, dlqstore.Page{Limit: limit, OldestFirst: true}, nothing)
		slices.Reverse(backwards)
		require.Equal(t, whole, backwards)
	}
	inNamespace := listAll(t, store, dlqstore.Filter{Namespace: "n1"}, dlqstore.Page{Limit: 2}, nothing)
	require.Equal(t, slices.DeleteFunc(slices.Clone(whole), func(k dlqstore.Key) bool { return k.Namespace != "n1" }), inNamespace)

	require.Equal(t, whole, listAll(t, store, dlqstore.Filter{}, dlqstore.Page{Limit: 4}, func(last dlqstore.Key) {
		require.NoError(t, store.Purge(t.Context(), last, "me"))
	}))
}

// TestListRow proves that a listed row is the stored one without the wire's bytes.
func TestListRow(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	want := letter(keyOf("w"))
	move(t, store, want)
	rows, next, err := store.List(t.Context(), dlqstore.Filter{}, dlqstore.Page{})
	require.NoError(t, err)
	require.Empty(t, next)
	want.Payloads, want.OptionsPayload, want.Failure, want.LastHeartbeatDetails = nil, nil, nil, nil
	want.Memo, want.SearchAttributes, want.Header, want.UserMetadata = nil, nil, nil, nil
	require.Equal(t, []dlqstore.DeadLetter{*want}, rows)
}

// TestListRefuses proves that a page that cannot be is an error, not a guess.
func TestListRefuses(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	for i := range 3 {
		move(t, store, letter(keyOf(fmt.Sprint("w", i))))
	}
	_, next, err := store.List(t.Context(), dlqstore.Filter{}, dlqstore.Page{Limit: 1})
	require.NoError(t, err)
	for _, page := range []dlqstore.Page{{Cursor: "x"}, {Cursor: "e30"}, {Cursor: next + "A"}, {Cursor: next, OldestFirst: true}} {
		_, _, err := store.List(t.Context(), dlqstore.Filter{}, page)
		require.ErrorIs(t, err, dlqstore.ErrBadCursor)
	}
	for _, limit := range []int{-1, 1001} {
		_, _, err := store.List(t.Context(), dlqstore.Filter{}, dlqstore.Page{Limit: limit})
		require.ErrorContains(t, err, "at most 1000")
	}
}

// TestFilters proves that each field selects what it says, in List and in Count,
// and that fields narrow each other.
func TestFilters(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	mine, other := letter(keyOf("mine")), letter(dlqstore.Key{Namespace: "other", WorkflowID: "theirs", RunID: "r"})
	other.JobType, other.Reason, other.TaskQueue, other.Fingerprint = "Charge", job.ReasonZombie, "money", "f2"
	other.ErrorMessage, other.ErrorType = "100% of_budget", "Bank"
	other.Tags = map[string]string{"tenant": "acme", "tier": "gold"}
	other.DeadAt = mine.DeadAt.Add(time.Microsecond)
	other.EnqueuedAt, other.Attempts, other.Generation = ptr(mine.EnqueuedAt.Add(time.Microsecond)), ptr(7), 0
	other.PayloadJSON = json.RawMessage(`[{"items": [1, 2]}, null]`)
	unknown := letter(dlqstore.Key{Namespace: "third", WorkflowID: "w", RunID: "r"})
	unknown.EnqueuedAt, unknown.Attempts, unknown.PayloadJSON = nil, nil, nil
	move(t, store, mine)
	move(t, store, other)
	begin(t, store, other.Key, "r")
	run(t, store, `update deadletter.dead_letters set superseded_at = now() where workflow_id = 'theirs'`)

	both := []dlqstore.Key{other.Key, mine.Key}
	for name, test := range map[string]struct {
		filter dlqstore.Filter
		want   []dlqstore.Key
	}{
		"nothing":          {dlqstore.Filter{}, both},
		"namespace":        {dlqstore.Filter{Namespace: "other"}, both[:1]},
		"workflow id":      {dlqstore.Filter{WorkflowID: "mine"}, both[1:]},
		"job type":         {dlqstore.Filter{JobType: "Charge"}, both[:1]},
		"reason":           {dlqstore.Filter{Reason: job.ReasonZombie}, both[:1]},
		"task queue":       {dlqstore.Filter{TaskQueue: "emails"}, both[1:]},
		"fingerprint":      {dlqstore.Filter{Fingerprint: "f2"}, both[:1]},
		"error text":       {dlqstore.Filter{ErrorText: "NO SUCH User"}, both[1:]},
		"error type":       {dlqstore.Filter{ErrorText: "bank"}, both[:1]},
		"no wildcards":     {dlqstore.Filter{ErrorText: "5_0"}, nil},
		"literal wildcard": {dlqstore.Filter{ErrorText: "0% of_b"}, both[:1]},
		"tag":              {dlqstore.Filter{Tags: map[string]string{"tenant": "acme"}}, both},
		"two tags":         {dlqstore.Filter{Tags: map[string]string{"tenant": "acme", "tier": "gold"}}, both[:1]},
		"tag value":        {dlqstore.Filter{Tags: map[string]string{"tier": "silver"}}, nil},
		"dead after":       {dlqstore.Filter{DeadAfter: &other.DeadAt}, both[:1]},
		"dead before":      {dlqstore.Filter{DeadBefore: &other.DeadAt}, both[1:]},
		"replayed":         {dlqstore.Filter{Replayed: ptr(true)}, both[:1]},
		"not replayed":     {dlqstore.Filter{Replayed: ptr(false)}, both[1:]},
		"enqueued after":   {dlqstore.Filter{EnqueuedAfter: other.EnqueuedAt}, both[:1]},
		"enqueued before":  {dlqstore.Filter{EnqueuedBefore: other.EnqueuedAt}, both[1:]},
		"min attempts":     {dlqstore.Filter{MinAttempts: ptr(4)}, both[:1]},
		"max attempts":     {dlqstore.Filter{MaxAttempts: ptr(3)}, both[1:]},
		"attempts between": {dlqstore.Filter{MinAttempts: ptr(3), MaxAttempts: ptr(7)}, both},
		"attempts":         {dlqstore.Filter{MinAttempts: ptr(7), MaxAttempts: ptr(7)}, both[:1]},
		"generation":       {dlqstore.Filter{Generation: ptr(0)}, both[:1]},
		"superseded":       {dlqstore.Filter{Superseded: ptr(true)}, both[:1]},
		"not superseded":   {dlqstore.Filter{Superseded: ptr(false)}, both[1:]},
		"argument":         {dlqstore.Filter{Where: where("args[0].to=a@b.c")}, both[1:]},
		"two arguments":    {dlqstore.Filter{Where: where("args[0].items[1]=2", "args[1]=null")}, both[:1]},
		"narrowing":        {dlqstore.Filter{JobType: "Charge", TaskQueue: "emails"}, nil},
		"quotes":           {dlqstore.Filter{JobType: `'; drop table x; -- @limit $1`}, nil},
	} {
		require.Equal(t, test.want, listAll(t, store, test.filter, dlqstore.Page{Limit: 1}, func(dlqstore.Key) {}), name)
		count, err := store.Count(t.Context(), test.filter)
		require.NoError(t, err)
		require.Equal(t, int64(len(test.want)), count, name)
	}
	move(t, store, unknown)
	for name, filter := range allFilters() {
		if strings.Contains(name, "attempts") || strings.HasPrefix(name, "enqueued") || name == "where" {
			filter.Namespace = unknown.Namespace
			count, err := store.Count(t.Context(), filter)
			require.NoError(t, err)
			require.Zero(t, count, "%s selects what is unknown", name)
		}
	}
	for namespace, want := range map[string]int64{"": 3, "other": 1, "none": 0} {
		count, err := store.CountDeadLetters(t.Context(), namespace)
		require.NoError(t, err)
		require.Equal(t, want, count)
	}
	for name, filter := range allFilters() {
		require.Equal(t, name == "nothing" || name == "namespace", filter.IsEmpty(), name)
	}
}

// TestResolve proves that a workflow id alone is enough exactly when one run of it
// is dead.
func TestResolve(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	for i, key := range []dlqstore.Key{{"n", "one", "r1"}, {"n", "two", "r1"}, {"n", "two", "r2"}, {"other", "one", "r9"}} {
		dl := letter(key)
		dl.DeadAt = instant.Add(time.Duration(i) * time.Second)
		move(t, store, dl)
	}
	key, err := store.Resolve(t.Context(), "n", "one", "")
	require.NoError(t, err)
	require.Equal(t, dlqstore.Key{Namespace: "n", WorkflowID: "one", RunID: "r1"}, key)
	require.Equal(t, "n/one/r1", key.String())
	key, err = store.Resolve(t.Context(), "n", "two", "r1")
	require.NoError(t, err)
	require.Equal(t, "r1", key.RunID)

	_, err = store.Resolve(t.Context(), "n", "two", "")
	require.ErrorIs(t, err, dlqstore.ErrAmbiguous)
	var ambiguous *dlqstore.AmbiguousError
	require.ErrorAs(t, err, &ambiguous)
	require.Equal(t, []string{"r2", "r1"}, ambiguous.RunIDs)
	require.ErrorContains(t, err, "r2, r1")
	for _, missing := range []dlqstore.Key{{"n", "none", ""}, {"n", "one", "r9"}, {"none", "one", ""}, {"n", "", ""}} {
		_, err := store.Resolve(t.Context(), missing.Namespace, missing.WorkflowID, missing.RunID)
		require.ErrorIs(t, err, dlqstore.ErrNotFound)
	}
}
