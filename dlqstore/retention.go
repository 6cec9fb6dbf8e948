package dlqstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deadletter-dev/deadletter/internal/text"
	"github.com/deadletter-dev/deadletter/job"
)

const (
	// selectPolicies has the most specific first: the order in which they govern.
	selectPolicies = `
select namespace, name, coalesce(job_type, ''), coalesce(reason, ''), coalesce(tag_key, ''), coalesce(tag_value, ''),
	coalesce(keep_for_ms, 0), coalesce(keep_last, 0), enabled, actor, updated_at
from {schema}.retention_policies
where namespace = @namespace
order by num_nonnulls(job_type, reason, tag_key) desc, name collate "C"`

	upsertPolicy = `
insert into {schema}.retention_policies as p (
	namespace, name, job_type, reason, tag_key, tag_value, keep_for_ms, keep_last, enabled, actor
) values (
	@namespace, @name, @job_type, @reason, @tag_key, @tag_value, @keep_for_ms, @keep_last, @enabled, @actor
)
on conflict (namespace, name) do update set
	job_type = excluded.job_type, reason = excluded.reason, tag_key = excluded.tag_key, tag_value = excluded.tag_value,
	keep_for_ms = excluded.keep_for_ms, keep_last = excluded.keep_last, enabled = excluded.enabled,
	actor = excluded.actor, updated_at = now()
returning updated_at`

	deletePolicy = `
delete from {schema}.retention_policies
where namespace = @namespace and name = @name`

	insertPolicyEvent = `
insert into {schema}.events (verb, actor, namespace, workflow_id, run_id, detail)
values (@verb, @actor, @namespace, '', '', @detail::jsonb)`
)

// maxPolicyName keeps an index entry of the name small.
const maxPolicyName = 200

// RetentionPolicy says how long dead letters are kept. It selects by type, reason
// and tag; of those that select a dead letter, the one with the most selectors
// governs it, then the first by name, and no other.
//
// A dead letter that the policy governs goes when either limit passes. Pinned ones
// never go, and are not counted by KeepLast; one that a plan which is not over
// holds, or whose replay has not started yet, counts and goes later.
type RetentionPolicy struct {
	Namespace string
	// Name identifies the policy in its namespace: 1 to 200 bytes.
	Name string
	// JobType and Reason select when they are not empty.
	JobType string
	Reason  job.Reason
	// TagKey and TagValue select when the key is not empty.
	TagKey, TagValue string
	// KeepFor counts from dead_at. Zero means that age is no reason to go; else it
	// is 1ms at least, and what is below a millisecond is left out.
	KeepFor time.Duration
	// KeepLast keeps that many, the newest by dead_at. Zero means that there may be
	// any number.
	KeepLast int64
	// Enabled is false for a policy that governs nothing.
	Enabled bool
	// Actor is who set it, and UpdatedAt when; both are set by the store.
	Actor     string
	UpdatedAt time.Time
}

// MarshalJSON writes the columns' names, null for a selector or a limit that is
// not set.
func (p RetentionPolicy) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Namespace string    `json:"namespace"`
		Name      string    `json:"name"`
		JobType   *string   `json:"job_type"`
		Reason    *string   `json:"reason"`
		TagKey    *string   `json:"tag_key"`
		TagValue  *string   `json:"tag_value"`
		KeepForMS *int64    `json:"keep_for_ms"`
		KeepLast  *int64    `json:"keep_last"`
		Enabled   bool      `json:"enabled"`
		Actor     string    `json:"actor"`
		UpdatedAt time.Time `json:"updated_at"`
	}{
		p.Namespace, p.Name, set(p.JobType), set(string(p.Reason)), set(p.TagKey), p.tagValue(),
		set(p.KeepFor.Milliseconds()), set(p.KeepLast), p.Enabled, p.Actor, p.UpdatedAt,
	})
}

// set is nil for the zero value.
func set[T comparable](value T) *T {
	if value == *new(T) {
		return nil
	}
	return &value
}

func (p *RetentionPolicy) tagValue() *string {
	if p.TagKey == "" {
		return nil
	}
	return &p.TagValue
}

// SelectsAll reports whether the policy has no selector: it governs all that no
// other policy does.
func (p *RetentionPolicy) SelectsAll() bool {
	return p.JobType == "" && p.Reason == "" && p.TagKey == ""
}

// Validate returns every fault of the policy joined into one error, or nil.
func (p *RetentionPolicy) Validate() error {
	var faults []error
	if p.Namespace == "" {
		faults = append(faults, errors.New("the namespace is missing"))
	}
	if p.Name == "" || len(p.Name) > maxPolicyName {
		faults = append(faults, fmt.Errorf("a name of %d bytes: 1 to %d", len(p.Name), maxPolicyName))
	}
	for _, named := range []string{p.Namespace, p.Name} {
		if named != text.Holdable(named) {
			faults = append(faults, fmt.Errorf("%q is not text that Postgres can hold", named))
		}
	}
	if p.Reason != "" {
		if _, err := job.ParseReason(string(p.Reason)); err != nil {
			faults = append(faults, err)
		}
	}
	if p.TagKey == "" && p.TagValue != "" {
		faults = append(faults, errors.New("a tag's value without its key"))
	}
	if p.KeepFor != 0 && p.KeepFor < time.Millisecond {
		faults = append(faults, fmt.Errorf("to keep for %s: 1ms at least", p.KeepFor))
	}
	if p.KeepLast < 0 {
		faults = append(faults, fmt.Errorf("to keep the last %d: 1 at least", p.KeepLast))
	}
	if p.KeepFor == 0 && p.KeepLast == 0 {
		faults = append(faults, errors.New("neither an age nor a number to keep: give one or both"))
	}
	return errors.Join(faults...)
}

