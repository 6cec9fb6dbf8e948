package jsonedit

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Operation is one operation of an RFC 6902 patch.
type Operation struct {
	// Op is add, remove, replace, move, copy or test.
	Op   string
	Path Pointer
	From Pointer // of move and copy
	// Value is of add, replace and test.
	Value Value
}

// maxOperations bounds a patch: each operation walks the document once.
const maxOperations = 1000

// ParsePatch reads an RFC 6902 patch and refuses what is none.
func ParsePatch(data []byte) ([]Operation, error) {
	document, err := Parse(data)
	if err != nil {
		return nil, err
	}
	elements, ok := Elements(&document)
	if !ok {
		return nil, fmt.Errorf("a JSON patch is an array of operations, not %s", kindOf(&document))
	}
	if len(elements) > maxOperations {
		return nil, fmt.Errorf("the patch has %d operations; at most %d", len(elements), maxOperations)
	}
	operations := make([]Operation, len(elements))
	for i := range elements {
		if operations[i], err = parseOperation(&elements[i]); err != nil {
			return nil, fmt.Errorf("operation %d: %w", i+1, err)
		}
	}
	return operations, nil
}

func parseOperation(v *Value) (op Operation, err error) {
	object, ok := Object(v)
	if !ok {
		return op, fmt.Errorf("it is %s, not an object", kindOf(v))
	}
	seen := map[string]*Value{}
	for i := range object.Members {
		name := nameOf(&object.Members[i])
		if seen[name] != nil {
			return op, fmt.Errorf("it has %q twice", name)
		}
		for _, key := range []string{"op", "path", "from", "value"} {
			if name != key && strings.EqualFold(name, key) {
				return op, fmt.Errorf("it has %q: the key is %q, and its case matters", name, key)
			}
		}
		seen[name] = &object.Members[i].Value
	}
	if op.Op, err = stringOf(seen, "op"); err != nil {
		return op, err
	}
	if !slices.Contains([]string{"add", "remove", "replace", "move", "copy", "test"}, op.Op) {
		return op, fmt.Errorf("%q is none of add, remove, replace, move, copy, test", op.Op)
	}
	if op.Path, err = pointerOf(seen, "path"); err != nil {
		return op, err
	}
	switch op.Op {
	case "move", "copy":
		if op.From, err = pointerOf(seen, "from"); err != nil {
			return op, err
		}
		if op.Op == "move" && op.Path.Within(op.From) && len(op.Path) > len(op.From) {
			return op, errors.New("a value cannot be moved into itself")
		}
	case "add", "replace", "test":
		if seen["value"] == nil {
			return op, errors.New(`"value" is missing`)
		}
		op.Value = Value{Value: seen["value"].Value}
	}
	return op, nil
}

func stringOf(seen map[string]*Value, name string) (string, error) {
	switch v := seen[name]; {
	case v == nil:
		return "", fmt.Errorf("%q is missing", name)
	case v.Value.Kind() != '"':
		return "", fmt.Errorf("%q is %s, not a string", name, kindOf(v))
	default:
		return text(v), nil
	}
}

func pointerOf(seen map[string]*Value, name string) (Pointer, error) {
	written, err := stringOf(seen, name)
	if err != nil {
		return nil, err
	}
	return ParsePointer(written)
}
