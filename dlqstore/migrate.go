package dlqstore

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/tern/v2/migrate"
)

//go:embed migrations/*.sql
var migrationFiles embed.FS

// migrateLock serialises Migrate in a database. It is taken before anything is
// looked at, because `create … if not exists` is no protection from a race.
const migrateLock = 0x6465_6164_6c65_7474 // "deadlett"

// Migrate creates the schema, or upgrades it to the version of this build. It may
// run at any time, repeatedly and from many processes at once; it only adds. A
// schema newer than this build is ErrSchema. Give it a connection to Postgres
// itself rather than to a pooler in transaction mode: it holds a session lock.
func Migrate(ctx context.Context, databaseURL string, opts ...Option) error {
	if err := migrateSchema(ctx, databaseURL, opts); err != nil {
		return fmt.Errorf("migrate the dead letter store: %w", err)
	}
	return nil
}

func migrateSchema(ctx context.Context, databaseURL string, opts []Option) error {
	set, err := apply(opts)
	if err != nil {
		return err
	}
	config, err := pgxpool.ParseConfig(databaseURL)
	if err != nil {
		return badURL(err)
	}
	conn, err := pgx.ConnectConfig(ctx, config.ConnConfig) // the URL may hold the pool's settings, as Open's
	if err != nil {
		return classify(err)
	}
	defer closeConn(ctx, conn) // and the lock with it

	if _, err := conn.Exec(ctx, `set statement_timeout = 0`); err != nil { // others may hold the lock for long
		return classify(err)
	}
	if _, err := conn.Exec(ctx, `select pg_advisory_lock($1)`, int64(migrateLock)); err != nil {
		return classify(err)
	}
	if err := createSchema(ctx, conn, set.schema); err != nil {
		return classify(err)
	}
	migrator, err := migrate.NewMigrator(ctx, conn, qualify(`{schema}.schema_version`, set.schema))
	if err != nil {
		return classify(err)
	}
	migrator.Data["schema"] = pgx.Identifier{set.schema}.Sanitize()
	if err := migrator.LoadMigrations(migrationsDir()); err != nil {
		return err
	}
	version, err := migrator.GetCurrentVersion(ctx)
	if err != nil {
		return classify(err)
	}
	if newest := len(migrator.Migrations); int(version) > newest {
		return fmt.Errorf("schema %q is at version %d, newer than version %d of this build: use a newer build: %w", set.schema, version, newest, ErrSchema)
	}
	if err := migrator.Migrate(ctx); err != nil {
		return classify(err)
	}
	_, err = conn.Exec(ctx, qualify(ensureErrorTextIndex, set.schema)) // the extension may be there by now
	return classify(err)
}

const ensureErrorTextIndex = `select {schema}.ensure_error_text_index()`

// createSchema asks first: `if not exists` needs the right to create even where
// there is nothing to do.
func createSchema(ctx context.Context, conn *pgx.Conn, schema string) error {
	var exists bool
	err := conn.QueryRow(ctx, `select exists (select from pg_catalog.pg_namespace where nspname = $1)`, schema).Scan(&exists)
	if err != nil || exists {
		return err
	}
	_, err = conn.Exec(ctx, qualify(`create schema {schema}`, schema))
	return err
}

func closeConn(ctx context.Context, conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	_ = conn.Close(ctx) // the socket is closed in any case
}

func migrationsDir() fs.FS {
	dir, err := fs.Sub(migrationFiles, "migrations")
	if err != nil {
		panic(err) // the path is a valid one
	}
	return dir
}

// schemaVersion is the version that this build needs: its newest migration's.
func schemaVersion() (int, error) {
	files, err := migrate.FindMigrations(migrationsDir())
	return len(files), err
}

const selectVersion = `select version from {schema}.schema_version`

func (s *Store) checkVersion(ctx context.Context) (have int, err error) {
	need, err := schemaVersion()
	if err != nil {
		return 0, err
	}
	err = s.inTx(ctx, beginRead, func(ctx context.Context, tx pgx.Tx) error {
		return classify(tx.QueryRow(ctx, s.sql(selectVersion)).Scan(&have))
	})
	const mend = "run `temporal-deadletter migrate`"
	switch pgErr := (*pgconn.PgError)(nil); {
	case errors.Is(err, ErrSchema) && errors.As(err, &pgErr):
		return 0, fmt.Errorf("%w: schema %q is not set up (SQLSTATE %s): %s", ErrSchema, s.schema, pgErr.Code, mend)
	case err != nil:
		return 0, err
	case have < need:
		return have, fmt.Errorf("%w: schema %q is at version %d and this build needs %d: %s", ErrSchema, s.schema, have, need, mend)
	default:
		return have, nil
	}
}
