package dlqstore

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deadletter-dev/deadletter/internal/text"
)

const (
	// selectTrend has a row for each hour, also for those in which nothing happened.
	selectTrend = `
select h.hour,
	coalesce(sum(c.n) filter (where c.verb = 'move'), 0)::bigint,
	coalesce(sum(c.n) filter (where c.verb = 'replay'), 0)::bigint,
	coalesce(sum(c.n) filter (where c.verb = 'purge'), 0)::bigint,
	coalesce(sum(c.n) filter (where c.verb = 'prune'), 0)::bigint
from generate_series(date_trunc('hour', now(), 'UTC') - interval '23 hours', date_trunc('hour', now(), 'UTC'), interval '1 hour') as h (hour)
left join {schema}.event_counts c on c.hour = h.hour and (@namespace = '' or c.namespace = @namespace)
group by h.hour
order by h.hour`

	selectOldest = `
select` + listColumns + `
from {schema}.dead_letters d
where d.namespace = @namespace
order by d.dead_at, d.workflow_id, d.run_id
limit 1`
)

// Hour is what happened to dead letters in one hour, by the audit's events.
type Hour struct {
	Hour time.Time `json:"hour"` // its beginning
	Dead int64     `json:"dead"` // jobs that became dead letters
	// Replayed counts what was asked for, also what Temporal then refused.
	Replayed int64 `json:"replayed"`
	// Purged and Pruned count what is gone for good, by a purge and by retention.
	Purged int64 `json:"purged"`
	Pruned int64 `json:"pruned"`
}

// Trend is how the dead letters of a namespace develop.
type Trend struct {
	DeadLetter int64 `json:"dead_letter"` // as CountDeadLetters
	// Hours are the last 24 of the clock in UTC, the earliest first; the last one
	// is not over.
	Hours []Hour `json:"hours"`
	// Growth is how many more became dead letters than were purged and pruned in these
	// hours.
	Growth int64 `json:"growth"`
	// Oldest died before all others that are there; nil when there is none.
	Oldest *DeadLetter `json:"oldest"`
}

// Trend reads all of it in one snapshot.
func (s *Store) Trend(ctx context.Context, namespace string) (*Trend, error) {
	var trend Trend
	args := pgx.NamedArgs{"namespace": text.Holdable(namespace)}
	err := s.inTx(ctx, beginSnapshot, func(ctx context.Context, tx pgx.Tx) (err error) {
		if err = tx.QueryRow(ctx, s.sql(selectTotal), args).Scan(&trend.DeadLetter); err != nil {
			return classify(err)
		}
		if trend.Hours, err = collect(ctx, tx, s.sql(selectTrend), args, scanHour); err != nil {
			return err
		}
		oldest, err := collect(ctx, tx, s.sql(selectOldest), args, scansListed())
		if len(oldest) > 0 {
			trend.Oldest = &oldest[0]
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("trend: %w", err)
	}
	for _, hour := range trend.Hours {
		trend.Growth += hour.Dead - hour.Purged - hour.Pruned
	}
	return &trend, nil
}

func scanHour(row pgx.CollectableRow) (h Hour, err error) {
	err = row.Scan(&h.Hour, &h.Dead, &h.Replayed, &h.Purged, &h.Pruned)
	h.Hour = h.Hour.UTC()
	return h, err
}
