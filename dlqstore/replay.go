package dlqstore

import (
	"context"
	"crypto/rand"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/deadletter-dev/deadletter/internal/text"
	"github.com/deadletter-dev/deadletter/job"
)

const (
	// lockDeadLetter comes first in everything that counts replays, so that calls
	// for one dead letter go one by one.
	lockDeadLetter = selectDeadLetter + `
for update`

	selectReplay = `
select` + replayColumns + `
from {schema}.replays r
where request_id = @request_id`

	// insertReplay inserts nothing if another dead letter's call took the request
	// id since it was looked for.
	insertReplay = `
insert into {schema}.replays as r (request_id, namespace, workflow_id, run_id, new_workflow_id, actor, revision)
values (@request_id, @namespace, @workflow_id, @run_id, @new_workflow_id, @actor, @revision)
on conflict (request_id) do nothing
returning` + replayColumns

	countReplay = `
update {schema}.dead_letters
set resurrection_count = resurrection_count + 1, last_resurrection_at = greatest(last_resurrection_at, now())
where namespace = @namespace and workflow_id = @workflow_id and run_id = @run_id
returning resurrection_count, last_resurrection_at`

	insertReplayEvent = `
insert into {schema}.events (verb, actor, namespace, workflow_id, run_id, request_id, detail)
values (@verb, @actor, @namespace, @workflow_id, @run_id, @request_id, @detail::jsonb)`

	confirmReplay = `
update {schema}.replays
set new_run_id = @new_run_id, started_at = now(), status = 'queued'
where request_id = @request_id and new_run_id is null and outcome is null`

	refuseReplay = `
update {schema}.replays
set outcome = 'refused', error = @cause, finished_at = now()
where request_id = @request_id and new_run_id is null and outcome is null`

	// uncountReplay runs under the dead letter's lock, so no other replay of it is
	// half-way.
	uncountReplay = `
update {schema}.dead_letters
set resurrection_count = greatest(resurrection_count - 1, 0), last_resurrection_at = (
	select max(requested_at) from {schema}.replays
	where namespace = @namespace and workflow_id = @workflow_id and run_id = @run_id and outcome is distinct from 'refused'
)
where namespace = @namespace and workflow_id = @workflow_id and run_id = @run_id`

	selectPendingReplays = `
select` + replayColumns + `,` + listColumns + `,` + wireColumns + `
from {schema}.replays r
join {schema}.dead_letters d using (namespace, workflow_id, run_id)
where r.new_run_id is null and r.outcome is null
	and r.requested_at <= now() - @min_age_ms::bigint * interval '1 millisecond'
	and (@max_age_ms::bigint = 0 or r.requested_at >= now() - @max_age_ms * interval '1 millisecond')
	and (@namespace = '' or r.namespace = @namespace)
order by r.requested_at, r.request_id
limit @limit`
)

const maxPending = 100 // each comes with its payloads

// ReplayRequest asks for one replay of one dead letter.
type ReplayRequest struct {
	Key
	// RequestID makes the request repeatable: the same id means the same new job.
	// Empty means a fresh one. At most 1000 bytes.
	RequestID string
	Actor     string
	// AllowSuperseded replays a dead letter whose job, reset by a person, succeeded
	// after all. Without it that is a *SupersededError.
	AllowSuperseded bool
}

// ReplayStart is what a caller needs to start the new job.
type ReplayStart struct {
	Replay Replay
	// DeadLetter is whole, wire bytes included, and as it was when the replay was
	// made: an edit since then is not in it. It is nil only when the replay was
	// confirmed before and the dead letter has been purged since.
	DeadLetter *DeadLetter
	// Fresh is true when this very call made the replay.
	Fresh bool
}

