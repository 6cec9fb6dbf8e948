package dlqstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/deadletter-dev/deadletter/internal/text"
)

const (
	// DefaultSchema is the schema that holds the store's tables.
	DefaultSchema = "deadletter"
	// DefaultTimeout bounds one operation of the store.
	DefaultTimeout = 30 * time.Second
)

// Option changes what Open and Migrate assume.
type Option func(*settings)

type settings struct {
	schema  string
	timeout time.Duration
}

// WithSchema names the schema. Any name that Postgres takes will do. Default: DefaultSchema.
func WithSchema(name string) Option { return func(s *settings) { s.schema = name } }

// WithTimeout bounds each operation, the wait for a connection and for locks
// included; PurgeMatching is bounded per batch. A shorter deadline of the
// context wins. Default: DefaultTimeout. Migrate is bounded by its context alone.
func WithTimeout(d time.Duration) Option { return func(s *settings) { s.timeout = d } }

func apply(opts []Option) (settings, error) {
	s := settings{schema: DefaultSchema, timeout: DefaultTimeout}
	for _, opt := range opts {
		opt(&s)
	}
	switch {
	case s.schema == "" || s.schema != text.Holdable(s.schema):
		return s, errors.New("the schema needs a name that Postgres can hold")
	case len(s.schema) > maxIdentifier:
		return s, fmt.Errorf("the schema's name has %d bytes; Postgres takes at most %d", len(s.schema), maxIdentifier)
	case s.timeout < time.Millisecond:
		return s, fmt.Errorf("a timeout of %v is below 1ms", s.timeout)
	}
	return s, nil
}

// maxIdentifier is where Postgres would cut a name off in silence.
const maxIdentifier = 63

// Store is the dead letters of one schema of one database. It is safe for
// concurrent use.
type Store struct {
	pool     *pgxpool.Pool
	schema   string
	encoding encoding // of the database
	version  int      // of the schema when it was opened
	timeout  time.Duration
	// settings follow the begin of each transaction, and last as long as it does.
	settings   string
	statements map[string]string // as written → with the schema's name
}

// Open connects to the database and checks that its schema is at least of the
// version that this build needs: ErrSchema if not, ErrUnavailable if Postgres
// cannot be reached. A newer schema is fine, since migrations only add. The URL
// may hold the settings of pgxpool, such as pool_max_conns.
func Open(ctx context.Context, databaseURL string, opts ...Option) (*Store, error) {
	s, err := open(ctx, databaseURL, opts)
	if err != nil {
		return nil, fmt.Errorf("open the dead letter store: %w", err)
	}
	return s, nil
}

func open(ctx context.Context, databaseURL string, opts []Option) (*Store, error) {
	set, err := apply(opts)
	if err != nil {
		return nil, err
	}
	config, err := pgxpool.ParseConfig(databaseURL)
	if err != nil {
		return nil, badURL(err)
	}
	useOurParameters(&config.ConnConfig.Config)
	suitPooler(config, set.timeout)
	preferPrimary(config)
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, classify(err)
	}
	s := &Store{pool: pool, schema: set.schema, statements: make(map[string]string, len(statements))}
	s.bound(set.timeout)
	for _, statement := range statements {
		s.statements[statement] = qualify(statement, set.schema)
	}
	if s.version, err = s.checkVersion(ctx); err != nil {
		pool.Close()
		return nil, explainStartup(config, err)
	}
	return s, nil
}

// bound sets how long an operation may take, for the client and for the server.
func (s *Store) bound(timeout time.Duration) {
	ms := timeout.Milliseconds()
	s.timeout = timeout
	s.settings = fmt.Sprintf("; set local statement_timeout = %d; set local idle_in_transaction_session_timeout = %d; %s", ms, ms, ourSearchPath)
}

// within returns the store with a bound in time of at least timeout.
func (s *Store) within(timeout time.Duration) *Store {
	c := *s
	c.bound(max(timeout, s.timeout))
	return &c
}

// Close closes the pool. It waits for operations in flight; later ones are ErrClosed.
func (s *Store) Close() { s.pool.Close() }

