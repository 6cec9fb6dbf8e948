package job_test

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/deadletter-dev/deadletter/job"
)

// TestPolicyWire proves that the wire form is the one of the contract and that a
// policy survives it.
func TestPolicyWire(t *testing.T) {
	t.Parallel()
	const wire = `{"max_attempts": 3, "base_delay": "3s", "backoff_multiplier": 2, "max_delay": "1h", "jitter_max_delay": "1s",
		"circuit_breaker_delay": "5s", "max_job_age": "24h", "attempt_timeout": "15m", "heartbeat_timeout": "1m",
		"retry_zombies": true, "dead_letter_timeouts": true, "discard_cancelled": true, "unknown_type_grace": "90s"}`
	var policy job.Policy
	require.NoError(t, json.Unmarshal([]byte(wire), &policy))
	want := job.Policy{
		MaxAttempts: 3, BaseDelay: 3 * time.Second, BackoffMultiplier: 2, MaxDelay: time.Hour, JitterMaxDelay: time.Second,
		CircuitBreakerDelay: 5 * time.Second, MaxJobAge: 24 * time.Hour, AttemptTimeout: 15 * time.Minute, HeartbeatTimeout: time.Minute,
		RetryZombies: true, DeadLetterTimeouts: true, DiscardCancelled: true,
		UnknownTypeGrace: 90 * time.Second,
	}
	require.Equal(t, want, policy)
	again, err := json.Marshal(policy)
	require.NoError(t, err)
	var back job.Policy
	require.NoError(t, json.Unmarshal(again, &back))
	require.Equal(t, policy, back)

	zero, err := json.Marshal(job.Policy{})
	require.NoError(t, err)
	require.JSONEq(t, `{}`, string(zero))
}

// TestPolicyDefaults proves the defaults of the contract, and that negative values
// stay what they are: off.
func TestPolicyDefaults(t *testing.T) {
	t.Parallel()
	require.Equal(t, job.Policy{
		MaxAttempts: 3, BaseDelay: 3 * time.Second, BackoffMultiplier: 2, MaxDelay: time.Hour, JitterMaxDelay: time.Second,
		CircuitBreakerDelay: 5 * time.Second, MaxJobAge: 24 * time.Hour, AttemptTimeout: 15 * time.Minute, HeartbeatTimeout: -time.Second,
		UnknownTypeGrace: 5 * time.Minute,
	}, job.Policy{}.WithDefaults())
	off := job.Policy{MaxAttempts: -1, BaseDelay: -1, BackoffMultiplier: 1, MaxDelay: -1, JitterMaxDelay: -1, CircuitBreakerDelay: -1, MaxJobAge: -1, AttemptTimeout: -1, HeartbeatTimeout: -1, UnknownTypeGrace: -1}
	require.Equal(t, off, off.WithDefaults())
	require.NoError(t, off.Validate())
}

// TestPolicyFaults proves that each fault is named with its field, all in one error.
func TestPolicyFaults(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ wire, says string }{
		{`{"max_attempts": 0.5}`, "max_attempts: 0.5 is not a whole number"},
		{`{"max_attempts": "3"}`, `max_attempts: "3" is not a whole number`},
		{`{"max_attempts": 1e20}`, "max_attempts: 1e20 is not a whole number"},
		{`{"max_attempts": 4294967296}`, "max_attempts: 4294967296 is above 2147483647"},
		{`{"base_delay": 3}`, "base_delay: 3 is not a duration string"},
		{`{"base_delay": "3 seconds"}`, `base_delay: "3 seconds" is not a duration`},
		{`{"backoff_multiplier": 0.99}`, "backoff_multiplier: 0.99 is not a number of at least 1"},
		{`{"backoff_multiplier": -2}`, "backoff_multiplier: -2 is not"},
		{`{"heartbeat_timeout": "10ms"}`, "heartbeat_timeout: 10ms is too short"},
		{`{"unknown_type_grace": 300}`, "unknown_type_grace: 300 is not a duration string"},
		{`{"retry_zombies": 1}`, "retry_zombies: 1 is not true or false"},
		{`{"max_retries": 3}`, "max_retries: the policy has no such field"},
		{`[]`, "policy must be a JSON object"},
		{`"3"`, "policy must be a JSON object"},
		{`{"max_attempts": "` + strings.Repeat("x", 1000) + `"}`, "…"},
	} {
		var policy job.Policy
		err := policy.UnmarshalJSON([]byte(c.wire))
		require.ErrorContains(t, err, c.says)
		require.Less(t, len(err.Error()), 200)
		require.Zero(t, policy, "a refused policy was taken in part")
	}
	require.ErrorContains(t, job.Policy{BackoffMultiplier: math.NaN()}.Validate(), "NaN")
	require.ErrorContains(t, job.Policy{BackoffMultiplier: math.Inf(1)}.Validate(), "Inf")

	var all job.Options
	err := json.Unmarshal([]byte(`{"type": 7, "queue": "x", "tags": {"a": 1}, "policy": {"max_attempts": 0.5, "max_delay": true}}`), &all)
	for _, fault := range []string{"type: 7 is not a string", "queue: a job has no such option", "tags: ", "max_attempts: ", "max_delay: ", "type: missing"} {
		require.ErrorContains(t, err, fault)
	}
}

