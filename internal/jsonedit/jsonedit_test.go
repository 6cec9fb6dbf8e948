package jsonedit_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/deadletter-dev/deadletter/internal/jsonedit"
)

func parse(t *testing.T, text string) jsonedit.Value {
	t.Helper()
	v, err := jsonedit.Parse([]byte(text))
	require.NoError(t, err, text)
	return v
}

// TestParse proves that a document comes out as it went in, and that what is not
// strict JSON is refused with its place.
func TestParse(t *testing.T) {
	t.Parallel()
	for _, text := range []string{" 1 ", "{ }", "[\n]\t", `{"a" : [ 1 , 2 ] , "b":{ }}`, `"\ud83d\ude00 \/"`, "-0.0e+00", "1e400"} {
		v := parse(t, text)
		require.Equal(t, text, string(v.Pack()))
	}
	for text, place := range map[string]string{
		"":                          "line 1, column 1",
		"{\"a\":1,}":                "line 1, column 8",
		"[1]\n// no":                "line 2, column 1",
		"[1] 2":                     "line 1, column 5",
		"{\n\"a\" 1}":               "line 2, column 5",
		"\"\xff\"":                  "line 1, column 2",
		"01":                        "line 1, column 2",
		strings.Repeat("[", 20_000): "line 1, column",
	} {
		_, err := jsonedit.Parse([]byte(text))
		require.ErrorContains(t, err, place, text)
	}
}

// TestMergePatchExamples proves the examples of RFC 7386, appendix A.
func TestMergePatchExamples(t *testing.T) {
	t.Parallel()
	for _, test := range [][3]string{
		{`{"a":"b"}`, `{"a":"c"}`, `{"a":"c"}`},
		{`{"a":"b"}`, `{"b":"c"}`, `{"a":"b","b":"c"}`},
		{`{"a":"b"}`, `{"a":null}`, `{}`},
		{`{"a":"b","b":"c"}`, `{"a":null}`, `{"b":"c"}`},
		{`{"a":["b"]}`, `{"a":"c"}`, `{"a":"c"}`},
		{`{"a":"c"}`, `{"a":["b"]}`, `{"a":["b"]}`},
		{`{"a":{"b":"c"}}`, `{"a":{"b":"d","c":null}}`, `{"a":{"b":"d"}}`},
		{`{"a":[{"b":"c"}]}`, `{"a":[1]}`, `{"a":[1]}`},
		{`["a","b"]`, `["c","d"]`, `["c","d"]`},
		{`{"a":"b"}`, `["c"]`, `["c"]`},
		{`{"a":"foo"}`, `null`, `null`},
		{`{"a":"foo"}`, `"bar"`, `"bar"`},
		{`{"e":null}`, `{"a":1}`, `{"e":null,"a":1}`},
		{`[1,2]`, `{"a":"b","c":null}`, `{"a":"b"}`},
		{`{}`, `{"a":{"bb":{"ccc":null}}}`, `{"a":{"bb":{}}}`},
	} {
		target, patch := parse(t, test[0]), parse(t, test[1])
		require.NoError(t, jsonedit.Merge(&target, &patch))
		require.Equal(t, test[2], string(target.Pack()))
	}
}

// TestNoCommaStays proves that the removal of a last element leaves no comma,
// wherever the space stood.
func TestNoCommaStays(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`[1 , 2 ]`:              `[1 ]`,
		`[1,2]`:                 `[1]`,
		`{"x":1 , "y" : 2 }`:    `{"x":1 }`,
		"{\"x\":1\n,\"y\":2}\n": "{\"x\":1}\n",
		`[ 1 ]`:                 `[ ]`,
	} {
		v := parse(t, text)
		last := "y"
		if elements, ok := jsonedit.Elements(&v); ok {
			last = map[int]string{1: "0", 2: "1"}[len(elements)]
		}
		_, err := jsonedit.Remove(&v, jsonedit.Pointer{last})
		require.NoError(t, err)
		require.Equal(t, want, string(v.Pack()))
	}
}

