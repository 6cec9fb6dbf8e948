package dlqstore

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/deadletter-dev/deadletter/job"
)

const (
	// selectReplaysOf looks each one up by its key, as membersByKey does.
	selectReplaysOf = `
select` + replayColumns + `
from unnest(@request_ids::text[]) as m (request_id)
cross join lateral (
	select t.* from {schema}.replays t where t.request_id = m.request_id
	offset 0
) r`

	insertReplays = `
insert into {schema}.replays as r (request_id, namespace, workflow_id, run_id, new_workflow_id, actor, revision)
select m.request_id, @namespace, m.workflow_id, m.run_id, m.new_workflow_id, @actor, m.revision
from unnest(@request_ids::text[], @workflow_ids::text[], @run_ids::text[], @new_workflow_ids::text[], @revisions::int[])
	as m (request_id, workflow_id, run_id, new_workflow_id, revision)
returning` + replayColumns

	// countReplays is of locked dead letters, so that they stay where they are found.
	countReplays = `
update {schema}.dead_letters
set resurrection_count = resurrection_count + 1, last_resurrection_at = greatest(last_resurrection_at, now())
where ctid = any(array(select d.ctid` + membersByKey + `{schema}.dead_letters` + keyOfMember + ` d))`

	insertReplayEvents = `
insert into {schema}.events (verb, actor, namespace, workflow_id, run_id, request_id, plan_id, detail)
select 'replay', @actor, @namespace, m.workflow_id, m.run_id, m.request_id, @id, jsonb_build_object('new_workflow_id', m.new_workflow_id)
from unnest(@request_ids::text[], @workflow_ids::text[], @run_ids::text[], @new_workflow_ids::text[])
	as m (request_id, workflow_id, run_id, new_workflow_id)`

	// confirmReplays names the requests twice, so that an index is asked for these alone.
	confirmReplays = `
update {schema}.replays r
set new_run_id = m.new_run_id, started_at = now(), status = 'queued'
from unnest(@request_ids::text[], @new_run_ids::text[]) as m (request_id, new_run_id)
where r.request_id = m.request_id and r.request_id = any(@request_ids) and r.new_run_id is null and r.outcome is null`

	selectBegun = `
select i.position,` + replayColumns + `,` + listColumns + `,` + wireColumns + `
from {schema}.plan_items i
join {schema}.replays r on r.request_id = i.plan_id || '/' || i.position
join {schema}.dead_letters d on (d.namespace, d.workflow_id, d.run_id) = (i.namespace, i.workflow_id, i.run_id)
where i.plan_id = @id and i.state = 'pending'
order by i.position
limit @limit`

	// selectReplayedMembers finds, among locked dead letters, those that were replayed
	// by somebody else meanwhile.
	selectReplayedMembers = `
select distinct r.namespace, r.workflow_id, r.run_id` + membersByKey + `{schema}.replays` + keyOfMember + ` r
where ` + hasTheWork

	selectOutcomes = `
select
	count(*) filter (where i.state = 'done'),
	count(*) filter (where i.state = 'done' and r.outcome is null),
	count(*) filter (where r.outcome = 'succeeded'),
	count(*) filter (where r.outcome = 'dead_lettered'),
	count(*) filter (where r.outcome = 'cancelled'),
	count(*) filter (where i.state = 'failed')
from {schema}.plan_items i
left join {schema}.replays r on r.request_id = i.plan_id || '/' || i.position
where i.plan_id = @id and i.state in ('done', 'failed')`
)

// RequestOf is the request id of a member's replay.
func RequestOf(planID string, position int) string { return planID + "/" + strconv.Itoa(position) }

// MemberStart is a member's replay that is decided and must be started.
type MemberStart struct {
	Position int
	ReplayStart
}

