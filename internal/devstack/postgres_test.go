package devstack_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/deadletter-dev/deadletter/internal/devstack"
)

// TestPostgresCrash proves that Crash cuts connections, that Restart brings the
// same server back under the same URL with every commit, also the very last one,
// and that neither can be called out of order.
func TestPostgresCrash(t *testing.T) {
	t.Parallel()
	p := startPostgres(t)
	require.ErrorContains(t, p.Restart(t.Context()), "it is running")

	conn := connect(t, p.URL)
	_, err := conn.Exec(t.Context(), "create table kept (n int)")
	require.NoError(t, err)
	for round := 1; round <= 3; round++ {
		_, err = conn.Exec(t.Context(), "insert into kept values ($1)", round)
		require.NoError(t, err)
		require.NoError(t, p.Crash())
		require.ErrorContains(t, p.Crash(), "not running")
		require.Error(t, conn.Ping(t.Context()))
		_, err = pgx.Connect(t.Context(), p.URL)
		require.Error(t, err)

		require.NoError(t, p.Restart(t.Context()))
		conn = connect(t, p.URL)
		var rows int
		require.NoError(t, conn.QueryRow(t.Context(), "select count(*) from kept").Scan(&rows))
		require.Equal(t, round, rows)
	}

	require.NoError(t, p.Crash())
	require.NoError(t, p.Stop(), "after a crash")
	require.ErrorContains(t, p.Restart(t.Context()), "stopped")
}

// TestCreateDatabase proves that many tests can make and drop databases on one
// server at once, by URL and by key=value pairs, and that they are separate.
func TestCreateDatabase(t *testing.T) {
	t.Parallel()
	p := startPostgres(t)
	config, err := pgx.ParseConfig(p.URL)
	require.NoError(t, err)
	pairs := fmt.Sprintf("host=127.0.0.1 port=%d user=postgres dbname=postgres password=%s", config.Port, config.Password)

	var all sync.WaitGroup
	errs := make(chan error, 8)
	for i := range cap(errs) {
		all.Go(func() {
			server, name := p.URL, fmt.Sprintf("It's \"%d\"", i)
			if i%2 == 0 {
				server = pairs
			}
			errs <- useDatabase(t.Context(), server, name)
		})
	}
	all.Wait()
	close(errs)
	for err := range errs {
		require.NoError(t, err)
	}

	_, err = p.CreateDatabase(t.Context(), "postgres")
	require.ErrorContains(t, err, "devstack: create database postgres: ")
}

// useDatabase makes a database, makes a table in it and drops it while connected.
func useDatabase(ctx context.Context, server, name string) error {
	database, err := devstack.CreateDatabase(ctx, server, name)
	if err != nil {
		return err
	}
	conn, err := pgx.Connect(ctx, database)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	var got string
	if err := conn.QueryRow(ctx, "select current_database()").Scan(&got); err != nil {
		return err
	}
	if got != name {
		return fmt.Errorf("connected to %s, want %s", got, name)
	}
	if _, err := conn.Exec(ctx, "create table same_name_everywhere ()"); err != nil {
		return err
	}
	return devstack.DropDatabase(ctx, server, name)
}

// TestSweep proves that a start removes the folder of a dead owner, but not one
// whose owner lives, be it by process id or, in another container, by its lock.
func TestSweep(t *testing.T) {
	folder := tempFolder(t)
	const nobody = 2_000_000_000 // no system gives such a process id, so nobody can get it meanwhile
	folderOf := func(pid int, suffix string) string {
		path := filepath.Join(folder, fmt.Sprintf("deadletter-pg-%d-%s", pid, suffix))
		require.NoError(t, os.MkdirAll(filepath.Join(path, "data"), 0o700))
		return path
	}
	dead := folderOf(nobody, "dead")
	living := folderOf(os.Getpid(), "living")
	locked := folderOf(nobody, "locked")
	lock, err := os.Open(locked)
	require.NoError(t, err)
	defer lock.Close()
	require.NoError(t, syscall.Flock(int(lock.Fd()), syscall.LOCK_EX))

	p, err := devstack.StartPostgres(t.Context(), devstack.PostgresOptions{})
	require.NoError(t, err)
	require.NoError(t, p.Stop())
	require.NoDirExists(t, dead)
	require.DirExists(t, living)
	require.DirExists(t, locked)
}

