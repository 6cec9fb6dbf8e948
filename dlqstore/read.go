package dlqstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/deadletter-dev/deadletter/internal/text"
)

const (
	selectDeadLetter = `
select` + listColumns + `,` + wireColumns + `
from {schema}.dead_letters d
where namespace = @namespace and workflow_id = @workflow_id and run_id = @run_id`

	// selectRuns reads one more than an AmbiguousError lists.
	selectRuns = `
select run_id
from {schema}.dead_letters
where namespace = @namespace and workflow_id = @workflow_id and (@run_id = '' or run_id = @run_id)
order by dead_at desc, run_id desc
limit 101`

	selectRequestKeys = `
select namespace, workflow_id, run_id from {schema}.replays where request_id = @request_id
union
select namespace, workflow_id, run_id from {schema}.revisions where request_id = @request_id
union
select namespace, workflow_id, run_id from {schema}.notes where request_id = @request_id and workflow_id is not null`

	selectAttempts = `
select attempt, started_at, ended_at, worker_identity, error_type, error_message, error_stack, wait_ms
from {schema}.attempts
where namespace = @namespace and workflow_id = @workflow_id and run_id = @run_id
order by attempt`

	selectReplays = `
select` + replayColumns + `
from {schema}.replays r
where namespace = @namespace and workflow_id = @workflow_id and run_id = @run_id
order by requested_at, request_id`

	selectEvents = `
select` + eventColumns + `
from {schema}.events
where namespace = @namespace and workflow_id = @workflow_id and run_id = @run_id
order by id`
)

const maxRunsListed = 100

// Get returns the dead letter with everything that is stored of it, or ErrNotFound.
func (s *Store) Get(ctx context.Context, key Key) (*DeadLetter, error) {
	if !key.holdable() {
		return nil, notFound(key)
	}
	rows, err := query(ctx, s, selectDeadLetter, key.args(), scanDeadLetter)
	switch {
	case err != nil:
		return nil, fmt.Errorf("get %s: %w", key, err)
	case len(rows) == 0:
		return nil, notFound(key)
	default:
		return rows[0], nil
	}
}

// Resolve returns the key of a dead letter. An empty runID means the only run of
// the workflow id that is a dead letter; if there are several, the error is an
// *AmbiguousError. If there is none it is ErrNotFound.
func (s *Store) Resolve(ctx context.Context, namespace, workflowID, runID string) (key Key, err error) {
	err = s.inTx(ctx, beginRead, func(ctx context.Context, tx pgx.Tx) error {
		key, err = s.resolveTx(ctx, tx, Key{Namespace: namespace, WorkflowID: workflowID, RunID: runID})
		return err
	})
	return key, err
}

func (s *Store) resolveTx(ctx context.Context, tx pgx.Tx, key Key) (Key, error) {
	if !key.holdable() {
		return Key{}, notFound(key)
	}
	runs, err := collect(ctx, tx, s.sql(selectRuns), key.args(), pgx.RowTo[string])
	switch {
	case err != nil:
		return Key{}, fmt.Errorf("resolve %s: %w", key, err)
	case len(runs) == 0:
		return Key{}, notFound(key)
	case len(runs) > 1:
		return Key{}, &AmbiguousError{Namespace: key.Namespace, WorkflowID: key.WorkflowID, RunIDs: runs[:min(len(runs), maxRunsListed)]}
	}
	key.RunID = runs[0]
	return key, nil
}

// ResolveFor is Resolve for a verb that changes something: its refusal writes an
// event. A request id that stands for a replay, an edit or a note of this workflow id names
// its dead letter, also when that is purged by now, or when other runs have died
// since.
func (s *Store) ResolveFor(ctx context.Context, asked Asked) (Key, error) {
	key, err := s.resolveFor(ctx, asked)
	if err != nil {
		return Key{}, s.NoteRefusal(ctx, asked, err)
	}
	return key, nil
}

