package dlqstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/deadletter-dev/deadletter/internal/text"
)

// The attempts go by cascade, and one event per dead letter is written by the
// statement that removes it. Replays and events stay.
const (
	insertPurgeEvents = `
insert into {schema}.events (verb, actor, namespace, workflow_id, run_id, request_id, detail)
select 'purge', @actor, gone.namespace, gone.workflow_id, gone.run_id, @request_id::text,
	jsonb_build_object('reason', gone.reason, 'job_type', gone.job_type, 'dead_at', gone.dead_at)
from gone`

	purgeOne = `
with gone as (
	delete from {schema}.dead_letters
	where namespace = @namespace and workflow_id = @workflow_id and run_id = @run_id
	returning namespace, workflow_id, run_id, reason, job_type, dead_at
)` + insertPurgeEvents

	// selectPurged finds what a request removed. Its index is the one on the dead
	// letter's key.
	selectPurged = `
select run_id
from {schema}.events
where namespace = @namespace and workflow_id = @workflow_id and (@run_id = '' or run_id = @run_id)
	and verb = 'purge' and request_id = @request_id
limit 1`

	// purgeVictims, the filter's clause and purgeSelected make one statement. It
	// locks in one order, so that two of them do not deadlock.
	purgeVictims = `
with victims as materialized (
	select d.namespace, d.workflow_id, d.run_id
	from {schema}.dead_letters d`
	purgeSelected = `
	order by d.dead_at, d.namespace, d.workflow_id, d.run_id
	limit @batch
	for update
), gone as (
	delete from {schema}.dead_letters d
	using victims v
	where d.namespace = v.namespace and d.workflow_id = v.workflow_id and d.run_id = v.run_id
	returning d.namespace, d.workflow_id, d.run_id, d.reason, d.job_type, d.dead_at
)` + insertPurgeEvents
)

const (
	defaultPurgeLimit = 1000
	purgeBatch        = 500
)

// PurgeRequest selects dead letters to remove for good.
type PurgeRequest struct {
	Filter Filter
	// All allows a filter that selects everything (of one namespace or of all).
	All bool
	// Limit is the most that may match; if more do, nothing is purged. 0 means 1000.
	Limit int
	Actor string
}

// Purge removes a dead letter and its attempts for good; ErrNotFound if there is
// none. The job is never moved again.
func (s *Store) Purge(ctx context.Context, key Key, actor string) error {
	return s.inTx(ctx, beginWrite, func(ctx context.Context, tx pgx.Tx) error {
		return s.PurgeTx(ctx, tx, key, actor)
	})
}

// PurgeTx is Purge in the caller's transaction.
func (s *Store) PurgeTx(ctx context.Context, tx pgx.Tx, key Key, actor string) error {
	return s.purgeTx(ctx, tx, key, nil, actor)
}

func (s *Store) purgeTx(ctx context.Context, tx pgx.Tx, key Key, requestID *string, actor string) error {
	if !key.holdable() {
		return notFound(key)
	}
	args := key.args()
	args["actor"], args["request_id"] = text.Bounded(actor, maxName), requestID
	done, err := tx.Exec(ctx, s.sql(purgeOne), args)
	switch {
	case err != nil:
		return fmt.Errorf("purge %s: %w", key, classify(err))
	case done.RowsAffected() == 0:
		return notFound(key)
	default:
		return nil
	}
}

// PurgeRequested is Purge under a request id, so that it may be repeated: the same
// id for the same dead letter is done once and succeeds ever after, and another
// one finds nothing there. The key's run id may be empty, with the meaning that it
// has for Resolve; a repetition never removes another run that has died since.
func (s *Store) PurgeRequested(ctx context.Context, key Key, requestID, actor string) error {
	return s.inTx(ctx, beginWrite, func(ctx context.Context, tx pgx.Tx) error {
		return s.PurgeRequestedTx(ctx, tx, key, requestID, actor)
	})
}

// PurgeRequestedTx is PurgeRequested in the caller's transaction.
func (s *Store) PurgeRequestedTx(ctx context.Context, tx pgx.Tx, key Key, requestID, actor string) error {
	switch {
	case requestID == "":
		return fmt.Errorf("purge %s: no request id given", key)
	case !key.holdable():
		return notFound(key)
	}
	requestID = text.Bounded(requestID, maxName)
	if done, err := s.purgedBy(ctx, tx, key, requestID); done || err != nil {
		return err
	}
	resolved, err := s.resolveTx(ctx, tx, key)
	if err == nil {
		err = s.purgeTx(ctx, tx, resolved, &requestID, actor)
	}
	if errors.Is(err, ErrNotFound) {
		// The same request may have been under way, and be what removed it.
		if done, lookup := s.purgedBy(ctx, tx, key, requestID); done || lookup != nil {
			return lookup
		}
	}
	return err
}

// purgedBy reports whether the request has removed a dead letter of the key.
func (s *Store) purgedBy(ctx context.Context, tx pgx.Tx, key Key, requestID string) (bool, error) {
	args := key.args()
	args["request_id"] = requestID
	run, err := first(ctx, tx, s, selectPurged, args, pgx.RowTo[string])
	if err != nil {
		return false, fmt.Errorf("purge %s: %w", key, err)
	}
	return run != nil, nil
}

// PurgeMatching removes the dead letters that a filter selects, in batches of one
// transaction each, and returns how many are gone, also when a later batch fails.
// An empty filter is ErrUnbounded unless All is set. More matches than Limit are a
// *CapError and nothing is purged; no more rows go than were counted then.
func (s *Store) PurgeMatching(ctx context.Context, request PurgeRequest) (purged int64, err error) {
	purged, err = s.purgeMatching(ctx, request)
	if err != nil {
		return purged, fmt.Errorf("purge by filter: %w", err)
	}
	return purged, nil
}

func (s *Store) purgeMatching(ctx context.Context, request PurgeRequest) (purged int64, err error) {
	if request.Filter.IsEmpty() && !request.All {
		return 0, ErrUnbounded
	}
	limit := request.Limit
	switch {
	case limit < 0:
		return 0, fmt.Errorf("a limit of %d: it must not be negative", limit)
	case limit == 0:
		limit = defaultPurgeLimit
	}
	matched, err := s.Count(ctx, request.Filter)
	if err != nil {
		return 0, err
	}
	if matched > int64(limit) {
		return 0, &CapError{Matched: matched, Limit: limit}
	}
	where, args := request.Filter.where()
	args["actor"], args["request_id"] = text.Bounded(request.Actor, maxName), nil
	text := s.sql(purgeVictims) + where + s.sql(purgeSelected)
	for purged < matched {
		args["batch"] = min(purgeBatch, matched-purged)
		var gone int64
		err := s.inTx(ctx, beginWrite, func(ctx context.Context, tx pgx.Tx) error {
			done, err := tx.Exec(ctx, text, args)
			gone = done.RowsAffected()
			return classify(err)
		})
		if err != nil {
			return purged, err
		}
		if gone == 0 {
			break // others purged the rest
		}
		purged += gone
	}
	return purged, nil
}
