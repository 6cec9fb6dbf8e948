package dlqstore

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/deadletter-dev/deadletter/internal/text"
)

const insertJobEvent = `
insert into {schema}.events (verb, actor, namespace, workflow_id, run_id, detail)
values (@verb, @actor, @namespace, @workflow_id, @run_id, @detail::jsonb)`

// JobEvent is what an operator does to a job that is still live. Such a job has no
// row; the event stands under the key that its dead letter would have.
type JobEvent struct {
	Key
	Verb  string
	Actor string
	// Detail must not hold payloads.
	Detail map[string]string
}

// RecordJobVerb writes the event and runs act, nil for none, before the event is
// committed: nothing is done while the event cannot be written, and none is left
// of an act that failed. What act returns is returned as it is. Should Postgres go
// away between the two, the error says that the act was done.
func (s *Store) RecordJobVerb(ctx context.Context, event JobEvent, act func(ctx context.Context) error) error {
	if !event.holdable() {
		return fmt.Errorf("record %s of %s: the key is not text that Postgres can hold", event.Verb, event.Key)
	}
	args := event.args()
	args["verb"], args["actor"] = event.Verb, text.Bounded(event.Actor, maxName)
	detail := map[string]string{}
	for name, value := range event.Detail {
		detail[name] = text.Bounded(value, maxName)
	}
	args["detail"] = encoded(detail)
	acted := false
	err := s.inTx(ctx, beginWrite, func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, s.sql(insertJobEvent), args); err != nil {
			return fmt.Errorf("record %s of %s: %w", event.Verb, event.Key, classify(err))
		}
		if act == nil {
			return nil
		}
		err := act(ctx)
		acted = err == nil
		return err
	})
	if err != nil && acted {
		return fmt.Errorf("%s of %s was done, but its event could not be written: %w", event.Verb, event.Key, err)
	}
	return err
}