func (s *Store) resolveFor(ctx context.Context, asked Asked) (Key, error) {
	if asked.RequestID != "" {
		known, err := query(ctx, s, selectRequestKeys, pgx.NamedArgs{"request_id": text.Holdable(asked.RequestID)}, pgx.RowToStructByPos[Key])
		if err != nil {
			return Key{}, fmt.Errorf("resolve request %q: %w", asked.RequestID, err)
		}
		wanted := s.encoding.held(asked.Key)
		for _, key := range known {
			if key.Namespace == wanted.Namespace && key.WorkflowID == wanted.WorkflowID && (wanted.RunID == "" || key.RunID == wanted.RunID) {
				return key, nil
			}
		}
	}
	return s.Resolve(ctx, asked.Namespace, asked.WorkflowID, asked.RunID)
}

// Attempts returns the attempts of a dead letter in their order; none when there
// is no such dead letter.
func (s *Store) Attempts(ctx context.Context, key Key) ([]Attempt, error) {
	return listOf(ctx, s, "attempts", selectAttempts, key, scanAttempt)
}

// Replays returns the replays made from a dead letter, the oldest first, also
// after it was purged.
func (s *Store) Replays(ctx context.Context, key Key) ([]Replay, error) {
	return listOf(ctx, s, "replays", selectReplays, key, scanReplay)
}

// Events returns what was done to a dead letter, the oldest first, also after it
// was purged.
func (s *Store) Events(ctx context.Context, key Key) ([]Event, error) {
	return listOf(ctx, s, "events", selectEvents, key, scanEvent)
}

func listOf[T any](ctx context.Context, s *Store, what, statement string, key Key, scan pgx.RowToFunc[T]) ([]T, error) {
	if !key.holdable() {
		return nil, nil
	}
	rows, err := query(ctx, s, statement, key.args(), scan)
	if err != nil {
		return nil, fmt.Errorf("%s of %s: %w", what, key, err)
	}
	return rows, nil
}

// query runs a registered statement in a read-only transaction of its own.
func query[T any](ctx context.Context, s *Store, statement string, args pgx.NamedArgs, scan pgx.RowToFunc[T]) ([]T, error) {
	return queryText(ctx, s, beginRead, s.sql(statement), args, scan)
}

// queryFiltered runs a statement with the conditions of a filter.
func queryFiltered[T any](ctx context.Context, s *Store, f Filter, text string, args pgx.NamedArgs, scan pgx.RowToFunc[T]) ([]T, error) {
	begin := beginRead
	if f.needsOwnPlan() {
		begin += ownPlan
	}
	return queryText(ctx, s, begin, text, args, scan)
}

// queryText sends the statement and the commit at once, so a read takes two trips to
// the server. The begin goes ahead: the driver may ask for a statement's types before
// it sends a batch, and they must be looked up with our search path. After an error
// the pool drops the connection, which is in a transaction then.
func queryText[T any](ctx context.Context, s *Store, begin, text string, args pgx.NamedArgs, scan pgx.RowToFunc[T]) (found []T, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return nil, classify(err)
	}
	defer conn.Release()
	if _, err := conn.Exec(ctx, begin+s.settings); err != nil {
		return nil, classify(err)
	}
	batch := &pgx.Batch{}
	batch.Queue(text, s.encoding.arguments(text, []any{args})...).Query(func(rows pgx.Rows) error {
		found, err = pgx.CollectRows(rows, scan)
		return err
	})
	batch.Queue(`commit`)
	if err := conn.SendBatch(ctx, batch).Close(); err != nil {
		conn.Release() // the question needs a connection, and this may be the pool's last
		return nil, s.explained(ctx, classify(err), text)
	}
	return found, nil
}

func collect[T any](ctx context.Context, tx pgx.Tx, text string, args pgx.NamedArgs, scan pgx.RowToFunc[T]) ([]T, error) {
	rows, err := tx.Query(ctx, text, args)
	if err != nil {
		return nil, classify(err)
	}
	found, err := pgx.CollectRows(rows, scan)
	return found, classify(err)
}

// first runs a registered statement in tx and returns its first row, nil if none.
func first[T any](ctx context.Context, tx pgx.Tx, s *Store, statement string, args pgx.NamedArgs, scan pgx.RowToFunc[T]) (*T, error) {
	rows, err := tx.Query(ctx, s.sql(statement), args)
	if err != nil {
		return nil, classify(err)
	}
	row, err := pgx.CollectOneRow(rows, scan)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, classify(err)
	}
	return &row, nil
}

func notFound(key Key) error {
	return fmt.Errorf("dead letter %s: %w", key, ErrNotFound)
}
