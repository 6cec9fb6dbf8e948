package dlqstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/deadletter-dev/deadletter/internal/text"
)

const (
	// startingReplay is true of a dead letter d of which a replay is counted and not
	// started yet: what it is started from must stay. One that is older than a day is
	// never started any more.
	startingReplay = `exists (
		select from {schema}.replays r
		where r.namespace = d.namespace and r.workflow_id = d.workflow_id and r.run_id = d.run_id
			and r.new_run_id is null and r.outcome is null and r.requested_at > now() - interval '1 day'
	)`

	lockForPurge = `
select d.run_id
from {schema}.dead_letters d
where d.namespace = @namespace and d.workflow_id = @workflow_id and d.run_id = @run_id
for update`

	// lockVictims, the filter's clause and lockVictimsEnd make one statement. It locks
	// in the order of every other statement that takes several rows, so that two of
	// them do not deadlock.
	lockVictims = `
select d.namespace, d.workflow_id, d.run_id
from {schema}.dead_letters d`
	lockVictimsEnd = `
order by d.dead_at, d.namespace, d.workflow_id, d.run_id
limit @batch
for update`

	// purgeLocked comes after the rows are locked, as a statement of its own: so it
	// sees a replay that was begun while the lock was waited for. Attempts, revisions
	// and notes go by cascade; replays and events stay.
	purgeLocked = `
with gone as (
	delete from {schema}.dead_letters d
	using unnest(@namespaces::text[], @workflow_ids::text[], @run_ids::text[]) as k (namespace, workflow_id, run_id)
	where d.namespace = k.namespace and d.workflow_id = k.workflow_id and d.run_id = k.run_id and not ` + startingReplay + `
	returning d.namespace, d.workflow_id, d.run_id, d.reason, d.job_type, d.dead_at
)
insert into {schema}.events (verb, actor, namespace, workflow_id, run_id, request_id, plan_id, detail)
select 'purge', @actor, gone.namespace, gone.workflow_id, gone.run_id, @request_id::text, @plan_id::text,
	jsonb_build_object('reason', gone.reason, 'job_type', gone.job_type, 'dead_at', gone.dead_at)
from gone
returning namespace, workflow_id, run_id`

	// selectPurged finds what a request removed. Its index is the one on the dead
	// letter's key.
	selectPurged = `
select run_id
from {schema}.events
where namespace = @namespace and workflow_id = @workflow_id and (@run_id = '' or run_id = @run_id)
	and verb = 'purge' and request_id = @request_id
limit 1`
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
// none, of which an event of verb purge_refused tells, and ErrBusy while a replay of
// it is being started. The job is never moved again.
func (s *Store) Purge(ctx context.Context, key Key, actor string) error {
	err := s.inTx(ctx, beginWrite, func(ctx context.Context, tx pgx.Tx) error {
		return s.PurgeTx(ctx, tx, key, actor)
	})
	return s.NoteRefusal(ctx, Asked{Verb: VerbPurge, Key: key, Actor: actor}, err)
}

// PurgeTx is Purge in the caller's transaction, without the event of a refusal.
func (s *Store) PurgeTx(ctx context.Context, tx pgx.Tx, key Key, actor string) error {
	tx = own(tx)
	return s.purgeTx(ctx, tx, key, nil, actor)
}

func (s *Store) purgeTx(ctx context.Context, tx pgx.Tx, key Key, requestID *string, actor string) error {
	if !key.holdable() {
		return notFound(key)
	}
	locked, err := first(ctx, tx, s, lockForPurge, key.args(), pgx.RowTo[string])
	if err != nil {
		return fmt.Errorf("purge %s: %w", key, err)
	}
	if locked == nil {
		return notFound(key)
	}
	gone, err := s.purgeLocked(ctx, tx, []Key{key}, purgeEvent{actor: actor, requestID: requestID})
	switch {
	case err != nil:
		return fmt.Errorf("purge %s: %w", key, err)
	case len(gone) == 0:
		return fmt.Errorf("purge %s: %w", key, ErrBusy)
	default:
		return nil
	}
}

// purgeEvent is what the events of a purge tell beside the dead letters.
type purgeEvent struct {
	actor             string
	requestID, planID *string
}

// purgeLocked removes dead letters that the transaction has locked, and returns
// which: not those of which a replay is being started.
func (s *Store) purgeLocked(ctx context.Context, tx pgx.Tx, keys []Key, event purgeEvent) ([]Key, error) {
	namespaces, workflows, runs := make([]string, len(keys)), make([]string, len(keys)), make([]string, len(keys))
	for i, key := range keys {
		namespaces[i], workflows[i], runs[i] = key.Namespace, key.WorkflowID, key.RunID
	}
	return collect(ctx, tx, s.sql(purgeLocked), pgx.NamedArgs{
		"namespaces": namespaces, "workflow_ids": workflows, "run_ids": runs,
		"actor": text.Bounded(event.actor, maxName), "request_id": event.requestID, "plan_id": event.planID,
	}, pgx.RowToStructByPos[Key])
}

// PurgeRequested is Purge under a request id, so that it may be repeated: the same
// id for the same dead letter is done once and succeeds ever after, and another
// one finds nothing there. The key's run id may be empty, with the meaning that it
// has for Resolve; a repetition never removes another run that has died since.
func (s *Store) PurgeRequested(ctx context.Context, key Key, requestID, actor string) error {
	err := s.inTx(ctx, beginWrite, func(ctx context.Context, tx pgx.Tx) error {
		return s.PurgeRequestedTx(ctx, tx, key, requestID, actor)
	})
	return s.NoteRefusal(ctx, Asked{Verb: VerbPurge, Key: key, Actor: actor, RequestID: requestID}, err)
}

// PurgeRequestedTx is PurgeRequested in the caller's transaction.
func (s *Store) PurgeRequestedTx(ctx context.Context, tx pgx.Tx, key Key, requestID, actor string) error {
	tx = own(tx)
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
// *CapError and nothing is purged; no more rows go than were counted then, and fewer
// if others purge too, or a replay is being started. An event of verb purge_refused
// tells of both.
func (s *Store) PurgeMatching(ctx context.Context, request PurgeRequest) (purged int64, err error) {
	purged, err = s.purgeMatching(ctx, request)
	if err != nil {
		err = s.NoteRefusal(ctx, Asked{Verb: VerbPurge, Key: Key{Namespace: request.Filter.Namespace}, Actor: request.Actor}, err)
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
	where, args, err := s.where(request.Filter, "not "+s.sql(startingReplay))
	if err != nil {
		return 0, err
	}
	text := s.sql(lockVictims) + where + s.sql(lockVictimsEnd)
	for purged < matched {
		args["batch"] = min(purgeBatch, matched-purged)
		var gone int64
		err := s.inTx(ctx, beginWrite+ownPlan, func(ctx context.Context, tx pgx.Tx) error {
			victims, err := collect(ctx, tx, text, args, pgx.RowToStructByPos[Key])
			if err != nil {
				return err
			}
			purged, err := s.purgeLocked(ctx, tx, victims, purgeEvent{actor: request.Actor})
			gone = int64(len(purged))
			return err
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
