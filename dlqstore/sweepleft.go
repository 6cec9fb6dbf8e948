package dlqstore

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deadletter-dev/deadletter/internal/text"
)

const (
	// upsertLeft doubles the wait with each try, up to an hour. A key that the database
	// cannot hold as it is is kept for people only: no other try would find that job.
	upsertLeft = `
insert into {schema}.sweep_left as l (namespace, run_id, workflow_id, closed_at, error, next_at)
values (@namespace, @run_id, @workflow_id, @closed_at, @error, case when @retried then now() + interval '10 seconds' end)
on conflict (namespace, run_id) do update
set tries = l.tries + 1, last_at = now(), error = excluded.error,
	next_at = case when @retried then now() + least(interval '10 seconds' * power(2, least(l.tries, 10)), interval '1 hour') end`

	selectDueLeft = `
select` + leftColumns + `
from {schema}.sweep_left
where namespace = @namespace and next_at <= now()
order by next_at, run_id
limit @limit`

	selectLeft = `
select` + leftColumns + `
from {schema}.sweep_left
where namespace = @namespace and (@run_id = '' or run_id = @run_id)
order by closed_at desc, run_id
limit @limit`

	countLeft = `select count(*) from {schema}.sweep_left where namespace = @namespace`

	deleteLeft = `delete from {schema}.sweep_left where namespace = @namespace and run_id = @run_id`

	leftColumns = `
	namespace, workflow_id, run_id, closed_at, tries, first_at, last_at, next_at, error`
)

// LeftJob is a closed job whose dead letter the sweep could not write.
type LeftJob struct {
	Key
	ClosedAt time.Time `json:"closed_at"`
	// Tries counts the sweeps that tried; the first and the last of them follow.
	Tries   int       `json:"tries"`
	FirstAt time.Time `json:"first_at"`
	LastAt  time.Time `json:"last_at"`
	// NextAt is when the sweep tries again: after ten seconds, then after twice as
	// long each time, up to an hour. Nil means never.
	NextAt *time.Time `json:"next_at"`
	// Error is why the last try failed, bounded.
	Error string `json:"error"`
}

func scanLeft(row pgx.CollectableRow) (l LeftJob, err error) {
	err = row.Scan(&l.Namespace, &l.WorkflowID, &l.RunID, &l.ClosedAt, &l.Tries, &l.FirstAt, &l.LastAt, &l.NextAt, &l.Error)
	utc(&l.ClosedAt, &l.FirstAt, &l.LastAt, l.NextAt)
	return l, err
}

// LeaveJob notes that a sweep could not write the dead letter of a closed job, or
// counts one more try.
func (s *Store) LeaveJob(ctx context.Context, key Key, closedAt time.Time, cause string) error {
	args := pgx.NamedArgs{
		"namespace": text.Holdable(key.Namespace), "run_id": text.Holdable(key.RunID), "workflow_id": text.Holdable(key.WorkflowID),
		"closed_at": closedAt, "error": text.Bounded(cause, maxName), "retried": key.holdable() && s.encoding.held(key) == key,
	}
	err := s.inTx(ctx, beginWrite, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, s.sql(upsertLeft), args)
		return classify(err)
	})
	if err != nil {
		return fmt.Errorf("leave %s: %w", key, err)
	}
	return nil
}

// DueLeft returns the jobs that were left and are to be tried again by now, those
// first that have waited for the longest.
func (s *Store) DueLeft(ctx context.Context, namespace string, limit int) ([]LeftJob, error) {
	due, err := query(ctx, s, selectDueLeft, pgx.NamedArgs{"namespace": text.Holdable(namespace), "limit": limit}, scanLeft)
	if err != nil {
		return nil, fmt.Errorf("jobs that the sweep left: %w", err)
	}
	return due, nil
}

// LeftJobs returns the jobs that the sweep has left, those first that closed last,
// 100 at most; with a run id that one alone.
func (s *Store) LeftJobs(ctx context.Context, namespace, runID string) ([]LeftJob, error) {
	args := pgx.NamedArgs{"namespace": text.Holdable(namespace), "run_id": text.Holdable(runID), "limit": maxRunsListed}
	left, err := query(ctx, s, selectLeft, args, scanLeft)
	if err != nil {
		return nil, fmt.Errorf("jobs that the sweep left: %w", err)
	}
	return left, nil
}

// CountLeft returns how many jobs the sweep has left.
func (s *Store) CountLeft(ctx context.Context, namespace string) (int64, error) {
	counts, err := query(ctx, s, countLeft, pgx.NamedArgs{"namespace": text.Holdable(namespace)}, pgx.RowTo[int64])
	if err != nil {
		return 0, fmt.Errorf("count the jobs that the sweep left: %w", err)
	}
	return counts[0], nil
}

// ForgetLeft notes that a job which was left needs no other try: it has its dead
// letter, or needs none.
func (s *Store) ForgetLeft(ctx context.Context, namespace, runID string) error {
	err := s.inTx(ctx, beginWrite, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, s.sql(deleteLeft), pgx.NamedArgs{"namespace": namespace, "run_id": runID})
		return classify(err)
	})
	if err != nil {
		return fmt.Errorf("forget a job that the sweep left: %w", err)
	}
	return nil
}
