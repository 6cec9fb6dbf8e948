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

func decodeObject(what string, data []byte) (map[string]json.RawMessage, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(data, &fields); err != nil {
		var syntax *json.SyntaxError
		if errors.As(err, &syntax) {
			return nil, fmt.Errorf("%s is not valid JSON: %w", what, err)
		}
		return nil, fmt.Errorf("%s must be a JSON object, not %s", what, quote(data))
	}
	return fields, nil
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
