package dlqstore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/internal/devstack/devtest"
	"github.com/deadletter-dev/deadletter/job"
)

// disagreements counts the kinds of dead letters, and of events per hour, that the
// summaries and the tables disagree on, in one snapshot.
const disagreements = `
select (
	select count(*) from (
		select namespace, job_type, task_queue, reason, fingerprint, count(*) as n
		from deadletter.dead_letters group by 1, 2, 3, 4, 5
	) t full join (
		select namespace, job_type, task_queue, reason, fingerprint, sum(n) as n
		from deadletter.dead_letter_counts group by 1, 2, 3, 4, 5 having sum(n) <> 0
	) c using (namespace, job_type, task_queue, reason, fingerprint)
	where t.n is distinct from c.n
) + (
	select count(*) from (
		select namespace, date_trunc('hour', at, 'UTC') as hour, verb, count(*) as n
		from deadletter.events group by 1, 2, 3
	) t full join (
		select namespace, hour, verb, sum(n) as n from deadletter.event_counts group by 1, 2, 3
	) c using (namespace, hour, verb)
	where t.n is distinct from c.n
)`

func requireAgreement(t *testing.T, store *dlqstore.Store) {
	t.Helper()
	require.Zero(t, scalar[int](t, store, disagreements))
}

// TestCountsNeverDisagree proves that the summaries agree with the tables at any
// moment: under concurrent moves, replays, purges of one and of many, prunes,
// edits of the columns that count, rolled back transactions and compactions.
func TestCountsNeverDisagree(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	const writers, rounds = 4, 120
	for i := range 3 {
		setPolicy(t, store, policy("newest", func(p *dlqstore.RetentionPolicy) {
			p.Namespace, p.KeepFor, p.KeepLast = fmt.Sprint("n", i), 0, 30
		}))
	}
	key := func(writer, round int) dlqstore.Key {
		return dlqstore.Key{Namespace: fmt.Sprint("n", round%3), WorkflowID: fmt.Sprintf("w-%d-%d", writer, round), RunID: "r"}
	}
	abandoned := errors.New("abandoned")
	act := func(random *rand.Rand, writer, round int) error {
		ctx := t.Context()
		dl := letter(key(writer, round))
		dl.JobType, dl.TaskQueue, dl.Fingerprint = fmt.Sprint("t", random.IntN(3)), fmt.Sprint("q", random.IntN(3)), fmt.Sprint("f", random.IntN(5))
		dl.Reason, dl.Generation = job.Reasons()[random.IntN(3)], 0
		if _, err := store.Move(ctx, dl, nil, "fuzz", nil); err != nil {
			return err
		}
		other := key(random.IntN(writers), random.IntN(round+1))
		var err error
		switch random.IntN(8) {
		case 0:
			_, err = store.BeginReplay(ctx, dlqstore.ReplayRequest{Key: other, Actor: "fuzz"})
		case 1:
			err = store.Purge(ctx, other, "fuzz")
		case 2:
			_, err = store.PurgeMatching(ctx, dlqstore.PurgeRequest{Filter: dlqstore.Filter{Fingerprint: dl.Fingerprint, TaskQueue: dl.TaskQueue}, Limit: 1 << 20, Actor: "fuzz"})
		case 3:
			_, err = store.Pool().Exec(ctx, `update deadletter.dead_letters set task_queue = 'q0', job_type = $1 where workflow_id = $2`, dl.JobType, other.WorkflowID)
		case 4:
			_, err = store.Pool().Exec(ctx, `update deadletter.dead_letters set revision = revision + 1, reason = 'zombie' where workflow_id = $1`, other.WorkflowID)
		case 5:
			err = pgx.BeginFunc(ctx, store.Pool(), func(tx pgx.Tx) error {
				if err := store.PurgeTx(ctx, tx, dl.Key, "fuzz"); err != nil {
					return err
				}
				return abandoned
			})
		case 6:
			err = store.Compact(ctx)
		case 7:
			_, err = store.Prune(ctx, dlqstore.PruneRequest{Namespace: other.Namespace, Actor: "fuzz"})
		}
		if errors.Is(err, dlqstore.ErrNotFound) || errors.Is(err, dlqstore.ErrBusy) || errors.Is(err, abandoned) {
			return nil
		}
		return err
	}
	ctx, done := context.WithCancel(t.Context())
	var readers sync.WaitGroup
	reads := 0
	readers.Go(func() {
		for ctx.Err() == nil {
			var wrong int
			if err := store.Pool().QueryRow(t.Context(), disagreements).Scan(&wrong); err != nil || wrong != 0 {
				t.Errorf("%d kinds disagree, %v", wrong, err)
				return
			}
			reads++
		}
	})
	for _, err := range concurrently(writers, func(writer int) error {
		random := rand.New(rand.NewPCG(uint64(writer), 1))
		for round := range rounds {
			if err := act(random, writer, round); err != nil {
				return err
			}
		}
		return nil
	}) {
		require.NoError(t, err)
	}
	done()
	readers.Wait()
	require.Greater(t, reads, 10)

	require.NoError(t, store.Compact(t.Context()))
	requireAgreement(t, store)
	require.Zero(t, scalar[int](t, store, `select count(*) from deadletter.dead_letter_counts where not folded`))
	kinds := scalar[int](t, store, `select count(*) from (select distinct namespace, job_type, task_queue, reason, fingerprint from deadletter.dead_letters) k`)
	require.Equal(t, kinds, scalar[int](t, store, `select count(*) from deadletter.dead_letter_counts`), "one row for each kind")
	for _, namespace := range []string{"", "n0", "n1", "n2"} {
		counted, err := store.Count(t.Context(), dlqstore.Filter{Namespace: namespace})
		require.NoError(t, err)
		summed, err := store.CountDeadLetters(t.Context(), namespace)
		require.NoError(t, err)
		require.Equal(t, counted, summed)
	}
}

