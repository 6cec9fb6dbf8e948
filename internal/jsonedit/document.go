package jsonedit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/tailscale/hujson"
)

// Value is a JSON value with the bytes that it came as.
type Value = hujson.Value

// SyntaxError says where a text is not JSON.
type SyntaxError struct {
	Line, Column int // from 1; the column counts bytes
	Fault        string
}

// Error gives place and fault. The fault may quote one character of the text.
func (e *SyntaxError) Error() string { return e.Place() + ": " + e.Fault }

// Place is the error without anything of the text.
func (e *SyntaxError) Place() string {
	return fmt.Sprintf("not valid JSON at line %d, column %d", e.Line, e.Column)
}

// Parse reads one strict JSON value. A text that is not is a *SyntaxError.
func Parse(data []byte) (Value, error) {
	v, syntax := ParseAt(data)
	if syntax != nil {
		return Value{}, syntax
	}
	return v, nil
}

// ParseAt is Parse with the type of its error.
func ParseAt(data []byte) (Value, *SyntaxError) {
	if syntax := check(data); syntax != nil {
		return Value{}, syntax
	}
	// Pack gives the same bytes; the tree must not share those of the caller.
	v, err := hujson.Parse(bytes.Clone(data))
	if err != nil { // its text quotes the document
		return Value{}, &SyntaxError{Line: 1, Column: 1, Fault: "it cannot be taken apart"}
	}
	return v, nil
}

// check also bounds the nesting, as encoding/json does: what follows recurses.
func check(data []byte) *SyntaxError {
	if !utf8.Valid(data) {
		at := 0
		for at < len(data) {
			r, size := utf8.DecodeRune(data[at:])
			if r == utf8.RuneError && size <= 1 {
				break
			}
			at += size
		}
		return syntaxError(data, at, "not UTF-8")
	}
	var raw json.RawMessage
	err := json.Unmarshal(data, &raw)
	var syntax *json.SyntaxError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &syntax):
		return syntaxError(data, max(int(syntax.Offset)-1, 0), syntax.Error())
	default:
		return syntaxError(data, 0, "it cannot be read")
	}
}

func syntaxError(data []byte, at int, fault string) *SyntaxError {
	before := data[:min(at, len(data))]
	return &SyntaxError{
		Line:   1 + bytes.Count(before, []byte("\n")),
		Column: len(before) - bytes.LastIndexByte(before, '\n'),
		Fault:  fault,
	}
}

// kindOf names a kind of value in words.
func kindOf(v *Value) string {
	switch v.Value.Kind() {
	case '{':
		return "an object"
	case '[':
		return "an array"
	case '"':
		return "a string"
	case '0':
		return "a number"
	case 'n':
		return "null"
	default:
		return "true or false"
	}
}

// Object returns the value as an object.
func Object(v *Value) (*hujson.Object, bool) {
	object, ok := v.Value.(*hujson.Object)
	return object, ok
}

// Elements returns the elements of an array.
func Elements(v *Value) ([]Value, bool) {
	array, ok := v.Value.(*hujson.Array)
	if !ok {
		return nil, false
	}
	return array.Elements, true
}

// IsNull reports whether the value is null.
func IsNull(v *Value) bool { return v.Value.Kind() == 'n' }

// Trimmed returns the value's bytes without the space around it.
func Trimmed(v *Value) []byte { return Value{Value: v.Value}.Pack() }

// nameOf returns a member's name, decoded.
func nameOf(m *hujson.ObjectMember) string { return m.Name.Value.(hujson.Literal).String() }

// member returns the index of the member with the name, -1 if there is none. Two
// of that name are an error: which of them a handler reads is not known.
func member(object *hujson.Object, name string) (int, error) {
	found := -1
	for i := range object.Members {
		if nameOf(&object.Members[i]) != name {
			continue
		}
		if found >= 0 {
			return -1, fmt.Errorf("an object on the way has the key %q twice", name)
		}
		found = i
	}
	return found, nil
}

func addMember(object *hujson.Object, name string, v Value) {
	object.Members = append(object.Members, hujson.ObjectMember{
		Name: Value{Value: hujson.String(name)}, Value: Value{Value: v.Value},
	})
}

func insertElement(array *hujson.Array, i int, v Value) {
	array.Elements = append(array.Elements[:i:i], append([]Value{{Value: v.Value}}, array.Elements[i:]...)...)
}

func removeElement(array *hujson.Array, i int) {
	array.Elements = append(array.Elements[:i:i], array.Elements[i+1:]...)
	if last := len(array.Elements) - 1; last >= 0 {
		array.Elements[last].AfterExtra = nil
	}
}

// Array returns an array of the values.
func Array(elements []Value) Value { return Value{Value: &hujson.Array{Elements: elements}} }

// String returns a text as a JSON string.
func String(text string) Value { return Value{Value: hujson.String(text)} }
