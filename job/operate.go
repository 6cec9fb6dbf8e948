package job

import (
	"cmp"
	"errors"
	"fmt"
)

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

	unread
}

// ReplayOutput names the job that a replay started.
type ReplayOutput struct {
	WorkflowID string `json:"workflow_id"`
	RunID      string `json:"run_id"`
}

// PurgeInput asks for the removal of one dead letter: the input of activity
// deadletter.Purge and of the operator workflow's signal and update "purge".
type PurgeInput struct {
	WorkflowID string `json:"workflow_id"`
	RunID      string `json:"run_id,omitempty"`
	// RequestID makes the request repeatable. Empty means an id derived from the
	// signal, update or activity.
	RequestID string `json:"request_id,omitempty"`
	Actor     string `json:"actor,omitempty"`

	unread
}

// EditInput asks for a new revision of one dead letter: the input of activity
// deadletter.Edit and of the operator workflow's signal and update "edit".
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

	unread
}

// NoteInput asks for a note on one dead letter, or on all of a fingerprint: the
// input of activity deadletter.Note and of the operator workflow's signal and update
// "note".
type NoteInput struct {
	// WorkflowID names the dead letter. Without it, Fingerprint names a group.
	WorkflowID  string `json:"workflow_id,omitempty"`
	RunID       string `json:"run_id,omitempty"`
	Fingerprint string `json:"fingerprint,omitempty"`
	Text        string `json:"note"`
	// RequestID makes the request repeatable. Empty means an id derived from the
	// signal, update or activity.
	RequestID string `json:"request_id,omitempty"`
	Actor     string `json:"actor,omitempty"`

	unread
}

// PinInput asks to keep a dead letter from every retention policy, or to let it go
// again: the input of activity deadletter.Pin and of the operator workflow's signal
// and update "pin". It may be repeated.
type PinInput struct {
	WorkflowID string `json:"workflow_id"`
	RunID      string `json:"run_id,omitempty"`
	Unpin      bool   `json:"unpin,omitempty"`
	Actor      string `json:"actor,omitempty"`

	unread
}

// EditOutput tells what came of an edit.
type EditOutput struct {
	// Revision is the one that the edit made, 0 when the request had been done
	// before and the dead letter is purged by now.
	Revision int `json:"revision"`
	// Replay is set when one was asked for.
	Replay *ReplayOutput `json:"replay,omitempty"`
}

// Check says what is wrong with a request, or missing, so that it cannot be carried
// out.
func (in ReplayInput) Check() error { return in.or(checkNamed(in.WorkflowID, "replay")) }

// Check says what is wrong with a request, or missing, so that it cannot be carried
// out.
func (in PurgeInput) Check() error { return in.or(checkNamed(in.WorkflowID, "purge")) }

// Check returns every fault that shows without the dead letter.
func (in EditInput) Check() error {
	faults := []error{checkNamed(in.WorkflowID, "edit"), in.Edit.Validate()}
	if in.Revision < 1 {
		faults = append(faults, errors.New("revision is missing: say which one the edit is of"))
	}
	return in.or(errors.Join(faults...))
}

// Check says what is wrong with a request, or missing, so that it cannot be carried
// out.
func (in NoteInput) Check() error {
	var faults []error
	if (in.WorkflowID == "") == (in.Fingerprint == "") {
		faults = append(faults, errors.New("workflow_id, fingerprint: give one of them, to say what the note is on"))
	}
	if in.Text == "" {
		faults = append(faults, errors.New("note is missing: give its text"))
	}
	return in.or(errors.Join(faults...))
}

// Check says what is wrong with a request, or missing, so that it cannot be carried
// out.
func (in PinInput) Check() error { return in.or(checkNamed(in.WorkflowID, "pin")) }

func checkNamed(workflowID, verb string) error {
	if workflowID == "" {
		return fmt.Errorf("workflow_id is missing: name the dead letter to %s", verb)
	}
	return nil
}

// Signed returns the request with an id and an actor where it has none.
func (in ReplayInput) Signed(requestID, actor string) ReplayInput {
	in.RequestID, in.Actor = cmp.Or(in.RequestID, requestID), cmp.Or(in.Actor, actor)
	return in
}

// Signed returns the request with an id and an actor where it has none.
func (in PurgeInput) Signed(requestID, actor string) PurgeInput {
	in.RequestID, in.Actor = cmp.Or(in.RequestID, requestID), cmp.Or(in.Actor, actor)
	return in
}

// Signed returns the request with an id and an actor where it has none.
func (in EditInput) Signed(requestID, actor string) EditInput {
	in.RequestID, in.Actor = cmp.Or(in.RequestID, requestID), cmp.Or(in.Actor, actor)
	return in
}

// Signed returns the request with an id and an actor where it has none.
func (in NoteInput) Signed(requestID, actor string) NoteInput {
	in.RequestID, in.Actor = cmp.Or(in.RequestID, requestID), cmp.Or(in.Actor, actor)
	return in
}

// Signed returns the request with an actor where it has none; it needs no id.
func (in PinInput) Signed(_, actor string) PinInput {
	in.Actor = cmp.Or(in.Actor, actor)
	return in
}

// plainReplayInput is ReplayInput without its methods.
type plainReplayInput ReplayInput

// UnmarshalJSON leaves it to Check to refuse what it cannot read.
func (in *ReplayInput) UnmarshalJSON(data []byte) error {
	in.unread = readRequest(data, (*plainReplayInput)(in))
	return nil
}

// MarshalJSON is the reverse of UnmarshalJSON.
func (in ReplayInput) MarshalJSON() ([]byte, error) {
	return writeRequest(in.unread, plainReplayInput(in))
}

// plainPurgeInput is PurgeInput without its methods.
type plainPurgeInput PurgeInput

// UnmarshalJSON leaves it to Check to refuse what it cannot read.
func (in *PurgeInput) UnmarshalJSON(data []byte) error {
	in.unread = readRequest(data, (*plainPurgeInput)(in))
	return nil
}

// MarshalJSON is the reverse of UnmarshalJSON.
func (in PurgeInput) MarshalJSON() ([]byte, error) {
	return writeRequest(in.unread, plainPurgeInput(in))
}

// plainEditInput is EditInput without its methods.
type plainEditInput EditInput

// UnmarshalJSON leaves it to Check to refuse what it cannot read.
func (in *EditInput) UnmarshalJSON(data []byte) error {
	in.unread = readRequest(data, (*plainEditInput)(in))
	return nil
}

// MarshalJSON is the reverse of UnmarshalJSON.
func (in EditInput) MarshalJSON() ([]byte, error) { return writeRequest(in.unread, plainEditInput(in)) }

// plainNoteInput is NoteInput without its methods.
type plainNoteInput NoteInput

// UnmarshalJSON leaves it to Check to refuse what it cannot read.
func (in *NoteInput) UnmarshalJSON(data []byte) error {
	in.unread = readRequest(data, (*plainNoteInput)(in))
	return nil
}

// MarshalJSON is the reverse of UnmarshalJSON.
func (in NoteInput) MarshalJSON() ([]byte, error) { return writeRequest(in.unread, plainNoteInput(in)) }

// plainPinInput is PinInput without its methods.
type plainPinInput PinInput

// UnmarshalJSON leaves it to Check to refuse what it cannot read.
func (in *PinInput) UnmarshalJSON(data []byte) error {
	in.unread = readRequest(data, (*plainPinInput)(in))
	return nil
}

// MarshalJSON is the reverse of UnmarshalJSON.
func (in PinInput) MarshalJSON() ([]byte, error) { return writeRequest(in.unread, plainPinInput(in)) }