// TestCountsOfBulk proves that COPY, updates of many rows, TRUNCATE and names that
// are as long as they may be are counted.
func TestCountsOfBulk(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	copyRows(t, store, 3000)
	requireAgreement(t, store)
	run(t, store, `update deadletter.dead_letters set task_queue = 'moved', fingerprint = '' where attempts > 3`)
	requireAgreement(t, store)
	require.NoError(t, store.Compact(t.Context()))
	requireAgreement(t, store)

	dl := letter(dlqstore.Key{Namespace: long("n"), WorkflowID: long("w"), RunID: "r"})
	dl.JobType, dl.TaskQueue, dl.Fingerprint = long("t"), long("q"), long("f")
	move(t, store, dl)
	require.NoError(t, store.Compact(t.Context()))
	count, err := store.CountDeadLetters(t.Context(), dl.Namespace)
	require.NoError(t, err)
	require.EqualValues(t, 1, count)

	run(t, store, `truncate deadletter.dead_letters cascade`)
	requireAgreement(t, store)
	require.NoError(t, store.Compact(t.Context()))
	require.Zero(t, scalar[int](t, store, `select count(*) from deadletter.dead_letter_counts`))
}

// long is a name of the length that the store bounds names to, which does not compress.
func long(prefix string) string {
	random := rand.New(rand.NewPCG(1, 2))
	var text strings.Builder
	text.WriteString(prefix)
	for text.Len() < 1000 {
		text.WriteByte(byte('a' + random.IntN(26)))
	}
	return text.String()
}

// TestCountsBackfill proves that a migration counts what was there before it.
func TestCountsBackfill(t *testing.T) {
	t.Parallel()
	url := devtest.Postgres(t)
	store := openAt(t, url)
	copyRows(t, store, 500)
	move(t, store, letter(keyOf("w")))
	for _, undo := range []string{
		`drop function deadletter.recount_dead_letter, deadletter.count_dead_letters, deadletter.count_events, deadletter.ensure_error_text_index cascade`,
		`drop table deadletter.dead_letter_counts, deadletter.event_counts`,
		`do $$ declare i text; begin
			for i in select indexname from pg_indexes where schemaname = 'deadletter' and indexname ~
				'_(enqueued_at|attempts|generation|superseded|payload_json|job_type_reason|task_queue_reason|namespace_fingerprint|fingerprint_(not_)?replayed|error_text)_idx$'
			loop execute 'drop index deadletter.' || i; end loop;
		end $$`,
		`alter table deadletter.plans drop column request_id`, // of a later migration
		`alter table deadletter.notes drop column request_id`,
	} {
		run(t, store, undo)
	}
	run(t, store, `update deadletter.schema_version set version = $1`, findMigration(t)-1)
	require.NoError(t, dlqstore.Migrate(t.Context(), url))
	requireAgreement(t, store)
	count, err := store.CountDeadLetters(t.Context(), "")
	require.NoError(t, err)
	require.EqualValues(t, 501, count)
}

// findMigration is the number of the migration that made the summaries.
func findMigration(t *testing.T) int {
	t.Helper()
	names := dlqstore.MigrationNames()
	at := slices.IndexFunc(names, func(name string) bool { return strings.HasSuffix(name, "_find.sql") })
	require.GreaterOrEqual(t, at, 0)
	return at + 1
}

// TestCountsForAnyWriter proves that a role which may write dead letters and
// nothing else keeps the summary right, whatever its search path.
func TestCountsForAnyWriter(t *testing.T) {
	t.Parallel()
	role := newRole(t)
	store := openStore(t)
	run(t, store, `grant usage on schema deadletter to `+role)
	run(t, store, `grant select, insert, delete on deadletter.dead_letters to `+role)
	require.NoError(t, pgx.BeginFunc(t.Context(), store.Pool(), func(tx pgx.Tx) error {
		for _, sql := range []string{
			`set local role ` + role, `set local search_path = ''`,
			`insert into deadletter.dead_letters (namespace, workflow_id, run_id, reason, payloads) select 'n', 'w' || i, 'r', 'zombie', '' from generate_series(1, 5) i`,
			`delete from deadletter.dead_letters where workflow_id = 'w1'`,
		} {
			if _, err := tx.Exec(t.Context(), sql); err != nil {
				return fmt.Errorf("%s: %w", sql, err)
			}
		}
		return nil
	}))
	requireAgreement(t, store)
}

