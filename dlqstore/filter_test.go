package dlqstore_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/deadletter-dev/deadletter/dlqstore"
)

// TestFilterJSON proves that the JSON of a filter keeps every field under its own
// name, is empty for an empty filter, and refuses what it does not know.
func TestFilterJSON(t *testing.T) {
	t.Parallel()
	whole := allFilters()["all"]
	data, err := json.Marshal(whole)
	require.NoError(t, err)
	require.JSONEq(t, `{
		"namespace": "default", "workflow_id": "w", "job_type": "t", "reason": "zombie", "task_queue": "q", "fingerprint": "f", "error_text": "x",
		"tags": {"k": "v"}, "dead_after": "2026-01-02T03:04:05.678901Z", "dead_before": "2026-01-02T03:04:05.678901Z",
		"enqueued_after": "2026-01-02T03:04:05.678901Z", "enqueued_before": "2026-01-02T03:04:05.678901Z",
		"min_attempts": 1, "max_attempts": 3, "generation": 0, "replayed": true, "superseded": false, "where": ["args[0].to=\"a@b.c\""]
	}`, string(data))
	for name, filter := range allFilters() {
		data, err := json.Marshal(filter)
		require.NoError(t, err, name)
		var back dlqstore.Filter
		require.NoError(t, json.Unmarshal(data, &back), name)
		require.Equal(t, filter, back, name)
	}
	data, err = json.Marshal(dlqstore.Filter{})
	require.NoError(t, err)
	require.Equal(t, "{}", string(data))

	for _, form := range []string{"2026-01-02T03:04:05Z", "2026-01-02 03:04:05Z", "2026-01-02 05:04:05+02:00"} {
		var f dlqstore.Filter
		require.NoError(t, json.Unmarshal([]byte(`{"dead_after": "`+form+`", "enqueued_before": "`+form+`", "dead_before": null}`), &f))
		want := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
		require.True(t, f.DeadAfter.Equal(want) && f.EnqueuedBefore.Equal(want), form)
		require.Nil(t, f.DeadBefore)
	}

	for _, text := range []string{
		`{"jobtype": "x"}`, `{"where": ["args"]}`, `{"where": [1]}`, `{"dead_after": "yesterday"}`, `{"generation": 1.5}`, `[]`,
		`{"Job_Type": "x"}`, `{"job_type": "x", "job_type": "y"}`, `{"tags": {"a": "1", "a": "2"}}`,
	} {
		var f dlqstore.Filter
		require.ErrorContains(t, json.Unmarshal([]byte(text), &f), "dlqstore: read a filter", text)
	}
}

// FuzzFilterJSON proves that no JSON makes the decoder panic, and that what it takes
// it writes as JSON that means the same.
func FuzzFilterJSON(f *testing.F) {
	for _, filter := range allFilters() {
		data, err := json.Marshal(filter)
		require.NoError(f, err)
		f.Add(data)
	}
	f.Add([]byte(`{"where": [""]}`))
	f.Add([]byte(`{"unknown": 1}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var read dlqstore.Filter
		if json.Unmarshal(data, &read) != nil {
			return
		}
		written, err := json.Marshal(read)
		require.NoError(t, err)
		var again dlqstore.Filter
		require.NoError(t, json.Unmarshal(written, &again))
		rewritten, err := json.Marshal(again)
		require.NoError(t, err)
		require.Equal(t, string(written), string(rewritten))
		require.Equal(t, read.IsEmpty(), again.IsEmpty())
		for _, times := range [][2]*time.Time{{read.DeadAfter, again.DeadAfter}, {read.EnqueuedBefore, again.EnqueuedBefore}} {
			require.Equal(t, times[0] == nil, times[1] == nil)
			require.True(t, times[0] == nil || times[0].Equal(*times[1]))
		}
	})
}
