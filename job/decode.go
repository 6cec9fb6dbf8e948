package job

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"
)

// maxQuoted bounds how much of a refused value an error repeats.
const maxQuoted = 64

// decodeObject returns the fields of an object, and the faults of those that are there
// twice, of which the first is taken.
func decodeObject(what string, data []byte) (fields map[string]json.RawMessage, doubled []error, err error) {
	if err := json.Unmarshal(data, &fields); err != nil {
		var syntax *json.SyntaxError
		if errors.As(err, &syntax) {
			return nil, nil, fmt.Errorf("%s is not valid JSON: %w", what, err)
		}
		return nil, nil, fmt.Errorf("%s must be a JSON object, not %s", what, quote(data))
	}
	members, _ := membersOf(data)
	seen := map[string]bool{}
	for _, m := range members {
		if seen[m.name] {
			doubled = append(doubled, fmt.Errorf("%s: %w", quote([]byte(m.name)), ErrDoubledKey))
			continue
		}
		seen[m.name] = true
		fields[m.name] = m.value
	}
	return fields, doubled, nil
}

// lastOfDoubled returns an options object in which, of a key that is there twice, only
// the last is left.
func lastOfDoubled(options []byte) []byte {
	var fields map[string]json.RawMessage
	if json.Unmarshal(options, &fields) != nil {
		return options
	}
	for _, name := range []string{"policy", "tags"} {
		var inner map[string]json.RawMessage
		if json.Unmarshal(fields[name], &inner) == nil && inner != nil {
			fields[name] = mustEncode(inner)
		}
	}
	return mustEncode(fields)
}

// mustEncode encodes what was decoded.
func mustEncode(fields map[string]json.RawMessage) []byte {
	data, err := json.Marshal(fields)
	if err != nil {
		panic(err)
	}
	return data
}

func decodeAs(value json.RawMessage, into any, kind string) error {
	if json.Unmarshal(value, into) != nil {
		return fmt.Errorf("%s is not %s", quote(value), kind)
	}
	return nil
}

// decodeInt accepts every JSON spelling of a whole number (3, 3.0, 3e0): other
// languages have no other number type.
func decodeInt(value json.RawMessage) (int, error) {
	var f float64
	if json.Unmarshal(value, &f) != nil || f != math.Trunc(f) || math.Abs(f) > 1<<53 {
		return 0, fmt.Errorf("%s is not a whole number", quote(value))
	}
	return int(f), nil
}

func decodeDuration(value json.RawMessage) (time.Duration, error) {
	var text string
	if json.Unmarshal(value, &text) != nil {
		return 0, fmt.Errorf("%s is not a duration string such as \"90s\" or \"1h30m\"", quote(value))
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, fmt.Errorf("%s is not a duration such as \"90s\" or \"1h30m\"", quote(value))
	}
	return d, nil
}

func quote(value []byte) string {
	value = bytes.TrimSpace(value)
	if len(value) > maxQuoted {
		return strings.ToValidUTF8(string(value[:maxQuoted]), "") + "…"
	}
	return string(value)
}

func sortedKeys[V any](m map[string]V) []string {
	return slices.Sorted(maps.Keys(m))
}
