package dlqstore

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Condition asks for one value inside the arguments of a job: the element at a
// path of payload_json is exactly that value.
//
//	condition = path "=" value
//	path      = "args[" number "]" { "." name | "[" number "]" | "[" string "]" }
//	name      = a letter or "_", then letters, digits, "_" and "-"
//	number    = digits, counted from 0, at most 999999999
//	string    = a name of any kind as a JSON string
//	value     = JSON; what is not JSON is taken as a string
//
// So args[0].customer.id=42, args[1]["any name"][2]="42", args[0].state=open.
// Numbers are equal by value (42 is 42.0), objects in any order of keys; null is a
// null that is there. A row whose arguments are not readable meets no condition.
// An index serves it, unless the value is an empty object or array.
//
// Make one with ParseCondition. Its text, and its JSON, is one that ParseCondition
// reads as the same condition.
type Condition struct {
	argument int
	steps    []step
	value    json.RawMessage // compact
}

// step goes one level down: to a key, or to an index when isIndex.
type step struct {
	key     string
	index   int
	isIndex bool
}

// MaxConditions is the most conditions that a Filter may have.
const MaxConditions = 16

const (
	maxConditionText = 4000
	maxSteps         = 32
	maxIndexDigits   = 9 // what an int of Postgres holds
)

// ParseCondition reads a condition. The error names the fault and where it is,
// counted in characters from 1.
func ParseCondition(text string) (Condition, error) {
	if len(text) > maxConditionText {
		return Condition{}, fmt.Errorf("the condition has %d bytes: at most %d", len(text), maxConditionText)
	}
	if !utf8.ValidString(text) || strings.ContainsRune(text, 0) {
		return Condition{}, errors.New("the condition is not text that Postgres can hold")
	}
	p := pathParser{text: text}
	c, err := p.condition()
	if err != nil {
		return Condition{}, fmt.Errorf("%q, character %d: %w", text, utf8.RuneCountInString(text[:p.at])+1, err)
	}
	if written := c.String(); len(written) > maxConditionText { // escapes are longer than what they stand for
		return Condition{}, fmt.Errorf("the condition has %d bytes as it is written: at most %d", len(written), maxConditionText)
	}
	return c, nil
}

// pathParser stands at a byte of the text, the one that an error is about.
type pathParser struct {
	text string
	at   int
}

func (p *pathParser) rest() string { return p.text[p.at:] }

func (p *pathParser) take(literal string) bool {
	if !strings.HasPrefix(p.rest(), literal) {
		return false
	}
	p.at += len(literal)
	return true
}

func (p *pathParser) condition() (c Condition, err error) {
	if !p.take("args[") {
		return c, errors.New(`a path begins with args[N], N being the argument's number from 0`)
	}
	if c.argument, err = p.number(); err != nil {
		return c, err
	}
	for !p.take("=") {
		if len(c.steps) == maxSteps {
			return c, fmt.Errorf("the path has more than %d steps", maxSteps)
		}
		next, err := p.step()
		if err != nil {
			return c, err
		}
		c.steps = append(c.steps, next)
	}
	c.value, err = p.value()
	return c, err
}

func (p *pathParser) step() (step, error) {
	switch {
	case p.take("."):
		name, err := p.name()
		return step{key: name}, err
	case strings.HasPrefix(p.rest(), `["`):
		p.at++
		key, err := p.quoted()
		return step{key: key}, err
	case p.take("["):
		index, err := p.number()
		return step{index: index, isIndex: true}, err
	case p.rest() == "":
		return step{}, errors.New("= and a value are missing")
	default:
		return step{}, errors.New(`here goes .name, ["any name"], [N], or = and the value`)
	}
}

// number reads digits and the bracket that closes them.
func (p *pathParser) number() (int, error) {
	digits := len(p.rest()) - len(strings.TrimLeft(p.rest(), "0123456789"))
	if digits == 0 {
		return 0, errors.New("a number is missing, counted from 0")
	}
	if digits > maxIndexDigits {
		return 0, fmt.Errorf("the number has more than %d digits", maxIndexDigits)
	}
	n, err := strconv.Atoi(p.rest()[:digits])
	if err != nil {
		return 0, err
	}
	p.at += digits
	return n, p.closed()
}