// BeginMemberReplays does for members of a plan what BeginReplay does for one dead
// letter, in one transaction and few statements, and ends the members for which
// there is nothing to replay. It may be repeated: a member's replay is one.
func (s *Store) BeginMemberReplays(ctx context.Context, plan *Plan, members []Member) (starts []MemberStart, err error) {
	if len(members) == 0 {
		return nil, nil
	}
	err = s.inTx(ctx, beginWrite+ownPlan, func(ctx context.Context, tx pgx.Tx) error {
		starts, err = s.beginMemberReplays(ctx, tx, plan, members)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("replay members of %s: %w", plan.ID, err)
	}
	return starts, nil
}

func (s *Store) beginMemberReplays(ctx context.Context, tx pgx.Tx, plan *Plan, members []Member) ([]MemberStart, error) {
	found, err := s.lockMembers(ctx, tx, plan, members)
	if err != nil {
		return nil, err
	}
	requests := make([]string, len(members))
	for i, m := range members {
		requests[i] = RequestOf(plan.ID, m.Position)
	}
	known, err := s.replaysByRequest(ctx, tx, selectReplaysOf, pgx.NamedArgs{"request_ids": requests})
	if err != nil {
		return nil, err
	}
	var starts []MemberStart
	var ends []MemberEnd
	var fresh []Member
	for i, m := range members {
		dl := found[m.Key]
		replay, begun := known[requests[i]]
		switch {
		case begun && replay.refused():
			ends = append(ends, MemberEnd{m.Position, ItemFailed, replay.refusal().Error()})
		case begun && (dl != nil || replay.NewRunID != nil):
			start := MemberStart{m.Position, ReplayStart{Replay: replay, DeadLetter: dl}}
			if err := s.asReplayed(ctx, tx, &start.ReplayStart); err != nil {
				return nil, err
			}
			starts = append(starts, start)
		case m.unfit(plan, dl) != "":
			ends = append(ends, MemberEnd{m.Position, ItemSkipped, m.unfit(plan, dl)})
		default:
			fresh = append(fresh, m)
		}
	}
	if err := s.endMembers(ctx, tx, plan, ends); err != nil {
		return nil, err
	}
	fresh, err = s.withoutReplayed(ctx, tx, plan, fresh)
	if err != nil {
		return nil, err
	}
	begun, err := s.insertMemberReplays(ctx, tx, plan, fresh)
	if err != nil {
		return nil, err
	}
	for _, m := range fresh {
		dl := found[m.Key]
		dl.ResurrectionCount++
		starts = append(starts, MemberStart{m.Position, ReplayStart{Replay: begun[RequestOf(plan.ID, m.Position)], DeadLetter: dl, Fresh: true}})
	}
	return starts, nil
}

// withoutReplayed ends the members that were replayed since the plan was made: by a
// person, or by another plan.
func (s *Store) withoutReplayed(ctx context.Context, tx pgx.Tx, plan *Plan, members []Member) ([]Member, error) {
	if len(members) == 0 || !plan.skipsReplayed() {
		return members, nil
	}
	replayed, err := collect(ctx, tx, s.sql(selectReplayedMembers), memberArgs(plan, members), pgx.RowToStructByPos[Key])
	if err != nil || len(replayed) == 0 {
		return members, err
	}
	var fit []Member
	var ends []MemberEnd
	for _, m := range members {
		if slices.Contains(replayed, m.Key) {
			ends = append(ends, MemberEnd{m.Position, ItemSkipped, "it was replayed after the plan was made: that job, or a replay of it, has succeeded, is under way, or is a dead letter itself"})
		} else {
			fit = append(fit, m)
		}
	}
	return fit, s.endMembers(ctx, tx, plan, ends)
}

func (s *Store) replaysByRequest(ctx context.Context, tx pgx.Tx, statement string, args pgx.NamedArgs) (map[string]Replay, error) {
	rows, err := collect(ctx, tx, s.sql(statement), args, scanReplay)
	if err != nil {
		return nil, err
	}
	replays := make(map[string]Replay, len(rows))
	for i := range rows {
		replays[rows[i].RequestID] = rows[i]
	}
	return replays, nil
}

func (s *Store) insertMemberReplays(ctx context.Context, tx pgx.Tx, plan *Plan, members []Member) (map[string]Replay, error) {
	if len(members) == 0 {
		return nil, nil
	}
	var requests, ids []string
	var revisions []int
	for _, m := range members {
		requests, ids = append(requests, RequestOf(plan.ID, m.Position)), append(ids, newWorkflowID(m.WorkflowID))
		revisions = append(revisions, m.Revision)
	}
	args := memberArgs(plan, members)
	args["request_ids"], args["new_workflow_ids"], args["revisions"] = requests, ids, revisions
	begun, err := s.replaysByRequest(ctx, tx, insertReplays, args)
	if err != nil {
		return nil, err
	}
	for _, statement := range []string{countReplays, insertReplayEvents} {
		if _, err := tx.Exec(ctx, s.sql(statement), args); err != nil {
			return nil, classify(err)
		}
	}
	return begun, nil
}

// BegunMembers returns pending members whose replay is decided: their operation was
// interrupted between that and the confirmation of the start.
func (s *Store) BegunMembers(ctx context.Context, plan *Plan, limit int) ([]MemberStart, error) {
	var starts []MemberStart
	err := s.inTx(ctx, beginRead, func(ctx context.Context, tx pgx.Tx) (err error) {
		if starts, err = collect(ctx, tx, s.sql(selectBegun), pgx.NamedArgs{"id": plan.ID, "limit": limit}, scanMemberStart); err != nil {
			return err
		}
		for i := range starts {
			if err := s.asReplayed(ctx, tx, &starts[i].ReplayStart); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("begun members of %s: %w", plan.ID, err)
	}
	return starts, nil
}

func scanMemberStart(row pgx.CollectableRow) (MemberStart, error) {
	var m MemberStart
	start, err := scanStart(positioned{row, &m.Position})
	m.ReplayStart = start
	return m, err
}

// positioned is a row with a position in front.
type positioned struct {
	pgx.CollectableRow
	position *int
}

// Scan reads the position and then what the caller asks for.
func (p positioned) Scan(targets ...any) error {
	return p.CollectableRow.Scan(append([]any{p.position}, targets...)...)
}

// MemberStarted is a member whose job Temporal has confirmed.
type MemberStarted struct {
	Position int
	NewRunID string
}

// EndMemberReplays confirms the replays that were started and ends their members,
// and the others, in one transaction.
func (s *Store) EndMemberReplays(ctx context.Context, plan *Plan, started []MemberStarted, others []MemberEnd) error {
	err := s.inTx(ctx, beginWrite+ownPlan, func(ctx context.Context, tx pgx.Tx) error {
		var requests, runs []string
		for _, m := range started {
			requests, runs = append(requests, RequestOf(plan.ID, m.Position)), append(runs, m.NewRunID)
			others = append(others, MemberEnd{Position: m.Position, State: ItemDone})
		}
		if len(started) > 0 {
			if _, err := tx.Exec(ctx, s.sql(confirmReplays), pgx.NamedArgs{"request_ids": requests, "new_run_ids": runs}); err != nil {
				return classify(err)
			}
		}
		return s.endMembers(ctx, tx, plan, others)
	})
	if err != nil {
		return fmt.Errorf("confirm replays of %s: %w", plan.ID, err)
	}
	return nil
}

// Outcomes returns what became of the jobs that a plan has replayed.
func (s *Store) Outcomes(ctx context.Context, planID string) (job.BulkOutcomes, error) {
	outcomes, err := query(ctx, s, selectOutcomes, pgx.NamedArgs{"id": planID}, pgx.RowToStructByPos[job.BulkOutcomes])
	if err != nil {
		return job.BulkOutcomes{}, fmt.Errorf("outcomes of %s: %w", planID, err)
	}
	return outcomes[0], nil
}
