package dlqstore_test

import (
	"context"
	"crypto/rand"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/internal/devstack/devtest"
	"github.com/deadletter-dev/deadletter/job"
)

// schemaShape describes every column, index, constraint, type and version.
const schemaShape = `
select string_agg(line, e'\n' order by line) from (
	select format('%s.%s %s %s', table_name, column_name, data_type, coalesce(column_default, '')) as line
	from information_schema.columns where table_schema = $1
	union all select indexdef from pg_indexes where schemaname = $1
	union all select format('%s %s', conrelid::regclass, pg_get_constraintdef(oid)) from pg_constraint where connamespace = $1::regnamespace
) lines`

// TestMigrateTwice proves that migrating again changes nothing.
func TestMigrateTwice(t *testing.T) {
	t.Parallel()
	url := devtest.Postgres(t)
	store := openAt(t, url)
	move(t, store, letter(keyOf("w")))
	before := scalar[string](t, store, schemaShape, "deadletter")
	require.NoError(t, dlqstore.Migrate(t.Context(), url))
	require.Equal(t, before, scalar[string](t, store, schemaShape, "deadletter"))
	require.Equal(t, int64(1), scalar[int64](t, store, `select count(*) from deadletter.dead_letters`))
}

// TestMigrateConcurrently proves that eight callers and eight processes at once
// on an empty database make the same schema, without an error.
func TestMigrateConcurrently(t *testing.T) {
	t.Parallel()
	single := scalar[string](t, openStore(t), schemaShape, "deadletter")

	callers := devtest.Postgres(t)
	for _, err := range concurrently(8, func(int) error { return dlqstore.Migrate(t.Context(), callers) }) {
		require.NoError(t, err)
	}
	require.Equal(t, single, scalar[string](t, openAt(t, callers), schemaShape, "deadletter"))

	processes := devtest.Postgres(t)
	output := make([]string, 8)
	for i, err := range concurrently(8, func(i int) error {
		command := exec.CommandContext(t.Context(), os.Args[0])
		command.Env = append(os.Environ(), migrateChild+"="+processes)
		text, err := command.CombinedOutput()
		output[i] = string(text)
		return err
	}) {
		require.NoError(t, err, output[i])
	}
	store, err := dlqstore.Open(t.Context(), processes)
	require.NoError(t, err)
	t.Cleanup(store.Close)
	require.Equal(t, single, scalar[string](t, store, schemaShape, "deadletter"))
}

// TestSchemaNames proves that the schema may have any name, that two live side by
// side, and that nothing relies on the search path or changes it.
func TestSchemaNames(t *testing.T) {
	t.Parallel()
	url := devtest.Postgres(t)
	for _, schema := range []string{"deadletter", `weird "Schema".name`, "Ünïcode; drop"} {
		store := openAt(t, url, dlqstore.WithSchema(schema))
		require.NoError(t, dlqstore.Migrate(t.Context(), url, dlqstore.WithSchema(schema)))
		require.Equal(t, schema, store.Schema())
		before := scalar[string](t, store, `show search_path`)
		key := keyOf("w")
		move(t, store, letter(key))
		count, err := store.CountDeadLetters(t.Context(), "")
		require.NoError(t, err)
		require.Equal(t, int64(1), count)
		require.NoError(t, store.Purge(t.Context(), key, "me"))
		require.Equal(t, before, scalar[string](t, store, `show search_path`))
	}
}

// newRole creates a role, which goes when the databases that the test makes after
// this call are gone, and what it owns with them.
func newRole(t *testing.T) string {
	t.Helper()
	bystander, role := devtest.Postgres(t), "dlq_"+strings.ToLower(rand.Text())
	exec := func(sql string) {
		ctx := context.WithoutCancel(t.Context())
		conn, err := pgx.Connect(ctx, bystander)
		require.NoError(t, err)
		_, err = conn.Exec(ctx, sql+role)
		require.NoError(t, err)
		require.NoError(t, conn.Close(ctx))
	}
	exec(`create role `)
	t.Cleanup(func() { exec(`drop role `) })
	return role
}

// TestMigrateExistingSchema proves that a role without the right to create
// schemas can migrate into one that was made for it.
func TestMigrateExistingSchema(t *testing.T) {
	t.Parallel()
	role := newRole(t)
	url := devtest.Postgres(t)
	admin := openAt(t, url, dlqstore.WithSchema("other"))
	run(t, admin, `create schema made authorization `+role)
	run(t, admin, `alter database `+scalar[string](t, admin, `select quote_ident(current_database())`)+` set role to `+role)
	openAt(t, url, dlqstore.WithSchema("made"))
	require.ErrorContains(t, dlqstore.Migrate(t.Context(), url, dlqstore.WithSchema("not_made")), "42501")
}

