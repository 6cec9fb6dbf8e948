// Package text makes text fit for Postgres and for the wire: holdable, and bounded.
package text

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

const nulSymbol = "␀" // U+2400

// Holdable returns s as Postgres text can hold it: a NUL becomes the symbol for
// one, and each run of broken UTF-8 the replacement character.
func Holdable(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, string(utf8.RuneError)), "\x00", nulSymbol)
}

// Bounded returns s made holdable and cut to at most limit bytes: head
// and tail stay, and a marker between them says how much was left out. The limit
// must leave room for the marker.
func Bounded(s string, limit int) string {
	s = Holdable(s)
	if len(s) <= limit {
		return s
	}
	// The count in the marker cannot be longer than that of the whole.
	room := limit - len(leftOut(len(s)))
	head := Head(s, room/2)
	tail := cutTail(s, room-len(head))
	return head + leftOut(len(s)-len(head)-len(tail)) + tail
}

func leftOut(count int) string { return fmt.Sprintf("\n… %d bytes left out …\n", count) }

// Head returns the first runes of s that fit into limit bytes.
func Head(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit]
}

// Clipped returns s made holdable and cut to at most limit bytes: the head stays,
// and an ellipsis says that there was more.
func Clipped(s string, limit int) string {
	s = Holdable(s)
	if len(s) <= limit {
		return s
	}
	return Head(s, limit-len("…")) + "…"
}

// cutTail returns the last runes of s that fit into limit bytes.
func cutTail(s string, limit int) string {
	from := max(len(s)-limit, 0)
	for from < len(s) && !utf8.RuneStart(s[from]) {
		from++
	}
	return s[from:]
}