// TestEqual proves that numbers are equal by their exact value, strings by their
// characters, and objects in any order.
func TestEqual(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		a, b string
		want bool
	}{
		{"9007199254740993", "9007199254740992", false},
		{"1.10", "1.1", true},
		{"100", "1e2", true},
		{"0.01", "1E-2", true},
		{"-0", "0.0e5", true},
		{"1e400", "10e399", true},
		{"1e400", "1e401", false},
		{"1", "-1", false},
		{"1e999999999999999999999", "1e999999999999999999998", false},
		{`"\u00e9"`, `"é"`, true},
		{`"a"`, `"b"`, false},
		{"true", "false", false},
		{"null", "null", true},
		{"null", "0", false},
		{`{"a":1,"b":[2]}`, `{ "b" : [2.0], "a":1 }`, true},
		{`{"a":1}`, `{"a":1,"b":1}`, false},
		{`{"a":1,"a":1}`, `{"a":1,"a":1}`, false},
		{"[1,2]", "[2,1]", false},
		{"[1]", "[1,1]", false},
	} {
		a, b := parse(t, test.a), parse(t, test.b)
		require.Equal(t, test.want, jsonedit.Equal(&a, &b), "%s and %s", test.a, test.b)
		require.Equal(t, test.want, jsonedit.Equal(&b, &a), "%s and %s", test.b, test.a)
	}
}

// TestDiffIsBounded proves that no more differences are returned than asked for,
// and that the rest is counted.
func TestDiffIsBounded(t *testing.T) {
	t.Parallel()
	before, after := parse(t, "["+strings.Repeat("1,", 99)+"1]"), parse(t, "["+strings.Repeat("2,", 99)+"1]")
	found, more := jsonedit.Diff(&before, &after, 10)
	require.Len(t, found, 10)
	require.Equal(t, 89, more)
	require.Equal(t, "/9", found[9].Path.String())
}

// FuzzEditOne proves of one change at one place that it never panics, that the
// result is JSON, that the change is there, and that all bytes before and behind
// the touched value are as they were.
func FuzzEditOne(f *testing.F) {
	for _, document := range []string{`{"a":[1, 2 ,{"b":null}],"c":9007199254740993}`, "[ ]", `{"":{"~/":1e400 } , "d":1.10}`, `{"a":1,"a":2}`, "\t7\n"} {
		for _, pointer := range []string{"", "/a/2/b", "/a/-", "/~0~1", "//~0~1", "/c"} {
			f.Add([]byte(document), pointer, []byte(`{"new": [1.0]}`), byte(0))
			f.Add([]byte(document), pointer, []byte(`null`), byte(1))
			f.Add([]byte(document), pointer, []byte(`"x"`), byte(2))
		}
	}
	f.Fuzz(func(t *testing.T, document []byte, pointer string, value []byte, how byte) {
		v, err := jsonedit.Parse(document)
		if err != nil {
			require.False(t, json.Valid(document) && strings.ToValidUTF8(string(document), "") == string(document), "valid JSON was refused: %v", err)
			return
		}
		require.Equal(t, string(document), string(v.Pack()))
		at, err := jsonedit.ParsePointer(pointer)
		if err != nil {
			return
		}
		require.Equal(t, pointer, at.String())
		given, err := jsonedit.Parse(value)
		if err != nil {
			return
		}
		var touched []byte // what the change takes the place of
		if old, err := jsonedit.Get(&v, at); err == nil {
			touched = jsonedit.Trimmed(old)
		}
		put := jsonedit.Trimmed(&given)
		switch how % 3 {
		case 0:
			err = jsonedit.Replace(&v, at, given)
		case 1:
			err = jsonedit.Add(&v, at, given)
		case 2:
			_, err = jsonedit.Remove(&v, at)
			put = nil
		}
		if err != nil {
			return
		}
		after := v.Pack()
		if len(at) < 9_000 && !deep(after) {
			require.True(t, json.Valid(after), "%s", after)
		}
		prefix, suffix := common(document, after)
		switch how % 3 {
		case 0:
			require.Len(t, after, len(document)-len(touched)+len(put), "only the value changed its length")
			require.GreaterOrEqual(t, prefix+suffix, min(len(document), len(after))-max(len(touched), len(put)))
		case 1:
			require.GreaterOrEqual(t, prefix+suffix, len(document)-len(touched), "an addition takes nothing but what it replaces away")
		case 2:
			require.Less(t, len(after), len(document))
			require.GreaterOrEqual(t, prefix+suffix, len(after), "a removal takes one stretch away")
		}
	})
}

// deep reports whether a document may be nested beyond what encoding/json reads.
func deep(document []byte) bool {
	return strings.Count(string(document), "[")+strings.Count(string(document), "{") > 9_000
}

// common returns how many bytes two texts share at their ends, without overlap.
func common(a, b []byte) (prefix, suffix int) {
	limit := min(len(a), len(b))
	for prefix < limit && a[prefix] == b[prefix] {
		prefix++
	}
	for suffix < limit-prefix && a[len(a)-1-suffix] == b[len(b)-1-suffix] {
		suffix++
	}
	return prefix, suffix
}
