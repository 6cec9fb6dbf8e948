package edit_test

import (
	"bytes"
	"encoding/json"
	"slices"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	"google.golang.org/protobuf/proto"

	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/internal/edit"
	"github.com/deadletter-dev/deadletter/internal/wire"
	"github.com/deadletter-dev/deadletter/job"
)

// FuzzPatch proves of any JSON patch and any merge patch of the first argument
// that it is refused or makes valid JSON, never panics, and that the arguments
// beside it stay byte for byte.
func FuzzPatch(f *testing.F) {
	for _, document := range []string{exact, `{"a":1,"a":2}`, "[[ ]]", `"x"`, "1e400"} {
		for _, patch := range []string{
			`[{"op":"replace","path":"/0/customer/id","value":1}]`, `[{"op":"copy","from":"/0/a","path":"/0/a/-"},{"op":"copy","from":"/0","path":"/0/a/0"}]`,
			`[{"op":"move","from":"/0/z","path":"/0/zz"},{"op":"remove","path":"/0/zz"}]`, `[{"op":"test","path":"/0/price","value":1.1}]`,
			`{"a":{"b":null}}`, `[{"customer":null}]`, `[null]`, `[[1]]`,
		} {
			f.Add([]byte(document), []byte(patch))
		}
	}
	f.Fuzz(func(t *testing.T, document, patch []byte) {
		beside := payload("json/protobuf", "{ }", "messageType", "a.B", "x", "y")
		one, two := letter(plain(string(document))), letter(plain(string(document)), beside)
		first := json.RawMessage("[]")
		if json.Valid(patch) { // one value, so no more than the first argument's patch
			first = append(append(json.RawMessage("["), patch...), ']')
		}
		for _, try := range []struct {
			dl *dlqstore.DeadLetter
			e  job.Edit
		}{{one, job.Edit{MergePatch: patch}}, {two, job.Edit{MergePatch: first}}, {one, job.Edit{JSONPatch: patch}}, {two, job.Edit{Argument: map[int]json.RawMessage{0: patch}}}} {
			before, err := wire.Split(try.dl.Payloads)
			require.NoError(t, err)
			preview, err := edit.Try(try.dl, try.e)
			if err != nil {
				var refusal *dlqstore.EditError
				require.ErrorAs(t, err, &refusal)
				continue
			}
			after, err := wire.Split(preview.Arguments.Payloads)
			require.NoError(t, err)
			if try.e.JSONPatch == nil && try.dl == two {
				require.Equal(t, before.Each[1:], after.Each[1:], "the arguments beside it")
			}
			for _, each := range after.Each {
				if slices.ContainsFunc(before.Each, func(old []byte) bool { return bytes.Equal(old, each) }) {
					continue // left as it came, whatever that is
				}
				decoded, err := wire.Decode(each)
				require.NoError(t, err)
				require.True(t, json.Valid(decoded.GetData()) && utf8.Valid(decoded.GetData()), "%q", decoded.GetData())
			}
			if string(preview.Arguments.Payloads) == string(try.dl.Payloads) {
				require.Empty(t, preview.Diff.Changes)
			} else {
				require.NotEmpty(t, preview.Diff.Changes)
			}
			_, err = json.Marshal(preview.Diff)
			require.NoError(t, err)
		}
	})
}

// FuzzPayloads proves of any stored bytes that an edit is refused or keeps what it
// does not touch, also what no SDK has written, and never panics.
func FuzzPayloads(f *testing.F) {
	f.Add(marshalled(&commonpb.Payloads{Payloads: []*commonpb.Payload{plain("1"), payload("binary/plain", "\xff")}}), marshalled(plain(options)))
	f.Add(marshalled(&commonpb.Payloads{Payloads: []*commonpb.Payload{payload("json/protobuf", "{}", "messageType", "x")}}), marshalled(payload("binary/encrypted", "x")))
	f.Add([]byte("\x0a\x00"), []byte{})
	f.Add([]byte("\x0a\x06\x12\x01\x31\x12\x01\x32\x98\x06\x01"), []byte("\x12\x02{}\xff"))
	f.Fuzz(func(t *testing.T, payloads, optionsPayload []byte) {
		dl := &dlqstore.DeadLetter{Payloads: payloads, OptionsPayload: optionsPayload, WorkflowTaskQueue: "q"}
		for _, e := range []job.Edit{
			{Argument: map[int]json.RawMessage{0: json.RawMessage(`"new"`)}},
			{JSONPatch: json.RawMessage(`[{"op":"add","path":"/-","value":1}]`)},
			{TaskQueue: "other", Tags: map[string]*string{"a": nil}},
		} {
			preview, err := edit.Try(dl, e)
			if err != nil {
				var refusal *dlqstore.EditError
				require.ErrorAs(t, err, &refusal)
				continue
			}
			if preview.Options != nil {
				var options job.Options
				decoded, err := wire.Decode(preview.Options.OptionsPayload)
				require.NoError(t, err)
				require.NoError(t, options.UnmarshalJSON(decoded.GetData()))
				require.Equal(t, "other", options.TaskQueue)
				continue
			}
			require.NoError(t, proto.Unmarshal(preview.Arguments.Payloads, new(commonpb.Payloads)))
			before, err := wire.Split(payloads)
			require.NoError(t, err)
			after, err := wire.Split(preview.Arguments.Payloads)
			require.NoError(t, err)
			from := 1
			if e.JSONPatch != nil {
				from = 0
			}
			for i := from; i < len(before.Each); i++ {
				require.Equal(t, before.Each[i], after.Each[i])
			}
		}
	})
}
