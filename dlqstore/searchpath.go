package dlqstore

import (
	"context"

	"github.com/jackc/pgx/v5"
)

const (
	// ourSearchPath keeps the functions, operators and types of other schemas out of
	// our statements, whatever the search path of the role or the database is. Our own
	// tables are named with their schema. It ends with the transaction, because behind
	// a pooler the session is another client's afterwards.
	ourSearchPath = `set local search_path = pg_catalog, pg_temp`
	// theirSearchPath is the one of the role, the database or the URL.
	theirSearchPath = `set local search_path = default`
)

// withTheirSearchPath runs a hook with the search path that its author counts on, and
// the rest of the transaction with ours.
func withTheirSearchPath(hook Hook) Hook {
	if hook == nil {
		return nil
	}
	return func(ctx context.Context, tx pgx.Tx, dl *DeadLetter) error {
		if _, err := tx.Exec(ctx, theirSearchPath); err != nil {
			return classify(err)
		}
		if err := hook(ctx, tx, dl); err != nil {
			return err
		}
		// It fails only in a transaction that the hook has ended or broken, and the next
		// statement says so.
		_, _ = tx.Exec(ctx, ourSearchPath)
		return nil
	}
}
