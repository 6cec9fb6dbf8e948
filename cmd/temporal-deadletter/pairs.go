package main

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// detailText is a JSON object as key=value pairs, without those that are null.
// What is no object stays as it is.
func detailText(detail json.RawMessage) string {
	var fields map[string]json.RawMessage
	if json.Unmarshal(detail, &fields) != nil {
		return printable(string(detail))
	}
	return strings.Join(pairs(fields), " ")
}

// pairs writes each field as key=value, sorted by key.
func pairs(fields map[string]json.RawMessage) []string {
	var words []string
	for _, key := range slices.Sorted(maps.Keys(fields)) {
		value := string(fields[key])
		if value == "null" {
			continue
		}
		var text string
		if json.Unmarshal(fields[key], &text) == nil {
			value = text
		}
		words = append(words, pair(key, value))
	}
	return words
}

// pair puts a value in quotes that would not be seen to end otherwise.
func pair(key, value string) string {
	if value == "" || strings.ContainsAny(value, " \t\n\"=") && !strings.HasPrefix(value, "{") && !strings.HasPrefix(value, "[") {
		value = strconv.Quote(value)
	}
	return printable(key + "=" + value)
}
