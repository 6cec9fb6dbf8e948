package dlqstore

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/deadletter-dev/deadletter/internal/text"
)

const (
	pinDeadLetter = `
with changed as (
	update {schema}.dead_letters
	set pinned = true, pinned_by = @actor, pinned_at = now()
	where namespace = @namespace and workflow_id = @workflow_id and run_id = @run_id and not pinned
	returning namespace, workflow_id, run_id
)
insert into {schema}.events (verb, actor, namespace, workflow_id, run_id)
select 'pin', @actor, namespace, workflow_id, run_id from changed`

	unpinDeadLetter = `
with changed as (
	update {schema}.dead_letters
	set pinned = false, pinned_by = null, pinned_at = null
	where namespace = @namespace and workflow_id = @workflow_id and run_id = @run_id and pinned
	returning namespace, workflow_id, run_id
)
insert into {schema}.events (verb, actor, namespace, workflow_id, run_id)
select 'unpin', @actor, namespace, workflow_id, run_id from changed`
)

// Pin keeps a dead letter from every retention policy, and reports whether it was
// not pinned before. A purge takes it all the same. ErrNotFound if there is none, of
// which an event of verb pin_refused tells.
func (s *Store) Pin(ctx context.Context, key Key, actor string) (changed bool, err error) {
	return s.setPin(ctx, VerbPin, pinDeadLetter, key, actor)
}

// Unpin is the reverse of Pin.
func (s *Store) Unpin(ctx context.Context, key Key, actor string) (changed bool, err error) {
	return s.setPin(ctx, VerbUnpin, unpinDeadLetter, key, actor)
}

func (s *Store) setPin(ctx context.Context, verb, statement string, key Key, actor string) (changed bool, err error) {
	defer func() { err = s.NoteRefusal(ctx, Asked{Verb: verb, Key: key, Actor: actor}, err) }()
	if !key.holdable() {
		return false, notFound(key)
	}
	args := key.args()
	args["actor"] = text.Bounded(actor, maxName)
	err = s.inTx(ctx, beginWrite, func(ctx context.Context, tx pgx.Tx) error {
		done, err := tx.Exec(ctx, s.sql(statement), args)
		if err != nil {
			return classify(err)
		}
		changed = done.RowsAffected() > 0
		if changed {
			return nil
		}
		there, err := first(ctx, tx, s, selectRuns, key.args(), pgx.RowTo[string])
		if err == nil && there == nil {
			return ErrNotFound
		}
		return err
	})
	if err != nil {
		return false, fmt.Errorf("dead letter %s: %w", key, err)
	}
	return changed, nil
}