// BeginReplay decides on a new job and counts it, before Temporal is asked: a
// fresh workflow id, the row in replays, the dead letter's resurrection_count and
// last_resurrection_at, and an event. The caller then starts that workflow id,
// which may be done again after a crash, and calls ConfirmReplay, or RefuseReplay
// if the server rejected the start for good.
//
// The same request id returns the same replay and counts nothing: the error is
// ErrRequestConflict if it was for another dead letter and a *RefusedError if it
// was refused. Without a dead letter the error is ErrNotFound, unless the replay
// is one that was confirmed before a purge. A superseded dead letter is a
// *SupersededError, see ReplayRequest. An event of verb replay_refused tells of
// each of these.
func (s *Store) BeginReplay(ctx context.Context, request ReplayRequest) (start *ReplayStart, err error) {
	if request.RequestID == "" { // here, so that a caller's retry of the whole call is a new request
		request.RequestID = uuid.NewString()
	}
	err = s.inTx(ctx, beginWrite, func(ctx context.Context, tx pgx.Tx) error {
		start, err = s.BeginReplayTx(ctx, tx, request)
		return err
	})
	if err != nil {
		return nil, s.NoteRefusal(ctx, Asked{Verb: VerbReplay, Key: request.Key, Actor: request.Actor, RequestID: request.RequestID}, err)
	}
	return start, nil
}

// BeginReplayTx is BeginReplay in the caller's transaction, without the event of
// a refusal.
func (s *Store) BeginReplayTx(ctx context.Context, tx pgx.Tx, request ReplayRequest) (*ReplayStart, error) {
	tx = own(tx)
	if request.RequestID == "" {
		request.RequestID = uuid.NewString()
	}
	if err := checkRequestID(request.RequestID); err != nil {
		return nil, err
	}
	if !request.holdable() {
		return nil, notFound(request.Key)
	}
	request.RequestID, request.Actor = text.Holdable(request.RequestID), text.Bounded(request.Actor, maxName)
	start, err := s.beginReplay(ctx, tx, request)
	if err != nil {
		return nil, fmt.Errorf("replay %s: %w", request.Key, err)
	}
	return start, nil
}

func checkRequestID(id string) error {
	if len(id) > maxName {
		return &RefusedError{RequestID: text.Head(id, 40) + "…", Cause: fmt.Sprintf("the request id has more than %d bytes", maxName)}
	}
	return nil
}

func (s *Store) beginReplay(ctx context.Context, tx pgx.Tx, request ReplayRequest) (*ReplayStart, error) {
	args := request.args()
	args["request_id"], args["actor"] = request.RequestID, request.Actor
	found, err := first(ctx, tx, s, lockDeadLetter, args, scanDeadLetter)
	if err != nil {
		return nil, err
	}
	var dl *DeadLetter
	if found != nil {
		dl = *found
	}
	known, err := first(ctx, tx, s, selectReplay, args, scanReplay)
	if err != nil {
		return nil, err
	}
	if known != nil {
		return s.knownStart(ctx, tx, request, known, dl)
	}
	switch {
	case dl == nil:
		return nil, ErrNotFound
	case dl.SupersededAt != nil && !request.AllowSuperseded:
		return nil, &SupersededError{Key: dl.Key, At: *dl.SupersededAt, ByRunID: dl.SupersededByRunID}
	}
	args["new_workflow_id"], args["revision"] = newWorkflowID(dl.WorkflowID), dl.Revision
	replay, err := first(ctx, tx, s, insertReplay, args, scanReplay)
	switch {
	case err != nil:
		return nil, err
	case replay == nil: // taken by another dead letter: calls for this one wait at the lock
		return nil, fmt.Errorf("request id %q: %w", request.RequestID, ErrRequestConflict)
	}
	if err := tx.QueryRow(ctx, s.sql(countReplay), args).Scan(&dl.ResurrectionCount, &dl.LastResurrectionAt); err != nil {
		return nil, classify(err)
	}
	dl.inUTC()
	args["verb"] = VerbReplay
	args["detail"] = encoded(map[string]string{"new_workflow_id": replay.NewWorkflowID})
	if _, err := tx.Exec(ctx, s.sql(insertReplayEvent), args); err != nil {
		return nil, classify(err)
	}
	return &ReplayStart{Replay: *replay, DeadLetter: dl, Fresh: true}, nil
}