// TestDoubledOptions proves that options with a key twice are refused, at any depth, and
// that those which an earlier build has accepted are read as it read them.
func TestDoubledOptions(t *testing.T) {
	t.Parallel()
	for wire, says := range map[string]string{
		`{"type":"A","type":"B"}`:                                               "type: the key is given twice",
		`{"type":"A","policy":{"max_attempts":1,"max_attempts":2}}`:             "max_attempts: the key is given twice",
		`{"type":"A","tags":{"a":"1","\u0061":"2"}}`:                            "tags: \"a\": the key is given twice",
		`{"type":"A","policy":{"max_attempts":1},"policy":{"base_delay":"1s"}}`: "policy: the key is given twice",
	} {
		var options job.Options
		err := json.Unmarshal([]byte(wire), &options)
		require.ErrorIs(t, err, job.ErrDoubledKey, wire)
		require.ErrorContains(t, err, says)
	}
	var options job.Options
	require.ErrorContains(t, json.Unmarshal([]byte(`{"type":"A","Type":"B"}`), &options), "Type: a job has no such option")

	require.NoError(t, options.UnmarshalLast([]byte(`{"type":"A","type":"B","policy":{"max_attempts":1,"max_attempts":2},"tags":{"a":"1","a":"2"}}`)))
	require.Equal(t, job.Options{Type: "B", Policy: job.Policy{MaxAttempts: 2}, Tags: map[string]string{"a": "2"}}, options)
}

// TestOptionsFaults proves the bounds that keep the terminal activity's input small
// and its text such that Postgres can hold it.
func TestOptionsFaults(t *testing.T) {
	t.Parallel()
	require.NoError(t, job.Options{Type: "T"}.Validate())
	for _, c := range []struct {
		options job.Options
		says    string
	}{
		{job.Options{}, "type: missing"},
		{job.Options{Type: "a\x00b"}, "type: holds a NUL"},
		{job.Options{Type: "T", TaskQueue: "\xff"}, "task_queue: not valid UTF-8"},
		{job.Options{Type: strings.Repeat("T", 1001)}, "type: 1001 bytes"},
		{job.Options{Type: "T", Tags: map[string]string{"k": "\x00"}}, "tags: holds a NUL"},
		{job.Options{Type: "T", Tags: map[string]string{"k": strings.Repeat("v", 16<<10)}}, "tags: 16385 bytes"},
	} {
		require.ErrorContains(t, c.options.Validate(), c.says)
	}
}

// TestWholeNumbers proves that a whole number is one in every spelling of JSON:
// other languages have no other number type.
func TestWholeNumbers(t *testing.T) {
	t.Parallel()
	for _, spelling := range []string{"3", "3.0", "3e0", "30e-1"} {
		var policy job.Policy
		require.NoError(t, policy.UnmarshalJSON([]byte(`{"max_attempts": `+spelling+`}`)))
		require.Equal(t, 3, policy.MaxAttempts)
	}
}

// FuzzOptions proves that no text makes the decoder panic, and that what it takes
// without a fault survives another round.
func FuzzOptions(f *testing.F) {
	for _, seed := range []string{
		`{"type":"T"}`, `{"type":"T","policy":{"max_attempts":3,"base_delay":"3s"},"tags":{"a":"b"},"start_delay":"1s"}`,
		`null`, `[]`, `{"type":null}`, `{"policy":null}`, `{"type":"T","policy":{"backoff_multiplier":1e400}}`, ``,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var options job.Options
		if options.UnmarshalJSON(data) != nil {
			return
		}
		require.NoError(t, options.Validate())
		again, err := json.Marshal(options)
		require.NoError(t, err)
		var back job.Options
		require.NoError(t, back.UnmarshalJSON(again))
		if len(options.Tags) == 0 {
			options.Tags = nil
		}
		require.Equal(t, options, back)
	})
}
