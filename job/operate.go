package job

// ReplayInput asks for one replay: the input of activity deadletter.Replay and
// of the operator workflow's signal and update "replay".
type ReplayInput struct {
	// WorkflowID names the dead letter. Required.
	WorkflowID string `json:"workflow_id"`
	// RunID is needed only when several runs of the workflow id are dead letters.
	RunID string `json:"run_id,omitempty"`
	// RequestID makes the request repeatable: the same id gives the same new
	// job. Empty means an id derived from the signal, update or activity.
	RequestID string `json:"request_id,omitempty"`
	// AllowSuperseded replays a dead letter whose job, reset by a person, succeeded
	// after all. Without it such a request is refused.
	AllowSuperseded bool `json:"allow_superseded,omitempty"`
	// Actor is who asks. Empty means the way the request came.
	Actor string `json:"actor,omitempty"`
}

// ReplayOutput names the job that a replay started.
type ReplayOutput struct {
	WorkflowID string `json:"workflow_id"`
	RunID      string `json:"run_id"`
}

// PurgeInput asks for the removal of one dead letter: the input of activity
// deadletter.Purge.
type PurgeInput struct {
	WorkflowID string `json:"workflow_id"`
	RunID      string `json:"run_id,omitempty"`
	Actor      string `json:"actor,omitempty"`
}

// EditInput asks for a new revision of one dead letter: the input of activity
// deadletter.Edit.
type EditInput struct {
	WorkflowID string `json:"workflow_id"`
	RunID      string `json:"run_id,omitempty"`
	// Revision is the one that the caller has seen, 1 for a dead letter that nobody
	// has edited. Required.
	Revision int  `json:"revision"`
	Edit     Edit `json:"edit"`
	// RevertTo is an earlier revision to start from, 1 being the original.
	RevertTo int `json:"revert_to,omitempty"`
	// Replay starts a new job from the edited dead letter in the same step.
	Replay          bool `json:"replay,omitempty"`
	AllowSuperseded bool `json:"allow_superseded,omitempty"`
	// RequestID makes the request repeatable. Empty means an id derived from the
	// activity.
	RequestID string `json:"request_id,omitempty"`
	Actor     string `json:"actor,omitempty"`
}

// EditOutput tells what came of an edit.
type EditOutput struct {
	// Revision is the one that the edit made, 0 when the request had been done
	// before and the dead letter is purged by now.
	Revision int `json:"revision"`
	// Replay is set when one was asked for.
	Replay *ReplayOutput `json:"replay,omitempty"`
}
