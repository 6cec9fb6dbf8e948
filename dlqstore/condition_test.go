package dlqstore_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/deadletter-dev/deadletter/dlqstore"
)

func where(texts ...string) []dlqstore.Condition {
	var conditions []dlqstore.Condition
	for _, text := range texts {
		conditions = append(conditions, condition(text))
	}
	return conditions
}

// TestParseCondition proves what the grammar takes, and the text that a condition
// is written as.
func TestParseCondition(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"args[0]=1":                        "args[0]=1",
		"args[0].customer.id=42":           "args[0].customer.id=42",
		"args[7].a_1-b[0][12].ä=true":      "args[7].a_1-b[0][12].ä=true",
		`args[0]["any name"]="x"`:          `args[0]["any name"]="x"`,
		`args[0]["plain"]=x`:               `args[0].plain="x"`,
		`args[0][""]=x`:                    `args[0][""]="x"`,
		`args[0]["a]=\"b"]=x=y`:            `args[0]["a]=\"b"]="x=y"`,
		`args[0].s=no JSON`:                `args[0].s="no JSON"`,
		`args[0].s="42"`:                   `args[0].s="42"`,
		`args[0].n=9007199254740993`:       `args[0].n=9007199254740993`,
		`args[0].n=1.10`:                   `args[0].n=1.10`,
		`args[0].o={ "b": 1, "a": [null]}`: `args[0].o={"b":1,"a":[null]}`,
		`args[0].s=<&>`:                    `args[0].s="<&>"`,
		`args[00].s=null`:                  `args[0].s=null`,
		`args[0].s=""`:                     `args[0].s=""`,
	} {
		c, err := dlqstore.ParseCondition(text)
		require.NoError(t, err, text)
		require.Equal(t, want, c.String())
	}
}

// TestParseConditionFaults proves that each fault is named with its place.
func TestParseConditionFaults(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                       "character 1: a path begins with args[N]",
		"customer.id=1":          "character 1: a path begins with args[N]",
		"args=1":                 "character 1: a path begins",
		"args[]=1":               "character 6: a number is missing",
		"args[-1]=1":             "character 6: a number is missing",
		"args[0=1":               "character 7: ] is missing",
		"args[1234567890]=1":     "character 6: the number has more than 9 digits",
		"args[0]":                "character 8: = and a value are missing",
		"args[0].=1":             "character 9: a name begins with a letter",
		"args[0].ä.1=1":          "character 11: a name begins with a letter",
		"args[0].a b=1":          "character 10: here goes .name",
		`args[0]["a=1`:           "character 9: the name in quotes is not a JSON string",
		`args[0]["a"=1`:          "character 12: ] is missing",
		`args[0]["\u0000"]=1`:    "character 9: no name in Postgres has a NUL",
		"args[0].a=":             `character 11: the value is missing; write ""`,
		"args[0].a= ":            "the value is missing",
		"args[0].a=\x00":         "not text that Postgres can hold",
		"args[0].a=\xff":         "not text that Postgres can hold",
		strings.Repeat("a", 5e3): "at most 4000",
		"args[0]=" + strings.Repeat("\x01", 1000):   "has 6010 bytes as it is written",
		"args[0]" + strings.Repeat(".a", 33) + "=1": "more than 32 steps",
	} {
		_, err := dlqstore.ParseCondition(text)
		require.ErrorContains(t, err, want, text)
	}
}

// TestConditions proves that a condition compares exactly the element at its path:
// by value, in its own place, of the kind that the path says.
func TestConditions(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	for i, payload := range []string{
		`[{"id": 42, "big": 9007199254740993, "price": 1.10, "name": "Zoë", "none": null, "list": [1, {"sku": "x"}], "o": {"a": 1, "b": [2]}}]`,
		`[{"id": "42", "big": 9007199254740992, "price": 1.1001, "list": [{"sku": "x"}, 1]}, 42]`,
		`[[1], {"0": 1}, {"any name": {"": "empty"}, "<&>": true}]`,
	} {
		dl := letter(keyOf(fmt.Sprint(i)))
		dl.PayloadJSON = json.RawMessage(payload)
		move(t, store, dl)
	}
	for text, want := range map[string]string{
		"args[0].id=42":                     "0",
		"args[0].id=42.0":                   "0",
		`args[0].id="42"`:                   "1",
		"args[1]=42":                        "1",
		"args[0]=42":                        "",
		"args[0].big=9007199254740993":      "0",
		"args[0].price=1.1":                 "0",
		"args[0].name=Zoë":                  "0",
		"args[0].name=zoë":                  "",
		"args[0].none=null":                 "0",
		"args[0].absent=null":               "",
		"args[0].list[1].sku=x":             "0",
		"args[0].list[0].sku=x":             "1",
		"args[0].list[9].sku=x":             "",
		`args[0].list=[1,{"sku":"x"}]`:      "0",
		`args[0].list=[1]`:                  "",
		`args[0].o={"b":[2],"a":1}`:         "0",
		`args[0].o={"a":1}`:                 "",
		"args[0][0]=1":                      "2",
		`args[0]["0"]=1`:                    "", // the key of another argument
		`args[1]["0"]=1`:                    "2",
		"args[1][0]=1":                      "",
		`args[2]["any name"][""]=empty`:     "2",
		`args[2]["<&>"]=true`:               "2",
		"args[999999999]=1":                 "",
		`args[0].id="\u0000"`:               "",
		`args[0].id="\ud800"`:               "",
		"args[0].id=1e999999":               "",
		"args[0].id=" + nested(3900):        "",
		`args[0].id='; drop table x; -- $1`: "",
	} {
		rows, _, err := store.List(t.Context(), dlqstore.Filter{Where: where(text)}, dlqstore.Page{})
		require.NoError(t, err, text)
		found := ""
		for _, row := range rows {
			found += row.WorkflowID
		}
		require.Equal(t, want, found, text)
	}

	_, _, err := store.List(t.Context(), dlqstore.Filter{Where: make([]dlqstore.Condition, 1)}, dlqstore.Page{})
	require.ErrorContains(t, err, "empty condition")
	_, err = store.Count(t.Context(), dlqstore.Filter{Where: where(strings.Split(strings.Repeat("args[0]=1 ", 17), " ")[:17]...)})
	require.ErrorContains(t, err, "at most 16")
}

func nested(depth int) string { return strings.Repeat("[", depth/2) + strings.Repeat("]", depth/2) }

// FuzzCondition proves that no text makes the parser panic, and that what it takes
// it writes as a text that means the same.
func FuzzCondition(f *testing.F) {
	for _, text := range []string{
		"args[0].customer.id=42", `args[1]["any name"][2]="42"`, "args[0].a=", `args[0]["\u0000"]=1`, "args[", "args[0]=[1, {}]", `args[3]["ü"]= x`,
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		c, err := dlqstore.ParseCondition(text)
		if err != nil {
			require.NotEmpty(t, err.Error())
			return
		}
		written, err := c.MarshalText()
		require.NoError(t, err)
		var again dlqstore.Condition
		require.NoError(t, again.UnmarshalText(written))
		require.Equal(t, c, again)
	})
}
