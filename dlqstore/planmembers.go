package dlqstore

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/deadletter-dev/deadletter/internal/text"
)

const (
	selectMembers = `
select i.position, i.namespace, i.workflow_id, i.run_id, i.revision, coalesce(octet_length(d.payloads), 0)
from {schema}.plan_items i
left join {schema}.dead_letters d on (d.namespace, d.workflow_id, d.run_id) = (i.namespace, i.workflow_id, i.run_id)
where i.plan_id = @id and i.state = 'pending' and i.position > @after
order by i.position
limit @limit`

	// endMembers counts only those that this very statement ends, and writes an event for
	// each of them that was not done, so that sums and events are exact whatever is
	// repeated. Nothing else changes a member while it is pending, so one that is no
	// longer where it was found has ended.
	endMembers = `
with ended as (
	update {schema}.plan_items i
	set state = e.state, error = e.error, finished_at = now()
	from unnest(@positions::int[], @states::text[], @errors::text[]) as e (position, state, error)
	where i.ctid = any(array(select t.ctid from unnest(@positions::int[]) as e (position)` + itemByKey + `))
		and i.position = e.position and i.state = 'pending'
	returning i.namespace, i.workflow_id, i.run_id, i.position, e.state, e.error
), noted as (
	insert into {schema}.events (verb, actor, namespace, workflow_id, run_id, plan_id, detail)
	select @verb || '_' || state, @actor, namespace, workflow_id, run_id, @id, jsonb_build_object('position', position, 'error', error)
	from ended
	where state <> 'done'
)
update {schema}.plans
set done = done + (select count(*) from ended where state = 'done'),
	skipped = skipped + (select count(*) from ended where state = 'skipped'),
	failed = failed + (select count(*) from ended where state = 'failed')
where id = @id`

	// itemByKey finds the member t of each position e, as membersByKey finds dead letters.
	itemByKey = `
cross join lateral (
	select i.ctid, i.* from {schema}.plan_items i
	where i.plan_id = @id and i.position = e.position
	offset 0
) t`

	// membersByKey, a table, keyOfMember and an alias look the rows of each member m up by
	// their key, in the order of the members. A plain join looks simpler, and reads the rows of
	// the whole namespace for each chunk while the statistics are older than the rows, as
	// they are soon after an outage.
	membersByKey = `
from unnest(@workflow_ids::text[], @run_ids::text[]) as m (workflow_id, run_id)
cross join lateral (
	select t.ctid, t.* from `
	keyOfMember = ` t
	where t.namespace = @namespace and t.workflow_id = m.workflow_id and t.run_id = m.run_id
	offset 0
)`

	// lockMembers takes the rows in the order of the members, which is that of every
	// other statement that takes several, so that two of them do not deadlock.
	lockMembers = `
select` + listColumns + `,` + wireColumns + membersByKey + `{schema}.dead_letters` + keyOfMember + ` d
for update of d`
)

// Member is one pending member of a plan, in the order of selectMembers' columns.
type Member struct {
	Position int
	Key
	Revision int // when it was frozen
	// Bytes is the size of the arguments, 0 when the dead letter is gone.
	Bytes int
}

// MemberEnd says how a member ended.
type MemberEnd struct {
	Position int
	State    ItemState // done, skipped or failed
	Error    string
}

// Members returns pending members of a plan behind a position, in their order.
func (s *Store) Members(ctx context.Context, planID string, after, limit int) ([]Member, error) {
	args := pgx.NamedArgs{"id": planID, "after": after, "limit": limit}
	members, err := query(ctx, s, selectMembers, args, pgx.RowToStructByPos[Member])
	if err != nil {
		return nil, fmt.Errorf("members of plan %s: %w", planID, err)
	}
	return members, nil
}

