package edit

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"

	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/converter"

	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/internal/jsonedit"
	"github.com/deadletter-dev/deadletter/internal/wire"
	"github.com/deadletter-dev/deadletter/job"
)

// maxSize bounds what the arguments of an edited job come to, and what a patch
// may copy: the server takes no larger message.
const maxSize = 4 << 20

// argument is one argument of a job.
type argument struct {
	// payload is as it came, nil for a new argument.
	payload  []byte
	encoding string
	value    jsonedit.Value
	// fault says why value is not there; empty when it is.
	fault string
	// touched: value is no longer what payload holds.
	touched bool
}

type arguments struct {
	payloads wire.Payloads
	list     []*argument
	// room is how many bytes a patch may still put in.
	room int
}

func editArguments(dl *dlqstore.DeadLetter, e job.Edit) (*dlqstore.Arguments, error) {
	if e.Arguments == nil && len(e.Argument) == 0 && e.MergePatch == nil && e.JSONPatch == nil {
		return nil, nil
	}
	a, err := readArguments(dl)
	if err != nil {
		return nil, err
	}
	switch {
	case e.Arguments != nil:
		err = asRefusal("arguments", a.replaceAll(e.Arguments))
	case e.MergePatch != nil:
		err = asRefusal("merge_patch", a.merge(e.MergePatch))
	case e.JSONPatch != nil:
		err = asRefusal("json_patch", a.patch(e.JSONPatch))
	default:
		for _, place := range slices.Sorted(maps.Keys(e.Argument)) {
			v, err := parseGiven(fmt.Sprintf("argument %d", place), e.Argument[place])
			if err != nil {
				return nil, err
			}
			if err := a.put(place, v); err != nil {
				return nil, err
			}
		}
	}
	if err != nil {
		return nil, err
	}
	return a.content()
}

func readArguments(dl *dlqstore.DeadLetter) (*arguments, error) {
	payloads, err := wire.Split(dl.Payloads)
	if err != nil {
		return nil, unreadable("%w", err)
	}
	a := &arguments{payloads: payloads, room: maxSize}
	for i, payload := range payloads.Each {
		decoded, err := wire.Decode(payload)
		if err != nil {
			return nil, unreadable("argument %d: %w", i, err)
		}
		encoding := wire.Encoding(decoded)
		if wire.IsCodec(encoding) {
			return nil, unreadable("argument %d has encoding %q, which is none of the SDK's own: a codec, encryption say, is in the way, and what an edit put beside it would be in plain text", i, encoding)
		}
		a.list = append(a.list, readArgument(payload, encoding, decoded))
	}
	return a, nil
}

func readArgument(payload []byte, encoding string, decoded *commonpb.Payload) *argument {
	arg := &argument{payload: payload, encoding: encoding}
	switch {
	case len(decoded.GetExternalPayloads()) > 0:
		arg.fault = "its data is kept outside of Temporal"
	case encoding == converter.MetadataEncodingNil:
		arg.value, _ = jsonedit.Parse([]byte("null"))
	case encoding != converter.MetadataEncodingJSON && encoding != converter.MetadataEncodingProtoJSON:
		arg.fault = fmt.Sprintf("its encoding is %q, not JSON", encoding)
	default:
		value, syntax := jsonedit.ParseAt(decoded.GetData())
		if syntax != nil {
			arg.fault = syntax.Place()
		}
		arg.value = value
	}
	return arg
}

// at returns a readable argument.
func (a *arguments) at(place int) (*argument, error) {
	if place >= len(a.list) {
		return nil, invalid("there is no argument %d: the job has %d, counted from 0", place, len(a.list))
	}
	arg := a.list[place]
	if arg.fault != "" {
		return nil, unreadable("argument %d cannot be edited: %s", place, arg.fault)
	}
	return arg, nil
}

// put replaces one argument, or adds one behind the last.
func (a *arguments) put(place int, v jsonedit.Value) error {
	if place == len(a.list) {
		return a.insert(place, &argument{encoding: converter.MetadataEncodingJSON, value: v, touched: true})
	}
	arg, err := a.at(place)
	if err != nil {
		return err
	}
	arg.value, arg.touched = jsonedit.Value{Value: v.Value}, true
	return nil
}

func (a *arguments) insert(place int, arg *argument) error {
	if len(a.list) >= job.MaxArguments {
		return invalid("a job takes at most %d arguments", job.MaxArguments)
	}
	a.list = slices.Insert(a.list, place, arg)
	return nil
}

