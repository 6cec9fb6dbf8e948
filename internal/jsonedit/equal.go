package jsonedit

import (
	"encoding/json"
	"math/big"
	"strings"

	"github.com/tailscale/hujson"
)

// text returns a string's characters.
func text(v *Value) string {
	var s string
	_ = json.Unmarshal(v.Value.(hujson.Literal), &s) // the parser has seen that it is one
	return s
}

// Equal compares as RFC 6902's test does: strings by their characters, numbers by
// their exact value, objects in any order. An object with a key twice equals none.
func Equal(a, b *Value) bool {
	if a.Value.Kind() != b.Value.Kind() {
		return false
	}
	switch left := a.Value.(type) {
	case *hujson.Object:
		return equalObjects(left, b.Value.(*hujson.Object))
	case *hujson.Array:
		right := b.Value.(*hujson.Array)
		if len(left.Elements) != len(right.Elements) {
			return false
		}
		for i := range left.Elements {
			if !Equal(&left.Elements[i], &right.Elements[i]) {
				return false
			}
		}
		return true
	default:
		switch a.Value.Kind() {
		case '"':
			return text(a) == text(b)
		case '0':
			return number(a) == number(b)
		default:
			return string(Trimmed(a)) == string(Trimmed(b))
		}
	}
}

func equalObjects(a, b *hujson.Object) bool {
	left, right := byName(a), byName(b)
	if left == nil || right == nil || len(left) != len(right) {
		return false
	}
	for name, v := range left {
		if right[name] == nil || !Equal(v, right[name]) {
			return false
		}
	}
	return true
}

// byName returns nil if a name is there twice.
func byName(object *hujson.Object) map[string]*Value {
	members := make(map[string]*Value, len(object.Members))
	for i := range object.Members {
		name := nameOf(&object.Members[i])
		if members[name] != nil {
			return nil
		}
		members[name] = &object.Members[i].Value
	}
	return members
}

// number returns one spelling for all spellings of a number: its digits without
// zeros at either end, and the power of ten. A number such as 1e999999999 is never
// written out.
func number(v *Value) string {
	written := strings.ToLower(string(Trimmed(v)))
	sign := ""
	if rest, negative := strings.CutPrefix(written, "-"); negative {
		sign, written = "-", rest
	}
	digits, power, _ := strings.Cut(written, "e")
	exponent := new(big.Int)
	if power != "" {
		exponent.SetString(strings.TrimPrefix(power, "+"), 10)
	}
	whole, fraction, _ := strings.Cut(digits, ".")
	exponent.Sub(exponent, big.NewInt(int64(len(fraction))))
	digits = strings.TrimLeft(whole+fraction, "0")
	trimmed := strings.TrimRight(digits, "0")
	if trimmed == "" {
		return "0"
	}
	exponent.Add(exponent, big.NewInt(int64(len(digits)-len(trimmed))))
	return sign + trimmed + "e" + exponent.String()
}
