package dlqstore

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deadletter-dev/deadletter/internal/text"
)

// Tables dead_letter_counts and event_counts are summaries that triggers keep: a
// kind's count is the sum of its rows, at any moment and in any snapshot.
const (
	selectTotal = `
select coalesce(sum(c.n), 0)::bigint
from {schema}.dead_letter_counts c
where (@namespace = '' or c.namespace = @namespace)`

	selectTallyOf = `
with tally as (
	select sum(c.n)::bigint as n, `
	selectTallyBy = ` as value
	from {schema}.dead_letter_counts c
	where (@namespace = '' or c.namespace = @namespace)
	group by value
	having sum(c.n) <> 0
)
select value, n, count(*) over ()
from tally
order by n desc, value
limit @limit`

	selectTallyOfTypes   = selectTallyOf + `c.job_type` + selectTallyBy
	selectTallyOfQueues  = selectTallyOf + `c.task_queue` + selectTallyBy
	selectTallyOfReasons = selectTallyOf + `c.reason` + selectTallyBy

	// tryCompact lets one in: two would fold the same rows twice.
	tryCompact = `select pg_try_advisory_xact_lock(hashtextextended(@schema, 6072342))`

	compactDeadLetters = `
with fresh as (
	delete from {schema}.dead_letter_counts
	where ctid = any (array(select ctid from {schema}.dead_letter_counts where not folded limit @batch))
	returning namespace, job_type, task_queue, reason, fingerprint, n
), kinds as (
	select distinct namespace, job_type, task_queue, reason, fingerprint from fresh
), folded as (
	delete from {schema}.dead_letter_counts c
	using kinds k
	where c.folded and c.fingerprint = k.fingerprint and c.namespace = k.namespace
		and c.job_type = k.job_type and c.task_queue = k.task_queue and c.reason = k.reason
	returning c.namespace, c.job_type, c.task_queue, c.reason, c.fingerprint, c.n
), written as (
	insert into {schema}.dead_letter_counts (namespace, job_type, task_queue, reason, fingerprint, n, folded)
	select namespace, job_type, task_queue, reason, fingerprint, sum(n), true
	from (table fresh union all table folded) every
	group by namespace, job_type, task_queue, reason, fingerprint
	having sum(n) <> 0
)
select count(*) from fresh`

	compactEvents = `
with fresh as (
	delete from {schema}.event_counts
	where ctid = any (array(select ctid from {schema}.event_counts where not folded limit @batch))
	returning namespace, hour, verb, n
), kinds as (
	select distinct namespace, hour, verb from fresh
), folded as (
	delete from {schema}.event_counts c
	using kinds k
	where c.folded and c.hour = k.hour and c.namespace = k.namespace and c.verb = k.verb
	returning c.namespace, c.hour, c.verb, c.n
), written as (
	insert into {schema}.event_counts (namespace, hour, verb, n, folded)
	select namespace, hour, verb, sum(n), true
	from (table fresh union all table folded) every
	group by namespace, hour, verb
)
select count(*) from fresh`
)

// compactBatch bounds one transaction of Compact, in rows.
const compactBatch = 10_000

// CountDeadLetters returns the size of the dead letter queue: the rows of one
// namespace, or of all when it is empty. It is exact and reads the summary.
func (s *Store) CountDeadLetters(ctx context.Context, namespace string) (int64, error) {
	counts, err := query(ctx, s, selectTotal, pgx.NamedArgs{"namespace": text.Holdable(namespace)}, pgx.RowTo[int64])
	if err != nil {
		return 0, fmt.Errorf("count dead letters: %w", err)
	}
	return counts[0], nil
}

// Dimension is a column by which dead letters are counted.
type Dimension string

// The dimensions; each is its column's name.
const (
	ByJobType   Dimension = "job_type"
	ByTaskQueue Dimension = "task_queue"
	ByReason    Dimension = "reason"
)

// Tally is how many dead letters have one value of a dimension.
type Tally struct {
	Value string
	Count int64
}

// CountBy counts the dead letters of a namespace, or of all when it is empty, by a
// dimension, the largest count first. It returns at most limit values (0 means 50,
// 1000 is the maximum) and how many more there are. It is exact and reads the summary.
func (s *Store) CountBy(ctx context.Context, namespace string, by Dimension, limit int) (tallies []Tally, more int, err error) {
	tallies, more, err = s.countBy(ctx, namespace, by, limit)
	if err != nil {
		return nil, 0, fmt.Errorf("count dead letters by %s: %w", by, err)
	}
	return tallies, more, nil
}

func (s *Store) countBy(ctx context.Context, namespace string, by Dimension, limit int) (tallies []Tally, more int, err error) {
	if limit, err = (Page{Limit: limit}).limit(); err != nil {
		return nil, 0, err
	}
	var statement string
	switch by {
	case ByJobType:
		statement = selectTallyOfTypes
	case ByTaskQueue:
		statement = selectTallyOfQueues
	case ByReason:
		statement = selectTallyOfReasons
	default:
		return nil, 0, fmt.Errorf("%q is none of %s, %s, %s", by, ByJobType, ByTaskQueue, ByReason)
	}
	values := 0
	tallies, err = query(ctx, s, statement, pgx.NamedArgs{"namespace": text.Holdable(namespace), "limit": limit}, func(row pgx.CollectableRow) (t Tally, err error) {
		err = row.Scan(&t.Value, &t.Count, &values)
		return t, err
	})
	return tallies, values - len(tallies), err
}

// Compact folds what moves, replays and purges have appended to the summaries, so
// that reading them stays fast. It changes no count, blocks nobody, and may run
// anywhere at any time; while another call is at it, it does nothing. The workers
// of the dead-letter queue call it every ten seconds.
func (s *Store) Compact(ctx context.Context) error {
	for _, statement := range []string{compactDeadLetters, compactEvents} {
		for {
			folded, err := s.compact(ctx, statement)
			if err != nil {
				return fmt.Errorf("compact the summaries: %w", err)
			}
			if folded < compactBatch {
				break
			}
		}
	}
	return nil
}

func (s *Store) compact(ctx context.Context, statement string) (folded int64, err error) {
	err = s.inTx(ctx, beginWrite, func(ctx context.Context, tx pgx.Tx) error {
		mine := false
		if err := tx.QueryRow(ctx, s.sql(tryCompact), pgx.NamedArgs{"schema": s.schema}).Scan(&mine); err != nil || !mine {
			return classify(err)
		}
		return classify(tx.QueryRow(ctx, s.sql(statement), pgx.NamedArgs{"batch": compactBatch}).Scan(&folded))
	})
	return folded, err
}

// countCancelledMoves uses its own partial index.
const countCancelledMoves = `
select count(*) from {schema}.events
where verb = 'move' and detail ->> 'reason' = 'cancelled' and namespace = @namespace and at >= @since`

// CountCancelledMoves returns how many jobs of a namespace were moved as cancelled
// since then, whatever became of their dead letters.
func (s *Store) CountCancelledMoves(ctx context.Context, namespace string, since time.Time) (int64, error) {
	counts, err := query(ctx, s, countCancelledMoves, pgx.NamedArgs{"namespace": namespace, "since": since}, pgx.RowTo[int64])
	if err != nil {
		return 0, fmt.Errorf("count the cancelled dead letters: %w", err)
	}
	return counts[0], nil
}
