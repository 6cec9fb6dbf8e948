package edit_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	"google.golang.org/protobuf/proto"

	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/internal/edit"
	"github.com/deadletter-dev/deadletter/internal/wire"
	"github.com/deadletter-dev/deadletter/job"
)

// exact has all that a careless pass through a decoder would alter.
const exact = "{\n  \"id\" :9007199254740993, \"price\": 1.10,\t\"huge\":1e400,\"name\":\"Zo\\u00eb \u00e9 \\/\",\n  \"z\":1,\"a\":[1, 2 ,3 ],  \"customer\": {\"id\": 7 ,\"vip\":true }\n}\n"

func payload(encoding, data string, metadata ...string) *commonpb.Payload {
	p := &commonpb.Payload{Metadata: map[string][]byte{"encoding": []byte(encoding)}, Data: []byte(data)}
	for i := 0; i < len(metadata); i += 2 {
		p.Metadata[metadata[i]] = []byte(metadata[i+1])
	}
	return p
}

func plain(data string) *commonpb.Payload { return payload("json/plain", data) }

func marshalled(message proto.Message) []byte {
	data, err := proto.Marshal(message)
	if err != nil {
		panic(err)
	}
	return data
}

const options = `{ "type": "SendEmail",  "policy": {"max_attempts":3, "base_delay":"10ms"}, "tags": {"tenant":"acme"} }`

func letter(payloads ...*commonpb.Payload) *dlqstore.DeadLetter {
	return &dlqstore.DeadLetter{
		Key: dlqstore.Key{Namespace: "n", WorkflowID: "w", RunID: "r"}, TaskQueue: "jobs", WorkflowTaskQueue: "jobs", Revision: 1,
		Payloads: marshalled(&commonpb.Payloads{Payloads: payloads}), OptionsPayload: marshalled(plain(options)), Priority: json.RawMessage(`{"priority_key": 2}`),
	}
}

// data returns the data of each argument.
func data(t *testing.T, payloads []byte) (all []string) {
	t.Helper()
	var decoded commonpb.Payloads
	require.NoError(t, proto.Unmarshal(payloads, &decoded))
	for _, p := range decoded.GetPayloads() {
		all = append(all, string(p.GetData()))
	}
	return all
}

func paths(diff dlqstore.Diff) (all []string) {
	for _, change := range diff.Changes {
		all = append(all, change.Path+" "+string(change.Before)+" → "+string(change.After))
	}
	return all
}

// TestOnlyTheTouchedPartChanges proves of every way to edit arguments that all
// else stays byte for byte, and that the difference names what changed.
func TestOnlyTheTouchedPartChanges(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		edit     job.Edit
		old, new string // within exact
		diff     []string
	}{
		"merge": {
			job.Edit{MergePatch: json.RawMessage(`{"customer":{"id":42.50}}`)},
			`"id": 7 ,`, `"id": 42.50 ,`,
			[]string{"/arguments/0/customer/id 7 → 42.50"},
		},
		"merge array": {
			job.Edit{MergePatch: json.RawMessage(`[{"z":null,"price":1.20}]`)},
			"1.10,\t\"huge\":1e400,\"name\":\"Zo\\u00eb \u00e9 \\/\",\n  \"z\":1,", "1.20,\t\"huge\":1e400,\"name\":\"Zo\\u00eb \u00e9 \\/\",",
			[]string{"/arguments/0/price 1.10 → 1.20", "/arguments/0/z 1 → "},
		},
		"merge new": {
			job.Edit{MergePatch: json.RawMessage(`{"customer":{"new":{"a":null,"b":1}}}`)},
			`"vip":true }`, `"vip":true,"new":{"b":1} }`,
			[]string{`/arguments/0/customer/new  → {"b":1}`},
		},
		"replace": {
			job.Edit{JSONPatch: json.RawMessage(`[{"op":"test","path":"/0/id","value":9007199254740993},{"op":"replace","path":"/0/a/1","value":{"x": 1}}]`)},
			`[1, 2 ,3 ]`, `[1, {"x": 1} ,3 ]`,
			[]string{`/arguments/0/a/1 2 → {"x": 1}`},
		},
		"add": {
			job.Edit{JSONPatch: json.RawMessage(`[{"op":"add","path":"/0/a/-","value":4}]`)},
			`2 ,3 ]`, `2 ,3,4 ]`,
			[]string{"/arguments/0/a [1, 2 ,3 ] → [1, 2 ,3,4 ]"},
		},
		"remove last": {
			job.Edit{JSONPatch: json.RawMessage(`[{"op":"remove","path":"/0/customer/vip"},{"op":"remove","path":"/0/a/2"}]`)},
			`2 ,3 ],  "customer": {"id": 7 ,"vip":true }`, `2 ],  "customer": {"id": 7 }`,
			[]string{"/arguments/0/a [1, 2 ,3 ] → [1, 2 ]", "/arguments/0/customer/vip true → "},
		},
		"move": {
			job.Edit{JSONPatch: json.RawMessage(`[{"op":"move","from":"/0/z","path":"/0/customer/z"}]`)},
			"\n  \"z\":1,\"a\":[1, 2 ,3 ],  \"customer\": {\"id\": 7 ,\"vip\":true }", "\"a\":[1, 2 ,3 ],  \"customer\": {\"id\": 7 ,\"vip\":true,\"z\":1 }",
			[]string{"/arguments/0/z 1 → ", "/arguments/0/customer/z  → 1"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			other := payload("json/protobuf", `{"x" : 1}`, "messageType", "acme.Order", "zz", "kept")
			dl := letter(plain(exact), other)
			if test.edit.MergePatch != nil && test.edit.MergePatch[0] == '{' {
				test.edit.MergePatch = json.RawMessage("[" + string(test.edit.MergePatch) + "]")
			}
			preview, err := edit.Try(dl, test.edit)
			require.NoError(t, err)
			require.Equal(t, 1, strings.Count(exact, test.old))
			require.Equal(t, []string{strings.Replace(exact, test.old, test.new, 1), `{"x" : 1}`}, data(t, preview.Arguments.Payloads))
			require.Equal(t, test.diff, paths(preview.Diff))
			before, err := wire.Split(dl.Payloads)
			require.NoError(t, err)
			after, err := wire.Split(preview.Arguments.Payloads)
			require.NoError(t, err)
			require.Equal(t, before.Each[1], after.Each[1], "another argument's payload")
			require.True(t, json.Valid(preview.Arguments.PayloadJSON))
			require.Nil(t, preview.Options)
			require.Nil(t, preview.Priority)
		})
	}
}

