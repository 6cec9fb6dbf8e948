package dlqstore

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"strings"
	"unicode/utf16"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/deadletter-dev/deadletter/internal/text"
)

// encoding is the encoding of a database, by Postgres' name. A database of UTF8 holds
// every character. One of SQL_ASCII holds bytes, and so every character too, but not as
// a Unicode escape in jsonb. Any other holds some: each statement's arguments are made
// fit, so that no text of a job keeps its dead letter from being written.
//
//   - In a text, a character that the database cannot hold becomes its JSON escape, such
//     as \u65e5. This is so in keys too, wherever they are written or looked for.
//   - In jsonb, likewise, as the six characters of that escape.
//   - In json, it becomes a real escape, which stands for the same character.
//   - A readable copy, see jsonb_or_null, is null if there is such a character in it.
type encoding string

const (
	encodingUTF8  encoding = "UTF8"
	encodingASCII encoding = "SQL_ASCII"
	encodingLatin encoding = "LATIN1"
)

// ourParameters has connections speak UTF8, whatever the database's encoding. Postgres
// takes the database's own for granted, and would store the bytes of UTF8 as characters
// of that. String literals are the standard's, for the schema's name may be in one.
// Every pooler takes both.
var ourParameters = map[string]string{"client_encoding": "UTF8", "standard_conforming_strings": "on"}

func useOurParameters(config *pgconn.Config) { maps.Copy(config.RuntimeParams, ourParameters) }

func encodingOf(conn *pgconn.PgConn) encoding {
	return encoding(conn.ParameterStatus("server_encoding"))
}

// holds reports whether a text of the encoding can have the character. Of the encodings
// that are neither UTF8 nor LATIN1 only ASCII is used: it is the same in all of them.
func (e encoding) holds(r rune) bool {
	switch e {
	case encodingUTF8, encodingASCII:
		return true
	case encodingLatin:
		return r <= 0xff
	default:
		return r < 0x80
	}
}

func (e encoding) holdsAll(value string) bool {
	return strings.IndexFunc(value, func(r rune) bool { return !e.holds(r) }) < 0
}

// held returns the key under which a row is stored.
func (e encoding) held(k Key) Key {
	return Key{e.name(k.Namespace), e.name(k.WorkflowID), e.name(k.RunID)}
}

// name is text for a column that may be in an index, whose entries are bounded.
func (e encoding) name(value string) string {
	held := e.text(value, `\`)
	if len(held) > maxName && len(value) <= maxName {
		return e.text(text.Bounded(held, maxName), `\`)
	}
	return held
}

// text escapes what the encoding does not hold, with the given backslash.
func (e encoding) text(value, backslash string) string {
	if e.holdsAll(value) {
		return value
	}
	var held strings.Builder
	for _, r := range value {
		if e.holds(r) {
			held.WriteRune(r)
			continue
		}
		for _, unit := range utf16.AppendRune(nil, r) {
			fmt.Fprintf(&held, "%su%04x", backslash, unit)
		}
	}
	return held.String()
}

// asciiJSON returns the same JSON with an escape for every character above ASCII.
func asciiJSON(value string) string { return encoding("").text(value, `\`) }

// jsonb returns JSON whose strings jsonb can hold.
func (e encoding) jsonb(value string) string {
	return e.text(unicodeEscapes.ReplaceAllStringFunc(value, unescaped), `\\`)
}

// unicodeEscapes takes what JSON escapes one by one, and Unicode escapes in a row at
// once: two may be one character.
var unicodeEscapes = regexp.MustCompile(`(?:\\u[0-9a-fA-F]{4})+|\\.`)

// unescaped leaves those of ASCII as they are.
func unescaped(escape string) string {
	var characters string
	if !strings.HasPrefix(escape, `\u`) || json.Unmarshal([]byte(`"`+escape+`"`), &characters) != nil {
		return escape
	}
	var plain strings.Builder
	for _, r := range characters {
		if r < 0x80 {
			fmt.Fprintf(&plain, `\u%04x`, r)
		} else {
			plain.WriteRune(r)
		}
	}
	return plain.String()
}

// What a statement makes of an argument.
var (
	copyArgument  = regexp.MustCompile(`jsonb_or_null\(@(\w+)\)`)
	jsonArgument  = regexp.MustCompile(`@(\w+)::json\b|@(details)::text`) // the latter become json one by one
	jsonbArgument = regexp.MustCompile(`@(\w+)::json(?:b|path)\b`)
)

// longTexts are arguments for columns without an index.
var longTexts = map[string]bool{
	"error_message": true, "error_stack": true, "error_messages": true, "error_stacks": true, "note": true, "cause": true, "errors": true, "tag_key": true, "tag_value": true,
}

// arguments returns the arguments of a statement as the database holds them.
func (e encoding) arguments(statement string, args []any) []any {
	if e == encodingUTF8 {
		return args
	}
	fit := make([]any, len(args))
	for i, arg := range args {
		fit[i] = arg
		if named, ok := arg.(pgx.NamedArgs); ok {
			fit[i] = e.named(statement, named)
		}
	}
	return fit
}

func (e encoding) named(statement string, args pgx.NamedArgs) pgx.NamedArgs {
	fits := make(map[string]func(string) string)
	for expression, fit := range map[*regexp.Regexp]func(string) string{jsonArgument: asciiJSON, jsonbArgument: e.jsonb, copyArgument: asciiJSON} {
		if e == encodingASCII && expression != jsonbArgument {
			fit = func(value string) string { return value } // what is not an escape is held
		}
		for _, match := range expression.FindAllStringSubmatch(statement, -1) {
			fits[match[len(match)-1]] = fit
			fits[match[1]] = fit
		}
	}
	held := make(pgx.NamedArgs, len(args))
	for name, value := range args {
		fit := fits[name]
		switch {
		case fit != nil:
		case name == "error_text": // a pattern, in which a backslash is two
			fit = func(value string) string { return e.text(value, `\\`) }
		case longTexts[name]:
			fit = func(value string) string { return e.text(value, `\`) }
		default:
			fit = e.name
		}
		held[name] = fitted(value, fit)
	}
	return held
}

// fitted applies fit to the texts of a value.
func fitted(value any, fit func(string) string) any {
	switch v := value.(type) {
	case string:
		return fit(v)
	case *string:
		if v == nil {
			return v
		}
		held := fit(*v)
		return &held
	case []string:
		held := make([]string, len(v))
		for i := range v {
			held[i] = fit(v[i])
		}
		return held
	case []*string:
		held := make([]*string, len(v))
		for i := range v {
			held[i], _ = fitted(v[i], fit).(*string)
		}
		return held
	default:
		return value
	}
}