// knownStart answers a request id that was used before.
func (s *Store) knownStart(ctx context.Context, tx pgx.Tx, request ReplayRequest, known *Replay, dl *DeadLetter) (*ReplayStart, error) {
	switch {
	case known.Key != own(tx).encoding.held(request.Key):
		return nil, fmt.Errorf("request id %q: %w", request.RequestID, ErrRequestConflict)
	case known.refused():
		return nil, known.refusal()
	case dl == nil && known.NewRunID == nil:
		return nil, ErrNotFound
	default:
		start := &ReplayStart{Replay: *known, DeadLetter: dl}
		return start, s.asReplayed(ctx, tx, start)
	}
}

// asReplayed takes the edits since the replay out of the dead letter: the new job
// has one content, whenever its start is repeated.
func (s *Store) asReplayed(ctx context.Context, tx pgx.Tx, start *ReplayStart) error {
	dl, revision := start.DeadLetter, start.Replay.Revision
	if dl == nil || revision == nil || *revision >= dl.Revision {
		return nil
	}
	past, err := s.contentAt(ctx, tx, dl.Key, *revision)
	if err != nil {
		return err
	}
	start.DeadLetter = past.In(dl)
	start.DeadLetter.Revision = *revision
	return nil
}

func (r *Replay) refused() bool { return r.Outcome != nil && *r.Outcome == job.OutcomeRefused }

func (r *Replay) refusal() error {
	refusal := &RefusedError{RequestID: r.RequestID}
	if r.Error != nil {
		refusal.Cause = *r.Error
	}
	return refusal
}

// ConfirmReplay notes the run that Temporal started for a request. Doing so again
// is fine; another run for it is ErrRequestConflict. An unknown request is
// ErrNotFound, a refused one a *RefusedError.
func (s *Store) ConfirmReplay(ctx context.Context, requestID, newRunID string) error {
	return s.inTx(ctx, beginWrite, func(ctx context.Context, tx pgx.Tx) error {
		return s.ConfirmReplayTx(ctx, tx, requestID, newRunID)
	})
}

// ConfirmReplayTx is ConfirmReplay in the caller's transaction.
func (s *Store) ConfirmReplayTx(ctx context.Context, tx pgx.Tx, requestID, newRunID string) error {
	tx = own(tx)
	if newRunID == "" {
		return fmt.Errorf("confirm replay %q: no run id given", requestID)
	}
	args := pgx.NamedArgs{"request_id": text.Holdable(requestID), "new_run_id": newRunID}
	done, err := tx.Exec(ctx, s.sql(confirmReplay), args)
	if err != nil {
		return fmt.Errorf("confirm replay %q: %w", requestID, classify(err))
	}
	if done.RowsAffected() == 1 {
		return nil
	}
	known, err := first(ctx, tx, s, selectReplay, args, scanReplay)
	switch {
	case err != nil:
		return fmt.Errorf("confirm replay %q: %w", requestID, err)
	case known == nil:
		return fmt.Errorf("confirm replay %q: %w", requestID, ErrNotFound)
	case known.refused():
		return fmt.Errorf("confirm replay as run %s: %w", newRunID, known.refusal())
	case known.NewRunID == nil || *known.NewRunID != newRunID:
		return fmt.Errorf("confirm replay %q as run %s: it has another run: %w", requestID, newRunID, ErrRequestConflict)
	default:
		return nil
	}
}

// RefuseReplay notes that the server rejected the start of a request for good, so
// that there is no job: the dead letter's count is taken back and an event is
// written. Doing so again changes nothing. A confirmed replay is left alone and is
// ErrRequestConflict, an unknown request is ErrNotFound. The cause is bounded like
// an error's message.
func (s *Store) RefuseReplay(ctx context.Context, requestID, cause string) error {
	return s.inTx(ctx, beginWrite, func(ctx context.Context, tx pgx.Tx) error {
		return s.RefuseReplayTx(ctx, tx, requestID, cause)
	})
}

