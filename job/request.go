package job

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
)

// unread is what of a request nobody here can read: a key without a meaning, a key that
// is there twice, or a value of a wrong kind. The request is then kept as it came, so that
// who is asked to carry it out, however many hands it goes through, refuses it and says
// why. To ignore a key could do more, or something else, than was meant; and a reader that
// fails would have a signal dropped in silence, and an activity tried again for ever.
type unread struct {
	raw       json.RawMessage
	fault     error
	misshapen bool
}

// Misshapen reports whether a value of the request is of a wrong kind, such as a number
// for a name, or the whole is no object. Check says which.
func (u unread) Misshapen() bool { return u.misshapen }

// or returns the fault, if there is one: what else seems to be wrong may follow from it.
func (u unread) or(other error) error {
	if u.fault != nil {
		return u.fault
	}
	return other
}

// readRequest decodes a request, as far as it can be read, and returns what cannot.
func readRequest[T any](data []byte, request *T) unread {
	*request = *new(T)
	clean, fault := strictly(data, reflect.TypeFor[T]())
	if err := json.Unmarshal(clean, request); err != nil {
		fault = err // of a wrong kind, which says more than a key
	}
	if fault == nil {
		return unread{}
	}
	// As encoding/json has it, which takes a key in any case and the last of two: what is
	// misshapen decides on the commands of runs that began long ago.
	misshapen := json.Unmarshal(data, new(T)) != nil
	return unread{raw: bytes.Clone(data), fault: requestFault(fault), misshapen: misshapen}
}

// writeRequest encodes a request: as it came if not all of it could be read.
func writeRequest(rest unread, request any) ([]byte, error) {
	if rest.fault != nil {
		return rest.raw, nil
	}
	return json.Marshal(request)
}

func requestFault(err error) error {
	if kind, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		value, _, _ := strings.Cut(kind.Value, " ") // behind which the value itself may stand
		field := strings.TrimPrefix(kind.Field, "BulkSettings.")
		if field == "" {
			return fmt.Errorf("the request is a JSON %s, and it must be an object", value)
		}
		return fmt.Errorf("%s: it cannot be a JSON %s", field, value)
	}
	return err
}