// TestUnreachableTempFolder proves that Postgres starts although the temporary
// folder is closed to other accounts, as root's often is.
func TestUnreachableTempFolder(t *testing.T) {
	folder := tempFolder(t)
	require.NoError(t, os.Chmod(folder, 0o700))
	p, err := devstack.StartPostgres(t.Context(), devstack.PostgresOptions{})
	require.NoError(t, err)
	require.NoError(t, p.Stop())
}

// TestFindPostgres proves the order of the lookup, that a link on PATH is
// followed, and that half an installation does not count.
func TestFindPostgres(t *testing.T) {
	for _, test := range []struct {
		name     string
		path     []string // folders on PATH
		binaries []string // files that exist
		link     [2]string
		want     string
		wantErr  bool
	}{
		{
			name: "PATH first", path: []string{"bin"},
			binaries: []string{"bin/initdb", "bin/postgres", "lib/17/bin/initdb", "lib/17/bin/postgres"},
			want:     "bin",
		},
		{
			name: "a link on PATH is followed", path: []string{"bin"}, link: [2]string{"lib/15/bin/postgres", "bin/postgres"},
			binaries: []string{"lib/15/bin/initdb", "lib/15/bin/postgres", "lib/17/bin/initdb", "lib/17/bin/postgres"},
			want:     "lib/15/bin",
		},
		{
			name: "the highest version, by number",
			binaries: []string{
				"lib/9.6/bin/initdb", "lib/9.6/bin/postgres", "lib/10/bin/initdb", "lib/10/bin/postgres",
			},
			want: "lib/10/bin",
		},
		{
			name:     "client tools alone do not count",
			binaries: []string{"lib/17/bin/psql", "lib/16/bin/initdb", "lib/16/bin/postgres"},
			want:     "lib/16/bin",
		},
		{
			name: "globs in order", binaries: []string{"other/99/bin/initdb", "other/99/bin/postgres", "lib/9/bin/initdb", "lib/9/bin/postgres"},
			want: "lib/9/bin",
		},
		{
			name: "pg_config last", path: []string{"bin"},
			binaries: []string{"bin/pg_config", "opt/initdb", "opt/postgres"},
			want:     "opt",
		},
		{name: "nothing", binaries: []string{"lib/17/bin/postgres"}, path: []string{"bin"}, wantErr: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			root, err := filepath.EvalSymlinks(t.TempDir())
			require.NoError(t, err)
			for _, binary := range test.binaries {
				script(t, filepath.Join(root, binary), "echo "+root+"/opt")
			}
			if test.link[0] != "" {
				require.NoError(t, os.MkdirAll(filepath.Join(root, filepath.Dir(test.link[1])), 0o755))
				require.NoError(t, os.Symlink(filepath.Join(root, test.link[0]), filepath.Join(root, test.link[1])))
			}
			var path []string
			for _, folder := range test.path {
				path = append(path, filepath.Join(root, folder))
			}
			t.Setenv("PATH", strings.Join(path, ":"))

			got, err := devstack.FindPostgres([]string{root + "/lib/*/bin", root + "/other/*/bin"})
			if test.wantErr {
				require.ErrorIs(t, err, devstack.ErrNoPostgres)
				require.ErrorContains(t, err, "apt-get install postgresql")
				require.ErrorContains(t, err, "DEADLETTER_DATABASE_URL")
				return
			}
			require.NoError(t, err)
			require.Equal(t, filepath.Join(root, test.want), got)
		})
	}
}

// startPostgres starts a server for one test.
func startPostgres(t *testing.T) *devstack.Postgres {
	t.Helper()
	p, err := devstack.StartPostgres(t.Context(), devstack.PostgresOptions{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Stop()) })
	return p
}

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}
