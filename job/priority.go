package job

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
