package job

import (
	"bytes"
	"cmp"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
)

// ErrDoubledKey is wrapped by the error of a JSON object that has a key twice.
var ErrDoubledKey = errors.New("the key is given twice")

// Decode reads JSON that a person or another program wrote. It is encoding/json's
// Unmarshal, and stricter: a key must be written exactly as it is documented, case
// included, and only once. A value whose type reads itself, such as a
// json.RawMessage, is left to that type.
func Decode(data []byte, into any) error {
	clean, fault := strictly(data, reflect.TypeOf(into))
	if err := json.Unmarshal(clean, into); err != nil {
		return err
	}
	return fault
}

// strictly returns the JSON without the members that no field of the type has, and
// without all but the first of those with the same key, and the first such fault. JSON
// that cannot be read comes back as it is.
func strictly(data []byte, t reflect.Type) (clean []byte, fault error) {
	for t.Kind() == reflect.Pointer && !readsItself(t) {
		t = t.Elem()
	}
	if readsItself(t) {
		return data, nil
	}
	switch t.Kind() {
	case reflect.Struct:
		return strictObject(data, func(name string) (string, reflect.Type, error) { return fieldOf(t, name) })
	case reflect.Map:
		return strictObject(data, func(name string) (string, reflect.Type, error) { return keyOf(t, name), t.Elem(), nil })
	case reflect.Slice, reflect.Array:
		return strictElements(data, t.Elem())
	default:
		return data, nil
	}
}

func readsItself(t reflect.Type) bool {
	p := reflect.PointerTo(t)
	return p.Implements(reflect.TypeFor[json.Unmarshaler]()) || p.Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}

// fieldOf returns the type of the field that a key stands for.
func fieldOf(t reflect.Type, name string) (string, reflect.Type, error) {
	fault := fmt.Errorf("unknown field %q", name)
	for _, field := range reflect.VisibleFields(t) {
		if field.Anonymous || !field.IsExported() {
			continue
		}
		key, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch key = cmp.Or(key, field.Name); {
		case key == "-":
		case key == name:
			return name, field.Type, nil
		case strings.EqualFold(key, name):
			fault = fmt.Errorf("unknown field %q: the key is %q, and its case matters", name, key)
		}
	}
	return name, nil, fault
}

// keyOf is the key that a map would have: of two spellings of a number one is lost.
func keyOf(t reflect.Type, name string) string {
	if t.Key().Kind() == reflect.Int {
		if n, err := strconv.ParseInt(name, 10, 64); err == nil {
			return strconv.FormatInt(n, 10)
		}
	}
	return name
}

func strictObject(data []byte, known func(name string) (key string, t reflect.Type, err error)) (clean []byte, fault error) {
	members, ok := membersOf(data)
	if !ok {
		return data, nil
	}
	note := func(err error) {
		if fault == nil {
			fault = err
		}
	}
	seen := map[string]bool{}
	var kept []member
	for _, m := range members {
		key, t, err := known(m.name)
		switch {
		case err != nil:
			note(err)
			continue
		case seen[key]:
			note(fmt.Errorf("%s: %w", strconv.Quote(m.name), ErrDoubledKey))
			continue
		}
		seen[key] = true
		value, err := strictly(m.value, t)
		note(err)
		kept = append(kept, member{m.name, value})
	}
	if fault == nil {
		return data, nil
	}
	return objectOf(kept), fault
}

func strictElements(data []byte, t reflect.Type) (clean []byte, fault error) {
	var elements []json.RawMessage
	if json.Unmarshal(data, &elements) != nil || elements == nil {
		return data, nil
	}
	for i := range elements {
		element, err := strictly(elements[i], t)
		if err != nil && fault == nil {
			fault = err
		}
		elements[i] = element
	}
	if fault == nil {
		return data, nil
	}
	clean, err := json.Marshal(elements)
	return clean, errors.Join(fault, err)
}

// member is one of a JSON object's, which may have two of the same name.
type member struct {
	name  string
	value json.RawMessage
}

// membersOf takes an object apart; ok is false for JSON that is none.
func membersOf(data []byte) (members []member, ok bool) {
	if trimmed := bytes.TrimLeft(data, " \t\r\n"); len(trimmed) == 0 || trimmed[0] != '{' || !json.Valid(data) {
		return nil, false
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	if _, err := decoder.Token(); err != nil {
		return nil, false
	}
	for decoder.More() {
		name, err := decoder.Token()
		if err != nil {
			return nil, false
		}
		m := member{name: name.(string)} // JSON that is valid has nothing else there
		if err := decoder.Decode(&m.value); err != nil {
			return nil, false
		}
		members = append(members, m)
	}
	return members, true
}

func objectOf(members []member) []byte {
	var object bytes.Buffer
	object.WriteByte('{')
	for i, m := range members {
		if i > 0 {
			object.WriteByte(',')
		}
		name, err := json.Marshal(m.name)
		if err != nil {
			panic(err) // a text always encodes
		}
		object.Write(name)
		object.WriteByte(':')
		object.Write(m.value)
	}
	object.WriteByte('}')
	return object.Bytes()
}
