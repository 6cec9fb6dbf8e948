package dlqstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// selectUnmoved keeps the caller's order. The events outlive the dead letter, so a
// purged or a pruned job counts as moved. A row without its events is one that was
// brought back by hand.
const selectUnmoved = `
select k.namespace, k.workflow_id, k.run_id
from unnest(@namespaces::text[], @workflow_ids::text[], @run_ids::text[])
	with ordinality as k (namespace, workflow_id, run_id, place)
where not exists (
	select from {schema}.events e
	where e.verb in ('move', 'purge', 'prune') and e.namespace = k.namespace and e.workflow_id = k.workflow_id and e.run_id = k.run_id
) and not exists (
	select from {schema}.dead_letters d
	where d.namespace = k.namespace and d.workflow_id = k.workflow_id and d.run_id = k.run_id
)
order by k.place`

const selectSweep = `select watermark from {schema}.sweeps where namespace = @namespace`

// advanceSweep never goes back, whichever of two sweeps ends last. It writes nothing
// when the database has gone back behind what the sweep began from.
const advanceSweep = `
insert into {schema}.sweeps as s (namespace, watermark, swept_at)
select @namespace::text, @watermark::timestamptz, now()
where @begun_from::timestamptz is null
	or exists (select from {schema}.sweeps where namespace = @namespace and watermark >= @begun_from::timestamptz)
on conflict (namespace) do update set watermark = greatest(s.watermark, excluded.watermark), swept_at = now()
returning watermark`

// Unmoved returns those of the keys under which no job was ever moved, in their
// order, with one statement. A key that no row can have is among them.
func (s *Store) Unmoved(ctx context.Context, keys []Key) ([]Key, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	var unstorable []Key
	namespaces, workflows, runs := make([]string, 0, len(keys)), make([]string, 0, len(keys)), make([]string, 0, len(keys))
	asked := make(map[Key]Key, len(keys)) // by the key as it is stored
	for _, key := range keys {
		asked[s.encoding.held(key)] = key
		if !key.holdable() {
			unstorable = append(unstorable, key)
			continue
		}
		namespaces, workflows, runs = append(namespaces, key.Namespace), append(workflows, key.WorkflowID), append(runs, key.RunID)
	}
	var unmoved []Key
	err := s.inTx(ctx, beginRead, func(ctx context.Context, tx pgx.Tx) error {
		rows, err := tx.Query(ctx, s.sql(selectUnmoved), pgx.NamedArgs{"namespaces": namespaces, "workflow_ids": workflows, "run_ids": runs})
		if err != nil {
			return classify(err)
		}
		unmoved, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Key])
		return classify(err)
	})
	if err != nil {
		return nil, fmt.Errorf("unmoved of %d jobs: %w", len(keys), err)
	}
	for i, key := range unmoved {
		unmoved[i] = asked[key]
	}
	return append(unmoved, unstorable...), nil
}

// SweepWatermark returns the time before which every job that closed in the
// namespace has been swept; the zero time if none was.
func (s *Store) SweepWatermark(ctx context.Context, namespace string) (watermark time.Time, err error) {
	err = s.inTx(ctx, beginRead, func(ctx context.Context, tx pgx.Tx) error {
		return classify(tx.QueryRow(ctx, s.sql(selectSweep), pgx.NamedArgs{"namespace": namespace}).Scan(&watermark))
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return time.Time{}, nil
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("sweep watermark of %s: %w", namespace, err)
	}
	return watermark.UTC(), nil
}

// AdvanceSweep moves the namespace's watermark forward and returns where it is
// then: never earlier than it was, so that two sweeps may end in any order.
//
// begunFrom is the watermark that the sweep began from, nil for one that looked at
// everything. When the database is behind that by now, it was restored, or a standby
// that lacked the last transactions took over: the watermark then stays, since the
// sweep has not looked at what the database has lost.
func (s *Store) AdvanceSweep(ctx context.Context, namespace string, watermark time.Time, begunFrom *time.Time) (now time.Time, err error) {
	args := pgx.NamedArgs{"namespace": namespace, "watermark": watermark, "begun_from": begunFrom}
	err = s.inTx(ctx, beginWrite, func(ctx context.Context, tx pgx.Tx) error {
		moved, err := first(ctx, tx, s, advanceSweep, args, pgx.RowTo[time.Time])
		if err == nil && moved == nil {
			moved, err = first(ctx, tx, s, selectSweep, args, pgx.RowTo[time.Time])
		}
		if moved != nil {
			now = moved.UTC()
		}
		return err
	})
	if err != nil {
		return time.Time{}, fmt.Errorf("advance the sweep of %s: %w", namespace, err)
	}
	return now, nil
}