func (a *arguments) replaceAll(given []byte) error {
	v, err := jsonedit.Parse(given)
	if err != nil {
		return err
	}
	return a.setAll(&v)
}

func (a *arguments) setAll(v *jsonedit.Value) error {
	elements, ok := jsonedit.Elements(v)
	if !ok {
		return invalid("arguments: they must be a JSON array, one element per argument")
	}
	for i := range elements {
		// One that is the same keeps the space around it too.
		if i < len(a.list) && a.list[i].fault == "" && string(jsonedit.Trimmed(&a.list[i].value)) == string(jsonedit.Trimmed(&elements[i])) {
			continue
		}
		if err := a.put(i, elements[i]); err != nil {
			return err
		}
	}
	for i := len(elements); i < len(a.list); i++ {
		if a.list[i].fault != "" {
			return unreadable("argument %d cannot be edited: %s", i, a.list[i].fault)
		}
	}
	a.list = a.list[:len(elements)]
	return nil
}

// merge applies a merge patch; see job.Edit.MergePatch.
func (a *arguments) merge(given []byte) error {
	patch, err := jsonedit.Parse(given)
	if err != nil {
		return err
	}
	patches, ok := jsonedit.Elements(&patch)
	if !ok {
		if _, isObject := jsonedit.Object(&patch); !isObject {
			return invalid("merge_patch: it must be an object, or an array of patches, one per argument")
		}
		if len(a.list) != 1 {
			return invalid("merge_patch: an object is the patch of a job's one argument, and this job has %d: give an array, with {} for each argument to leave alone", len(a.list))
		}
		patches = []jsonedit.Value{patch}
	}
	for i := range patches {
		if object, ok := jsonedit.Object(&patches[i]); ok && len(object.Members) == 0 {
			continue
		}
		arg, err := a.at(i)
		if err != nil {
			return err
		}
		if err := jsonedit.Merge(&arg.value, &patches[i]); err != nil {
			return invalid("merge_patch: argument %d: %w", i, err)
		}
		arg.touched = true
	}
	return nil
}

// content puts the payloads together again.
func (a *arguments) content() (*dlqstore.Arguments, error) {
	a.payloads.Each = make([][]byte, len(a.list))
	decoded := make([]*commonpb.Payload, len(a.list))
	size := 0
	for i, arg := range a.list {
		payload, err := arg.encode()
		if err != nil {
			return nil, asRefusal("argument "+strconv.Itoa(i), err)
		}
		size += len(payload)
		if decoded[i], err = wire.Decode(payload); err != nil {
			return nil, unreadable("argument %d: %w", i, err)
		}
		a.payloads.Each[i] = payload
	}
	if size > maxSize {
		return nil, invalid("the arguments would come to %d bytes; at most %d", size, maxSize)
	}
	return &dlqstore.Arguments{Payloads: a.payloads.Join(), PayloadJSON: json.RawMessage(wire.ReadableJSON(decoded))}, nil
}

// encode keeps the metadata of what was JSON. An argument that was absent, in the
// SDK's words, becomes JSON.
func (arg *argument) encode() ([]byte, error) {
	if !arg.touched {
		return arg.payload, nil
	}
	data := arg.value.Pack()
	if _, err := jsonedit.Parse(data); err != nil { // nested beyond what can be read, say
		return nil, err
	}
	switch {
	case arg.encoding == converter.MetadataEncodingNil && jsonedit.IsNull(&arg.value):
		return arg.payload, nil
	case arg.payload == nil, arg.encoding == converter.MetadataEncodingNil:
		return wire.NewJSON(data), nil
	default:
		return wire.WithData(arg.payload, data)
	}
}

// Text returns the arguments as one JSON array for a person to edit, each with its
// own bytes. Given back as job.Edit.Arguments it changes nothing.
func Text(dl *dlqstore.DeadLetter) ([]byte, error) {
	a, err := readArguments(dl)
	if err != nil {
		return nil, err
	}
	text := []byte("[")
	for i := range a.list {
		arg, err := a.at(i)
		if err != nil {
			return nil, err
		}
		if i > 0 {
			text = append(text, ',')
		}
		text = append(append(text, '\n'), jsonedit.Trimmed(&arg.value)...)
	}
	return append(text, "\n]\n"...), nil
}

// CheckText says where a text is not a JSON array.
func CheckText(text []byte) error {
	v, err := jsonedit.Parse(text)
	if err != nil {
		return err
	}
	if _, ok := jsonedit.Elements(&v); !ok {
		return invalid("the arguments must be a JSON array")
	}
	return nil
}
