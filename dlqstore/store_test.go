package dlqstore_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/internal/devstack/devtest"
	"github.com/deadletter-dev/deadletter/job"
)

// migrateChild makes the test binary a process that migrates and ends.
const migrateChild = "DLQSTORE_TEST_MIGRATE"

func TestMain(m *testing.M) {
	if url := os.Getenv(migrateChild); url != "" {
		if err := dlqstore.Migrate(context.Background(), url); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	devtest.Main(m)
}

// openStore returns a store on a migrated database of its own.
func openStore(t testing.TB, opts ...dlqstore.Option) *dlqstore.Store {
	t.Helper()
	return openAt(t, devtest.Postgres(t), opts...)
}

func openAt(t testing.TB, url string, opts ...dlqstore.Option) *dlqstore.Store {
	t.Helper()
	require.NoError(t, dlqstore.Migrate(t.Context(), url, opts...))
	store, err := dlqstore.Open(t.Context(), url, opts...)
	require.NoError(t, err)
	t.Cleanup(store.Close)
	return store
}

func keyOf(workflowID string) dlqstore.Key {
	return dlqstore.Key{Namespace: "default", WorkflowID: workflowID, RunID: workflowID + "-run"}
}

func ptr[T any](v T) *T { return &v }

// instant is a time with the precision of Postgres.
var instant = time.Date(2026, 1, 2, 3, 4, 5, 678901000, time.UTC)

// letter returns a dead letter with a value in every column that a move writes.
func letter(key dlqstore.Key) *dlqstore.DeadLetter {
	return &dlqstore.DeadLetter{
		Key: key, FirstRunID: "first", JobType: "SendEmail", TaskQueue: "emails", WorkflowTaskQueue: "jobs",
		Reason: job.ReasonMaxRetriesExceeded, Attempts: ptr(3), MaxAttempts: ptr(3),
		ErrorType: "SMTP", ErrorMessage: "550 no such user", ErrorStack: "main.go:1", RetryState: "MaximumAttemptsReached",
		Tags: map[string]string{"tenant": "acme"}, Options: json.RawMessage(`{"type": "SendEmail"}`),
		PayloadJSON: json.RawMessage(`[{"to": "a@b.c"}]`), Priority: json.RawMessage(`{"priority_key": 2}`),
		WorkerIdentity: "1@host", EnqueuedAt: ptr(instant), FirstAttemptAt: ptr(instant.Add(time.Second)),
		LastAttemptAt: ptr(instant.Add(time.Minute)), DeadAt: instant.Add(time.Hour),
		Generation: 1, ReplayedFromWorkflowID: ptr("ancestor"), ReplayedFromRunID: ptr("ancestor-run"), Fingerprint: "f1", Revision: 1,
		Payloads: []byte{0, 1, 2, 255}, OptionsPayload: []byte("options"), Failure: []byte("failure"), LastHeartbeatDetails: []byte("heartbeat"),
		Memo: []byte("memo"), SearchAttributes: []byte("attributes"), Header: []byte("header"), UserMetadata: []byte("metadata"),
	}
}

func attempts(n int) []dlqstore.Attempt {
	var list []dlqstore.Attempt
	for i := range n {
		started := instant.Add(time.Duration(i) * time.Minute)
		a := dlqstore.Attempt{
			Attempt: i + 1, StartedAt: ptr(started), EndedAt: ptr(started.Add(time.Second)),
			WorkerIdentity: "1@host", ErrorType: "SMTP", ErrorMessage: fmt.Sprintf("try %d", i+1), ErrorStack: "main.go:1",
		}
		if i < n-1 {
			a.Wait = ptr(1500 * time.Millisecond)
		}
		list = append(list, a)
	}
	return list
}

func move(t testing.TB, store *dlqstore.Store, dl *dlqstore.DeadLetter) {
	t.Helper()
	moved, err := store.Move(t.Context(), dl, attempts(2), "worker", nil)
	require.NoError(t, err)
	require.True(t, moved)
}

// run runs a statement of a test's own.
func run(t testing.TB, store *dlqstore.Store, sql string, args ...any) {
	t.Helper()
	_, err := store.Pool().Exec(t.Context(), sql, args...)
	require.NoError(t, err)
}

// scalar returns the one value of a test's own query.
func scalar[T any](t testing.TB, store *dlqstore.Store, sql string, args ...any) T {
	t.Helper()
	var v T
	require.NoError(t, store.Pool().QueryRow(t.Context(), sql, args...).Scan(&v))
	return v
}

// concurrently runs fn n times at once and returns the errors.
func concurrently(n int, fn func(i int) error) []error {
	errs := make([]error, n)
	start := make(chan struct{})
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() {
			<-start
			errs[i] = fn(i)
		})
	}
	close(start)
	group.Wait()
	return errs
}

