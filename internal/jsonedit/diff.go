package jsonedit

import (
	"bytes"
	"strconv"

	"github.com/tailscale/hujson"
)

// Difference is a place where two documents differ. Before and After are bytes of
// JSON, nil where the place is absent.
type Difference struct {
	Path          Pointer
	Before, After []byte
}

// Diff returns the places where two documents differ in their values, the
// smallest that can be named, at most limit of them, and how many more there are.
// Values that are spelled differently differ (1.1 and 1.10); spaces and the order
// of keys do not count. Either may be nil for absent.
func Diff(before, after *Value, limit int) (differences []Difference, more int) {
	d := differ{limit: limit}
	d.walk(nil, before, after)
	return d.found, d.more
}

type differ struct {
	found []Difference
	limit int
	more  int
}

func (d *differ) note(at Pointer, before, after *Value) {
	if len(d.found) >= d.limit {
		d.more++
		return
	}
	found := Difference{Path: append(Pointer{}, at...)}
	if before != nil {
		found.Before = Trimmed(before)
	}
	if after != nil {
		found.After = Trimmed(after)
	}
	d.found = append(d.found, found)
}

func (d *differ) walk(at Pointer, before, after *Value) {
	if before == nil || after == nil {
		if before != after {
			d.note(at, before, after)
		}
		return
	}
	switch left := before.Value.(type) {
	case *hujson.Object:
		if right, ok := Object(after); ok {
			d.objects(at, before, after, left, right)
			return
		}
	case *hujson.Array:
		if right, ok := Elements(after); ok && len(right) == len(left.Elements) {
			for i := range right {
				d.walk(append(at, strconv.Itoa(i)), &left.Elements[i], &right[i])
			}
			return
		}
	case hujson.Literal:
		if right, ok := after.Value.(hujson.Literal); ok && bytes.Equal(left, right) {
			return
		}
	}
	d.note(at, before, after)
}

func (d *differ) objects(at Pointer, before, after *Value, left, right *hujson.Object) {
	old, fresh := byName(left), byName(right)
	if old == nil || fresh == nil { // a key twice: no place inside can be named
		if !bytes.Equal(Trimmed(before), Trimmed(after)) {
			d.note(at, before, after)
		}
		return
	}
	for i := range left.Members {
		name := nameOf(&left.Members[i])
		d.walk(append(at, name), old[name], fresh[name])
	}
	for i := range right.Members {
		if name := nameOf(&right.Members[i]); old[name] == nil {
			d.walk(append(at, name), nil, fresh[name])
		}
	}
}
