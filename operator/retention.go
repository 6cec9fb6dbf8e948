package operator

import (
	"context"

	"github.com/deadletter-dev/deadletter/dlqstore"
)

// RetentionPolicies returns the namespace's policies in the order in which they
// govern: the most specific first.
func (o *Operator) RetentionPolicies(ctx context.Context) ([]dlqstore.RetentionPolicy, error) {
	return o.store.RetentionPolicies(ctx, o.namespace)
}

// RetentionRequest asks for a policy to be set.
type RetentionRequest struct {
	// Policy is added, or replaces the one with its name. Its namespace is the
	// operator's.
	Policy dlqstore.RetentionPolicy
	// All allows a policy without a selector: it governs all that no other does.
	All bool
	// Actor is who asks. Required.
	Actor string
}

// SetRetention sets a policy and returns it as stored. It is applied by the next
// scheduled run, or by Prune; PruneReport says beforehand what would go. A policy
// that selects everything is dlqstore.ErrUnbounded unless All is set.
func (o *Operator) SetRetention(ctx context.Context, request RetentionRequest) (dlqstore.RetentionPolicy, error) {
	if request.Actor == "" {
		return request.Policy, ErrNoActor
	}
	request.Policy.Namespace = o.namespace
	return o.store.SetRetention(ctx, request.Policy, request.All, request.Actor)
}

// RemoveRetention removes a policy: dlqstore.ErrNotFound when there is none of that
// name. No dead letter goes by that.
func (o *Operator) RemoveRetention(ctx context.Context, name, actor string) error {
	if actor == "" {
		return ErrNoActor
	}
	return o.store.RemoveRetention(ctx, o.namespace, name, actor)
}

// PruneReport says what a policy would remove now if it were set and enabled, and
// stores nothing.
func (o *Operator) PruneReport(ctx context.Context, policy dlqstore.RetentionPolicy) (dlqstore.PruneReport, error) {
	policy.Namespace = o.namespace
	return o.store.PruneReport(ctx, policy)
}

// PruneReports says what each enabled policy would remove now.
func (o *Operator) PruneReports(ctx context.Context) ([]dlqstore.PruneReport, error) {
	return o.store.PruneReports(ctx, o.namespace)
}

// Prune removes now what the enabled policies let go; see dlqstore.Store.Prune. What
// it did it returns also with an error.
func (o *Operator) Prune(ctx context.Context, actor string) (dlqstore.Pruned, error) {
	if actor == "" {
		return dlqstore.Pruned{}, ErrNoActor
	}
	return o.store.Prune(ctx, dlqstore.PruneRequest{Namespace: o.namespace, Actor: actor})
}

// Pin keeps a dead letter from every retention policy, and reports whether it was
// not pinned before. An empty runID means the only run of the workflow id that is
// a dead letter.
func (o *Operator) Pin(ctx context.Context, workflowID, runID, actor string) (changed bool, err error) {
	return o.setPin(ctx, dlqstore.VerbPin, o.store.Pin, workflowID, runID, actor)
}

// Unpin is the reverse of Pin.
func (o *Operator) Unpin(ctx context.Context, workflowID, runID, actor string) (changed bool, err error) {
	return o.setPin(ctx, dlqstore.VerbUnpin, o.store.Unpin, workflowID, runID, actor)
}

func (o *Operator) setPin(
	ctx context.Context, verb string, set func(context.Context, dlqstore.Key, string) (bool, error), workflowID, runID, actor string,
) (changed bool, err error) {
	if actor == "" {
		return false, ErrNoActor
	}
	key, err := o.store.ResolveFor(ctx, o.asked(verb, workflowID, runID, actor, ""))
	if err != nil {
		return false, err
	}
	return set(ctx, key, actor)
}