// allFilters has each field of a Filter alone, and all at once.
func allFilters() map[string]dlqstore.Filter {
	yes, no := true, false
	return map[string]dlqstore.Filter{
		"nothing":      {},
		"namespace":    {Namespace: "default"},
		"workflow_id":  {WorkflowID: "w"},
		"job_type":     {JobType: "t"},
		"reason":       {Reason: job.ReasonZombie},
		"task_queue":   {TaskQueue: "q"},
		"fingerprint":  {Fingerprint: "f"},
		"error_text":   {ErrorText: "x"},
		"tags":         {Tags: map[string]string{"k": "v"}},
		"dead_after":   {DeadAfter: &instant},
		"dead_before":  {DeadBefore: &instant},
		"replayed":     {Replayed: &yes},
		"not replayed": {Replayed: &no},

		"enqueued_after":  {EnqueuedAfter: &instant},
		"enqueued_before": {EnqueuedBefore: &instant},
		"min_attempts":    {MinAttempts: ptr(1)},
		"max_attempts":    {MaxAttempts: ptr(3)},
		"attempts":        {MinAttempts: ptr(3), MaxAttempts: ptr(3)},
		"generation":      {Generation: ptr(0)},
		"superseded":      {Superseded: &yes},
		"not superseded":  {Superseded: &no},
		"where":           {Where: []dlqstore.Condition{condition("args[0].to=a@b.c"), condition("args[1][2]=42")}},
		"all": {
			Namespace: "default", WorkflowID: "w", JobType: "t", Reason: job.ReasonZombie, TaskQueue: "q", Fingerprint: "f",
			ErrorText: "x", Tags: map[string]string{"k": "v"}, DeadAfter: &instant, DeadBefore: &instant, Replayed: &yes,
			EnqueuedAfter: &instant, EnqueuedBefore: &instant, MinAttempts: ptr(1), MaxAttempts: ptr(3), Generation: ptr(0), Superseded: &no,
			Where: []dlqstore.Condition{condition("args[0].to=a@b.c")},
		},
	}
}

func condition(text string) dlqstore.Condition {
	c, err := dlqstore.ParseCondition(text)
	if err != nil {
		panic(err)
	}
	return c
}

// TestStatementsPrepare proves that Postgres accepts every statement on the
// migrated schema, whatever the schema is called.
func TestStatementsPrepare(t *testing.T) {
	t.Parallel()
	for _, schema := range []string{"deadletter", `odd "Name" @here $1`} {
		store := openStore(t, dlqstore.WithSchema(schema))
		queries := allQueries(t, store)
		conn, err := store.Pool().Acquire(t.Context())
		require.NoError(t, err)
		defer conn.Release()
		for name, query := range queries {
			text, _, err := pgx.NamedArgs{}.RewriteQuery(t.Context(), conn.Conn(), query, nil)
			require.NoError(t, err, name)
			_, err = conn.Conn().Prepare(t.Context(), "", text)
			require.NoError(t, err, name)
			require.NotContains(t, query, "{schema}", name)
			require.NotContains(t, query, "*\n", name)
		}
	}
}

