package operator

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/job"
)

// Removal tells who removed a dead letter for good.
type Removal struct {
	At time.Time `json:"at"`
	// Verb is dlqstore.VerbPurge, or dlqstore.VerbPrune for a retention policy.
	Verb  string `json:"verb"`
	Actor string `json:"actor"`
	// PlanID and Policy name the plan or the policy; empty for none.
	PlanID string `json:"plan_id,omitempty"`
	Policy string `json:"policy,omitempty"`
	// The rest is of the dead letter.
	Reason  job.Reason `json:"reason"`
	JobType string     `json:"job_type"`
	DeadAt  *time.Time `json:"dead_at"`
}

// removalOf returns nil for an event that removed nothing.
func removalOf(e *dlqstore.Event) *Removal {
	if e.Verb != dlqstore.VerbPurge && e.Verb != dlqstore.VerbPrune {
		return nil
	}
	removal := &Removal{}
	_ = json.Unmarshal(e.Detail, removal) // what it does not tell stays empty
	removal.At, removal.Verb, removal.Actor = e.At, e.Verb, e.Actor
	if e.PlanID != nil {
		removal.PlanID = *e.PlanID
	}
	return removal
}

// lastRemoval returns nil when the dead letter of the key was never removed.
func (o *Operator) lastRemoval(ctx context.Context, key dlqstore.Key) (*Removal, error) {
	events, err := o.store.Events(ctx, key)
	if err != nil {
		return nil, err
	}
	var last *Removal
	for i := range events {
		if removal := removalOf(&events[i]); removal != nil {
			last = removal
		}
	}
	return last, nil
}

// latestAudit is how many events of a workflow id are looked at for the last one
// that removed a dead letter: refused requests may have come after it.
const latestAudit = 200

// orRemoved tells of a dead letter that the store has no more, which is what
// unresolved says; an empty run id means the one that was removed last. That error
// stands when none was.
func orRemoved(ctx context.Context, store *dlqstore.Store, key dlqstore.Key, unresolved error) (*Shown, error) {
	if !errors.Is(unresolved, dlqstore.ErrNotFound) {
		return nil, unresolved
	}
	events, _, err := store.ListEvents(ctx, dlqstore.EventFilter{
		Namespace: key.Namespace, WorkflowID: key.WorkflowID, RunID: key.RunID,
	}, dlqstore.EventPage{Limit: latestAudit})
	if err != nil {
		return nil, err
	}
	for i := range events {
		if removal := removalOf(&events[i]); removal != nil {
			return &Shown{Key: events[i].Key, Removed: removal}, nil
		}
	}
	return nil, unresolved
}
