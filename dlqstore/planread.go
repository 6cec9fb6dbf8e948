package dlqstore

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deadletter-dev/deadletter/internal/text"
	"github.com/deadletter-dev/deadletter/job"
)

const (
	planColumns = `
	p.id, p.namespace, p.verb, p.filter, p.parameters, p.actor, p.created_at, p.expires_at, p.matched, p.members, p.report,
	p.state, p.done, p.skipped, p.failed, p.applied_by, p.applied_at, p.finished_at, p.stop_cause`

	selectPlan = `
select` + planColumns + `
from {schema}.plans p
where p.namespace = @namespace and p.id = @id`

	selectPlans = `
select` + planColumns + `
from {schema}.plans p
where p.namespace = @namespace
order by p.created_at desc, p.id desc
limit @limit`

	selectPlanItems = `
select i.position, i.namespace, i.workflow_id, i.run_id, i.revision, i.state, i.error, i.detail, i.finished_at,
	r.new_workflow_id, r.new_run_id, r.outcome, r.same_fingerprint
from {schema}.plan_items i
left join {schema}.replays r on r.request_id = i.plan_id || '/' || i.position
where i.plan_id = @id and i.position > @after and (@state = '' or i.state = @state)
order by i.position
limit @limit`
)

const selectPlanCauses = `
select state, error, count(*)
from {schema}.plan_items
where plan_id = @id and state in ('skipped', 'failed')
group by state, error
order by count(*) desc, error
limit @limit`

// PlanCause is why members were not done, and how many.
type PlanCause struct {
	State   ItemState `json:"state"` // skipped or failed
	Error   string    `json:"error"`
	Members int64     `json:"members"`
}

// PlanCauses returns the commonest causes for which members of a plan were skipped
// or failed, the commonest first.
func (s *Store) PlanCauses(ctx context.Context, id string, limit int) ([]PlanCause, error) {
	causes, err := query(ctx, s, selectPlanCauses, pgx.NamedArgs{"id": text.Holdable(id), "limit": limit}, pgx.RowToStructByPos[PlanCause])
	if err != nil {
		return nil, fmt.Errorf("causes in plan %s: %w", id, err)
	}
	return causes, nil
}

// ItemState is where a member of a plan stands: a closed set.
type ItemState string

// The states of a member. A pending one of a plan that has ended reads left.
const (
	ItemPending ItemState = "pending"
	ItemDone    ItemState = "done"
	ItemSkipped ItemState = "skipped" // there was nothing to do, or no longer; Error says what
	ItemFailed  ItemState = "failed"
	ItemLeft    ItemState = "left"
)

// PlanItem is one member of a plan and what became of it.
type PlanItem struct {
	// Position counts from 1, the oldest dead letter first.
	Position int `json:"position"`
	Key
	// Revision is the dead letter's when it was frozen. One that was edited since is
	// skipped: what is applied is what was shown.
	Revision int       `json:"revision"`
	State    ItemState `json:"state"`
	// Error says why the member was skipped or failed.
	Error string `json:"error"`
	// Detail is, of an edit, what would change; nil otherwise.
	Detail     *Diff      `json:"detail"`
	FinishedAt *time.Time `json:"finished_at"`
	// The job that a replay started, and how it ended; nil while not known.
	NewWorkflowID   *string      `json:"new_workflow_id"`
	NewRunID        *string      `json:"new_run_id"`
	Outcome         *job.Outcome `json:"outcome"`
	SameFingerprint *bool        `json:"same_fingerprint"`
}

// Plan returns one plan of a namespace, or ErrNotFound.
func (s *Store) Plan(ctx context.Context, namespace, id string) (*Plan, error) {
	args := pgx.NamedArgs{"namespace": text.Holdable(namespace), "id": text.Holdable(id)}
	plans, err := query(ctx, s, selectPlan, args, scanPlan)
	switch {
	case err != nil:
		return nil, fmt.Errorf("plan %s: %w", id, err)
	case len(plans) == 0:
		return nil, fmt.Errorf("plan %q of namespace %s: %w", id, namespace, ErrNotFound)
	default:
		return &plans[0], nil
	}
}

// Plans returns the newest plans of a namespace, the newest first. limit is 1000
// at most, and 0 means 50.
func (s *Store) Plans(ctx context.Context, namespace string, limit int) ([]Plan, error) {
	limit, err := Page{Limit: limit}.limit()
	if err != nil {
		return nil, fmt.Errorf("plans: %w", err)
	}
	args := pgx.NamedArgs{"namespace": text.Holdable(namespace), "limit": limit}
	plans, err := query(ctx, s, selectPlans, args, scanPlan)
	if err != nil {
		return nil, fmt.Errorf("plans: %w", err)
	}
	return plans, nil
}

// PlanItems returns members of a plan in their order: those behind position after,
// of one state or, when it is empty, of any. limit is 1000 at most, and 0 means 50.
func (s *Store) PlanItems(ctx context.Context, id string, state ItemState, after, limit int) ([]PlanItem, error) {
	limit, err := Page{Limit: limit}.limit()
	if err != nil {
		return nil, fmt.Errorf("members of plan %s: %w", id, err)
	}
	args := pgx.NamedArgs{"id": text.Holdable(id), "state": text.Holdable(string(state)), "after": after, "limit": limit}
	items, err := query(ctx, s, selectPlanItems, args, scanPlanItem)
	if err != nil {
		return nil, fmt.Errorf("members of plan %s: %w", id, err)
	}
	return items, nil
}

func scanPlan(row pgx.CollectableRow) (Plan, error) {
	var p Plan
	err := row.Scan(&p.ID, &p.Namespace, &p.Verb, &p.Filter, &p.Parameters, &p.Actor, &p.CreatedAt, &p.ExpiresAt, &p.Matched, &p.Members, &p.Report,
		&p.State, &p.Done, &p.Skipped, &p.Failed, &p.AppliedBy, &p.AppliedAt, &p.FinishedAt, &p.StopCause)
	utc(&p.CreatedAt, &p.ExpiresAt, p.AppliedAt, p.FinishedAt)
	return p, err
}

func scanPlanItem(row pgx.CollectableRow) (PlanItem, error) {
	var i PlanItem
	var detail []byte
	err := row.Scan(&i.Position, &i.Namespace, &i.WorkflowID, &i.RunID, &i.Revision, &i.State, &i.Error, &detail, &i.FinishedAt,
		&i.NewWorkflowID, &i.NewRunID, &i.Outcome, &i.SameFingerprint)
	if err != nil {
		return i, err
	}
	utc(i.FinishedAt)
	if detail != nil {
		err = json.Unmarshal(detail, &i.Detail)
	}
	return i, err
}