// allQueries are the store's statements by name, those that filters and policies make too.
func allQueries(t *testing.T, store *dlqstore.Store) map[string]string {
	t.Helper()
	queries, err := store.Queries(allFilters())
	require.NoError(t, err)
	for name, policies := range allPolicies() {
		for what, query := range store.PruneQueries(policies...) {
			queries[what+" "+name] = query
		}
	}
	return queries
}

// TestStatementsWithoutTypes proves that every statement tells the types of its
// arguments by itself, since the simple protocol sends them as literals.
func TestStatementsWithoutTypes(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	queries := allQueries(t, store)
	conn, err := store.Pool().Acquire(t.Context())
	require.NoError(t, err)
	defer conn.Release()
	for name, query := range queries {
		text, _, err := pgx.NamedArgs{}.RewriteQuery(t.Context(), conn.Conn(), query, nil)
		require.NoError(t, err, name)
		_, err = conn.Conn().Prepare(t.Context(), "", argument.ReplaceAllString(text, "null"))
		require.NoError(t, err, name)
	}
}

var argument = regexp.MustCompile(`\$\d+`)

// TestOpenRefuses proves that Open says clearly what is wrong, and never repeats
// a password or the URL.
func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	empty := devtest.Postgres(t)
	const nobody = "127.0.0.1:1" // a port that is free now, another test may take
	for name, test := range map[string]struct {
		url  string
		opts []dlqstore.Option
		want error
		text string
	}{
		"not migrated":        {url: empty, want: dlqstore.ErrSchema, text: "temporal-deadletter migrate"},
		"nobody listens":      {url: "postgres://user:s3cret@" + nobody + "/db?sslmode=disable", want: dlqstore.ErrUnavailable},
		"no such host":        {url: "postgres://user:s3cret@nowhere.invalid/db", want: dlqstore.ErrUnavailable},
		"not a URL":           {url: "postgres://user:s3cret@[::1/db", text: "not valid"},
		"password with slash": {url: "postgres://user:s3cret/x@host:port/db", text: "not valid"},
		"bad pair":            {url: "password=s3cret host", text: "not valid"},
		"bad pool setting":    {url: "postgres://user:s3cret@" + nobody + "/db?pool_max_conns=s3cret", text: "not valid"},
		"no certificate":      {url: "postgres://user:s3cret@" + nobody + "/db?sslmode=verify-full&sslrootcert=/nowhere.pem", text: "/nowhere.pem"},
		"no schema name":      {url: empty, opts: []dlqstore.Option{dlqstore.WithSchema("")}, text: "needs a name"},
		"long schema name":    {url: empty, opts: []dlqstore.Option{dlqstore.WithSchema(strings.Repeat("x", 64))}, text: "at most 63"},
		"no timeout":          {url: empty, opts: []dlqstore.Option{dlqstore.WithTimeout(0)}, text: "below 1ms"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store, err := dlqstore.Open(t.Context(), test.url, test.opts...)
			require.Error(t, err)
			require.Nil(t, store)
			if test.want != nil {
				require.ErrorIs(t, err, test.want)
			}
			require.ErrorContains(t, err, test.text)
			require.NotContains(t, err.Error(), "s3cret")
			require.NotContains(t, err.Error(), test.url)
		})
	}
}

// TestOpenWrongRole proves that a refusal by the server is not taken for an outage.
func TestOpenWrongRole(t *testing.T) {
	t.Parallel()
	config, err := pgx.ParseConfig(devtest.Postgres(t))
	require.NoError(t, err)
	_, err = dlqstore.Open(t.Context(), fmt.Sprintf("host=%s port=%d dbname=%s user=nobody_of_that_name password=s3cret", config.Host, config.Port, config.Database))
	require.Error(t, err)
	require.NotErrorIs(t, err, dlqstore.ErrUnavailable)
	require.NotContains(t, err.Error(), "s3cret")
}