// TestVersions proves that a newer schema is refused by Migrate and served by
// Open, and that an older one is refused by Open.
func TestVersions(t *testing.T) {
	t.Parallel()
	url := devtest.Postgres(t)
	store := openAt(t, url)
	need, err := dlqstore.SchemaVersion()
	require.NoError(t, err)
	require.Equal(t, need, scalar[int](t, store, `select version from deadletter.schema_version`))

	run(t, store, `update deadletter.schema_version set version = 1000`)
	err = dlqstore.Migrate(t.Context(), url)
	require.ErrorIs(t, err, dlqstore.ErrSchema)
	require.ErrorContains(t, err, "newer")
	newer, err := dlqstore.Open(t.Context(), url)
	require.NoError(t, err)
	have, needs := newer.Version()
	require.Equal(t, 1000, have)
	require.Equal(t, need, needs)
	newer.Close()

	run(t, store, `update deadletter.schema_version set version = 0`)
	_, err = dlqstore.Open(t.Context(), url)
	require.ErrorIs(t, err, dlqstore.ErrSchema)
	require.ErrorContains(t, err, "temporal-deadletter migrate")
}

// TestNoDeadLetterStatus proves that the schema has no live status dead_letter,
// and has exactly the statuses of package job.
func TestNoDeadLetterStatus(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	_, err := store.Pool().Exec(t.Context(), `select 'dead_letter'::deadletter.job_status`)
	require.ErrorContains(t, err, "22P02")
	var statuses []job.Status
	for _, text := range scalar[[]string](t, store, `select enum_range(null::deadletter.job_status)::text[]`) {
		status, err := job.ParseStatus(text)
		require.NoError(t, err)
		statuses = append(statuses, status)
	}
	require.Equal(t, []job.Status{job.StatusQueued, job.StatusProcessing, job.StatusDone, job.StatusCancelled}, statuses)
}

// TestReasons proves that the table takes exactly the reasons of package job.
func TestReasons(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	definition := scalar[string](t, store, `select pg_get_constraintdef(oid) from pg_constraint where conname = 'dead_letters_reason_check'`)
	var inTable []string
	rows, err := store.Pool().Query(t.Context(), `select m[1] from regexp_matches($1, '''(\w+)''', 'g') m`, definition)
	require.NoError(t, err)
	for rows.Next() {
		var text string
		require.NoError(t, rows.Scan(&text))
		inTable = append(inTable, text)
	}
	require.NoError(t, rows.Err())
	var inGo []string
	for _, reason := range job.Reasons() {
		inGo = append(inGo, string(reason))
		dl := letter(keyOf(string(reason)))
		dl.Reason = reason
		move(t, store, dl)
	}
	require.Equal(t, inGo, inTable)

	dl := letter(keyOf("other"))
	dl.Reason = "dead_letter"
	_, err = store.Move(t.Context(), dl, nil, "worker", nil)
	require.ErrorContains(t, err, "not a reason")
	_, err = store.Pool().Exec(t.Context(), `insert into deadletter.dead_letters (namespace, workflow_id, run_id, reason, payloads) values ('n', 'w', 'r', 'other', '')`)
	require.ErrorContains(t, err, "dead_letters_reason_check")
}

// TestMigrateWaits proves that a Migrate whose turn does not come ends with its
// context instead of hanging.
func TestMigrateWaits(t *testing.T) {
	t.Parallel()
	url := devtest.Postgres(t)
	holder := openAt(t, url)
	conn, err := holder.Pool().Acquire(t.Context())
	require.NoError(t, err)
	defer conn.Release()
	_, err = conn.Exec(t.Context(), `select pg_advisory_lock($1)`, int64(0x6465_6164_6c65_7474))
	require.NoError(t, err)
	ctx := expiring{t.Context(), make(chan struct{})}
	ended := make(chan error, 1)
	go func() { ended <- dlqstore.Migrate(ctx, url) }()
	require.Eventually(t, func() bool {
		return scalar[int](t, holder, `select count(*) from pg_locks where locktype = 'advisory' and not granted
			and database = (select oid from pg_database where datname = current_database())`) == 1
	}, time.Minute, 20*time.Millisecond, "it waits for its turn")
	close(ctx.expired)
	require.ErrorIs(t, <-ended, dlqstore.ErrTimeout)
	_, err = conn.Exec(t.Context(), `select pg_advisory_unlock($1)`, int64(0x6465_6164_6c65_7474))
	require.NoError(t, err)
}

// expiring is a context whose deadline passes when the test wants.
type expiring struct {
	context.Context
	expired chan struct{}
}

func (e expiring) Done() <-chan struct{} { return e.expired }

func (e expiring) Err() error {
	select {
	case <-e.expired:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// TestPoolSettings proves that one URL serves Open and Migrate, pool settings
// included.
func TestPoolSettings(t *testing.T) {
	t.Parallel()
	url := devtest.Postgres(t)
	separator := "?"
	if strings.Contains(url, "?") {
		separator = "&"
	}
	url += separator + "pool_max_conns=3"
	require.NoError(t, dlqstore.Migrate(t.Context(), url))
	store, err := dlqstore.Open(t.Context(), url)
	require.NoError(t, err)
	store.Close()
}
