package dlqstore

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deadletter-dev/deadletter/internal/text"
)

const eventColumns = `
	id, verb, actor, at, namespace, workflow_id, run_id, request_id, plan_id, detail`

const insertRefusal = `
insert into {schema}.events (verb, actor, namespace, workflow_id, run_id, request_id, plan_id, detail)
values (@verb, @actor, @namespace, @workflow_id, @run_id, @request_id, @plan_id, @detail::jsonb)`

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

// NoteRefusal writes an event of the verb's name with "_refused" if the error says
// that the request was refused, rather than failed: an outage is none. The event
// has a transaction of its own and is written if it can be; the error is the
// caller's to return, and is never changed by this. The cause in the event is a
// word of ours with numbers, without texts of the request or the dead letter.
//
// The methods of Store call it themselves, except for those whose names end in Tx
// and for Resolve.
func (s *Store) NoteRefusal(ctx context.Context, asked Asked, err error) {
	cause := refusalCause(err)
	if cause == nil {
		return
	}
	args := pgx.NamedArgs{
		"verb": asked.Verb + "_refused", "actor": text.Bounded(asked.Actor, maxName),
		"namespace": text.Bounded(asked.Namespace, maxName), "workflow_id": text.Bounded(asked.WorkflowID, maxName), "run_id": text.Bounded(asked.RunID, maxName),
		"request_id": orNull(asked.RequestID), "plan_id": orNull(asked.PlanID),
		"detail": encoded(cause),
	}
	// The caller may be about to leave, and what was refused is still to be noted.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), maxNoting)
	defer cancel()
	_ = s.inTx(ctx, beginWrite, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, s.sql(insertRefusal), args)
		return err
	})
}

// maxNoting bounds how long a refusal may wait for its event.
const maxNoting = 5 * time.Second

// refusalCause returns nil for an error that is no refusal.
func refusalCause(err error) map[string]any {
	var (
		conflict  *ConflictError
		edit      *EditError
		capped    *CapError
		ambiguous *AmbiguousError
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
	case errors.Is(err, ErrRefused):
		return map[string]any{"cause": "refused"}
	case errors.Is(err, ErrNotFound):
		return map[string]any{"cause": "not_found"}
	default:
		return nil
	}
}