// TestClassify proves that failures are told apart by SQLSTATE and kind.
func TestClassify(t *testing.T) {
	t.Parallel()
	sentinels := []error{dlqstore.ErrUnavailable, dlqstore.ErrTimeout, dlqstore.ErrSchema, dlqstore.ErrRejected, dlqstore.ErrRefused}
	for state, want := range map[string][]error{
		"08006": {dlqstore.ErrUnavailable}, "57P01": {dlqstore.ErrUnavailable}, "57P03": {dlqstore.ErrUnavailable},
		"53300": {dlqstore.ErrUnavailable}, "25006": {dlqstore.ErrUnavailable},
		"57014": {dlqstore.ErrTimeout}, "55P03": {dlqstore.ErrTimeout},
		"3F000": {dlqstore.ErrSchema}, "42P01": {dlqstore.ErrSchema, dlqstore.ErrRejected, dlqstore.ErrRefused},
		"42501": {dlqstore.ErrRejected, dlqstore.ErrRefused}, "23505": {dlqstore.ErrRejected, dlqstore.ErrRefused},
		"22001": {dlqstore.ErrRejected, dlqstore.ErrRefused}, "0A000": {dlqstore.ErrRejected, dlqstore.ErrRefused},
		"42P05": nil, "40001": nil, "40P01": nil, "": nil,
	} {
		err := dlqstore.Classify(fmt.Errorf("x: %w", &pgconn.PgError{Code: state}))
		for _, sentinel := range sentinels {
			require.Equal(t, slices.Contains(want, sentinel), errors.Is(err, sentinel), "%s: %v", state, sentinel)
		}
	}
	// The numbers of the events are behind: the next try takes the next one.
	require.NotErrorIs(t, dlqstore.Classify(&pgconn.PgError{Code: "23505", TableName: "events", ConstraintName: "events_pkey"}), dlqstore.ErrRefused)
	// Which pgx mends by itself, by the next try: a plan of before a migration.
	require.NotErrorIs(t, dlqstore.Classify(&pgconn.PgError{Code: "0A000", Routine: "RevalidateCachedQuery"}), dlqstore.ErrRefused)
	require.ErrorIs(t, dlqstore.Classify(context.DeadlineExceeded), dlqstore.ErrTimeout)
	require.NotErrorIs(t, dlqstore.Classify(context.Canceled), dlqstore.ErrTimeout)
	require.NoError(t, dlqstore.Classify(nil))
}

// TestTimeout proves that an operation gives up on a lock that is held, and works
// once it is free.
func TestTimeout(t *testing.T) {
	t.Parallel()
	url := devtest.Postgres(t)
	store := openAt(t, url)
	hasty := openHasty(t, url)
	key := keyOf("locked")
	move(t, store, letter(key))

	tx, err := store.Pool().Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `select from deadletter.dead_letters for update`)
	require.NoError(t, err)
	blocked := []func() error{
		func() error { return hasty.Purge(t.Context(), key, "me") },
		func() error {
			_, err := hasty.BeginReplay(t.Context(), dlqstore.ReplayRequest{Key: key, RequestID: "r"})
			return err
		},
	}
	for _, err := range concurrently(len(blocked), func(i int) error { return blocked[i]() }) {
		require.ErrorIs(t, err, dlqstore.ErrTimeout)
	}
	require.NoError(t, tx.Rollback(t.Context()))
	require.Eventually(t, func() bool {
		// Not found: an earlier try did it, and was not told in time.
		err := hasty.Purge(t.Context(), key, "me")
		return err == nil || errors.Is(err, dlqstore.ErrNotFound)
	}, time.Minute, 50*time.Millisecond)
	require.Zero(t, scalar[int](t, store, `select count(*) from deadletter.dead_letters`))
}

// openHasty opens a store that gives up on a lock within the time of a test, and still
// has enough of it for a new connection on a busy machine.
func openHasty(t testing.TB, url string) *dlqstore.Store {
	t.Helper()
	store, err := dlqstore.Open(t.Context(), url, dlqstore.WithTimeout(5*time.Second))
	require.NoError(t, err)
	t.Cleanup(store.Close)
	return store
}

