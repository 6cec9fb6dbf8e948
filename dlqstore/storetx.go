package dlqstore

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// storeTx is a transaction for the store's own statements: their arguments are made fit
// for the database's encoding, and the last statement is known when one has failed.
type storeTx struct {
	pgx.Tx
	encoding encoding
	last     string
}

// own returns the transaction for the store's own statements.
func own(tx pgx.Tx) *storeTx {
	if mine, ok := tx.(*storeTx); ok {
		return mine
	}
	return &storeTx{Tx: tx, encoding: encodingOf(tx.Conn().PgConn())}
}

// callers returns the transaction for a caller's own statements.
func callers(tx pgx.Tx) pgx.Tx {
	if mine, ok := tx.(*storeTx); ok {
		return mine.Tx
	}
	return tx
}

// Exec is pgx.Tx's.
func (t *storeTx) Exec(ctx context.Context, statement string, args ...any) (pgconn.CommandTag, error) {
	t.last = statement
	return t.Tx.Exec(ctx, statement, t.encoding.arguments(statement, args)...)
}

// Query is pgx.Tx's.
func (t *storeTx) Query(ctx context.Context, statement string, args ...any) (pgx.Rows, error) {
	t.last = statement
	return t.Tx.Query(ctx, statement, t.encoding.arguments(statement, args)...)
}

// QueryRow is pgx.Tx's.
func (t *storeTx) QueryRow(ctx context.Context, statement string, args ...any) pgx.Row {
	t.last = statement
	return t.Tx.QueryRow(ctx, statement, t.encoding.arguments(statement, args)...)
}

// SendBatch is pgx.Tx's.
func (t *storeTx) SendBatch(ctx context.Context, batch *pgx.Batch) pgx.BatchResults {
	t.last = ""
	for _, queued := range batch.QueuedQueries {
		t.last += queued.SQL + ";\n"
		queued.Arguments = t.encoding.arguments(queued.SQL, queued.Arguments)
	}
	return t.Tx.SendBatch(ctx, batch)
}
