package job_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/deadletter-dev/deadletter/job"
)

// TestStatusRefusesDeadLetter proves that nothing parses, reads or writes the
// status dead_letter: a dead letter is a row, not a state of a live job.
func TestStatusRefusesDeadLetter(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"dead_letter", "", "failed", "Queued"} {
		_, err := job.ParseStatus(text)
		require.Error(t, err, text)
		var status job.Status
		require.Error(t, status.Scan(text))
		require.Error(t, status.Scan([]byte(text)))
		require.Error(t, json.Unmarshal([]byte(`"`+text+`"`), &status))
		_, err = job.Status(text).Value()
		require.Error(t, err)
		_, err = json.Marshal(job.Status(text))
		require.Error(t, err)
	}
	require.Error(t, new(job.Status).Scan(7))
	_, err := job.ParseStatus("dead_letter")
	require.ErrorContains(t, err, "a dead letter is a row of its own")

	for _, want := range []job.Status{job.StatusQueued, job.StatusProcessing, job.StatusDone, job.StatusCancelled} {
		value, err := want.Value()
		require.NoError(t, err)
		var got job.Status
		require.NoError(t, got.Scan(value))
		require.Equal(t, want, got)
	}
}

// TestReasons proves that the set is the contract's and closed.
func TestReasons(t *testing.T) {
	t.Parallel()
	want := []string{
		"max_retries_exceeded", "fatal_error", "cancelled", "zombie", "circuit_breaker_open",
		"throttled", "retry_lifetime_expired", "timeout", "unknown_job_type", "terminated",
	}
	require.Len(t, job.Reasons(), len(want))
	for i, text := range want {
		reason, err := job.ParseReason(text)
		require.NoError(t, err)
		require.Equal(t, job.Reasons()[i], reason)
	}
	_, err := job.ParseReason("bored")
	require.ErrorContains(t, err, "max_retries_exceeded")
}
