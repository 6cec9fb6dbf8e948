package dlqstore

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deadletter-dev/deadletter/internal/text"
	"github.com/deadletter-dev/deadletter/job"
)

const (
	lockPlan = selectPlan + `
for update`

	applyPlan = `
update {schema}.plans
set state = 'applying', applied_by = @actor, applied_at = now(), parameters = @parameters::jsonb
where id = @id`

	markPlan = `
update {schema}.plans
set state = @state, stop_cause = @cause, finished_at = case when @final then now() end
where id = @id`

	// leaveMembers marks what an operation that ended did not get to, in batches: the
	// dead letters are held no longer.
	leaveMembers = `
update {schema}.plan_items
set state = 'left'
where plan_id = @id and position = any (array(
	select position from {schema}.plan_items where plan_id = @id and state = 'pending' order by position limit @batch
))`
)

// leaveBatch keeps each transaction of an operation's end short.
const leaveBatch = 10_000

// PlanStateError says that a plan cannot be applied, or told what it is told, in
// the state that it is in. It is ErrRefused.
type PlanStateError struct {
	ID    string
	Cause string
}

// Error gives the cause.
func (e *PlanStateError) Error() string { return fmt.Sprintf("%s: %v: %s", e.ID, ErrRefused, e.Cause) }

// Unwrap returns ErrRefused.
func (e *PlanStateError) Unwrap() error { return ErrRefused }

// BeginPlan lets the operation of a plan begin, with other settings if they are
// not nil. One that has begun goes on as it was. A plan that has ended or expired
// is a *PlanStateError, of which an event of verb apply_refused tells.
func (s *Store) BeginPlan(ctx context.Context, namespace, id, actor string, settings *job.BulkSettings) (plan *Plan, err error) {
	err = s.inTx(ctx, beginWrite, func(ctx context.Context, tx pgx.Tx) error {
		plan, err = s.beginPlan(ctx, tx, namespace, id, text.Bounded(actor, maxName), settings)
		return err
	})
	if err != nil {
		err = s.NoteRefusal(ctx, Asked{Verb: VerbApply, Key: Key{Namespace: namespace}, Actor: actor, PlanID: id}, err)
		return nil, fmt.Errorf("apply %s: %w", id, err)
	}
	return plan, nil
}

func (s *Store) beginPlan(ctx context.Context, tx pgx.Tx, namespace, id, actor string, settings *job.BulkSettings) (*Plan, error) {
	plan, err := s.lockPlan(ctx, tx, namespace, id)
	if err != nil {
		return nil, err
	}
	if plan.State != job.PlanPlanned {
		return plan, plan.Appliable()
	}
	if err := plan.Appliable(); err != nil {
		return nil, err
	}
	if settings != nil {
		if err := settings.Check(plan.Verb); err != nil {
			return nil, &PlanStateError{id, err.Error()}
		}
		plan.Parameters.BulkSettings = *settings
	}
	args := pgx.NamedArgs{"id": id, "namespace": namespace, "actor": actor, "parameters": holdableJSON(plan.Parameters)}
	if _, err := tx.Exec(ctx, s.sql(applyPlan), args); err != nil {
		return nil, classify(err)
	}
	args["verb"], args["detail"] = VerbApply, encoded(map[string]any{"verb": plan.Verb, "members": plan.Members, "settings": plan.Parameters.BulkSettings})
	if _, err := tx.Exec(ctx, s.sql(insertPlanEvent), args); err != nil {
		return nil, classify(err)
	}
	plan.State, plan.AppliedBy = job.PlanApplying, actor
	return plan, nil
}

// Appliable says why a plan cannot be applied, as a *PlanStateError, or nil. One
// that is being applied can be.
func (p *Plan) Appliable() error {
	switch {
	case p.State.IsFinal():
		return &PlanStateError{p.ID, fmt.Sprintf("it is %s; make a new plan", p.State)}
	case p.State == job.PlanPlanned && !time.Now().Before(p.ExpiresAt):
		return &PlanStateError{p.ID, fmt.Sprintf("it expired at %s, and its members may be others by now; make a new plan", p.ExpiresAt.Format("2006-01-02 15:04:05Z"))}
	default:
		return nil
	}
}