// TestMetadataStays proves that an edited protobuf message keeps its type, that an
// absent argument becomes JSON, and that payloads which move keep what they are.
func TestMetadataStays(t *testing.T) {
	t.Parallel()
	dl := letter(payload("json/protobuf", `{"x":1}`, "messageType", "acme.Order"), payload("binary/null", ""), payload("binary/plain", "\x00\x01"))
	apply := func(e job.Edit) []*commonpb.Payload {
		content, err := edit.Apply(dl, e)
		require.NoError(t, err)
		var decoded commonpb.Payloads
		require.NoError(t, proto.Unmarshal(content.Arguments.Payloads, &decoded))
		return decoded.GetPayloads()
	}
	changed := apply(job.Edit{Argument: map[int]json.RawMessage{0: json.RawMessage(`{"x":2}`), 1: json.RawMessage(`"now"`)}})
	require.Equal(t, `{"x":2}`, string(changed[0].GetData()))
	require.Equal(t, "acme.Order", string(changed[0].GetMetadata()["messageType"]))
	require.True(t, proto.Equal(plain(`"now"`), changed[1]))
	require.True(t, proto.Equal(payload("binary/plain", "\x00\x01"), changed[2]), "the unreadable one is left alone")

	moved := apply(job.Edit{JSONPatch: json.RawMessage(`[{"op":"move","from":"/2","path":"/0"},{"op":"remove","path":"/2"},{"op":"add","path":"/-","value":[1]}]`)})
	require.Len(t, moved, 3)
	require.Equal(t, "binary/plain", wire.Encoding(moved[0]))
	require.Equal(t, "acme.Order", string(moved[1].GetMetadata()["messageType"]))
	require.True(t, proto.Equal(plain(`[1]`), moved[2]))

	grown := apply(job.Edit{JSONPatch: json.RawMessage(`[{"op":"copy","from":"/0","path":"/3"}]`)})
	require.Equal(t, "acme.Order", string(grown[3].GetMetadata()["messageType"]))
}

