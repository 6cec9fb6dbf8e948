package devtest

import (
	"context"
	"os"
	"sync"
	"testing"

	"github.com/deadletter-dev/deadletter/internal/devstack"
)

// poolSize is so small that the clients of a test take each other's connections.
const poolSize = 2

// pooler is started once, with the program that the first test found.
var pooler struct {
	once    sync.Once
	running *devstack.Pooler
	err     error
}

// Pooler returns the URL of a database that Postgres has returned, by way of PgBouncer
// in transaction mode. Its two server connections are shared by all who use the
// database through it. Without the program the test is skipped, see Require.
func Pooler(t testing.TB, databaseURL string) string {
	t.Helper()
	program := Require(t, "pgbouncer", "apt-get install pgbouncer")
	pooler.once.Do(func() { pooler.running, pooler.err = startPooler(program) })
	if pooler.err != nil {
		t.Fatalf("this test needs PgBouncer: %v", pooler.err)
	}
	through, err := pooler.running.URL(databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	return through
}

func startPooler(program string) (*devstack.Pooler, error) {
	server, err := postgres()
	if err != nil {
		return nil, err
	}
	running, err := devstack.StartPooler(context.Background(), devstack.PoolerOptions{
		Path: program, ServerURL: server, PoolSize: poolSize, Log: os.Stderr,
	})
	if err == nil {
		stopLater(running.Stop)
	}
	return running, err
}
