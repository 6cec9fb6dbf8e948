package dlqstore

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// PlanRetention is how long a plan and its members are kept after its end, or after
// it expired. Their events and replays stay.
const PlanRetention = 90 * 24 * time.Hour

const (
	selectOldPlan = `
select id
from {schema}.plans
where finished_at < now() - @retention_ms::bigint * interval '1 millisecond'
	or state = 'planned' and expires_at < now() - @retention_ms * interval '1 millisecond'
limit 1`

	forgetMembers = `
delete from {schema}.plan_items
where plan_id = @id and position = any (array(select position from {schema}.plan_items where plan_id = @id limit @batch))`

	forgetPlan = `
delete from {schema}.plans where id = @id`
)

// ForgetPlans removes plans that ended PlanRetention ago, with their members, in
// batches. It may run at any time, and beside itself.
func (s *Store) ForgetPlans(ctx context.Context) error {
	for {
		old, err := query(ctx, s, selectOldPlan, pgx.NamedArgs{"retention_ms": PlanRetention.Milliseconds()}, pgx.RowTo[string])
		if err != nil || len(old) == 0 {
			return wrapForget(err)
		}
		for gone := int64(leaveBatch); gone == leaveBatch; {
			err := s.inTx(ctx, beginWrite+ownPlan, func(ctx context.Context, tx pgx.Tx) error {
				args := pgx.NamedArgs{"id": old[0], "batch": leaveBatch}
				done, err := tx.Exec(ctx, s.sql(forgetMembers), args)
				if gone = done.RowsAffected(); err != nil || gone == leaveBatch {
					return classify(err)
				}
				_, err = tx.Exec(ctx, s.sql(forgetPlan), args)
				return classify(err)
			})
			if err != nil {
				return wrapForget(err)
			}
		}
	}
}

func wrapForget(err error) error {
	if err != nil {
		return fmt.Errorf("forget old plans: %w", err)
	}
	return nil
}