// TestCompactOnce proves that of two compactions one leaves the other alone, and
// that neither waits for a transaction that is writing.
func TestCompactOnce(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	move(t, store, letter(keyOf("w")))
	tx, err := store.Pool().Begin(t.Context())
	require.NoError(t, err)
	_, err = store.MoveTx(t.Context(), tx, letter(keyOf("in flight")), nil, "worker", nil)
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `select pg_advisory_xact_lock(hashtextextended('deadletter', 6072342))`)
	require.NoError(t, err)
	require.NoError(t, store.Compact(t.Context()))
	const fresh = `select count(*) from deadletter.dead_letter_counts where not folded`
	require.Equal(t, 1, scalar[int](t, store, fresh), "another compaction was at it")
	require.NoError(t, tx.Commit(t.Context()))
	require.NoError(t, store.Compact(t.Context()))
	require.Zero(t, scalar[int](t, store, fresh))
	requireAgreement(t, store)
}

// TestCountBy proves the order, the limit, and that a namespace counts its own.
func TestCountBy(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	for i, kind := range []string{"a", "b", "b", "c", "c", "c"} {
		dl := letter(keyOf(fmt.Sprint(i)))
		dl.JobType, dl.TaskQueue = kind, "q-"+kind
		move(t, store, dl)
	}
	foreign := letter(dlqstore.Key{Namespace: "other", WorkflowID: "w", RunID: "r"})
	foreign.Reason = job.ReasonZombie
	move(t, store, foreign)
	for by, want := range map[dlqstore.Dimension][]dlqstore.Tally{
		dlqstore.ByJobType:   {{"c", 3}, {"b", 2}, {"a", 1}},
		dlqstore.ByTaskQueue: {{"q-c", 3}, {"q-b", 2}, {"q-a", 1}},
		dlqstore.ByReason:    {{"max_retries_exceeded", 6}},
	} {
		tallies, more, err := store.CountBy(t.Context(), "default", by, 0)
		require.NoError(t, err)
		require.Zero(t, more)
		require.Equal(t, want, tallies)
	}
	tallies, more, err := store.CountBy(t.Context(), "", dlqstore.ByJobType, 2)
	require.NoError(t, err)
	require.Equal(t, []dlqstore.Tally{{"c", 3}, {"b", 2}}, tallies)
	require.Equal(t, 2, more)
	count, err := store.CountDeadLetters(t.Context(), "no\x00where")
	require.NoError(t, err)
	require.Zero(t, count)
	_, _, err = store.CountBy(t.Context(), "", "payloads", 0)
	require.ErrorContains(t, err, `"payloads" is none of job_type`)
	_, _, err = store.CountBy(t.Context(), "", dlqstore.ByReason, -1)
	require.ErrorContains(t, err, "at most 1000")
}

// TestTrend proves the hours, the growth and the oldest, of one namespace.
func TestTrend(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	empty, err := store.Trend(t.Context(), "default")
	require.NoError(t, err)
	require.Nil(t, empty.Oldest)
	require.Zero(t, empty.DeadLetter)
	require.Len(t, empty.Hours, 24)

	for i := range 4 {
		dl := letter(keyOf(fmt.Sprint("w", i)))
		dl.DeadAt = instant.Add(time.Duration(i) * time.Hour)
		move(t, store, dl)
	}
	move(t, store, letter(dlqstore.Key{Namespace: "other", WorkflowID: "w", RunID: "r"}))
	begin(t, store, keyOf("w3"), "r")
	require.NoError(t, store.Purge(t.Context(), keyOf("w0"), "me"))
	run(t, store, `insert into deadletter.events (verb, namespace, workflow_id, run_id, at) values
		('move', 'default', 'a', 'a', now() - interval '5 hours'), ('prune', 'default', 'a', 'a', now() - interval '5 hours'),
		('move', 'default', 'b', 'b', now() - interval '25 hours')`)
	trend, err := store.Trend(t.Context(), "default")
	require.NoError(t, err)
	require.EqualValues(t, 3, trend.DeadLetter)
	require.Equal(t, "w1", trend.Oldest.WorkflowID)
	require.EqualValues(t, 3, trend.Growth)
	require.Len(t, trend.Hours, 24)
	var sum dlqstore.Hour
	for i, hour := range trend.Hours {
		require.Equal(t, trend.Hours[0].Hour.Add(time.Duration(i)*time.Hour), hour.Hour)
		sum.Dead, sum.Replayed = sum.Dead+hour.Dead, sum.Replayed+hour.Replayed
		sum.Purged, sum.Pruned = sum.Purged+hour.Purged, sum.Pruned+hour.Pruned
	}
	require.Equal(t, dlqstore.Hour{Dead: 5, Replayed: 1, Purged: 1, Pruned: 1}, sum)
}
