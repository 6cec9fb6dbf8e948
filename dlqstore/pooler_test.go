package dlqstore_test

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/internal/devstack"
	"github.com/deadletter-dev/deadletter/internal/devstack/devtest"
)

// execModes are what a database URL may say of the protocol; empty says nothing.
var execModes = []string{"", "cache_statement", "cache_describe", "describe_exec", "exec", "simple_protocol"}

// inMode returns the URL with a mode.
func inMode(url, mode string) string {
	if mode == "" {
		return url
	}
	separator := "?"
	if strings.Contains(url, "?") {
		separator = "&"
	}
	return url + separator + "default_query_exec_mode=" + mode
}

// TestPooler proves that stores of every mode at once share the two server connections
// of a transaction pooler, with statements of the pool's own users among them, and that
// none of them leaves anything in a session.
func TestPooler(t *testing.T) {
	t.Parallel()
	direct := devtest.Postgres(t)
	through := devtest.Pooler(t, direct)
	for _, err := range concurrently(len(execModes), func(i int) error { return dlqstore.Migrate(t.Context(), inMode(through, execModes[i])) }) {
		require.NoError(t, err)
	}
	stores := make([]*dlqstore.Store, len(execModes))
	for i, mode := range execModes {
		store, err := dlqstore.Open(t.Context(), inMode(through, mode))
		require.NoError(t, err, mode)
		t.Cleanup(store.Close)
		stores[i] = store
	}
	const each = 10
	for i, err := range concurrently(4*len(stores), func(i int) error {
		store := stores[i%len(stores)]
		for n := range each {
			key := keyOf(fmt.Sprintf("w-%d-%d", i, n))
			if _, err := store.Move(t.Context(), letter(key), attempts(2), "worker", nil); err != nil {
				return err
			}
			if _, err := store.Get(t.Context(), key); err != nil {
				return err
			}
			if _, _, err := store.List(t.Context(), allFilters()["all"], dlqstore.Page{}); err != nil {
				return err
			}
			var same string
			if err := store.Pool().QueryRow(t.Context(), `select $1::text`, key.WorkflowID).Scan(&same); err != nil {
				return err
			}
			if same != key.WorkflowID {
				return fmt.Errorf("%s became %s", key.WorkflowID, same)
			}
		}
		return nil
	}) {
		require.NoError(t, err, execModes[i%len(execModes)])
	}

	plain := openAt(t, direct)
	require.Equal(t, int64(4*each*len(stores)), scalar[int64](t, plain, `select count(*) from deadletter.dead_letters`))
	sessions := scalar[int](t, plain, `select count(*) from pg_stat_activity where datname = current_database() and pid not in (select pid from pg_locks where locktype = 'advisory') and application_name = ''`)
	require.LessOrEqual(t, sessions-int(plain.Pool().Stat().TotalConns()), 2, "the pooler's connections")
	for range 20 { // both of the pooler's sessions, most likely
		require.Empty(t, scalar[[]string](t, stores[4], `select coalesce(array_agg(name), '{}') from pg_prepared_statements`))
		require.Equal(t, `"$user", public`, scalar[string](t, stores[4], `show search_path`))
		require.Equal(t, "0", scalar[string](t, stores[4], `show statement_timeout`))
		require.Zero(t, scalar[int](t, stores[4], `select count(*) from pg_locks where locktype = 'advisory' and database = (select oid from pg_database where datname = current_database())`))
	}
}

// TestDirectModes proves that a direct connection prepares its statements, unless the
// URL says otherwise.
func TestDirectModes(t *testing.T) {
	t.Parallel()
	url := devtest.Postgres(t)
	openAt(t, url)
	for _, mode := range execModes {
		store, err := dlqstore.Open(t.Context(), inMode(url, mode)+"&pool_max_conns=1")
		require.NoError(t, err)
		t.Cleanup(store.Close)
		key := keyOf("in " + mode)
		move(t, store, letter(key))
		_, err = store.Get(t.Context(), key)
		require.NoError(t, err)
		prepared := scalar[int](t, store, `select count(*) from pg_prepared_statements where statement like '%deadletter%'`)
		if mode == "" || mode == "cache_statement" {
			require.Positive(t, prepared, mode)
		} else {
			require.Zero(t, prepared, mode)
		}
	}
}

// TestPoolerBounds proves that a statement through a pooler ends in its time, while it
// waits for a lock and while it waits for one of the pooler's connections.
func TestPoolerBounds(t *testing.T) {
	t.Parallel()
	direct := devtest.Postgres(t)
	plain := openAt(t, direct)
	key := keyOf("w")
	move(t, plain, letter(key))
	hasty := openHasty(t, devtest.Pooler(t, direct))

	blocker, err := plain.Pool().Begin(t.Context())
	require.NoError(t, err)
	_, err = blocker.Exec(t.Context(), `select from deadletter.dead_letters for update`)
	require.NoError(t, err)
	require.ErrorIs(t, hasty.Purge(t.Context(), key, "me"), dlqstore.ErrTimeout)
	require.NoError(t, blocker.Rollback(t.Context()))

	for range 2 {
		taken, err := hasty.Pool().Begin(t.Context())
		require.NoError(t, err)
		defer func() { _ = taken.Rollback(t.Context()) }()
	}
	_, err = hasty.Get(t.Context(), key)
	require.ErrorIs(t, err, dlqstore.ErrTimeout)
}

// TestPoolerRefusesSetting proves that a setting in the URL that a pooler does not take
// is named, with what to do.
func TestPoolerRefusesSetting(t *testing.T) {
	t.Parallel()
	through := devtest.Pooler(t, devtest.Postgres(t)) + "&search_path=app"
	_, err := dlqstore.Open(t.Context(), through)
	for _, err := range []error{err, dlqstore.Migrate(t.Context(), through)} {
		require.NotErrorIs(t, err, dlqstore.ErrUnavailable)
		require.ErrorContains(t, err, "settings that a pooler may refuse (search_path): remove them")
	}
}

// TestPoolerRefusesClient proves that a pooler's refusal of a client is told from an
// outage behind it, although it has the same SQLSTATE for both.
func TestPoolerRefusesClient(t *testing.T) {
	t.Parallel()
	server, err := devstack.StartPostgres(t.Context(), devstack.PostgresOptions{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop()) })
	pooler, err := devstack.StartPooler(t.Context(), devstack.PoolerOptions{
		Path: devtest.Require(t, "pgbouncer", "apt-get install pgbouncer"), ServerURL: server.URL, PoolSize: 1,
		Settings: map[string]string{"query_wait_timeout": "2"}, // how long a client waits for a server that is down
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, pooler.Stop()) })
	through, err := pooler.URL(server.URL)
	require.NoError(t, err)
	parsed, err := url.Parse(through)
	require.NoError(t, err)

	wrong := func(user *url.Userinfo, database string) string {
		u := *parsed
		u.User, u.Path = user, database
		return u.String()
	}
	for said, url := range map[string]string{
		"password authentication failed": wrong(url.UserPassword("postgres", "s3cret"), parsed.Path),
		`"nowhere" does not exist`:       wrong(parsed.User, "/nowhere"),
	} {
		_, err := dlqstore.Open(t.Context(), url)
		require.ErrorContains(t, err, said)
		require.NotErrorIs(t, err, dlqstore.ErrUnavailable)
		require.NotContains(t, err.Error(), "s3cret")
	}

	require.NoError(t, server.Crash())
	_, err = dlqstore.Open(t.Context(), through)
	require.ErrorIs(t, err, dlqstore.ErrUnavailable)
}
