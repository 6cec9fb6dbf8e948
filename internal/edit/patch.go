package edit

import (
	"go.temporal.io/sdk/converter"

	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/internal/jsonedit"
)

// patch applies an RFC 6902 patch to the array of arguments. An argument as a
// whole is a payload, whose metadata goes where it goes; the rest is JSON.
func (a *arguments) patch(given []byte) error {
	operations, err := jsonedit.ParsePatch(given)
	if err != nil {
		return err
	}
	for i := range operations {
		if err := a.operate(&operations[i]); err != nil {
			return renumbered(i+1, err)
		}
	}
	return nil
}

// renumbered is err as a refusal that names the operation.
func renumbered(operation int, err error) error {
	code, cause := dlqstore.EditInvalid, err.Error()
	if already, ok := err.(*dlqstore.EditError); ok { //nolint:errorlint // nothing wraps it here
		code, cause = already.Code, already.Cause
	}
	return refused(code, "json_patch: operation %d: %s", operation, cause)
}

func (a *arguments) operate(op *jsonedit.Operation) error {
	switch op.Op {
	case "add":
		return a.add(op.Path, op.Value)
	case "replace":
		return a.replace(op.Path, op.Value)
	case "remove":
		return a.remove(op.Path)
	case "test":
		return a.test(op)
	case "copy":
		return a.carry(op, false)
	default: // the parser knows no other
		return a.carry(op, true)
	}
}

func (a *arguments) add(at jsonedit.Pointer, v jsonedit.Value) error {
	if len(at) == 0 {
		return a.setAll(&v)
	}
	if err := a.spend(&v); err != nil {
		return err
	}
	if len(at) > 1 {
		return a.inside(at, func(arg *argument, rest jsonedit.Pointer) error { return jsonedit.Add(&arg.value, rest, v) })
	}
	place, err := jsonedit.Index(at[0], len(a.list))
	if err != nil {
		return err
	}
	return a.insert(place, &argument{encoding: converter.MetadataEncodingJSON, value: jsonedit.Value{Value: v.Value}, touched: true})
}

func (a *arguments) replace(at jsonedit.Pointer, v jsonedit.Value) error {
	if len(at) == 0 {
		return a.setAll(&v)
	}
	if err := a.spend(&v); err != nil {
		return err
	}
	return a.inside(at, func(arg *argument, rest jsonedit.Pointer) error { return jsonedit.Replace(&arg.value, rest, v) })
}

func (a *arguments) remove(at jsonedit.Pointer) error {
	switch len(at) {
	case 0:
		return invalid("the array of arguments cannot be removed")
	case 1:
		place, err := a.place(at)
		if err == nil {
			a.list = append(a.list[:place:place], a.list[place+1:]...)
		}
		return err
	default:
		return a.inside(at, func(arg *argument, rest jsonedit.Pointer) error {
			_, err := jsonedit.Remove(&arg.value, rest)
			return err
		})
	}
}

func (a *arguments) test(op *jsonedit.Operation) error {
	var found jsonedit.Value
	var err error
	if len(op.Path) == 0 {
		found, err = a.whole()
	} else {
		found, err = a.value(op.Path)
	}
	if err != nil {
		return err
	}
	if !jsonedit.Equal(&found, &op.Value) {
		return refused(dlqstore.EditTestFailed, "%q is not what the test says", op.Path.String())
	}
	return nil
}

// carry moves or copies.
func (a *arguments) carry(op *jsonedit.Operation, move bool) error {
	if len(op.From) == 0 {
		return invalid("the array of arguments cannot go into itself")
	}
	if len(op.From) == 1 && len(op.Path) == 1 {
		return a.carryArgument(op, move)
	}
	v, err := a.value(op.From)
	if err != nil {
		return err
	}
	v = v.Clone()
	if move {
		if err := a.remove(op.From); err != nil {
			return err
		}
	}
	return a.add(op.Path, v)
}

// carryArgument takes the payload along, with its metadata.
func (a *arguments) carryArgument(op *jsonedit.Operation, move bool) error {
	from, err := a.place(op.From)
	if err != nil {
		return err
	}
	carried := *a.list[from]
	if carried.fault == "" {
		carried.value = carried.value.Clone()
	}
	if move {
		a.list = append(a.list[:from:from], a.list[from+1:]...)
	}
	to, err := jsonedit.Index(op.Path[0], len(a.list))
	if err != nil {
		return err
	}
	return a.insert(to, &carried)
}

// place returns the place of an argument that is there.
func (a *arguments) place(at jsonedit.Pointer) (int, error) {
	place, err := jsonedit.Index(at[0], len(a.list))
	if err == nil && place == len(a.list) {
		err = invalid("there is no argument %q: the job has %d, counted from 0", at[0], len(a.list))
	}
	return place, err
}

// inside runs a change of one argument.
func (a *arguments) inside(at jsonedit.Pointer, change func(arg *argument, rest jsonedit.Pointer) error) error {
	place, err := a.place(at)
	if err != nil {
		return err
	}
	arg, err := a.at(place)
	if err != nil {
		return err
	}
	arg.touched = true
	return change(arg, at[1:])
}

// value returns the value at a pointer that is not the whole.
func (a *arguments) value(at jsonedit.Pointer) (jsonedit.Value, error) {
	place, err := a.place(at)
	if err != nil {
		return jsonedit.Value{}, err
	}
	arg, err := a.at(place)
	if err != nil {
		return jsonedit.Value{}, err
	}
	found, err := jsonedit.Get(&arg.value, at[1:])
	if err != nil {
		return jsonedit.Value{}, err
	}
	return jsonedit.Value{Value: found.Value}, nil
}

// whole returns the array of all arguments.
func (a *arguments) whole() (jsonedit.Value, error) {
	elements := make([]jsonedit.Value, len(a.list))
	for i := range a.list {
		arg, err := a.at(i)
		if err != nil {
			return jsonedit.Value{}, err
		}
		elements[i] = arg.value
	}
	return jsonedit.Array(elements), nil
}

// spend bounds what a patch puts in: copies of copies double with each operation.
func (a *arguments) spend(v *jsonedit.Value) error {
	a.room -= len(jsonedit.Trimmed(v))
	if a.room < 0 {
		return invalid("the patch puts in more than %d bytes", maxSize)
	}
	return nil
}
