package testsuite_test

import (
	"errors"
	"io"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"

	"github.com/deadletter-dev/deadletter"
	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/internal/devstack"
)

// address is the one address of several servers. It passes connections on to one of
// them.
type address struct {
	listener net.Listener
	mu       sync.Mutex
	server   string // host:port
	open     map[net.Conn]bool
}

// newAddress returns an address that leads nowhere yet.
func newAddress(t testing.TB) *address {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	a := &address{listener: listener, open: map[net.Conn]bool{}}
	var passing sync.WaitGroup
	passing.Go(func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return
			}
			passing.Go(func() { a.pass(from) })
		}
	})
	t.Cleanup(func() {
		require.NoError(t, listener.Close())
		a.cut()
		passing.Wait()
	})
	return a
}

func (a *address) pass(from net.Conn) {
	defer from.Close()
	a.mu.Lock()
	server := a.server
	a.open[from] = true
	a.mu.Unlock()
	defer func() {
		a.mu.Lock()
		delete(a.open, from)
		a.mu.Unlock()
	}()
	to, err := net.Dial("tcp", server)
	if err != nil {
		return
	}
	go func() {
		_, _ = io.Copy(to, from)
		to.Close()
	}()
	_, _ = io.Copy(from, to)
}

// leadTo has new connections go to the server of a URL. Those that are open stay.
func (a *address) leadTo(t testing.TB, databaseURL string) {
	t.Helper()
	parsed, err := url.Parse(databaseURL)
	require.NoError(t, err)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.server = parsed.Host
}

// cut ends the connections that are open, as the end of a server does.
func (a *address) cut() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for conn := range a.open {
		conn.Close()
	}
}

// url returns the URL of the same database by way of the address.
func (a *address) url(t testing.TB, databaseURL string) string {
	t.Helper()
	parsed, err := url.Parse(databaseURL)
	require.NoError(t, err)
	parsed.Host = a.listener.Addr().String()
	return parsed.String()
}

// TestFailover proves what an address that leads to a hot standby costs: reads work,
// the first write is refused as unavailable and closes every connection of the pool, and
// the next write works as soon as the address leads to a server that takes it, be it the
// old primary or the standby that was promoted. Jobs that die meanwhile wait, and
// each is a dead letter once.
func TestFailover(t *testing.T) {
	t.Parallel()
	primary, err := devstack.StartPostgres(t.Context(), devstack.PostgresOptions{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, primary.Stop()) })
	standby, err := primary.StartStandby(t.Context(), devstack.PostgresOptions{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, standby.Stop()) })

	a := newAddress(t)
	a.leadTo(t, primary.URL)
	w := newWorldOn(t, a.url(t, primary.URL)+"&pool_max_conns=3")
	w.startJobs(handlers{"Fail": fail})
	w.startDLQ(nil)
	first := w.deadJob()
	w.replicated(primary, standby)

	// The primary's connections end, and new ones lead to the standby.
	a.leadTo(t, standby.URL)
	a.cut()
	w.readOnAll(first)
	w.refusedByStandby(first)
	second := w.waitsForPrimary()

	// The address leads back, and connections to the standby stay open.
	connections := w.readOnAll(first)
	a.leadTo(t, primary.URL)
	require.Equal(t, connections, w.readOnAll(first), "other connections than before")
	w.refusedByStandby(first)
	w.note(first)
	require.ErrorContains(t, w.wait(second, nil), "dead-lettered")
	w.replicated(primary, standby)

	// The primary fails, and the standby is promoted.
	a.leadTo(t, standby.URL)
	a.cut()
	w.readOnAll(first)
	w.refusedByStandby(first)
	third := w.waitsForPrimary()
	require.NoError(t, primary.Crash())
	db, err := pgx.Connect(t.Context(), standby.URL)
	require.NoError(t, err)
	defer db.Close(t.Context())
	var promoted bool
	require.NoError(t, db.QueryRow(t.Context(), `select pg_promote(true, 60)`).Scan(&promoted))
	require.True(t, promoted)
	w.note(first)
	require.ErrorContains(t, w.wait(third, nil), "dead-lettered")

	require.EqualValues(t, 3, w.count())
	require.Equal(t, []string{dlqstore.VerbMove, dlqstore.VerbNote, dlqstore.VerbNote}, w.verbs(w.key(first)))
	for _, run := range []client.WorkflowRun{second, third} {
		require.Equal(t, []string{dlqstore.VerbMove}, w.verbs(w.key(run)))
	}
}

