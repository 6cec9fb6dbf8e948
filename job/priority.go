package job

import (
	"errors"
	"fmt"
)

// Priority is the order in which a backlog of jobs is worked off, as Temporal
// has it. Zero fields take the server's defaults.
type Priority struct {
	// PriorityKey is 1 (first) to 5 (last); the server's default is 3.
	PriorityKey int32 `json:"priority_key,omitempty"`
	// FairnessKey groups jobs that share the workers fairly; at most 64 bytes.
	FairnessKey string `json:"fairness_key,omitempty"`
	// FairnessWeight is the group's share relative to others; the default is 1.
	FairnessWeight float32 `json:"fairness_weight,omitempty"`
}

// The server's bounds on a priority.
const (
	maxPriorityKey    = 5
	maxFairnessKey    = 64 // bytes
	minFairnessWeight = 0.001
	maxFairnessWeight = 1000
)

// ParsePriority reads the wire form. The error joins every fault, and names that
// no field has are among them.
func ParsePriority(data []byte) (Priority, error) {
	var p Priority
	if err := Decode(data, &p); errors.Is(err, ErrDoubledKey) {
		return Priority{}, fmt.Errorf("priority: %w", err)
	} else if err != nil {
		return Priority{}, fmt.Errorf("priority: it must be an object of priority_key (a whole number), fairness_key (a string) and fairness_weight (a number), not %s", quote(data))
	}
	return p, p.Validate()
}

// Validate returns every fault of the priority joined into one error, or nil.
func (p Priority) Validate() error {
	var faults []error
	if p.PriorityKey < 0 || p.PriorityKey > maxPriorityKey {
		faults = append(faults, fmt.Errorf("priority_key: %d is not within 1 to %d; 0 takes the server's default", p.PriorityKey, maxPriorityKey))
	}
	if err := checkText(p.FairnessKey); err != nil {
		faults = append(faults, fmt.Errorf("fairness_key: %w", err))
	}
	if len(p.FairnessKey) > maxFairnessKey {
		faults = append(faults, fmt.Errorf("fairness_key: %d bytes; at most %d", len(p.FairnessKey), maxFairnessKey))
	}
	if w := p.FairnessWeight; w != 0 && !(w >= minFairnessWeight && w <= maxFairnessWeight) {
		faults = append(faults, fmt.Errorf("fairness_weight: %v is not within %v to %v", w, minFairnessWeight, maxFairnessWeight))
	}
	return errors.Join(faults...)
}
