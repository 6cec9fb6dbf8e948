package jsonedit

import (
	"fmt"

	"github.com/tailscale/hujson"
)

// Merge applies an RFC 7386 merge patch. Where the patch has no say the target
// stays byte for byte.
func Merge(target *Value, patch *Value) error {
	changes, ok := Object(patch)
	if !ok {
		target.Value = patch.Clone().Value
		return nil
	}
	if byName(changes) == nil {
		return fmt.Errorf("an object of the patch has a key twice")
	}
	object, ok := Object(target)
	if !ok {
		object = &hujson.Object{}
		target.Value = object
	}
	// Looked up once: both may have very many keys.
	places := map[string]int{}
	for i := range object.Members {
		name := nameOf(&object.Members[i])
		if _, seen := places[name]; seen {
			places[name] = twice
		} else {
			places[name] = i
		}
	}
	dropped := map[int]bool{}
	for i := range changes.Members {
		name, change := nameOf(&changes.Members[i]), &changes.Members[i].Value
		at, there := places[name]
		switch {
		case there && at == twice:
			return fmt.Errorf("an object on the way has the key %q twice", name)
		case IsNull(change):
			if there {
				dropped[at] = true
			}
		case there:
			if err := Merge(&object.Members[at].Value, change); err != nil {
				return err
			}
		default:
			// Merged and not copied: nulls inside it mean absence.
			fresh := Value{Value: hujson.Literal("null")}
			if err := Merge(&fresh, change); err != nil {
				return err
			}
			addMember(object, name, fresh)
		}
	}
	dropMembers(object, dropped)
	return nil
}

// twice is the place of a key that an object has more than once.
const twice = -1

func dropMembers(object *hujson.Object, dropped map[int]bool) {
	if len(dropped) == 0 {
		return
	}
	kept := make([]hujson.ObjectMember, 0, len(object.Members))
	for i := range object.Members {
		if !dropped[i] {
			kept = append(kept, object.Members[i])
		}
	}
	object.Members = kept
	if last := len(kept) - 1; last >= 0 {
		kept[last].Value.AfterExtra = nil // else it is printed with a comma
	}
}