func (s *Store) lockPlan(ctx context.Context, tx pgx.Tx, namespace, id string) (*Plan, error) {
	plan, err := first(ctx, tx, s, lockPlan, pgx.NamedArgs{"namespace": text.Holdable(namespace), "id": text.Holdable(id)}, scanPlan)
	if err == nil && plan == nil {
		err = fmt.Errorf("plan %q of namespace %s: %w", id, namespace, ErrNotFound)
	}
	return plan, err
}

// MarkPlan notes that the operation of a plan is paused, goes on, or has ended,
// with an event. To do so again changes nothing. One that has ended frees the
// members that it did not get to, and cannot be marked otherwise: that is a
// *PlanStateError, and an event of the verb's name with "_refused" tells of it.
func (s *Store) MarkPlan(ctx context.Context, namespace, id string, state job.PlanState, actor, cause string) (*Plan, error) {
	verb, err := markVerb(state)
	if err != nil {
		return nil, fmt.Errorf("mark %s: %w", id, err)
	}
	err = s.inTx(ctx, beginWrite, func(ctx context.Context, tx pgx.Tx) error {
		return s.markPlan(ctx, tx, namespace, id, state, verb, text.Bounded(actor, maxName), text.Bounded(cause, MaxErrorMessage))
	})
	if err != nil {
		err = s.NoteRefusal(ctx, Asked{Verb: verb, Key: Key{Namespace: namespace}, Actor: actor, PlanID: id}, err)
		return nil, fmt.Errorf("mark %s: %w", id, err)
	}
	if state.IsFinal() { // which holds no dead letter any more, if this is interrupted
		if err := s.leaveMembers(ctx, id); err != nil {
			return nil, fmt.Errorf("mark %s: %w", id, err)
		}
	}
	return s.Plan(ctx, namespace, id)
}

func markVerb(state job.PlanState) (string, error) {
	switch state {
	case job.PlanPaused:
		return VerbPause, nil
	case job.PlanApplying:
		return VerbResume, nil
	case job.PlanFinished:
		return VerbFinish, nil
	case job.PlanCancelled:
		return VerbCancel, nil
	case job.PlanStopped:
		return VerbStop, nil
	case job.PlanPlanned:
	}
	return "", fmt.Errorf("a plan cannot become %q", state)
}

func (s *Store) leaveMembers(ctx context.Context, id string) error {
	for {
		var left int64
		err := s.inTx(ctx, beginWrite+ownPlan, func(ctx context.Context, tx pgx.Tx) error {
			done, err := tx.Exec(ctx, s.sql(leaveMembers), pgx.NamedArgs{"id": text.Holdable(id), "batch": leaveBatch})
			left = done.RowsAffected()
			return classify(err)
		})
		if err != nil || left < leaveBatch {
			return err
		}
	}
}

func (s *Store) markPlan(ctx context.Context, tx pgx.Tx, namespace, id string, state job.PlanState, verb, actor, cause string) error {
	plan, err := s.lockPlan(ctx, tx, namespace, id)
	switch {
	case err != nil:
		return err
	case plan.State == state:
		return nil
	case plan.State.IsFinal():
		return &PlanStateError{id, fmt.Sprintf("it is %s", plan.State)}
	case plan.State == job.PlanPlanned && state != job.PlanCancelled:
		return &PlanStateError{id, "it has not been applied"}
	}
	args := pgx.NamedArgs{"id": id, "namespace": namespace, "state": string(state), "cause": cause, "final": state.IsFinal(), "actor": actor, "verb": verb}
	if _, err := tx.Exec(ctx, s.sql(markPlan), args); err != nil {
		return classify(err)
	}
	detail := map[string]any{"done": plan.Done, "skipped": plan.Skipped, "failed": plan.Failed, "pending": plan.Pending()}
	if cause != "" {
		detail["cause"] = cause
	}
	args["detail"] = encoded(detail)
	_, err = tx.Exec(ctx, s.sql(insertPlanEvent), args)
	return classify(err)
}
