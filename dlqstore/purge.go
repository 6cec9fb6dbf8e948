package dlqstore

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/deadletter-dev/deadletter/internal/text"
)

// The attempts, revisions and notes go by cascade, and one event per dead letter is written by the
// statement that removes it. Replays and events stay.
const (
	insertPurgeEvents = `
insert into {schema}.events (verb, actor, namespace, workflow_id, run_id, detail)
select 'purge', @actor, gone.namespace, gone.workflow_id, gone.run_id,
	jsonb_build_object('reason', gone.reason, 'job_type', gone.job_type, 'dead_at', gone.dead_at)
from gone`

	purgeOne = `
with gone as (
	delete from {schema}.dead_letters
	where namespace = @namespace and workflow_id = @workflow_id and run_id = @run_id
	returning namespace, workflow_id, run_id, reason, job_type, dead_at
)` + insertPurgeEvents

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
// none, of which an event of verb purge_refused tells. The job is never moved
// again.
func (s *Store) Purge(ctx context.Context, key Key, actor string) error {
	err := s.inTx(ctx, beginWrite, func(ctx context.Context, tx pgx.Tx) error {
		return s.PurgeTx(ctx, tx, key, actor)
	})
	s.NoteRefusal(ctx, Asked{Verb: VerbPurge, Key: key, Actor: actor}, err)
	return err
}

// PurgeTx is Purge in the caller's transaction, without the event of a refusal.
func (s *Store) PurgeTx(ctx context.Context, tx pgx.Tx, key Key, actor string) error {
	if !key.holdable() {
		return notFound(key)
	}
	args := key.args()
	args["actor"] = text.Bounded(actor, maxName)
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

// PurgeMatching removes the dead letters that a filter selects, in batches of one
// transaction each, and returns how many are gone, also when a later batch fails.
// An empty filter is ErrUnbounded unless All is set. More matches than Limit are a
// *CapError and nothing is purged; no more rows go than were counted then. An
// event of verb purge_refused tells of both.
func (s *Store) PurgeMatching(ctx context.Context, request PurgeRequest) (purged int64, err error) {
	purged, err = s.purgeMatching(ctx, request)
	if err != nil {
		s.NoteRefusal(ctx, Asked{Verb: VerbPurge, Key: Key{Namespace: request.Filter.Namespace}, Actor: request.Actor}, err)
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
	where, args, err := s.where(request.Filter)
	if err != nil {
		return 0, err
	}
	args["actor"] = text.Bounded(request.Actor, maxName)
	text := s.sql(purgeVictims) + where + s.sql(purgeSelected)
	for purged < matched {
		args["batch"] = min(purgeBatch, matched-purged)
		var gone int64
		err := s.inTx(ctx, beginWrite+ownPlan, func(ctx context.Context, tx pgx.Tx) error {
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
