package edit

import (
	"encoding/json"
	"fmt"

	"go.temporal.io/sdk/converter"

	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/internal/jsonedit"
	"github.com/deadletter-dev/deadletter/internal/wire"
	"github.com/deadletter-dev/deadletter/job"
)

// editOptions changes the options object, the job's first argument, and the
// columns that are made from it.
func editOptions(dl *dlqstore.DeadLetter, e job.Edit) (*dlqstore.JobOptions, error) {
	document, err := readOptions(dl)
	if err != nil {
		return nil, err
	}
	if e.TaskQueue != "" {
		if err := jsonedit.Add(&document, jsonedit.Pointer{"task_queue"}, jsonedit.String(e.TaskQueue)); err != nil {
			return nil, asRefusal("task_queue", err)
		}
	}
	if e.Policy != nil {
		patch, err := objectGiven("policy", e.Policy)
		if err != nil {
			return nil, err
		}
		if err := mergeMember(&document, "policy", &patch); err != nil {
			return nil, asRefusal("policy", err)
		}
	}
	if len(e.Tags) > 0 {
		tags, err := json.Marshal(e.Tags)
		if err != nil {
			return nil, asRefusal("tags", err)
		}
		patch, err := parseGiven("tags", tags)
		if err != nil {
			return nil, err
		}
		if err := mergeMember(&document, "tags", &patch); err != nil {
			return nil, asRefusal("tags", err)
		}
	}
	return writeOptions(dl, document.Pack())
}

func readOptions(dl *dlqstore.DeadLetter) (jsonedit.Value, error) {
	if dl.OptionsPayload == nil {
		return jsonedit.Value{}, unreadable("the job was started without an options object")
	}
	payload, err := wire.Decode(dl.OptionsPayload)
	if err != nil {
		return jsonedit.Value{}, unreadable("options: %w", err)
	}
	if encoding := wire.Encoding(payload); encoding != converter.MetadataEncodingJSON || len(payload.GetExternalPayloads()) > 0 {
		return jsonedit.Value{}, unreadable("the options object, which has queue, policy and tags, cannot be edited: its encoding is %q, not %s", encoding, converter.MetadataEncodingJSON)
	}
	document, syntax := jsonedit.ParseAt(payload.GetData())
	if syntax != nil {
		return jsonedit.Value{}, unreadable("the options object: %s", syntax.Place())
	}
	if _, ok := jsonedit.Object(&document); !ok {
		return jsonedit.Value{}, unreadable("the job's first argument is not an options object")
	}
	return document, nil
}

// writeOptions accepts what the job's workflow would accept.
func writeOptions(dl *dlqstore.DeadLetter, data []byte) (*dlqstore.JobOptions, error) {
	var options job.Options
	if err := options.UnmarshalJSON(data); err != nil {
		return nil, invalid("the job would be refused for its options: %w", err)
	}
	payload, err := wire.WithData(dl.OptionsPayload, data)
	if err != nil {
		return nil, unreadable("options: %w", err)
	}
	// As the workflow fills in what is missing, see certify in package activities.
	if options.TaskQueue == "" {
		options.TaskQueue = dl.WorkflowTaskQueue
	}
	options.Policy, options.StartDelay = options.Policy.WithDefaults(), nil
	readable, err := json.Marshal(options)
	if err != nil {
		return nil, asRefusal("options", err)
	}
	content := &dlqstore.JobOptions{OptionsPayload: payload, Options: readable, TaskQueue: options.TaskQueue, Tags: options.Tags}
	if limit := options.Policy.MaxAttempts; limit > 0 {
		content.MaxAttempts = &limit
	}
	return content, nil
}

func editPriority(dl *dlqstore.DeadLetter, e job.Edit) (json.RawMessage, error) {
	patch, err := objectGiven("priority", e.Priority)
	if err != nil {
		return nil, err
	}
	current := dl.Priority
	if len(current) == 0 {
		current = json.RawMessage("{}")
	}
	priority, err := jsonedit.Parse(current)
	if err != nil {
		return nil, unreadable("the stored priority: %w", err)
	}
	if err := jsonedit.Merge(&priority, &patch); err != nil {
		return nil, asRefusal("priority", err)
	}
	merged := priority.Pack()
	if _, err := job.ParsePriority(merged); err != nil {
		return nil, invalid("%w", err)
	}
	return merged, nil
}

func objectGiven(name string, given []byte) (jsonedit.Value, error) {
	patch, err := parseGiven(name, given)
	if err != nil {
		return patch, err
	}
	if _, ok := jsonedit.Object(&patch); !ok {
		return patch, invalid("%s: it must be a JSON object, with null for each field to take out", name)
	}
	return patch, nil
}

// mergeMember merges into one member of an object, which may be absent or null.
func mergeMember(document *jsonedit.Value, name string, patch *jsonedit.Value) error {
	within, err := jsonedit.Parse([]byte(fmt.Sprintf(`{%q:{}}`, name)))
	if err != nil {
		return err
	}
	if err := jsonedit.Replace(&within, jsonedit.Pointer{name}, *patch); err != nil {
		return err
	}
	return jsonedit.Merge(document, &within)
}
