package main

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/deadletter-dev/deadletter/job"
)

// optionsText tells what a job was started with, and of its policy only what
// differs from the defaults. The options of a refused job are shown as they were
// sent.
func optionsText(sent json.RawMessage) string {
	if sent == nil {
		return "not readable: encrypted, or not JSON"
	}
	var options job.Options
	if options.UnmarshalJSON(sent) != nil {
		return printable(string(sent))
	}
	words := []string{pair("type", options.Type)}
	if options.TaskQueue != "" {
		words = append(words, pair("task_queue", options.TaskQueue))
	}
	for _, key := range slices.Sorted(maps.Keys(options.Tags)) {
		words = append(words, pair("tag:"+key, options.Tags[key]))
	}
	if options.StartDelay != nil && *options.StartDelay != 0 {
		words = append(words, pair("start_delay", options.StartDelay.String()))
	}
	fields := ownFields(options.Policy)
	for field, value := range fields {
		if strings.HasPrefix(string(value), `"-`) { // a negative duration: no limit, or off
			fields[field] = json.RawMessage(`"none"`)
		}
	}
	own := pairs(fields)
	if len(own) == 0 {
		own = []string{"(policy: the defaults)"}
	}
	return strings.Join(append(words, own...), " ")
}

// ownFields are the fields of a policy, by their names on the wire, whose values
// are not the defaults. A policy that says nothing of heartbeats has the default of
// the way it was started in.
func ownFields(policy job.Policy) map[string]json.RawMessage {
	defaults := job.Policy{HeartbeatTimeout: job.DefaultEnqueueHeartbeatTimeout}.WithDefaults()
	own, usual := wireFields(policy), wireFields(defaults)
	maps.DeleteFunc(own, func(name string, value json.RawMessage) bool { return string(usual[name]) == string(value) })
	return own
}

func wireFields(policy job.Policy) map[string]json.RawMessage {
	var fields map[string]json.RawMessage
	encoded, err := json.Marshal(policy)
	if err == nil {
		err = json.Unmarshal(encoded, &fields)
	}
	if err != nil {
		panic("a policy that was read cannot be written: " + err.Error())
	}
	return fields
}
