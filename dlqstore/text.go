package dlqstore

import (
	"encoding/json"

	"github.com/deadletter-dev/deadletter/internal/text"
)

// Bounds on what is kept of a text, in bytes. Head and tail are kept, and a
// marker between them says how much was left out.
const (
	MaxErrorMessage = 16 << 10
	MaxErrorStack   = 32 << 10
	maxName         = 1000 // the server's own limit on names and ids, and well within an index entry's
)

func holdableTags(tags map[string]string) map[string]string {
	held := make(map[string]string, len(tags))
	for key, value := range tags {
		held[text.Holdable(key)] = text.Holdable(value)
	}
	return held
}

// encoded returns a map of texts and numbers, made holdable by the caller, as JSON.
func encoded[V any](fields map[string]V) string {
	data, err := json.Marshal(fields)
	if err != nil {
		panic(err) // such a map always encodes
	}
	return string(data)
}
