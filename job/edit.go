package job

import (
	"encoding/json"
	"errors"
	"fmt"
)

// Edit says what to change of a dead letter before it is replayed. What it does
// not name stays byte for byte. The zero value changes nothing.
//
// At most one of Arguments, Argument, MergePatch and JSONPatch may be set.
// Places of arguments count from 0, as in args[0] and in a JSON pointer.
type Edit struct {
	// Arguments is an array that takes the place of all arguments.
	Arguments json.RawMessage `json:"arguments,omitempty"`
	// Argument holds new values by place.
	Argument map[int]json.RawMessage `json:"argument,omitempty"`
	// MergePatch is an RFC 7386 patch of the one argument that the job has, or an
	// array of patches, one per argument: RFC 7386 itself cannot reach into an
	// array. An empty object in such an array leaves its argument alone, and so
	// does a place past the array's end.
	MergePatch json.RawMessage `json:"merge_patch,omitempty"`
	// JSONPatch is an RFC 6902 patch of the array of arguments.
	JSONPatch json.RawMessage `json:"json_patch,omitempty"`
	// TaskQueue is the handler's new task queue. Empty changes nothing.
	TaskQueue string `json:"task_queue,omitempty"`
	// Policy is an RFC 7386 patch of the policy: null takes a field's default.
	Policy json.RawMessage `json:"policy,omitempty"`
	// Priority is an RFC 7386 patch of the priority.
	Priority json.RawMessage `json:"priority,omitempty"`
	// Tags sets tags; nil removes one.
	Tags map[string]*string `json:"tags,omitempty"`
}

// IsEmpty reports whether the edit changes nothing.
func (e Edit) IsEmpty() bool {
	return e.argumentWays() == 0 && !e.TouchesOptions() && e.Priority == nil
}

// TouchesOptions reports whether the edit changes the job's options object.
func (e Edit) TouchesOptions() bool { return e.TaskQueue != "" || e.Policy != nil || len(e.Tags) > 0 }

func (e Edit) argumentWays() (ways int) {
	for _, given := range []bool{e.Arguments != nil, len(e.Argument) > 0, e.MergePatch != nil, e.JSONPatch != nil} {
		if given {
			ways++
		}
	}
	return ways
}

// Validate returns every fault that shows without the dead letter, joined into
// one error, or nil.
func (e Edit) Validate() error {
	var faults []error
	if e.argumentWays() > 1 {
		faults = append(faults, errors.New("arguments, argument, merge_patch, json_patch: give one of them"))
	}
	for place := range e.Argument {
		if place < 0 || place >= MaxArguments {
			faults = append(faults, fmt.Errorf("argument: there is no place %d; places count from 0 to %d", place, MaxArguments-1))
		}
	}
	for _, key := range sortedKeys(e.Tags) {
		if key == "" {
			faults = append(faults, errors.New("tags: a tag needs a name"))
		}
	}
	return errors.Join(faults...)
}