// replicated waits until the standby shows all that the primary has committed.
func (w *world) replicated(primary, standby *devstack.Postgres) {
	w.t.Helper()
	ask := func(server *devstack.Postgres, question string, args ...any) (answer string) {
		conn, err := pgx.Connect(w.t.Context(), server.URL)
		require.NoError(w.t, err)
		defer conn.Close(w.t.Context())
		require.NoError(w.t, conn.QueryRow(w.t.Context(), question, args...).Scan(&answer))
		return answer
	}
	written := ask(primary, `select pg_current_wal_lsn()::text`)
	require.Eventually(w.t, func() bool {
		return ask(standby, `select (pg_last_wal_replay_lsn() >= $1::text::pg_lsn)::text`, written) == "true"
	}, patience, 20*time.Millisecond)
}

// readOnAll reads a dead letter, opens as many connections as the store may have, and
// returns the server's processes. Connections that were cut are gone afterwards.
func (w *world) readOnAll(dead client.WorkflowRun) map[uint32]bool {
	w.t.Helper()
	var processes map[uint32]bool
	read := func() error {
		processes = map[uint32]bool{}
		if _, err := w.store.Get(w.t.Context(), w.key(dead)); err != nil {
			return err
		}
		for range w.store.Pool().Config().MaxConns {
			conn, err := w.store.Pool().Acquire(w.t.Context())
			if err != nil {
				return err
			}
			defer conn.Release()
			if err := conn.Ping(w.t.Context()); err != nil {
				return err
			}
			processes[conn.Conn().PgConn().PID()] = true
		}
		return nil
	}
	require.Eventually(w.t, func() bool { return read() == nil }, patience, 20*time.Millisecond)
	return processes
}

func (w *world) note(dead client.WorkflowRun) {
	w.t.Helper()
	require.NoError(w.t, w.addNote(dead))
}

// refusedByStandby writes in vain, and waits until the store has no connection left.
func (w *world) refusedByStandby(dead client.WorkflowRun) {
	w.t.Helper()
	err := w.addNote(dead)
	require.ErrorIs(w.t, err, dlqstore.ErrUnavailable)
	require.ErrorContains(w.t, err, "it is a standby")
	refusal, ok := errors.AsType[*pgconn.PgError](err)
	require.True(w.t, ok)
	require.Equal(w.t, "0A000", refusal.Code)
	require.Eventually(w.t, func() bool { return w.store.Pool().Stat().TotalConns() == 0 }, patience, time.Millisecond)
}

// waitsForPrimary returns a job that has failed for good and whose move the standby
// refuses.
func (w *world) waitsForPrimary() client.WorkflowRun {
	w.t.Helper()
	run := w.enqueue(deadletter.Job{Type: "Fail", Policy: quick(1)}, "payload")
	require.Eventually(w.t, func() bool { // the first try may have been on a connection that was cut
		return strings.Contains(w.pendingMove(run).GetLastFailure().GetMessage(), "it is a standby")
	}, patience, 20*time.Millisecond)
	return run
}

func (w *world) addNote(dead client.WorkflowRun) error {
	_, err := w.store.AddNote(w.t.Context(), dlqstore.NoteRequest{Key: w.key(dead), Actor: "tester", Text: "seen"})
	return err
}