// Pool returns the store's pool, for a caller's own statements and transactions.
func (s *Store) Pool() *pgxpool.Pool { return s.pool }

// Schema returns the name of the store's schema.
func (s *Store) Schema() string { return s.schema }

// Version returns the version that the schema had when the store was opened, and the
// one that this build needs, which is at most that.
func (s *Store) Version() (have, need int) {
	need, _ = schemaVersion() // Open has asked it before
	return s.version, need
}

// sql returns a registered statement with the schema's name.
func (s *Store) sql(statement string) string {
	qualified, ok := s.statements[statement]
	if !ok {
		panic("dlqstore: not in the list of statements: " + statement)
	}
	return qualified
}

// schemaMarker stands for the quoted schema in every statement.
const schemaMarker = "{schema}"

func qualify(statement, schema string) string {
	return strings.ReplaceAll(statement, schemaMarker, pgx.Identifier{schema}.Sanitize())
}

// The level is named because a role's own default may be stricter, and then a
// concurrent duplicate fails instead of being seen.
const (
	beginWrite = `begin isolation level read committed read write`
	beginRead  = `begin isolation level read committed read only`
	// beginFreeze has one snapshot for all of its statements.
	beginFreeze = `begin isolation level repeatable read read write`
	// beginSnapshot lets several statements see one state.
	beginSnapshot = `begin isolation level repeatable read read only`
	// ownPlan has Postgres plan for the very values of a statement.
	ownPlan = `; set local plan_cache_mode = force_custom_plan`
)

// inTx runs fn in a transaction that the client and the server bound in time.
// What fn returns is returned as it is.
func (s *Store) inTx(ctx context.Context, begin string, fn func(ctx context.Context, tx pgx.Tx) error) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	var failed error
	begun := false
	statement := ""
	err := pgx.BeginTxFunc(ctx, s.pool, pgx.TxOptions{BeginQuery: begin + s.settings}, func(tx pgx.Tx) error {
		begun = true
		mine := own(tx)
		failed = fn(ctx, mine)
		statement = mine.last
		return failed
	})
	switch {
	case failed != nil:
		err = s.explained(ctx, failed, statement)
	case !begun:
		err = classify(refusedBegin(err))
	default:
		err = classify(err)
	}
	s.noteStandby(err)
	return err
}

// atOnce sends a whole transaction with one statement, which takes one round trip, and
// returns how many rows that returned or changed. After an error the connection is still
// in the transaction, and the pool drops it.
func (s *Store) atOnce(ctx context.Context, statement string, args pgx.NamedArgs) (affected int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	batch := &pgx.Batch{}
	begins := strings.Split(beginWrite+s.settings, "; ")
	for _, begin := range begins {
		batch.Queue(begin)
	}
	batch.Queue(statement, s.encoding.arguments(statement, []any{args})...)
	batch.Queue(`commit`)
	results := s.pool.SendBatch(ctx, batch)
	if _, err = results.Exec(); err != nil {
		_ = results.Close() // says the same
		err = classify(refusedBegin(err))
		s.noteStandby(err)
		return 0, err
	}
	for range begins[1:] {
		_, err = results.Exec()
	}
	tag, failed := results.Exec()
	err = cmp.Or(err, failed)
	if closed := results.Close(); err == nil {
		err = closed // of the commit
	}
	if err != nil {
		err = s.explained(ctx, classify(err), statement)
	}
	s.noteStandby(err)
	return tag.RowsAffected(), err
}

// noteStandby drops the pool's connections after a write that a standby refused: each of
// them may lead to the same server.
func (s *Store) noteStandby(err error) {
	if ofStandby(err) {
		s.pool.Reset()
	}
}

// badURL leaves out what the parser quotes: a password may be in it.
func badURL(err error) error {
	text := "the database URL is not valid: it must look like postgres://user@host:5432/database or host=… dbname=…"
	if file := (*fs.PathError)(nil); errors.As(err, &file) {
		return fmt.Errorf("%s, and name files that can be read: %w", text, file)
	}
	if parse := (*pgconn.ParseConfigError)(nil); errors.As(err, &parse) {
		return errors.New(text)
	}
	return errors.New(text + ", with settings that pgxpool knows")
}
