package dlqstore

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deadletter-dev/deadletter/job"
)

const (
	// selectSpans, the filter's clause and bySpan make one statement.
	selectSpans = `
select d.reason, count(*), min(d.dead_at), max(d.dead_at)
from {schema}.dead_letters d`
	bySpan = `
group by d.reason
order by count(*) desc, d.reason`
)

// Span counts the dead letters of one reason, and says between which times they died.
type Span struct {
	Reason job.Reason `json:"reason"`
	Count  int64      `json:"count"`
	Oldest time.Time  `json:"oldest"`
	Newest time.Time  `json:"newest"`
}

// Spans tells of the dead letters that the filter selects, by reason, the largest
// count first; none when it selects none. It reads all that match, in one snapshot.
func (s *Store) Spans(ctx context.Context, f Filter) ([]Span, error) {
	where, args, err := s.where(f)
	if err != nil {
		return nil, fmt.Errorf("spans: %w", err)
	}
	spans, err := queryFiltered(ctx, s, f, s.sql(selectSpans)+where+bySpan, args, func(row pgx.CollectableRow) (span Span, err error) {
		err = row.Scan(&span.Reason, &span.Count, &span.Oldest, &span.Newest)
		utc(&span.Oldest, &span.Newest)
		return span, err
	})
	if err != nil {
		return nil, fmt.Errorf("spans: %w", err)
	}
	return spans, nil
}
