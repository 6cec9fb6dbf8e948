package job_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/deadletter-dev/deadletter/job"
)

// checked is what every request can do.
type checked interface{ Check() error }

// through sends a request through one more pair of hands, as a workflow does.
func through[T checked](t *testing.T, sent string) (received, again T) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(sent), &received))
	passed, err := json.Marshal(received)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(passed, &again))
	return received, again
}

func refuses[T checked](t *testing.T, sent, says string) {
	t.Helper()
	received, again := through[T](t, sent)
	require.EqualError(t, received.Check(), says, sent)
	require.EqualError(t, again.Check(), says, "%s, passed on", sent)
}

func misshapen[T interface {
	checked
	Misshapen() bool
}](t *testing.T, sent, says string,
) {
	t.Helper()
	refuses[T](t, sent, says)
	received, again := through[T](t, sent)
	require.True(t, received.Misshapen(), sent)
	require.True(t, again.Misshapen(), "%s, passed on", sent)
}

// TestRequestsAreStrict proves that a request with a key that nobody knows, or a value
// of a wrong kind, is refused with the key's name, however many hands it went through,
// and that a request without such faults comes through as it is.
func TestRequestsAreStrict(t *testing.T) {
	t.Parallel()
	refuses[job.ReplayInput](t, `{"workflow_id":"w","actr":"a"}`, `unknown field "actr"`)
	refuses[job.PurgeInput](t, `{"workflow_id":"w","dry_run":true}`, `unknown field "dry_run"`)
	refuses[job.EditInput](t, `{"workflow_id":"w","revision":1,"edit":{"tgas":{}}}`, `unknown field "tgas"`)
	refuses[job.PlanInput](t, `{"verb":"purge","all":true,"filtre":{}}`, `unknown field "filtre"`)
	refuses[job.NoteInput](t, `{"workflow_id":"w","text":"x"}`, `unknown field "text"`)
	refuses[job.PinInput](t, `{"workflow_id":"w","unpni":true}`, `unknown field "unpni"`)
	refuses[job.BulkInput](t, `{"plan_id":"p","setings":{}}`, `unknown field "setings"`)
	refuses[job.BulkInput](t, `{"actor":"a"}`, `plan_id is missing: name the plan to apply`)

	refuses[job.PurgeInput](t, `{"workflow_id":"w","Workflow_ID":"v"}`, `unknown field "Workflow_ID": the key is "workflow_id", and its case matters`)
	refuses[job.PurgeInput](t, `{"workflow_id":"w","workflow_id":"v"}`, `"workflow_id": the key is given twice`)
	refuses[job.PurgeInput](t, `{"workflow_id":"w","workflow_\u0069d":"v"}`, `"workflow_id": the key is given twice`)
	refuses[job.EditInput](t, `{"workflow_id":"w","revision":1,"edit":{"argument":{"1":1,"01":2}}}`, `"01": the key is given twice`)
	refuses[job.EditInput](t, `{"workflow_id":"w","revision":1,"edit":{"tags":{"a":"1","a":"2"}}}`, `"a": the key is given twice`)
	refuses[job.PlanInput](t, `{"verb":"purge","all":true,"rate":1,"Rate":9}`, `unknown field "Rate": the key is "rate", and its case matters`)
	refuses[job.BulkInput](t, `{"plan_id":"p","plan_id":"q"}`, `"plan_id": the key is given twice`)

	misshapen[job.PlanInput](t, `{"verb":"purge","all":true,"rate":"fast"}`, `rate: it cannot be a JSON string`)
	misshapen[job.PlanInput](t, `"purge"`, `the request is a JSON string, and it must be an object`)
	misshapen[job.ReplayInput](t, `{"workflow_id":5,"actr":"a"}`, `workflow_id: it cannot be a JSON number`)
	misshapen[job.PurgeInput](t, `{"workflow_id":["w"]}`, `workflow_id: it cannot be a JSON array`)
	misshapen[job.EditInput](t, `{"workflow_id":"w","revision":"1","edit":{}}`, `revision: it cannot be a JSON string`)
	misshapen[job.NoteInput](t, `[]`, `the request is a JSON array, and it must be an object`)
	misshapen[job.PinInput](t, `{"workflow_id":"w","unpin":"yes"}`, `unpin: it cannot be a JSON string`)
	misshapen[job.BulkInput](t, `{"plan_id":true}`, `plan_id: it cannot be a JSON bool`)
	kept, _ := through[job.PinInput](t, `{"workflow_id":"w","actor":"ann","unpin":"yes"}`)
	require.Equal(t, "ann", kept.Actor, "what can be read is, for the audit")

	received, again := through[job.EditInput](t, `{"workflow_id":"w","revision":1,"edit":{"argument":{"0":1.10}},"replay":true}`)
	require.NoError(t, received.Check())
	require.False(t, received.Misshapen())
	require.Equal(t, received, again)
	require.Equal(t, "1.10", string(again.Edit.Argument[0]))
}
