// Package devtest gives tests a real Temporal server and real databases. Each
// server is started by the first test that asks and shared by the test binary.
//
//	func TestMain(m *testing.M) { devtest.Main(m) }
//
//	func TestMove(t *testing.T) {
//		pool := connect(t, devtest.Postgres(t))
//		…
//	}
//
// A server that cannot be had fails the test; it is never skipped. Without Main,
// and after a panic or a test timeout, the servers still stop when the test
// binary ends: see devstack.
package devtest

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.temporal.io/sdk/client"

	"github.com/deadletter-dev/deadletter/internal/devstack"
)

// databaseEnv names a Postgres server to use instead of starting one. Its role
// must be allowed to create databases.
const databaseEnv = "DEADLETTER_DATABASE_URL"

// Postgres is started once, and so is Temporal while namespaces last; a failure is every later test's failure too.
// A context of the first test must not end the start, hence none is passed.
var (
	postgres = sync.OnceValues(startPostgres)
	temporal = devServers{}

	stopsMu sync.Mutex
	stops   []func() error
)

// Main runs the tests, stops the servers and exits. Call it from TestMain.
func Main(m *testing.M) {
	code := m.Run()
	stopsMu.Lock()
	defer stopsMu.Unlock()
	for _, stop := range stops {
		if err := stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = max(code, 1)
		}
	}
	os.Exit(code)
}

// Postgres returns the URL of an empty database for this test alone, which is
// dropped when the test ends. The server is DEADLETTER_DATABASE_URL's, else a
// throw-away one of this test binary.
func Postgres(t testing.TB) string {
	t.Helper()
	server, err := postgres()
	if err != nil {
		t.Fatalf("this test needs Postgres: %v", err)
	}
	name := fmt.Sprintf("deadletter_test_%s", strings.ToLower(rand.Text()))
	database, err := devstack.CreateDatabase(t.Context(), server, name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := devstack.DropDatabase(context.WithoutCancel(t.Context()), server, name); err != nil {
			t.Error(err)
		}
	})
	return database
}

// Temporal returns the address and a namespace of a dev server of this test
// binary. Tests share the namespace: use task queues and workflow ids of your
// own. Variables such as TEMPORAL_ADDRESS are not looked at, lest a test run
// against a server that matters.
func Temporal(t testing.TB) (address, namespace string) {
	t.Helper()
	address, _, err := temporal.take(0)
	if err != nil {
		t.Fatalf("this test needs a Temporal server: %v", err)
	}
	return address, "default"
}

// Namespace returns the address of a dev server of this test binary and a namespace
// that no other test gets. Another call may return another server.
func Namespace(t testing.TB) (address, namespace string) {
	t.Helper()
	address, namespaces, err := temporal.take(1)
	if err != nil {
		t.Fatalf("this test needs a Temporal server: %v", err)
	}
	t.Logf("namespace %s of Temporal at %s", namespaces[0], address)
	return address, namespaces[0]
}

// Dial returns a client for this test alone, which is closed when the test ends. The
// server has more time to answer than the SDK's 5 seconds.
func Dial(t testing.TB, options client.Options) client.Client {
	t.Helper()
	options.ConnectionOptions.GetSystemInfoTimeout = time.Minute
	c, err := client.DialContext(t.Context(), options)
	if err != nil {
		t.Fatalf("this test needs the Temporal server at %s: %v", options.HostPort, err)
	}
	t.Cleanup(c.Close)
	return c
}

func startPostgres() (string, error) {
	if url := os.Getenv(databaseEnv); url != "" {
		return url, nil
	}
	server, err := devstack.StartPostgres(context.Background(), devstack.PostgresOptions{Log: os.Stderr})
	if err != nil {
		return "", err
	}
	stopLater(server.Stop)
	return server.URL, nil
}

// devServers hands out namespaces, which exist from the start of their server: see
// devstack.TemporalOptions. When those of a server are used up, it starts the next.
type devServers struct {
	mu      sync.Mutex
	started bool
	address string
	err     error
	left    []string
}

// perServer is more than most test binaries need, and costs a server a second.
const perServer = 64

func (d *devServers) take(n int) (address string, namespaces []string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.started || d.err == nil && len(d.left) < n {
		d.started = true
		d.address, d.left, d.err = startTemporal()
	}
	if d.err != nil {
		return "", nil, d.err
	}
	namespaces, d.left = d.left[:n], d.left[n:]
	return d.address, namespaces, nil
}

func startTemporal() (address string, namespaces []string, err error) {
	for i := range perServer {
		namespaces = append(namespaces, fmt.Sprintf("test-%02d", i+1))
	}
	server, err := devstack.StartTemporal(context.Background(), devstack.TemporalOptions{Log: os.Stderr, Namespaces: namespaces})
	if err != nil {
		return "", nil, err
	}
	stopLater(server.Stop)
	return server.Address, namespaces, nil
}

func stopLater(stop func() error) {
	stopsMu.Lock()
	defer stopsMu.Unlock()
	stops = append(stops, stop)
}
