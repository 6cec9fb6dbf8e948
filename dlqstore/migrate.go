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

const (
	// beginMigration has no bound on the server: others may hold the lock for long. The
	// search path is ours also because a migration stores what its names mean now.
	beginMigration = beginWrite + `; set local statement_timeout = 0; ` + ourSearchPath
	// lockMigrations ends with the transaction. A lock of the session would stay with a
	// pooler's connection.
	lockMigrations      = `select pg_advisory_xact_lock(@lock)`
	selectSchemaExists  = `select exists (select from pg_namespace where nspname = @schema)`
	selectVersionExists = `select exists (select from pg_tables where schemaname = @schema and tablename = 'schema_version')`
	createSchema        = `create schema {schema}`
	createVersion       = `create table {schema}.schema_version (version int4 not null); insert into {schema}.schema_version (version) values (0)`
	updateVersion       = `update {schema}.schema_version set version = @version`

	ensureErrorTextIndex = `select {schema}.ensure_error_text_index()`
)

// Migrate creates the schema, or upgrades it to the version of this build. It may
// run at any time, repeatedly and from many processes at once, also through a pooler in
// transaction mode; it only adds. A schema newer than this build is ErrSchema.
func Migrate(ctx context.Context, databaseURL string, opts ...Option) error {
	if err := migrateSchema(ctx, databaseURL, opts); err != nil {
		return fmt.Errorf("migrate the dead letter store: %w", err)
	}
	return nil
}

func migrateSchema(ctx context.Context, databaseURL string, opts []Option) error {
	return onConnection(ctx, databaseURL, opts, func(conn *pgx.Conn, schema string) error {
		migrations, err := migrationsOf(schema)
		for done := false; !done && err == nil; {
			done, err = migrateOnce(ctx, conn, schema, migrations)
		}
		return err
	})
}

// onConnection runs fn on a connection that ends with it.
func onConnection(ctx context.Context, databaseURL string, opts []Option, fn func(conn *pgx.Conn, schema string) error) error {
	set, err := apply(opts)
	if err != nil {
		return err
	}
	config, err := pgxpool.ParseConfig(databaseURL) // the URL may hold the pool's settings, as Open's
	if err != nil {
		return badURL(err)
	}
	useOurParameters(&config.ConnConfig.Config)
	preferPrimary(config)
	config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec // each statement runs once
	conn, err := pgx.ConnectConfig(ctx, config.ConnConfig)
	if err != nil {
		return explainStartup(config, classify(err))
	}
	defer closeConn(ctx, conn)
	return fn(conn, set.schema)
}

// migrateOnce makes the schema one version newer, in a transaction. It reports whether
// the schema was of the newest version before.
func migrateOnce(ctx context.Context, conn *pgx.Conn, schema string, migrations []*migrate.Migration) (done bool, err error) {
	begun := false
	var failed error
	err = pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{BeginQuery: beginMigration}, func(tx pgx.Tx) error {
		begun = true
		done, failed = migrateTx(ctx, tx, schema, migrations)
		return failed
	})
	switch {
	case failed != nil:
		return false, withSchemaRights(ctx, conn, schema, failed)
	case !begun:
		err = refusedBegin(err)
	}
	return done, classify(err)
}

func migrateTx(ctx context.Context, tx pgx.Tx, schema string, migrations []*migrate.Migration) (done bool, err error) {
	if _, err := tx.Exec(ctx, lockMigrations, pgx.NamedArgs{"lock": int64(migrateLock)}); err != nil {
		return false, classify(err)
	}
	if err := ensureVersion(ctx, tx, schema); err != nil {
		return false, classify(err)
	}
	var version int
	switch err := tx.QueryRow(ctx, qualify(selectVersion, schema)).Scan(&version); {
	case errors.Is(err, pgx.ErrNoRows):
		return false, fmt.Errorf("table schema_version of schema %q is empty: put the version back, or restore the schema from a backup: %w", schema, ErrSchema)
	case err != nil:
		return false, classify(err)
	}
	switch newest := len(migrations); {
	case version > newest:
		return false, fmt.Errorf("schema %q is at version %d, newer than version %d of this build: use a newer build: %w", schema, version, newest, ErrSchema)
	case version == newest:
		_, err := tx.Exec(ctx, qualify(ensureErrorTextIndex, schema)) // the extension may be there by now
		return true, classify(err)
	}
	next := migrations[version]
	if _, err := tx.Exec(ctx, next.UpSQL); err != nil {
		return false, fmt.Errorf("%s: %w", next.Name, classify(err))
	}
	_, err = tx.Exec(ctx, qualify(updateVersion, schema), pgx.NamedArgs{"version": next.Sequence})
	return false, classify(err)
}

// ensureVersion makes what tells the version of a schema. It asks first: `if not
// exists` needs the right to create even where there is nothing to do.
func ensureVersion(ctx context.Context, tx pgx.Tx, schema string) error {
	for _, made := range []struct{ exists, create string }{{selectSchemaExists, createSchema}, {selectVersionExists, createVersion}} {
		var exists bool
		if err := tx.QueryRow(ctx, made.exists, pgx.NamedArgs{"schema": schema}).Scan(&exists); err != nil {
			return err
		}
		if exists {
			continue
		}
		if _, err := tx.Exec(ctx, qualify(made.create, schema)); err != nil {
			return err
		}
	}
	return nil
}

// migrationsOf returns the migrations, the first one first, for a schema.
func migrationsOf(schema string) ([]*migrate.Migration, error) {
	migrator, err := migrate.NewMigrator(context.Background(), nil, "") // to load them, it needs no connection
	if err != nil {
		return nil, err
	}
	migrator.Data["schema"] = pgx.Identifier{schema}.Sanitize()
	err = migrator.LoadMigrations(migrationsDir())
	return migrator.Migrations, err
}

// withSchemaRights says who may upgrade the schema, where the error is that this role may not.
func withSchemaRights(ctx context.Context, conn *pgx.Conn, schema string, err error) error {
	refused, ok := errors.AsType[*pgconn.PgError](err)
	if !ok || refused.Code != insufficientPrivilege {
		return err
	}
	var role, database string
	var owner *string
	if conn.QueryRow(ctx, selectOwner, schema).Scan(&role, &database, &owner) != nil {
		return err
	}
	if owner == nil {
		return &RightsError{Role: role, Rights: []string{"CREATE"}, Object: "database " + pgx.Identifier{database}.Sanitize(), Cause: err}
	}
	return fmt.Errorf("role %q may not upgrade schema %q: run migrate as its owner %q or a member of that role: %w", role, schema, *owner, err)
}

const selectOwner = `
select current_user::text, current_database()::text, (
	select pg_catalog.pg_get_userbyid(nspowner)::text from pg_catalog.pg_namespace where nspname = $1
)`

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
		s.encoding = encodingOf(tx.Conn().PgConn())
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