// TestOptions proves that queue, policy, tags and priority change alone, and that
// the columns made from them follow.
func TestOptions(t *testing.T) {
	t.Parallel()
	beta := "beta"
	preview, err := edit.Try(letter(plain("1")), job.Edit{
		TaskQueue: "other", Policy: json.RawMessage(`{"max_attempts":9,"base_delay":null}`), Tags: map[string]*string{"tenant": nil, "ring": &beta},
		Priority: json.RawMessage(`{"fairness_key":"acme"}`),
	})
	require.NoError(t, err)
	require.Nil(t, preview.Arguments)
	var stored commonpb.Payload
	require.NoError(t, proto.Unmarshal(preview.Options.OptionsPayload, &stored))
	require.Equal(t, []string{`{ "type": "SendEmail",  "policy": {"max_attempts":9}, "tags": {"ring":"beta"},"task_queue":"other" }`}, []string{string(stored.GetData())})
	require.Equal(t, "other", preview.Options.TaskQueue)
	require.Equal(t, map[string]string{"ring": "beta"}, preview.Options.Tags)
	require.Equal(t, 9, *preview.Options.MaxAttempts)
	require.Contains(t, string(preview.Options.Options), `"base_delay":"3s"`)
	require.JSONEq(t, `{"priority_key":2,"fairness_key":"acme"}`, string(preview.Priority))
	require.Equal(t, []string{
		`/policy/max_attempts 3 → 9`, `/policy/base_delay "10ms" → `, `/tags/tenant "acme" → `, `/tags/ring  → "beta"`, `/task_queue  → "other"`,
		`/priority/fairness_key  → "acme"`,
	}, paths(preview.Diff))
}

// TestRefusals proves that what cannot be edited is refused with its reason, and
// that no reason repeats a value of the arguments.
func TestRefusals(t *testing.T) {
	t.Parallel()
	secret := `{"card":"4111","card2":{"n":1}}`
	patch := func(s string) job.Edit { return job.Edit{JSONPatch: json.RawMessage(s)} }
	arg := job.Edit{Argument: map[int]json.RawMessage{0: json.RawMessage("1")}}
	for name, test := range map[string]struct {
		dl   *dlqstore.DeadLetter
		edit job.Edit
		code string
		says string
	}{
		"encrypted":            {letter(payload("binary/encrypted", "4111")), arg, dlqstore.EditUnreadable, `encoding "binary/encrypted"`},
		"encrypted beside":     {letter(plain("1"), payload("binary/encrypted", "4111")), arg, dlqstore.EditUnreadable, "argument 1"},
		"binary":               {letter(payload("binary/plain", "4111")), arg, dlqstore.EditUnreadable, `its encoding is "binary/plain", not JSON`},
		"not JSON":             {letter(plain("{4111")), arg, dlqstore.EditUnreadable, "not valid JSON at line 1, column 2"},
		"no payloads":          {&dlqstore.DeadLetter{Payloads: []byte{0xff, 0xff}}, arg, dlqstore.EditUnreadable, "no Temporal payloads"},
		"no such place":        {letter(plain(secret)), job.Edit{Argument: map[int]json.RawMessage{3: json.RawMessage("1")}}, dlqstore.EditInvalid, "there is no argument 3: the job has 1"},
		"bad value":            {letter(plain(secret)), job.Edit{Argument: map[int]json.RawMessage{0: json.RawMessage("{\n x")}}, dlqstore.EditInvalid, "argument 0: not valid JSON at line 2, column 2"},
		"bad UTF-8":            {letter(plain(secret)), job.Edit{Arguments: json.RawMessage("[\"a\xff\"]")}, dlqstore.EditInvalid, "line 1, column 4: not UTF-8"},
		"no array":             {letter(plain(secret)), job.Edit{Arguments: json.RawMessage("{}")}, dlqstore.EditInvalid, "must be a JSON array"},
		"two ways":             {letter(plain(secret)), job.Edit{Arguments: json.RawMessage("[]"), MergePatch: json.RawMessage("{}")}, dlqstore.EditInvalid, "give one of them"},
		"merge of two":         {letter(plain("1"), plain("2")), job.Edit{MergePatch: json.RawMessage(`{"a":1}`)}, dlqstore.EditInvalid, "this job has 2: give an array"},
		"key twice":            {letter(plain(`{"a":{"b":"4111","\u0062":2}}`)), patch(`[{"op":"replace","path":"/0/a/b","value":3}]`), dlqstore.EditInvalid, `operation 1: /a/b: an object on the way has the key "b" twice`},
		"key twice merge":      {letter(plain(`{"b":"4111","b":2}`)), job.Edit{MergePatch: json.RawMessage(`{"b":1}`)}, dlqstore.EditInvalid, `the key "b" twice`},
		"key of the patch":     {letter(plain(`{"b":1}`)), patch(`[{"op":"replace","path":"/0/b","Path":"/0","value":3}]`), dlqstore.EditInvalid, `operation 1: it has "Path": the key is "path", and its case matters`},
		"policy key twice":     {letter(plain("1")), job.Edit{Policy: json.RawMessage(`{"max_attempts":1,"max_attempts":2}`)}, dlqstore.EditInvalid, "twice"},
		"priority's key twice": {letter(plain("1")), job.Edit{Priority: json.RawMessage(`{"priority_key":1,"priority_key":2}`)}, dlqstore.EditInvalid, "twice"},
		"test":                 {letter(plain(secret)), patch(`[{"op":"test","path":"/0/card","value":"4112"}]`), dlqstore.EditTestFailed, `operation 1: "/0/card" is not what the test says`},
		"absent":               {letter(plain(secret)), patch(`[{"op":"remove","path":"/0/nothing"}]`), dlqstore.EditInvalid, "there is no such value"},
		"into a string":        {letter(plain(secret)), patch(`[{"op":"add","path":"/0/card/x","value":1}]`), dlqstore.EditInvalid, "a string has nothing inside"},
		"unknown op":           {letter(plain(secret)), patch(`[{"op":"append","path":"/0"}]`), dlqstore.EditInvalid, `"append" is none of add`},
		"no pointer":           {letter(plain(secret)), patch(`[{"op":"remove","path":"0"}]`), dlqstore.EditInvalid, "must begin with /"},
		"into itself":          {letter(plain(secret)), patch(`[{"op":"move","from":"/0/card2","path":"/0/card2/x"}]`), dlqstore.EditInvalid, "moved into itself"},
		"ninth argument":       {letter(plain("1"), plain("2"), plain("3"), plain("4"), plain("5"), plain("6"), plain("7"), plain("8")), patch(`[{"op":"add","path":"/-","value":9}]`), dlqstore.EditInvalid, "at most 8 arguments"},
		"bomb":                 {letter(plain(`{"a":["` + strings.Repeat("x", 1000) + `"]}`)), patch("[" + strings.TrimSuffix(strings.Repeat(`{"op":"copy","from":"/0/a","path":"/0/a/-"},`, 40), ",") + "]"), dlqstore.EditInvalid, "more than 4194304 bytes"},
		"policy":               {letter(plain("1")), job.Edit{Policy: json.RawMessage(`{"max_attempts":0.5,"nonsense":1}`)}, dlqstore.EditInvalid, "max_attempts: 0.5 is not a whole number\nnonsense: the policy has no such field"},
		"queue":                {letter(plain("1")), job.Edit{TaskQueue: "/_sys/x"}, dlqstore.EditInvalid, "the server's own"},
		"priority":             {letter(plain("1")), job.Edit{Priority: json.RawMessage(`{"priority_key":6}`)}, dlqstore.EditInvalid, "priority_key: 6 is not within 1 to 5"},
		"options encrypted": {
			&dlqstore.DeadLetter{Payloads: []byte{}, OptionsPayload: marshalled(payload("binary/encrypted", "4111"))},
			job.Edit{TaskQueue: "q"},
			dlqstore.EditUnreadable, "the options object, which has queue, policy and tags, cannot be edited",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := edit.Try(test.dl, test.edit)
			var refusal *dlqstore.EditError
			require.ErrorAs(t, err, &refusal)
			require.Equal(t, test.code, refusal.Code)
			require.ErrorContains(t, err, test.says)
			require.NotContains(t, err.Error(), "4111")
		})
	}
}

