package job

// Lineage ties a replayed job to the dead letter that it came from. It travels
// as plain JSON in the memo field LineageMemoKey. The zero value is an original
// job's.
type Lineage struct {
	// Generation is 0 for an original job, 1 for its replay, 2 for a replay of that.
	Generation int `json:"generation"`
	// ReplayedFromWorkflowID and ReplayedFromRunID are the dead letter's key.
	ReplayedFromWorkflowID string `json:"replayed_from_workflow_id,omitempty"`
	ReplayedFromRunID      string `json:"replayed_from_run_id,omitempty"`
	// RequestID is the request that made this job.
	RequestID string `json:"request_id,omitempty"`
	// Actor is who asked for it.
	Actor string `json:"actor,omitempty"`
}
