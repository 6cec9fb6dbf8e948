package job

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// Bounds on what a job may say of itself; they keep the input of the terminal
// activity small whatever the arguments are.
const (
	maxNameLength = 1000     // the server's own limit on names and ids
	maxTagsSize   = 16 << 10 // bytes of all keys and values together
)

// Options is the first argument of a deadletter.Job workflow. The handler's
// arguments, up to MaxArguments, follow it.
type Options struct {
	// Type is the activity type of the handler. Required.
	Type string
	// TaskQueue is where the handler's workers poll. Empty means the job
	// workflow's own task queue.
	TaskQueue string
	// Policy says how the job is retried.
	Policy Policy
	// Tags are the operator's labels, kept with a dead letter in plain text.
	// At most 16 KiB in all.
	Tags map[string]string
	// StartDelay is the delay that the job was started with, so that its age
	// counts from when it was due. Enqueue fills it in; nil means unknown: the job
	// finds out where it matters. A replay ignores it.
	StartDelay *time.Duration
}

type wireOptions struct {
	Type       string            `json:"type"`
	TaskQueue  string            `json:"task_queue,omitempty"`
	Policy     Policy            `json:"policy"`
	Tags       map[string]string `json:"tags,omitempty"`
	StartDelay string            `json:"start_delay,omitempty"`
}

// MarshalJSON writes the wire form.
func (o Options) MarshalJSON() ([]byte, error) {
	w := wireOptions{Type: o.Type, TaskQueue: o.TaskQueue, Policy: o.Policy, Tags: o.Tags}
	if o.StartDelay != nil {
		w.StartDelay = o.StartDelay.String()
	}
	return json.Marshal(w)
}

// UnmarshalJSON reads the wire form. The error joins every fault, as Validate's
// does; what could be read is kept all the same, so that a dead letter of a
// refused job still says what it can.
func (o *Options) UnmarshalJSON(data []byte) error {
	*o = Options{}
	fields, faults, err := decodeObject("options", data)
	if err != nil {
		return err
	}
	for _, name := range sortedKeys(fields) {
		value := fields[name]
		if string(value) == "null" {
			continue
		}
		var fault error
		switch name {
		case "type":
			fault = decodeAs(value, &o.Type, "a string")
		case "task_queue":
			fault = decodeAs(value, &o.TaskQueue, "a string")
		case "tags":
			if fault = Decode(value, &o.Tags); fault != nil && !errors.Is(fault, ErrDoubledKey) {
				fault = fmt.Errorf("%s is not an object of strings", quote(value))
				o.Tags = nil
			}
		case "start_delay":
			var delay time.Duration
			if delay, fault = decodeDuration(value); fault == nil {
				o.StartDelay = &delay
			}
		case "policy":
			if err := o.Policy.UnmarshalJSON(value); err != nil {
				faults = append(faults, err) // names its own fields
			}
		default:
			fault = errors.New("a job has no such option")
		}
		if fault != nil {
			faults = append(faults, fmt.Errorf("%s: %w", name, fault))
		}
	}
	if err := o.Validate(); err != nil {
		faults = append(faults, err)
	}
	if tagsSize(o.Tags) > maxTagsSize {
		o.Tags = nil // a fault by now, and too large to be passed on
	}
	return errors.Join(faults...)
}

// UnmarshalLast is UnmarshalJSON for a job that an earlier build has accepted: of a key
// that is given twice the last counts, as it did there.
func (o *Options) UnmarshalLast(data []byte) error { return o.UnmarshalJSON(lastOfDoubled(data)) }

func tagsSize(tags map[string]string) (size int) {
	for _, key := range sortedKeys(tags) { // workflow code: nothing may hang on a map's order
		size += len(key) + len(tags[key])
	}
	return size
}

// Validate returns every fault of the options joined into one error, or nil.
func (o Options) Validate() error {
	var faults []error
	if o.Type == "" {
		faults = append(faults, errors.New("type: missing; name the activity type of the handler"))
	}
	for _, named := range []struct{ name, value string }{{"type", o.Type}, {"task_queue", o.TaskQueue}} {
		if err := checkText(named.value); err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", named.name, err))
		}
		if len(named.value) > maxNameLength {
			faults = append(faults, fmt.Errorf("%s: %d bytes; the server takes at most %d", named.name, len(named.value), maxNameLength))
		}
	}
	if strings.HasPrefix(o.TaskQueue, "/_sys/") {
		faults = append(faults, errors.New("task_queue: names that begin with /_sys/ are the server's own"))
	}
	if IsOwnActivity(o.Type) {
		faults = append(faults, fmt.Errorf("type: %s is not a handler", o.Type))
	}
	for _, key := range sortedKeys(o.Tags) {
		if err := checkText(key + o.Tags[key]); err != nil {
			faults = append(faults, fmt.Errorf("tags: %w", err))
		}
	}
	if size := tagsSize(o.Tags); size > maxTagsSize {
		faults = append(faults, fmt.Errorf("tags: %d bytes; at most %d: put data into arguments", size, maxTagsSize))
	}
	if err := o.Policy.Validate(); err != nil {
		faults = append(faults, err)
	}
	return errors.Join(faults...)
}

// checkText refuses what Postgres text cannot hold.
func checkText(s string) error {
	switch {
	case !utf8.ValidString(s):
		return errors.New("not valid UTF-8")
	case strings.ContainsRune(s, 0):
		return errors.New("holds a NUL character")
	default:
		return nil
	}
}
