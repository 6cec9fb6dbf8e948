package dlqstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deadletter-dev/deadletter/internal/text"
)

const eventColumns = `
	id, verb, actor, at, namespace, workflow_id, run_id, request_id, plan_id, detail`

const (
	// lockRequest has the tries of one request take turns, until the transaction's end.
	lockRequest = `select pg_advisory_xact_lock(hashtextextended(@request_id, 0))`

	insertRefusal = `
insert into {schema}.events (verb, actor, namespace, workflow_id, run_id, request_id, plan_id, detail)
select @verb::text || '_refused', @actor, @namespace, @workflow_id, @run_id, @request_id::text, @plan_id::text, @detail::jsonb
where not exists (
	select from {schema}.events e
	where e.request_id = @request_id::text and e.namespace = @namespace and e.workflow_id = @workflow_id
		and (e.verb = @verb || '_refused' and e.detail = @detail::jsonb or e.verb = @verb and @unless_done)
)`
)

// Asked is a request to change something, for the audit.
type Asked struct {
	// Verb is what was asked for, such as VerbReplay.
	Verb string
	// Key is as far as it is known: a verb on many has the namespace alone.
	Key
	Actor     string
	RequestID string
	PlanID    string
}

// UnauditedError is a refusal whose event could not be written. It is the refusal, too:
// errors.Is finds what that is. Store.Refuse writes the event later.
type UnauditedError struct {
	Asked
	// Detail is the JSON of the event's detail.
	Detail string
	// Refusal is why the request is refused, Unwritten why its event is missing.
	Refusal, Unwritten error
}

// Error says both.
func (e *UnauditedError) Error() string {
	return fmt.Sprintf("%v (its event is not written: %v)", e.Refusal, e.Unwritten)
}

// Unwrap returns the refusal.
func (e *UnauditedError) Unwrap() error { return e.Refusal }

// NoteRefusal writes an event of the verb's name with "_refused" if the error says
// that the request was refused, rather than failed: an outage is none. It returns the
// error as it is, or a *UnauditedError of it when the event, which has a transaction of
// its own, could not be written in five seconds. A refusal that is repeated under its
// request id has one event. The event's detail names the cause, with no text of the
// dead letter.
//
// The methods of Store call it themselves, except for those whose names end in Tx
// and for Resolve.
func (s *Store) NoteRefusal(ctx context.Context, asked Asked, err error) error {
	cause := refusalCause(err)
	if cause == nil || errors.As(err, new(*UnauditedError)) {
		return err
	}
	// The caller may be about to leave, and what was refused is still to be noted.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), maxNoting)
	defer cancel()
	detail := encoded(cause)
	if unwritten := s.writeRefusal(ctx, asked, detail, false); unwritten != nil {
		return &UnauditedError{Asked: asked, Detail: detail, Refusal: err, Unwritten: unwritten}
	}
	return err
}

// Refuse writes the event of a refusal that was decided elsewhere, once per request id:
// detail is a JSON object. With unlessDone it writes none if the request has been
// carried out after all.
func (s *Store) Refuse(ctx context.Context, asked Asked, detail string, unlessDone bool) error {
	if err := s.writeRefusal(ctx, asked, withoutNUL(detail), unlessDone); err != nil {
		return fmt.Errorf("refuse request %q: %w", asked.RequestID, err)
	}
	return nil
}

func (s *Store) writeRefusal(ctx context.Context, asked Asked, detail string, unlessDone bool) error {
	args := pgx.NamedArgs{
		"verb": asked.Verb, "actor": text.Bounded(asked.Actor, maxName),
		"namespace": text.Bounded(asked.Namespace, maxName), "workflow_id": text.Bounded(asked.WorkflowID, maxName), "run_id": text.Bounded(asked.RunID, maxName),
		"request_id": orNull(asked.RequestID), "plan_id": orNull(asked.PlanID),
		"detail": detail, "unless_done": unlessDone,
	}
	return s.inTx(ctx, beginWrite, func(ctx context.Context, tx pgx.Tx) error {
		if asked.RequestID != "" { // two tries of one request may be under way
			if _, err := tx.Exec(ctx, s.sql(lockRequest), pgx.NamedArgs{"request_id": args["request_id"]}); err != nil {
				return classify(err)
			}
		}
		_, err := tx.Exec(ctx, s.sql(insertRefusal), args)
		return classify(err)
	})
}

// maxNoting bounds how long a refusal may wait for its event.
const maxNoting = 5 * time.Second

// maxCause bounds a cause in words, in bytes.
const maxCause = 1000

// refusalCause returns nil for an error that is no refusal.
func refusalCause(err error) map[string]any {
	var (
		conflict  *ConflictError
		edit      *EditError
		capped    *CapError
		ambiguous *AmbiguousError
		state     *PlanStateError
		refused   *RefusedError
	)
	switch {
	case errors.As(err, &conflict):
		return map[string]any{"cause": "revision_conflict", "revision": conflict.Seen, "newest": conflict.Current}
	case errors.As(err, &edit):
		return map[string]any{"cause": edit.Code}
	case errors.As(err, &capped):
		return map[string]any{"cause": "cap_exceeded", "matched": capped.Matched, "limit": capped.Limit}
	case errors.As(err, &ambiguous):
		return map[string]any{"cause": "ambiguous", "runs": len(ambiguous.RunIDs)}
	case errors.Is(err, ErrUnbounded):
		return map[string]any{"cause": "unbounded_filter"}
	case errors.Is(err, ErrRequestConflict):
		return map[string]any{"cause": "request_conflict"}
	case errors.Is(err, ErrSuperseded):
		return map[string]any{"cause": "superseded"}
	case rejection(err) != "":
		return inWords(rejection(err))
	case errors.As(err, &state):
		return inWords(state.Cause)
	case errors.As(err, &refused):
		return inWords(refused.Cause)
	case errors.Is(err, ErrRefused):
		return inWords(err.Error())
	case errors.Is(err, ErrNotFound):
		return map[string]any{"cause": "not_found"}
	default:
		return nil
	}
}

func inWords(cause string) map[string]any {
	return map[string]any{"cause": text.Bounded(cause, maxCause)}
}
