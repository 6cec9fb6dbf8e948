package job_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/deadletter-dev/deadletter/job"
)

// TestEditWireForm proves that an edit is read from the JSON that other languages
// and the operator workflow write, and that an empty one is known as such.
func TestEditWireForm(t *testing.T) {
	t.Parallel()
	var e job.Edit
	require.True(t, e.IsEmpty())
	require.NoError(t, json.Unmarshal([]byte(`{
		"argument": {"0": {"id": 9007199254740993}, "1": 1.10}, "task_queue": "slow", "policy": {"max_attempts": null},
		"priority": {"priority_key": 1}, "tags": {"ring": "beta", "tenant": null}
	}`), &e))
	require.NoError(t, e.Validate())
	require.False(t, e.IsEmpty())
	require.True(t, e.TouchesOptions())
	require.JSONEq(t, `{"id": 9007199254740993}`, string(e.Argument[0]))
	require.Equal(t, "1.10", string(e.Argument[1]))
	require.Equal(t, "beta", *e.Tags["ring"])
	require.Nil(t, e.Tags["tenant"])

	faulty := job.Edit{
		Arguments: json.RawMessage("[]"), Argument: map[int]json.RawMessage{8: nil, -1: nil}, Tags: map[string]*string{"": nil},
	}
	err := faulty.Validate()
	for _, fault := range []string{"give one of them", "there is no place 8", "there is no place -1", "a tag needs a name"} {
		require.ErrorContains(t, err, fault)
	}
}

// TestParsePriority proves that every fault of a priority is named.
func TestParsePriority(t *testing.T) {
	t.Parallel()
	priority, err := job.ParsePriority([]byte(`{"priority_key": 5, "fairness_key": "acme", "fairness_weight": 0.5}`))
	require.NoError(t, err)
	require.Equal(t, job.Priority{PriorityKey: 5, FairnessKey: "acme", FairnessWeight: 0.5}, priority)
	for text, says := range map[string]string{
		`{"priority_key": 6}`:                 "priority_key: 6 is not within 1 to 5",
		`{"priority_key": 1.5}`:               "it must be an object of priority_key",
		`{"priorty_key": 1}`:                  "it must be an object of priority_key",
		`{"fairness_key": "\u0000"}`:          "fairness_key: holds a NUL character",
		`{"fairness_weight": 1e9}`:            "fairness_weight: 1e+09 is not within 0.001 to 1000",
		`{} {}`:                               "it must be an object of priority_key",
		`{"Priority_Key": 1}`:                 "it must be an object of priority_key",
		`{"priority_key":1,"priority_key":2}`: `priority: "priority_key": the key is given twice`,
		`{"fairness_key": "` + long + `"}`:    "fairness_key: 65 bytes; at most 64",
	} {
		_, err := job.ParsePriority([]byte(text))
		require.ErrorContains(t, err, says)
	}
}

// long is a fairness key of one byte too many.
const long = "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
