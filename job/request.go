package job

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// unread is what of a request nobody here knows the meaning of. The request is then
// kept as it came, so that who is asked to carry it out, however many hands it goes
// through, refuses it and says why. To ignore it could do more, or something else, than
// was meant; and a reader that fails would have an activity tried again for ever.
type unread struct {
	raw   json.RawMessage
	fault error
}

// or returns the fault, if there is one: what else seems to be wrong may follow from it.
func (u unread) or(other error) error {
	if u.fault != nil {
		return u.fault
	}
	return other
}

// readRequest decodes a request. An unknown key is no error of it. The error is of
// values of a wrong kind.
func readRequest[T any](data []byte) (request T, unknown unread, err error) {
	if err := json.Unmarshal(data, &request); err != nil {
		return request, unknown, requestFault(err)
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(new(T)); err != nil {
		unknown = unread{raw: bytes.Clone(data), fault: requestFault(err)}
	}
	return request, unknown, nil
}

// writeRequest encodes a request: as it came if it has unknown keys.
func writeRequest(unknown unread, request any) ([]byte, error) {
	if unknown.fault != nil {
		return unknown.raw, nil
	}
	return json.Marshal(request)
}

func requestFault(err error) error {
	if kind, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		field := strings.TrimPrefix(kind.Field, "BulkSettings.")
		if field == "" {
			return fmt.Errorf("the request is a JSON %s, and it must be an object", kind.Value)
		}
		return fmt.Errorf("%s: it cannot be a JSON %s", field, kind.Value)
	}
	return errors.New(strings.TrimPrefix(err.Error(), "json: "))
}
