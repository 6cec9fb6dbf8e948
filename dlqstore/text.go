package dlqstore

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Bounds on what is kept of a text, in bytes. Head and tail are kept, and a
// marker between them says how much was left out.
const (
	MaxErrorMessage = 16 << 10
	MaxErrorStack   = 32 << 10
	maxName         = 1000 // the server's own limit on names and ids, and well within an index entry's
)

const nulSymbol = "␀" // U+2400

// holdable returns s as Postgres text can hold it: a NUL becomes the symbol for
// one, and each run of broken UTF-8 the replacement character.
func holdable(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, string(utf8.RuneError)), "\x00", nulSymbol)
}

// bounded returns s made holdable and cut to at most limit bytes. The limit must
// leave room for the marker.
func bounded(s string, limit int) string {
	s = holdable(s)
	if len(s) <= limit {
		return s
	}
	// The count in the marker cannot be longer than that of the whole.
	room := limit - len(leftOut(len(s)))
	head := cutHead(s, room/2)
	tail := cutTail(s, room-len(head))
	return head + leftOut(len(s)-len(head)-len(tail)) + tail
}

func leftOut(count int) string { return fmt.Sprintf("\n… %d bytes left out …\n", count) }

// cutHead returns the first runes of s that fit into limit bytes.
func cutHead(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit]
}

// cutTail returns the last runes of s that fit into limit bytes.
func cutTail(s string, limit int) string {
	from := max(len(s)-limit, 0)
	for from < len(s) && !utf8.RuneStart(s[from]) {
		from++
	}
	return s[from:]
}

func holdableTags(tags map[string]string) map[string]string {
	held := make(map[string]string, len(tags))
	for key, value := range tags {
		held[holdable(key)] = holdable(value)
	}
	return held
}

// encoded returns a map of texts and numbers, made holdable by the caller, as JSON.
func encoded[V any](fields map[string]V) string {
	text, err := json.Marshal(fields)
	if err != nil {
		panic(err) // such a map always encodes
	}
	return string(text)
}