// TestArgumentsAsAWhole proves that an argument which is given as it was keeps its
// bytes, that others are replaced, added and dropped, and that nothing is a change
// when all is the same.
func TestArgumentsAsAWhole(t *testing.T) {
	t.Parallel()
	dl := letter(plain(exact), plain("2"), plain("3"))
	preview, err := edit.Try(dl, job.Edit{Arguments: json.RawMessage("[" + exact + ", 1.10]")})
	require.NoError(t, err)
	require.Equal(t, []string{exact, "1.10"}, data(t, preview.Arguments.Payloads))
	require.Equal(t, []string{"/arguments/1 2 → 1.10", "/arguments/2 3 → "}, paths(preview.Diff))

	preview, err = edit.Try(dl, job.Edit{Arguments: json.RawMessage("[" + exact + ",2,3]")})
	require.NoError(t, err)
	require.Equal(t, dl.Payloads, preview.Arguments.Payloads)
	require.Empty(t, preview.Diff.Changes)

	preview, err = edit.Try(letter(plain(`{"a":1,"b":2}`)), job.Edit{Arguments: json.RawMessage(`[{"b":2, "a":1}]`)})
	require.NoError(t, err)
	require.Equal(t, []string{`/arguments/0 {"a":1,"b":2} → {"b":2, "a":1}`}, paths(preview.Diff), "a change of spelling is shown as a whole")
}