// endMembers notes how members ended, with an event for each that was not done: its
// verb is that of the plan with _skipped or _failed behind it. A member that has
// ended stays as it is.
func (s *Store) endMembers(ctx context.Context, tx pgx.Tx, plan *Plan, ends []MemberEnd) error {
	if len(ends) == 0 {
		return nil
	}
	var positions []int
	var states, errs []string
	for _, end := range ends {
		positions, states, errs = append(positions, end.Position), append(states, string(end.State)), append(errs, text.Bounded(end.Error, maxMemberError))
	}
	args := pgx.NamedArgs{
		"id": plan.ID, "positions": positions, "states": states, "errors": errs,
		"verb": string(plan.Verb), "actor": plan.AppliedBy,
	}
	_, err := tx.Exec(ctx, s.sql(endMembers), args)
	return classify(err)
}

// maxMemberError bounds what a plan keeps of one member's failure, in bytes.
const maxMemberError = 2000

// lockMembers returns the dead letters of members, locked, by their keys.
func (s *Store) lockMembers(ctx context.Context, tx pgx.Tx, plan *Plan, members []Member) (map[Key]*DeadLetter, error) {
	rows, err := collect(ctx, tx, s.sql(lockMembers), memberArgs(plan, members), scanDeadLetter)
	if err != nil {
		return nil, err
	}
	found := make(map[Key]*DeadLetter, len(rows))
	for _, dl := range rows {
		found[dl.Key] = dl
	}
	return found, nil
}

func memberArgs(plan *Plan, members []Member) pgx.NamedArgs {
	var workflowIDs, runIDs []string
	for _, m := range members {
		workflowIDs, runIDs = append(workflowIDs, m.WorkflowID), append(runIDs, m.RunID)
	}
	return pgx.NamedArgs{"namespace": plan.Namespace, "workflow_ids": workflowIDs, "run_ids": runIDs, "id": plan.ID, "actor": plan.AppliedBy}
}

const memberGone = "the dead letter is gone: it was purged after the plan was made"

// unfit says why a bulk verb leaves a member alone; empty when it does not.
func (m Member) unfit(plan *Plan, dl *DeadLetter) string {
	switch {
	case dl == nil:
		return memberGone
	case dl.Revision != m.Revision:
		return fmt.Sprintf("it was edited after the plan was made: revision %d was planned and it has %d", m.Revision, dl.Revision)
	case plan.skipsSuperseded() && dl.SupersededAt != nil:
		return "superseded: the job succeeded in a later run"
	default:
		return ""
	}
}

// PurgeMembers removes the dead letters of members for good and ends the members,
// in one transaction. Those that are gone or were edited since are skipped.
func (s *Store) PurgeMembers(ctx context.Context, plan *Plan, members []Member) error {
	err := s.inTx(ctx, beginWrite+ownPlan, func(ctx context.Context, tx pgx.Tx) error { return s.purgeMembers(ctx, tx, plan, members) })
	if err != nil {
		return fmt.Errorf("purge members of %s: %w", plan.ID, err)
	}
	return nil
}

func (s *Store) purgeMembers(ctx context.Context, tx pgx.Tx, plan *Plan, members []Member) error {
	found, err := s.lockMembers(ctx, tx, plan, members)
	if err != nil {
		return err
	}
	var keys []Key
	for _, m := range members {
		if m.unfit(plan, found[m.Key]) == "" {
			keys = append(keys, m.Key)
		}
	}
	gone, err := s.purgeLocked(ctx, tx, keys, purgeEvent{actor: plan.AppliedBy, planID: &plan.ID})
	if err != nil {
		return err
	}
	ends := make([]MemberEnd, len(members))
	for i, m := range members {
		ends[i] = MemberEnd{Position: m.Position, State: ItemSkipped, Error: m.unfit(plan, found[m.Key])}
		switch {
		case slices.Contains(gone, m.Key):
			ends[i].State = ItemDone
		case ends[i].Error == "":
			ends[i].Error = ErrBusy.Error()
		}
	}
	return s.endMembers(ctx, tx, plan, ends)
}
