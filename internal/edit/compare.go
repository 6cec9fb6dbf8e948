package edit

import (
	"bytes"
	"encoding/json"
	"strconv"

	"go.temporal.io/sdk/converter"

	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/internal/jsonedit"
	"github.com/deadletter-dev/deadletter/internal/text"
	"github.com/deadletter-dev/deadletter/internal/wire"
)

// Bounds of a difference, which is for people; the revision's own bytes are whole.
const (
	maxChanges = 200
	maxShown   = 2 << 10 // bytes of one value
	maxPath    = 1000    // bytes
)

// Compare tells what differs between two versions of one dead letter.
func Compare(before, after *dlqstore.DeadLetter) dlqstore.Diff {
	c := comparison{diff: dlqstore.Diff{Changes: []dlqstore.Change{}}}
	if !bytes.Equal(before.Payloads, after.Payloads) {
		c.arguments(before, after)
	}
	if !bytes.Equal(before.OptionsPayload, after.OptionsPayload) {
		c.options(before, after)
	}
	if !bytes.Equal(before.Priority, after.Priority) {
		c.values(jsonedit.Pointer{"priority"}, parsed(before.Priority), parsed(after.Priority))
	}
	return c.diff
}

type comparison struct{ diff dlqstore.Diff }

func (c *comparison) values(at jsonedit.Pointer, before, after *jsonedit.Value) {
	found, more := jsonedit.Diff(before, after, maxChanges-len(c.diff.Changes))
	c.diff.LeftOut += more
	for _, difference := range found {
		change := dlqstore.Change{Path: text.Bounded(append(at[:len(at):len(at)], difference.Path...).String(), maxPath)}
		change.Before, change.BeforeBytes = shown(difference.Before)
		change.After, change.AfterBytes = shown(difference.After)
		c.diff.Changes = append(c.diff.Changes, change)
	}
}

func shown(value []byte) (json.RawMessage, int) {
	if len(value) > maxShown {
		return nil, len(value)
	}
	return value, 0
}

func (c *comparison) arguments(before, after *dlqstore.DeadLetter) {
	old, fresh := argumentsOf(before), argumentsOf(after)
	for i := range max(len(old), len(fresh)) {
		var left, right *argument
		if i < len(old) {
			left = old[i]
		}
		if i < len(fresh) {
			right = fresh[i]
		}
		if left != nil && right != nil && bytes.Equal(left.payload, right.payload) {
			continue
		}
		c.argument(jsonedit.Pointer{"arguments", strconv.Itoa(i)}, left, right)
	}
}

func (c *comparison) argument(at jsonedit.Pointer, before, after *argument) {
	count := len(c.diff.Changes) + c.diff.LeftOut
	c.values(at, before.shown(), after.shown())
	if len(c.diff.Changes)+c.diff.LeftOut == count {
		// Only spaces, the order of keys or metadata: shown as a whole.
		var left, right dlqstore.Change
		left.Before, left.BeforeBytes = shown(jsonedit.Trimmed(before.shown()))
		right.After, right.AfterBytes = shown(jsonedit.Trimmed(after.shown()))
		c.add(dlqstore.Change{Path: at.String(), Before: left.Before, BeforeBytes: left.BeforeBytes, After: right.After, AfterBytes: right.AfterBytes})
	}
}

func (c *comparison) add(change dlqstore.Change) {
	if len(c.diff.Changes) >= maxChanges {
		c.diff.LeftOut++
		return
	}
	c.diff.Changes = append(c.diff.Changes, change)
}

// shown is the argument's value, or words in its place; nil for no argument.
func (arg *argument) shown() *jsonedit.Value {
	switch {
	case arg == nil:
		return nil
	case arg.fault != "":
		v := jsonedit.String("not readable: " + arg.fault)
		return &v
	default:
		return &arg.value
	}
}

// argumentsOf returns none of what cannot be taken apart.
func argumentsOf(dl *dlqstore.DeadLetter) []*argument {
	payloads, err := wire.Split(dl.Payloads)
	if err != nil {
		return nil
	}
	var list []*argument
	for _, payload := range payloads.Each {
		decoded, err := wire.Decode(payload)
		if err != nil {
			list = append(list, &argument{payload: payload, fault: err.Error()})
			continue
		}
		list = append(list, readArgument(payload, wire.Encoding(decoded), decoded))
	}
	return list
}

// options compares the options objects member by member: queue, policy and tags
// are found under their own names.
func (c *comparison) options(before, after *dlqstore.DeadLetter) {
	old, fresh := optionsDocument(before), optionsDocument(after)
	if old == nil || fresh == nil {
		c.values(jsonedit.Pointer{"options"}, old, fresh)
		return
	}
	c.values(nil, old, fresh)
}

func optionsDocument(dl *dlqstore.DeadLetter) *jsonedit.Value {
	payload, err := wire.Decode(dl.OptionsPayload)
	if err != nil || wire.Encoding(payload) != converter.MetadataEncodingJSON {
		return nil
	}
	return parsed(payload.GetData())
}

func parsed(data []byte) *jsonedit.Value {
	v, err := jsonedit.Parse(data)
	if err != nil {
		return nil
	}
	return &v
}
