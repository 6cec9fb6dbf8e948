package dlqstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/deadletter-dev/deadletter/internal/text"
)

const (
	// selectMemberLetters reads members with their dead letters, as many as come to
	// a bounded size of arguments, and at least one.
	selectMemberLetters = `
select m.position,` + listColumns + `,` + wireColumns + `
from (
	select i.position, i.namespace, i.workflow_id, i.run_id,
		row_number() over (order by i.position) as place,
		sum(coalesce(octet_length(d.payloads), 0)) over (order by i.position) as bytes
	from (
		select * from {schema}.plan_items
		where plan_id = @id and position > @after and state = 'pending'
		order by position limit @limit
	) i
	join {schema}.dead_letters d on (d.namespace, d.workflow_id, d.run_id) = (i.namespace, i.workflow_id, i.run_id)
) m
join {schema}.dead_letters d on (d.namespace, d.workflow_id, d.run_id) = (m.namespace, m.workflow_id, m.run_id)
where m.place = 1 or m.bytes <= @bytes
order by m.position`

	storePreviews = `
update {schema}.plan_items i
set detail = e.detail::json, error = e.error,
	state = case when e.error = '' then 'pending' else 'skipped' end,
	finished_at = case when e.error <> '' then now() end
from unnest(@positions::int[], @details::text[], @errors::text[]) as e (position, detail, error)
where i.plan_id = @id and i.position = e.position`
)

const (
	previewPage  = 200
	previewBytes = 16 << 20
)

// memberLetter is a member with its dead letter.
type memberLetter struct {
	position int
	letter   *DeadLetter
}

func scanMemberLetter(row pgx.CollectableRow) (memberLetter, error) {
	m := memberLetter{letter: new(DeadLetter)}
	err := row.Scan(append(append([]any{&m.position}, m.letter.listTargets()...), m.letter.wireTargets()...)...)
	m.letter.inUTC()
	return m, err
}

// previewMembers works out what an edit would change of each member, and leaves
// out those that it cannot be done to.
func (s *Store) previewMembers(ctx context.Context, tx pgx.Tx, id string, request PlanRequest) error {
	args := pgx.NamedArgs{"id": id, "after": 0, "limit": previewPage, "bytes": previewBytes}
	for {
		members, err := collect(ctx, tx, s.sql(selectMemberLetters), args, scanMemberLetter)
		if err != nil || len(members) == 0 {
			return err
		}
		var positions []int
		var details []*string
		var causes []string
		for _, m := range members {
			detail, cause, err := preview(request, m.letter)
			if err != nil {
				return err
			}
			positions, details, causes = append(positions, m.position), append(details, detail), append(causes, cause)
		}
		args["positions"], args["details"], args["errors"] = positions, details, causes
		if _, err := tx.Exec(ctx, s.sql(storePreviews), args); err != nil {
			return classify(err)
		}
		args["after"] = members[len(members)-1].position
	}
}

func preview(request PlanRequest, dl *DeadLetter) (detail *string, cause string, err error) {
	diff, err := request.Preview(dl)
	var refused *EditError
	switch {
	case errors.As(err, &refused):
		return nil, text.Bounded(refused.Error(), maxMemberError), nil
	case err != nil:
		return nil, "", err
	case len(diff.Changes) == 0 && diff.LeftOut == 0:
		return nil, "it would change nothing", nil
	}
	encoded, err := diffText(diff)
	return &encoded, "", err
}

// EditMembers edits the dead letters of members and ends the members, in one
// transaction. prepare fills in how each is edited. A member that was edited since
// the plan was made, or cannot be edited, is skipped and stops no other.
func (s *Store) EditMembers(ctx context.Context, plan *Plan, members []Member, prepare func(EditRequest) EditRequest) error {
	err := s.inTx(ctx, beginWrite+ownPlan, func(ctx context.Context, tx pgx.Tx) error {
		if _, err := s.lockMembers(ctx, tx, plan, members); err != nil { // in the common order
			return err
		}
		ends := make([]MemberEnd, len(members))
		for i, m := range members {
			ends[i] = MemberEnd{Position: m.Position, State: ItemDone}
			err := pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
				_, _, err := s.EditTx(ctx, tx, prepare(EditRequest{
					Key: m.Key, Revision: m.Revision, RequestID: RequestOf(plan.ID, m.Position), Actor: plan.AppliedBy, PlanID: plan.ID,
				}))
				return err
			})
			switch {
			case err != nil && refusalCause(err) == nil:
				return err
			case err != nil:
				ends[i].State, ends[i].Error = ItemSkipped, ownWords(err)
			}
		}
		return s.endMembers(ctx, tx, plan, ends)
	})
	if err != nil {
		return fmt.Errorf("edit members of %s: %w", plan.ID, err)
	}
	return nil
}

// ownWords leaves out what the member's row says already.
func ownWords(err error) string {
	var conflict *ConflictError
	var refused *EditError
	switch {
	case errors.As(err, &conflict):
		return fmt.Sprintf("it was edited after the plan was made: revision %d was planned and it has %d", conflict.Seen, conflict.Current)
	case errors.As(err, &refused):
		return refused.Error()
	case errors.Is(err, ErrNotFound):
		return memberGone
	default:
		return err.Error()
	}
}

// diffText is a difference as JSON that escapes nothing without need.
func diffText(diff Diff) (string, error) {
	var out strings.Builder
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false) // it would alter what people see
	if err := encoder.Encode(diff); err != nil {
		return "", errors.New("the difference cannot be encoded") // the cause quotes it
	}
	return out.String(), nil
}
