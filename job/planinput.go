package job

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
)

// PlanInput asks for a plan: the input of activity deadletter.Plan and of the
// operator workflow's signal and update "plan". The plan is applied by starting
// workflow BulkWorkflowType with a BulkInput, under BulkWorkflowID of the plan.
type PlanInput struct {
	Verb BulkVerb `json:"verb"`
	// Filter is the JSON of a dlqstore.Filter, in the caller's own namespace. Required
	// unless All is set.
	Filter json.RawMessage `json:"filter,omitempty"`
	// All allows a filter that selects every dead letter of the namespace.
	All bool `json:"all,omitempty"`
	// Limit is the most members; see dlqstore.PlanRequest.
	Limit int `json:"limit,omitempty"`
	BulkSettings
	// IncludeSuperseded replays also dead letters whose job succeeded later,
	// IncludeReplayed those of which a replay has succeeded, is under way, or is a dead
	// letter itself.
	IncludeSuperseded bool `json:"include_superseded,omitempty"`
	IncludeReplayed   bool `json:"include_replayed,omitempty"`
	// Edit is what an edit or a retag changes of each member: a retag tags alone.
	Edit *Edit `json:"edit,omitempty"`
	// RequestID makes the request repeatable: the same id gives the same plan. Empty
	// means an id derived from the signal, update or activity.
	RequestID string `json:"request_id,omitempty"`
	Actor     string `json:"actor,omitempty"`

	unread
}

// plainPlanInput is PlanInput without its methods.
type plainPlanInput PlanInput

// UnmarshalJSON leaves it to Check to refuse what it cannot read.
func (in *PlanInput) UnmarshalJSON(data []byte) error {
	in.unread = readRequest(data, (*plainPlanInput)(in))
	return nil
}

// MarshalJSON is the reverse of UnmarshalJSON.
func (in PlanInput) MarshalJSON() ([]byte, error) { return writeRequest(in.unread, plainPlanInput(in)) }

// Check returns every fault that shows without the dead letters and the filter's
// contents.
func (in PlanInput) Check() error {
	var faults []error
	if _, err := ParseBulkVerb(string(in.Verb)); err != nil {
		faults = append(faults, err)
	} else {
		faults = append(faults, in.BulkSettings.Check(in.Verb))
	}
	if len(in.Filter) == 0 && !in.All {
		faults = append(faults, errors.New(`filter is missing: say which dead letters, or "all": true`))
	}
	switch edits := in.Verb == BulkEdit || in.Verb == BulkRetag; {
	case edits && in.Edit == nil:
		faults = append(faults, errors.New("edit is missing: say what to change"))
	case !edits && in.Edit != nil:
		faults = append(faults, fmt.Errorf("edit: a plan of verb %q takes none", in.Verb))
	case in.Edit != nil:
		faults = append(faults, in.Edit.Validate())
	}
	return in.or(errors.Join(faults...))
}

// Signed returns the request with an id and an actor where it has none.
func (in PlanInput) Signed(requestID, actor string) PlanInput {
	in.RequestID, in.Actor = cmp.Or(in.RequestID, requestID), cmp.Or(in.Actor, actor)
	return in
}
