package dlqstore

import (
	"encoding/json"
	"regexp"

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
func encoded(value any) string {
	data, err := json.Marshal(value)
	if err != nil {
		panic(err) // such values always encode
	}
	return string(data)
}

// firstRunes returns the first n characters. Postgres' left does that where the text is
// read, except in a database of SQL_ASCII: there it counts bytes, and would cut a
// character in two.
func firstRunes(s string, n int) string {
	for i := range s {
		if n == 0 {
			return s[:i]
		}
		n--
	}
	return s
}

// holdableJSON is encoded for texts that no caller has made holdable: jsonb takes
// no \u0000. One behind a backslash of its own is not that, but a text of six letters,
// as where JSON is in a JSON text.
func holdableJSON(value any) string { return withoutNUL(encoded(value)) }

func withoutNUL(encoded string) string {
	return escapes.ReplaceAllStringFunc(encoded, func(escape string) string {
		if escape == `\u0000` {
			return `\ufffd`
		}
		return escape
	})
}

// escapes takes what JSON escapes one by one, so that it sees which backslash begins one.
var escapes = regexp.MustCompile(`\\(u[0-9a-fA-F]{4}|.)`)
