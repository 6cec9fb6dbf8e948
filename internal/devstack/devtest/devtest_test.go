package devtest_test

import (
	"context"
	"os"
	"os/exec"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"

	"github.com/deadletter-dev/deadletter/internal/devstack"
	"github.com/deadletter-dev/deadletter/internal/devstack/devtest"
)

func TestMain(m *testing.M) { devtest.Main(m) }

// TestPostgres proves that tests of one binary get databases of their own on one
// server, and that none of them is left afterwards.
func TestPostgres(t *testing.T) {
	type seen struct {
		port     uint16
		database string
	}
	found := make(chan seen, 3)
	t.Run("parallel", func(t *testing.T) {
		for range cap(found) {
			t.Run("", func(t *testing.T) {
				t.Parallel()
				conn := connect(t, devtest.Postgres(t))
				_, err := conn.Exec(t.Context(), "create table same_name_everywhere ()")
				require.NoError(t, err)
				found <- seen{conn.Config().Port, conn.Config().Database}
			})
		}
	})
	close(found)

	conn := connect(t, devtest.Postgres(t))
	databases := map[string]bool{}
	for s := range found {
		databases[s.database] = true
		require.Equal(t, conn.Config().Port, s.port, "one server")
	}
	require.Len(t, databases, cap(found))
	left := testDatabases(t, conn)
	require.Contains(t, left, conn.Config().Database)
	for database := range databases {
		require.NotContains(t, left, database)
	}
}

// TestTemporal proves that the server answers, and is the same for every test.
func TestTemporal(t *testing.T) {
	t.Parallel()
	address, namespace := devtest.Temporal(t)
	c := devtest.Dial(t, client.Options{HostPort: address, Namespace: namespace})
	_, err := c.CheckHealth(t.Context(), nil)
	require.NoError(t, err)
	again, _ := devtest.Temporal(t)
	require.Equal(t, address, again)
}

// TestNamespace proves that each test gets a namespace of its own, in which a
// workflow can be started at once, also when those of a server are used up.
func TestNamespace(t *testing.T) {
	seen, servers := map[[2]string]bool{}, map[string]bool{}
	for len(servers) < 2 {
		address, namespace := devtest.Namespace(t)
		require.False(t, seen[[2]string{address, namespace}], "%s twice", namespace)
		seen[[2]string{address, namespace}], servers[address] = true, true
		require.LessOrEqual(t, len(seen), 65, "one server of 64")
		c := devtest.Dial(t, client.Options{HostPort: address, Namespace: namespace})
		_, err := c.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{TaskQueue: "nobody"}, "Nothing")
		c.Close()
		require.NoError(t, err)
	}
}

// TestGivenServer proves that DEADLETTER_DATABASE_URL is used and left clean.
func TestGivenServer(t *testing.T) {
	server, err := devstack.StartPostgres(t.Context(), devstack.PostgresOptions{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop()) })
	out, err := rerun("-test.run=^TestPostgres$", "DEADLETTER_DATABASE_URL="+server.URL)
	require.NoError(t, err, out)
	require.NotContains(t, out, "Postgres is ready", "no server of its own")
	require.Empty(t, testDatabases(t, connect(t, server.URL)))
}

// TestMissingServerFails proves that a server which cannot be had fails the test
// that wants it, and says why.
func TestMissingServerFails(t *testing.T) {
	out, err := rerun("-test.run=^TestTemporal$", "TEMPORAL_CLI_PATH=/nowhere/temporal")
	require.Error(t, err)
	require.Contains(t, out, "this test needs a Temporal server: devstack: TEMPORAL_CLI_PATH: /nowhere/temporal is no executable file")

	out, err = rerun("-test.run=^TestPostgres$", "DEADLETTER_DATABASE_URL=postgres://127.0.0.1:1/nowhere")
	require.Error(t, err)
	require.Contains(t, out, "--- FAIL: TestPostgres")
	require.Contains(t, out, "devstack: create database")
}

// rerun runs this test binary once more, in another environment.
func rerun(run, env string) (string, error) {
	cmd := exec.Command(os.Args[0], run)
	cmd.Env = append(os.Environ(), env)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// testDatabases lists the databases that devtest made on the server of conn.
func testDatabases(t *testing.T, conn *pgx.Conn) []string {
	t.Helper()
	rows, err := conn.Query(t.Context(), "select datname::text from pg_database where datname like 'deadletter\\_test\\_%'")
	require.NoError(t, err)
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	return names
}

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}