// TestReadTimeout proves that a read gives up on a lock that is held, says so, and
// works once it is free, on the same pool.
func TestReadTimeout(t *testing.T) {
	t.Parallel()
	url := devtest.Postgres(t)
	store := openAt(t, url)
	hasty := openHasty(t, url)
	move(t, store, letter(keyOf("w")))
	reads := map[string]func() error{
		"list": func() error {
			_, _, err := hasty.List(t.Context(), dlqstore.Filter{ErrorText: "no such"}, dlqstore.Page{})
			return err
		},
		"get":   func() error { _, err := hasty.Get(t.Context(), keyOf("w")); return err },
		"trend": func() error { _, err := hasty.Trend(t.Context(), "default"); return err },
		"export": func() error {
			for _, err := range hasty.Export(t.Context(), dlqstore.ExportRequest{}) {
				if err != nil {
					return err
				}
			}
			return nil
		},
	}
	tx, err := store.Pool().Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `lock table deadletter.dead_letters in access exclusive mode`)
	require.NoError(t, err)
	names := slices.Collect(maps.Keys(reads))
	for i, err := range concurrently(len(names), func(i int) error { return reads[names[i]]() }) {
		require.ErrorIs(t, err, dlqstore.ErrTimeout, names[i])
	}
	require.NoError(t, tx.Rollback(t.Context()))
	for name, read := range reads {
		require.Eventually(t, func() bool { return read() == nil }, time.Minute, 50*time.Millisecond, name)
	}
}

// TestLostConnection proves that a backend which goes away is an outage to the
// caller, and that the next call works.
func TestLostConnection(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	run(t, store, `create function die() returns trigger language plpgsql as $$ begin perform pg_terminate_backend(pg_backend_pid()); return new; end $$`)
	run(t, store, `create trigger die before insert on deadletter.attempts for each statement execute function die()`)
	key := keyOf("w")
	moved, err := store.Move(t.Context(), letter(key), attempts(1), "worker", nil)
	require.ErrorIs(t, err, dlqstore.ErrUnavailable)
	require.False(t, moved)
	run(t, store, `drop trigger die on deadletter.attempts`)
	move(t, store, letter(key))
}

// TestClosed proves that a store which was closed says so, on a read and on a write,
// and is not taken for an outage.
func TestClosed(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	store.Close()
	_, err := store.Get(t.Context(), keyOf("w"))
	require.ErrorIs(t, err, dlqstore.ErrClosed)
	require.ErrorContains(t, err, "get default/w/w-run: the store is closed")
	_, err = store.Move(t.Context(), letter(keyOf("w")), nil, "worker", nil)
	require.ErrorIs(t, err, dlqstore.ErrClosed)
	require.NotErrorIs(t, err, dlqstore.ErrUnavailable)
	require.ErrorIs(t, store.Purge(t.Context(), keyOf("w"), "me"), dlqstore.ErrClosed)
}

// TestJSONNames proves that the JSON of a read has the names of the columns and
// none of the wire's bytes, and that an attempt's survives a round trip.
func TestJSONNames(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	for table, value := range map[string]any{"dead_letters": dlqstore.DeadLetter{}, "attempts": dlqstore.Attempt{}, "replays": dlqstore.Replay{}, "events": dlqstore.Event{}} {
		text, err := json.Marshal(value)
		require.NoError(t, err)
		var fields map[string]any
		require.NoError(t, json.Unmarshal(text, &fields))
		var names []string
		for name := range fields {
			names = append(names, name)
		}
		columns := scalar[[]string](t, store, `select array_agg(column_name::text) from information_schema.columns
			where table_schema = 'deadletter' and table_name = $1 and data_type <> 'bytea'
			and ($1 <> 'attempts' or column_name not in ('namespace', 'workflow_id', 'run_id'))`, table)
		require.ElementsMatch(t, columns, names, table)
	}
	text, err := json.Marshal(attempts(2))
	require.NoError(t, err)
	require.Contains(t, string(text), `"wait_ms":1500`)
	var back []dlqstore.Attempt
	require.NoError(t, json.Unmarshal(text, &back))
	require.Equal(t, attempts(2), back)
}
