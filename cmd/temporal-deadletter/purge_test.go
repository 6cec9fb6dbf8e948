package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/job"
)

// TestPurgeAsks proves that purge shows what would go, never the password, and
// that only a yes makes it act.
func TestPurgeAsks(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.move("order-1")
	b.move("order-2", func(dl *dlqstore.DeadLetter) { dl.Reason = job.ReasonTimeout })
	b.move("order-3", func(dl *dlqstore.DeadLetter) { dl.Reason = job.ReasonTimeout })
	parsed, err := url.Parse(b.url)
	require.NoError(t, err)
	password, _ := parsed.User.Password()

	args := []string{"purge", "--reason", "timeout", "--tag", "tenant=acme"}
	for _, answer := range []string{"n\n", "\n", "", "yesterday\n"} {
		r := call(t, b.environ, person{strings.NewReader(answer)}, args...)
		require.Equal(t, exitFailed, r.code)
		require.Equal(t, "temporal-deadletter: nothing was purged: the answer was not yes\n", r.errw)
		require.EqualValues(t, 3, b.count())
		require.Regexp(t, `^Purge      2 dead letters, for good
Namespace  default
Database   127\.0\.0\.1:\d+/deadletter_test_\w+, schema deadletter
Filter     reason timeout, tag tenant=acme
By reason  timeout 2
Dead       from 2026-03-01 12:00:00Z to 2026-03-01 12:00:00Z
The newest 2 of them
  DEAD AT               REASON   TYPE       WORKFLOW ID  ERROR
  2026-03-01 12:00:00Z  timeout  SendEmail  order-3      mailbox is full
  2026-03-01 12:00:00Z  timeout  SendEmail  order-2      mailbox is full
Purge 2 dead letters\? \[y/N\] $`, r.out)
		if password != "" {
			require.NotContains(t, r.out, password)
		}
	}
	r := call(t, b.environ, person{strings.NewReader("YES\n")}, args...)
	require.Zero(t, r.code, r.errw)
	require.True(t, strings.HasSuffix(r.out, "Purged 2 dead letters.\n"), r.out)
	require.EqualValues(t, 1, b.count())

	r = call(t, b.environ, person{strings.NewReader("y\n")}, "purge", "-w", "order-1", "--actor", "oncall")
	require.Zero(t, r.code, r.errw)
	require.Contains(t, r.out, "workflow order-1, run ")
	require.Zero(t, b.count())
	events, err := b.store.Events(t.Context(), deadLetter("order-1").Key)
	require.NoError(t, err)
	require.Equal(t, "oncall", events[len(events)-1].Actor)
}

// TestPurgePreviewInTime proves that a table which is too slow to look at leaves the
// look out, and does not keep a person from answering.
func TestPurgePreviewInTime(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.move("order-1")
	tx, err := b.store.Pool().Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	_, err = tx.Exec(t.Context(), `lock table deadletter.dead_letters in access exclusive mode`)
	require.NoError(t, err)
	// Postgres itself ends a wait for a lock, and nothing but that: a bound in time would
	// be one on the connection too.
	impatience, err := url.Parse(b.url)
	require.NoError(t, err)
	settings := impatience.Query()
	settings.Set("lock_timeout", "100ms")
	impatience.RawQuery = settings.Encode()
	impatient, err := dlqstore.Open(t.Context(), impatience.String())
	require.NoError(t, err)
	t.Cleanup(impatient.Close)
	var out bytes.Buffer
	require.NoError(t, (&cli{out: &out, output: outputText}).printMatching(t.Context(), impatient, dlqstore.Filter{Namespace: "default"}))
	require.Equal(t, "What they are is left out: Postgres did not tell in time.\n", out.String())
}

// TestPurgeUnattended proves that --yes acts without asking and still shows the
// plan, that --all must be said, that the limit protects, and that a program
// reads nothing but JSON.
func TestPurgeUnattended(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for i := range 3 {
		b.move(fmt.Sprintf("order-%d", i))
	}
	require.Equal(t, exitUsage, b.call("purge", "--yes").code)
	r := b.call("purge", "--all", "--limit", "2", "--yes")
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.errw, "3 dead letters match, more than --limit 2: nothing was purged")
	require.EqualValues(t, 3, b.count())

	require.Equal(t, "Purged 0 dead letters.\n", b.succeed("purge", "--reason", "zombie", "-y"))
	r = b.call("purge", "--all", "-y", "-o", "json")
	require.Zero(t, r.code, r.errw)
	require.JSONEq(t, `{"purged": 3}`, r.out)
	require.Contains(t, r.errw, "none: every dead letter of the namespace")
	require.Zero(t, b.count())
}

// TestPurgeInterrupted proves that Ctrl-C at the question ends the program,
// although nobody answers, and purges nothing.
func TestPurgeInterrupted(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.move("order-1")
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	silence, speak := io.Pipe()
	defer speak.Close()
	var errw bytes.Buffer
	code := run(ctx, []string{"purge", "--all"}, b.environ, person{silence}, onText{"[y/N]", interrupt}, &errw)
	require.Equal(t, exitFailed, code)
	require.Equal(t, "temporal-deadletter: interrupted\n", errw.String())
	require.EqualValues(t, 1, b.count())
}

// onText calls do when a text is written.
type onText struct {
	text string
	do   func()
}

func (o onText) Write(p []byte) (int, error) {
	if strings.Contains(string(p), o.text) {
		o.do()
	}
	return len(p), nil
}
