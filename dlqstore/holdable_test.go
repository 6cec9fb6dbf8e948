package dlqstore_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/deadletter-dev/deadletter/dlqstore"
)

// TestNumbersSurvive proves that no number is altered on its way through jsonb.
func TestNumbersSurvive(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	dl := letter(keyOf("w"))
	dl.PayloadJSON = json.RawMessage(`[9007199254740993, 1.10, 123456789012345678901234567890, -0.00000000000000000001]`)
	move(t, store, dl)
	got, err := store.Get(t.Context(), dl.Key)
	require.NoError(t, err)
	require.Equal(t, string(dl.PayloadJSON), string(got.PayloadJSON))
	encoded, err := json.Marshal(got)
	require.NoError(t, err)
	require.Contains(t, string(encoded), `"payload_json":[9007199254740993,1.10,123456789012345678901234567890,-0.00000000000000000001]`)
}

// TestUnholdableJSON proves that a JSON copy which jsonb cannot hold is left out,
// and that the move succeeds with the payloads' bytes.
func TestUnholdableJSON(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	for name, value := range map[string]string{
		"NUL escape":     `["a\u0000b"]`,
		"half surrogate": `["\ud800"]`,
		"giant number":   `[1e1000000]`,
		"too deep":       strings.Repeat("[", 9000) + strings.Repeat("]", 9000),
		"far too deep":   strings.Repeat("[", 200000) + strings.Repeat("]", 200000),
		"broken UTF-8":   "[\"\xff\"]",
		"not JSON":       `[`,
		"raw NUL":        "[\"\x00\"]",
		"null":           `null`,
	} {
		dl := letter(keyOf(name))
		dl.PayloadJSON, dl.Options, dl.Priority = json.RawMessage(value), json.RawMessage(value), json.RawMessage(value)
		moved, err := store.Move(t.Context(), dl, nil, "worker", func(_ context.Context, _ pgx.Tx, stored *dlqstore.DeadLetter) error {
			if name != "too deep" { // some servers' stacks hold it
				require.Nil(t, stored.PayloadJSON, name)
			}
			return nil
		})
		require.NoError(t, err, name)
		require.True(t, moved)
		got, err := store.Get(t.Context(), dl.Key)
		require.NoError(t, err)
		if name != "too deep" {
			require.Nil(t, got.PayloadJSON, name)
			require.Nil(t, got.Options, name)
		}
		require.JSONEq(t, `{}`, string(got.Priority), name)
		require.Equal(t, dl.Payloads, got.Payloads)
	}
}

// TestUnholdableText proves that no text keeps a job from being dead-lettered:
// NUL, broken UTF-8, and megabytes, in every text there is.
func TestUnholdableText(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	nasty := "head\x00\xff" + strings.Repeat("é", 3<<19) + "\xe2\x82 tail"
	dl := letter(keyOf("w"))
	for _, text := range []*string{
		&dl.FirstRunID, &dl.JobType, &dl.TaskQueue, &dl.WorkflowTaskQueue, &dl.ErrorType, &dl.ErrorMessage, &dl.ErrorStack,
		&dl.RetryState, &dl.WorkerIdentity, &dl.Fingerprint, dl.ReplayedFromWorkflowID, dl.ReplayedFromRunID,
	} {
		*text = nasty
	}
	dl.Tags = map[string]string{"k\x00\xff": "v\x00\xff"}
	dl.Generation, dl.Attempts, dl.MaxAttempts = -1, ptr(1<<40), ptr(1<<40)
	list := []dlqstore.Attempt{{Attempt: 1, WorkerIdentity: nasty, ErrorType: nasty, ErrorMessage: nasty, ErrorStack: nasty}, {Attempt: 1}}
	moved, err := store.Move(t.Context(), dl, list, nasty, nil)
	require.NoError(t, err)
	require.True(t, moved)

	got, err := store.Get(t.Context(), dl.Key)
	require.NoError(t, err)
	for text, limit := range map[string]int{got.ErrorMessage: dlqstore.MaxErrorMessage, got.ErrorStack: dlqstore.MaxErrorStack, got.JobType: 1000, got.Fingerprint: 1000} {
		require.LessOrEqual(t, len(text), limit)
		require.Greater(t, len(text), limit-4)
		require.True(t, strings.HasPrefix(text, "head␀\uFFFDé"), text[:20])
		require.True(t, strings.HasSuffix(text, "é\uFFFD tail"))
		require.Contains(t, text, "bytes left out")
	}
	require.Equal(t, map[string]string{"k␀\uFFFD": "v␀\uFFFD"}, got.Tags)
	require.Equal(t, 0, got.Generation)
	stored, err := store.Attempts(t.Context(), dl.Key)
	require.NoError(t, err)
	require.Len(t, stored, 1, "of two attempts with one number the first is kept")
	require.Equal(t, got.ErrorMessage, stored[0].ErrorMessage)
	events, err := store.Events(t.Context(), dl.Key)
	require.NoError(t, err)
	require.True(t, utf8.ValidString(events[0].Actor))

	for _, filter := range []dlqstore.Filter{{Tags: dl.Tags}, {ErrorText: "HEAD\x00\xff"}} { // a search is made holdable too
		count, err := store.Count(t.Context(), filter)
		require.NoError(t, err)
		require.Equal(t, int64(1), count)
	}
}

// TestLongNames proves that the longest names that a server takes, in all columns
// at once and incompressible, fit into every index.
func TestLongNames(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	name := scalar[string](t, store, `select left(string_agg(md5(i::text), ''), 1000) from generate_series(1, 40) i`)
	dl := letter(dlqstore.Key{Namespace: name[:500], WorkflowID: name, RunID: name[:36]})
	dl.JobType, dl.TaskQueue, dl.Fingerprint = name, name, name
	move(t, store, dl)
	start, err := store.BeginReplay(t.Context(), dlqstore.ReplayRequest{Key: dl.Key, RequestID: name, Actor: name})
	require.NoError(t, err)
	require.LessOrEqual(t, len(start.Replay.NewWorkflowID), 1000)
}

// TestLargeMove proves that 2 MiB of arguments and a thousand attempts are moved.
func TestLargeMove(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	dl := letter(keyOf("w"))
	dl.Payloads = make([]byte, 2<<20)
	dl.PayloadJSON = json.RawMessage(`["` + strings.Repeat("x", 2<<20) + `"]`)
	moved, err := store.Move(t.Context(), dl, attempts(1000), "worker", nil)
	require.NoError(t, err)
	require.True(t, moved)
	got, err := store.Get(t.Context(), dl.Key)
	require.NoError(t, err)
	require.Equal(t, dl.Payloads, got.Payloads)
	require.Equal(t, dl.PayloadJSON, got.PayloadJSON)
	list, err := store.Attempts(t.Context(), dl.Key)
	require.NoError(t, err)
	require.Equal(t, attempts(1000), list)
}
