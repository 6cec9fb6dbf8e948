package jsonedit

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/tailscale/hujson"
)

// Pointer is an RFC 6901 JSON pointer, taken apart. An empty one is the whole
// document.
type Pointer []string

// ParsePointer reads a pointer: "" or "/a/0/b".
func ParsePointer(text string) (Pointer, error) {
	if text == "" {
		return nil, nil
	}
	if text[0] != '/' {
		return nil, fmt.Errorf("%q is no JSON pointer: it must begin with /", text)
	}
	parts := strings.Split(text[1:], "/")
	for i, part := range parts {
		rest := strings.NewReplacer("~0", "", "~1", "").Replace(part)
		if strings.Contains(rest, "~") {
			return nil, fmt.Errorf("%q is no JSON pointer: ~ is written ~0, and / within a key ~1", text)
		}
		parts[i] = strings.NewReplacer("~1", "/", "~0", "~").Replace(part)
	}
	return parts, nil
}

// String writes the pointer as RFC 6901 does.
func (p Pointer) String() string {
	var text strings.Builder
	for _, part := range p {
		text.WriteString("/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(part))
	}
	return text.String()
}

// Within reports whether p is inside of other, or the same.
func (p Pointer) Within(other Pointer) bool {
	if len(p) < len(other) {
		return false
	}
	for i := range other {
		if p[i] != other[i] {
			return false
		}
	}
	return true
}

// Index reads a part of a pointer as a place in an array of the length; "-" is
// the place behind its end.
func Index(part string, length int) (int, error) {
	if part == "-" {
		return length, nil
	}
	i, err := strconv.ParseUint(part, 10, 31)
	if err != nil || i == 0 && part != "0" || i > 0 && part[0] == '0' {
		return 0, fmt.Errorf("%q is no place in an array", part)
	}
	if int(i) > length {
		return 0, fmt.Errorf("the array has %d elements, and place %d is behind its end", length, i)
	}
	return int(i), nil
}

var errAbsent = errors.New("there is no such value")

// Get returns the value at a pointer.
func Get(document *Value, at Pointer) (*Value, error) {
	v := document
	for i, part := range at {
		next, err := child(v, part)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", at[:i+1], err)
		}
		v = next
	}
	return v, nil
}

func child(v *Value, part string) (*Value, error) {
	switch inner := v.Value.(type) {
	case *hujson.Object:
		i, err := member(inner, part)
		if err != nil {
			return nil, err
		}
		if i < 0 {
			return nil, errAbsent
		}
		return &inner.Members[i].Value, nil
	case *hujson.Array:
		i, err := Index(part, len(inner.Elements))
		if err != nil {
			return nil, err
		}
		if i == len(inner.Elements) {
			return nil, errAbsent
		}
		return &inner.Elements[i], nil
	default:
		return nil, fmt.Errorf("%s has nothing inside", kindOf(v))
	}
}

// Add puts a value at a pointer, as RFC 6902 has it: a member is set or replaced,
// an element inserted.
func Add(document *Value, at Pointer, v Value) error {
	if len(at) == 0 {
		document.Value = v.Value
		return nil
	}
	parent, err := Get(document, at[:len(at)-1])
	if err != nil {
		return err
	}
	last := at[len(at)-1]
	switch inner := parent.Value.(type) {
	case *hujson.Object:
		i, err := member(inner, last)
		if err != nil {
			return fmt.Errorf("%s: %w", at, err)
		}
		if i < 0 {
			addMember(inner, last, v)
		} else {
			inner.Members[i].Value.Value = v.Value
		}
	case *hujson.Array:
		i, err := Index(last, len(inner.Elements))
		if err != nil {
			return fmt.Errorf("%s: %w", at, err)
		}
		insertElement(inner, i, v)
	default:
		return fmt.Errorf("%s: %s has nothing inside", at, kindOf(parent))
	}
	return nil
}

// Replace puts a value in the place of another.
func Replace(document *Value, at Pointer, v Value) error {
	old, err := Get(document, at)
	if err != nil {
		return err
	}
	old.Value = v.Value
	return nil
}

// Remove takes the value at a pointer out of its object or array and returns it.
func Remove(document *Value, at Pointer) (Value, error) {
	removed, err := Get(document, at)
	if err != nil {
		return Value{}, err
	}
	if len(at) == 0 {
		return Value{}, errors.New("the whole value cannot be removed")
	}
	v := Value{Value: removed.Value}
	parent, err := Get(document, at[:len(at)-1])
	if err != nil {
		return Value{}, err
	}
	last := at[len(at)-1]
	switch inner := parent.Value.(type) {
	case *hujson.Object:
		i, err := member(inner, last)
		if err != nil {
			return Value{}, err
		}
		dropMembers(inner, map[int]bool{i: true})
	case *hujson.Array:
		i, err := Index(last, len(inner.Elements))
		if err != nil {
			return Value{}, err
		}
		removeElement(inner, i)
	}
	return v, nil
}