func (p *pathParser) closed() error {
	if !p.take("]") {
		return errors.New("] is missing")
	}
	return nil
}

func (p *pathParser) name() (string, error) {
	name := p.rest()[:nameLength(p.rest())]
	if name == "" {
		return "", errors.New(`a name begins with a letter or _; write ["any name"] for others`)
	}
	p.at += len(name)
	return name, nil
}

// nameLength is how many bytes at the beginning are a name.
func nameLength(text string) int {
	for i, r := range text {
		if r != '_' && !unicode.IsLetter(r) && (i == 0 || r != '-' && !unicode.IsDigit(r)) {
			return i
		}
	}
	return len(text)
}

// quoted reads a JSON string and the bracket that closes it.
func (p *pathParser) quoted() (string, error) {
	decoder := json.NewDecoder(strings.NewReader(p.rest()))
	var key string
	if err := decoder.Decode(&key); err != nil {
		return "", errors.New("the name in quotes is not a JSON string")
	}
	if strings.ContainsRune(key, 0) {
		return "", errors.New("no name in Postgres has a NUL")
	}
	p.at += int(decoder.InputOffset())
	return key, p.closed()
}

func (p *pathParser) value() (json.RawMessage, error) {
	text := p.rest()
	if strings.TrimSpace(text) == "" {
		return nil, errors.New(`the value is missing; write "" for the empty string`)
	}
	if !json.Valid([]byte(text)) {
		return encodedJSON(text), nil
	}
	var compact bytes.Buffer
	err := json.Compact(&compact, []byte(text))
	return compact.Bytes(), err
}

// encodedJSON encodes what always encodes: texts, and what is made of them.
func encodedJSON(value any) json.RawMessage {
	var data bytes.Buffer
	encoder := json.NewEncoder(&data)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		panic(err)
	}
	return bytes.TrimSuffix(data.Bytes(), []byte("\n"))
}

// String returns the condition as ParseCondition reads it.
func (c Condition) String() string {
	var text strings.Builder
	fmt.Fprintf(&text, "args[%d]", c.argument)
	for _, s := range c.steps {
		switch {
		case s.isIndex:
			fmt.Fprintf(&text, "[%d]", s.index)
		case s.key != "" && nameLength(s.key) == len(s.key):
			text.WriteString("." + s.key)
		default:
			fmt.Fprintf(&text, "[%s]", encodedJSON(s.key))
		}
	}
	return text.String() + "=" + string(c.value)
}

// MarshalText is String; the zero Condition, which asks nothing, is an error.
func (c Condition) MarshalText() ([]byte, error) {
	if c.value == nil {
		return nil, errors.New("dlqstore: an empty condition")
	}
	return []byte(c.String()), nil
}

// UnmarshalText is ParseCondition.
func (c *Condition) UnmarshalText(text []byte) error {
	parsed, err := ParseCondition(string(text))
	if err != nil {
		return err
	}
	*c = parsed
	return nil
}

// container is the least value of payload_json that holds the condition's value at
// its path, save for the places within arrays, which containment does not compare.
func (c Condition) container() string {
	text := string(c.value)
	for i := len(c.steps) - 1; i >= 0; i-- {
		if s := c.steps[i]; s.isIndex {
			text = "[" + text + "]"
		} else {
			text = "{" + string(encodedJSON(s.key)) + ":" + text + "}"
		}
	}
	return "[" + text + "]"
}

// jsonPath is the path in SQL's own language. It is strict, so that an index
// selects from arrays alone and a key from objects alone.
func (c Condition) jsonPath() string {
	text := fmt.Sprintf("strict $[%d]", c.argument)
	for _, s := range c.steps {
		if s.isIndex {
			text += fmt.Sprintf("[%d]", s.index)
		} else {
			text += "." + string(encodedJSON(s.key))
		}
	}
	return text
}
