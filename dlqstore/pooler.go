package dlqstore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// A pooler in transaction mode gives each transaction whichever server connection is
// free. So the store leaves nothing in a session that a later transaction would need
// or trip over: settings are local to a transaction, advisory locks are a
// transaction's, and there are no temporary tables, cursors or notifications. Prepared
// statements are what is left. They are worth having on a connection of our own, and
// are not used behind a pooler.

// selectBackend asks which process serves the session.
const selectBackend = `select pg_catalog.pg_backend_pid()`

// unfit marks a connection that the pool must not hand out.
const unfit = "deadletter.unfit"

// suitPooler has connections that lead through a pooler remember the types of
// statements in the driver (cache_describe), where a direct connection, or the URL,
// has a mode that needs a session. The modes exec and simple_protocol need none.
//
// Postgres tells a new connection the id of its process. A pooler cannot, because it
// has not chosen a server by then, and makes an id up. timeout bounds the question.
func suitPooler(config *pgxpool.Config, timeout time.Duration) {
	if !needsSession(config.ConnConfig) {
		return
	}
	var pooled atomic.Bool // as far as it is known when a connection begins
	config.BeforeConnect = func(_ context.Context, config *pgx.ConnConfig) error {
		if pooled.Load() {
			config.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
		}
		return nil
	}
	config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		if !needsSession(conn.Config()) {
			return nil
		}
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		var process uint32
		if err := conn.QueryRow(ctx, selectBackend, pgx.QueryExecModeExec).Scan(&process); err != nil {
			return err
		}
		if process != conn.PgConn().PID() {
			pooled.Store(true)
			conn.PgConn().CustomData()[unfit] = true // the mode of a connection cannot be changed
		}
		return nil
	}
	config.PrepareConn = func(_ context.Context, conn *pgx.Conn) (bool, error) {
		_, drop := conn.PgConn().CustomData()[unfit]
		return !drop, nil // and the pool makes another
	}
}

// needsSession reports whether a statement may rely on what an earlier message left in
// the session: a prepared statement, or with describe_exec the unnamed one.
func needsSession(config *pgx.ConnConfig) bool {
	return config.DefaultQueryExecMode == pgx.QueryExecModeCacheStatement || config.DefaultQueryExecMode == pgx.QueryExecModeDescribeExec
}

// protocolViolation is PgBouncer's SQLSTATE for whatever it does not take, and also for
// a server that is down.
const protocolViolation = "08P01"

// poolerRefusals are what PgBouncer says to a client that may not come in, now or later.
// It gives the same SQLSTATE for all, hence this one look at texts. It does not
// translate them. A text that is not known counts as an outage.
var poolerRefusals = regexp.MustCompile(`^(?:password authentication failed|no such user|no such database|unsupported startup parameter|database ".*" does not exist)`)

// refusedByPooler reports whether a pooler has refused to connect for good.
func refusedByPooler(err error) bool {
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pgErr.Code == protocolViolation && poolerRefusals.MatchString(pgErr.Message)
}

// explainStartup adds the mend where a pooler may have refused a setting in the URL.
func explainStartup(config *pgxpool.Config, err error) error {
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	if !ok || pgErr.Code != protocolViolation {
		return err
	}
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(config.ConnConfig.RuntimeParams)), func(name string) bool {
		_, ours := ourParameters[name]
		return ours
	})
	if len(names) == 0 {
		return err
	}
	return fmt.Errorf("%w; the database URL or the environment has settings that a pooler may refuse (%s): remove them, or name them in ignore_startup_parameters of PgBouncer",
		err, strings.Join(names, ", "))
}