// stored returns the policy with every text as a dead letter's column holds it.
func (p RetentionPolicy) stored(actor string) RetentionPolicy {
	p.JobType = text.Bounded(p.JobType, maxName)
	p.TagKey, p.TagValue = text.Holdable(p.TagKey), text.Holdable(p.TagValue)
	p.Actor = text.Bounded(actor, maxName)
	return p
}

// RetentionPolicies returns the policies of a namespace in the order in which
// they govern: the most specific first.
func (s *Store) RetentionPolicies(ctx context.Context, namespace string) ([]RetentionPolicy, error) {
	policies, err := query(ctx, s, selectPolicies, pgx.NamedArgs{"namespace": namespace}, scanPolicy)
	if err != nil {
		return nil, fmt.Errorf("retention policies of %s: %w", namespace, err)
	}
	return policies, nil
}

// SetRetention adds a policy, or replaces the one with its name, and returns it as
// stored. A policy without a selector is ErrUnbounded unless all is true, and an event
// of verb retention_set_refused tells of it.
func (s *Store) SetRetention(ctx context.Context, policy RetentionPolicy, all bool, actor string) (stored RetentionPolicy, err error) {
	if err := policy.Validate(); err != nil {
		return policy, fmt.Errorf("set retention policy %q: %w", policy.Name, err)
	}
	if policy.SelectsAll() && !all {
		err := s.NoteRefusal(ctx, Asked{Verb: VerbRetentionSet, Key: Key{Namespace: policy.Namespace}, Actor: actor}, ErrUnbounded)
		return policy, fmt.Errorf("set retention policy %q: %w", policy.Name, err)
	}
	stored = policy.stored(actor)
	err = s.inTx(ctx, beginWrite, func(ctx context.Context, tx pgx.Tx) error {
		if err := tx.QueryRow(ctx, s.sql(upsertPolicy), stored.args()).Scan(&stored.UpdatedAt); err != nil {
			return classify(err)
		}
		utc(&stored.UpdatedAt)
		detail, err := json.Marshal(stored)
		if err != nil {
			return err
		}
		return s.policyEvent(ctx, tx, VerbRetentionSet, &stored, string(detail))
	})
	if err != nil {
		return policy, fmt.Errorf("set retention policy %q: %w", policy.Name, err)
	}
	return stored, nil
}

// RemoveRetention removes a policy: ErrNotFound if there is none of that name. What
// it governed is governed by the next one that selects it, or kept. An event of verb
// retention_remove_refused tells of the error.
func (s *Store) RemoveRetention(ctx context.Context, namespace, name, actor string) error {
	policy := RetentionPolicy{Namespace: namespace, Name: name, Actor: text.Bounded(actor, maxName)}
	err := s.inTx(ctx, beginWrite, func(ctx context.Context, tx pgx.Tx) error {
		done, err := tx.Exec(ctx, s.sql(deletePolicy), pgx.NamedArgs{"namespace": text.Holdable(namespace), "name": text.Holdable(name)})
		switch {
		case err != nil:
			return classify(err)
		case done.RowsAffected() == 0:
			return ErrNotFound
		}
		return s.policyEvent(ctx, tx, VerbRetentionRemove, &policy, encoded(map[string]string{"name": name}))
	})
	if err != nil {
		err = s.NoteRefusal(ctx, Asked{Verb: VerbRetentionRemove, Key: Key{Namespace: namespace}, Actor: actor}, err)
		return fmt.Errorf("remove retention policy %q: %w", name, err)
	}
	return nil
}

func (s *Store) policyEvent(ctx context.Context, tx pgx.Tx, verb string, policy *RetentionPolicy, detail string) error {
	_, err := tx.Exec(ctx, s.sql(insertPolicyEvent), pgx.NamedArgs{
		"verb": verb, "actor": policy.Actor, "namespace": policy.Namespace, "detail": detail,
	})
	return classify(err)
}

func (p *RetentionPolicy) args() pgx.NamedArgs {
	return pgx.NamedArgs{
		"namespace": p.Namespace, "name": p.Name, "job_type": set(p.JobType), "reason": set(string(p.Reason)),
		"tag_key": set(p.TagKey), "tag_value": p.tagValue(), "keep_for_ms": set(p.KeepFor.Milliseconds()), "keep_last": set(p.KeepLast),
		"enabled": p.Enabled, "actor": p.Actor,
	}
}

func scanPolicy(row pgx.CollectableRow) (RetentionPolicy, error) {
	var p RetentionPolicy
	var keepForMS int64
	err := row.Scan(&p.Namespace, &p.Name, &p.JobType, &p.Reason, &p.TagKey, &p.TagValue, &keepForMS, &p.KeepLast, &p.Enabled, &p.Actor, &p.UpdatedAt)
	p.KeepFor = time.Duration(keepForMS) * time.Millisecond
	utc(&p.UpdatedAt)
	return p, err
}