// RefuseReplayTx is RefuseReplay in the caller's transaction.
func (s *Store) RefuseReplayTx(ctx context.Context, tx pgx.Tx, requestID, cause string) error {
	tx = own(tx)
	if err := s.refuseReplay(ctx, tx, text.Holdable(requestID), text.Bounded(cause, MaxErrorMessage)); err != nil {
		return fmt.Errorf("refuse replay %q: %w", requestID, err)
	}
	return nil
}

func (s *Store) refuseReplay(ctx context.Context, tx pgx.Tx, requestID, cause string) error {
	known, err := first(ctx, tx, s, selectReplay, pgx.NamedArgs{"request_id": requestID}, scanReplay)
	if err != nil {
		return err
	}
	if known == nil {
		return ErrNotFound
	}
	args := known.args()
	args["request_id"], args["cause"] = requestID, cause
	if _, err := first(ctx, tx, s, lockDeadLetter, args, scanDeadLetter); err != nil {
		return err
	}
	done, err := tx.Exec(ctx, s.sql(refuseReplay), args)
	if err != nil {
		return classify(err)
	}
	if done.RowsAffected() == 0 {
		return s.alreadyEnded(ctx, tx, args)
	}
	if _, err := tx.Exec(ctx, s.sql(uncountReplay), args); err != nil { // no row after a purge
		return classify(err)
	}
	args["verb"], args["actor"] = VerbReplayRefused, known.Actor
	args["detail"] = encoded(map[string]string{"new_workflow_id": known.NewWorkflowID, "error": cause})
	_, err = tx.Exec(ctx, s.sql(insertReplayEvent), args)
	return classify(err)
}

// alreadyEnded says why there was nothing to refuse; nil if it is refused already.
func (s *Store) alreadyEnded(ctx context.Context, tx pgx.Tx, args pgx.NamedArgs) error {
	known, err := first(ctx, tx, s, selectReplay, args, scanReplay)
	if err != nil || known != nil && known.refused() {
		return err
	}
	return fmt.Errorf("it was started: %w", ErrRequestConflict)
}

// PendingReplays returns replays that were begun at least minAge and at most
// maxAge ago and neither confirmed nor refused, the oldest first: their starter
// crashed, or is still at it. A maxAge of 0 means any. An empty namespace means
// all. limit is 100 at most, and 0 means that. Those whose dead letter was purged
// are left out.
func (s *Store) PendingReplays(ctx context.Context, namespace string, minAge, maxAge time.Duration, limit int) ([]ReplayStart, error) {
	if limit <= 0 || limit > maxPending {
		limit = maxPending
	}
	args := pgx.NamedArgs{"namespace": text.Holdable(namespace), "min_age_ms": minAge.Milliseconds(), "max_age_ms": maxAge.Milliseconds(), "limit": limit}
	var pending []ReplayStart
	err := s.inTx(ctx, beginRead, func(ctx context.Context, tx pgx.Tx) (err error) {
		if pending, err = collect(ctx, tx, s.sql(selectPendingReplays), args, scanStart); err != nil {
			return err
		}
		for i := range pending {
			if err := s.asReplayed(ctx, tx, &pending[i]); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("pending replays: %w", err)
	}
	return pending, nil
}

var replaySuffix = regexp.MustCompile(`-replay-[a-z2-7]{12}$`)

// maxBaseID leaves room for the suffix under the server's limit on ids.
const maxBaseID = 900

// newWorkflowID names the new job after the first of its line, so that ids do not
// grow from replay to replay. An id that no client in Go can route a call by, a
// starter in another language chose it, becomes one that it can.
func newWorkflowID(workflowID string) string {
	base := text.Head(replaySuffix.ReplaceAllString(workflowID, ""), maxBaseID)
	base = strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '_'
		}
		return r
	}, base)
	return base + "-replay-" + strings.ToLower(rand.Text()[:12]) // 60 bits
}
