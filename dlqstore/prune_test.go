package dlqstore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/job"
)

// aged moves a dead letter with two attempts that died so long ago.
func aged(t testing.TB, store *dlqstore.Store, id string, age time.Duration, changes ...func(*dlqstore.DeadLetter)) {
	t.Helper()
	dl := letter(keyOf(id))
	dl.DeadAt = time.Now().Add(-age)
	for _, change := range changes {
		change(dl)
	}
	move(t, store, dl)
}

// left lists the workflow ids of the dead letters that are there.
func left(t testing.TB, store *dlqstore.Store) []string {
	t.Helper()
	return scalar[[]string](t, store, `select coalesce(array_agg(workflow_id order by workflow_id), '{}') from deadletter.dead_letters`)
}

func prune(t testing.TB, store *dlqstore.Store) map[string]int64 {
	t.Helper()
	pruned, err := store.Prune(t.Context(), dlqstore.PruneRequest{Namespace: "default", Actor: "retention"})
	require.NoError(t, err)
	require.True(t, pruned.Done)
	return pruned.ByPolicy
}

// TestPruneByAge proves that what is older than the policy says goes with its
// attempts, that the rest and other namespaces stay, that each leaves an event with
// policy and actor, that the counts can be had, and that no late move brings one back.
func TestPruneByAge(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	require.Empty(t, prune(t, store))
	aged(t, store, "old", 25*time.Hour)
	aged(t, store, "young", 23*time.Hour)
	foreign := letter(dlqstore.Key{Namespace: "other", WorkflowID: "theirs", RunID: "r"})
	move(t, store, foreign)
	disabled := policy("off", func(p *dlqstore.RetentionPolicy) { p.JobType, p.KeepFor, p.Enabled = "SendEmail", time.Hour, false })
	setPolicy(t, store, disabled)
	require.Empty(t, prune(t, store))

	setPolicy(t, store, policy("a day"))
	require.Equal(t, map[string]int64{"a day": 1}, prune(t, store))
	require.Equal(t, []string{"theirs", "young"}, left(t, store))
	require.Equal(t, 4, scalar[int](t, store, `select count(*) from deadletter.attempts`))
	events, err := store.Events(t.Context(), keyOf("old"))
	require.NoError(t, err)
	require.Equal(t, dlqstore.VerbPrune, events[1].Verb)
	require.Equal(t, "retention", events[1].Actor)
	for _, detail := range []string{`"policy": "a day"`, `"reason": "max_retries_exceeded"`, `"job_type": "SendEmail"`, `"dead_at": `} {
		require.Contains(t, string(events[1].Detail), detail)
	}
	counts, err := store.PrunedSince(t.Context(), "default", time.Now().Add(-time.Hour))
	require.NoError(t, err)
	require.Equal(t, []dlqstore.PolicyPruned{{Policy: "a day", Pruned: 1, LastAt: events[1].At}}, counts)

	require.Empty(t, prune(t, store))
	moved, err := store.Move(t.Context(), letter(keyOf("old")), nil, "late", func(context.Context, pgx.Tx, *dlqstore.DeadLetter) error {
		return errors.New("the hook ran")
	})
	require.NoError(t, err)
	require.False(t, moved)
}

// TestPruneByNumber proves that the newest stay, that a pinned one neither goes nor
// takes another's place, and that a policy with both limits lets go what passes either.
func TestPruneByNumber(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	for i := range 9 {
		aged(t, store, fmt.Sprint("w", i), time.Duration(i)*time.Hour)
	}
	for _, id := range []string{"w1", "w8"} {
		_, err := store.Pin(t.Context(), keyOf(id), "me")
		require.NoError(t, err)
	}
	setPolicy(t, store, policy("four", func(p *dlqstore.RetentionPolicy) { p.KeepFor, p.KeepLast = 0, 4 }))
	require.Equal(t, map[string]int64{"four": 3}, prune(t, store))
	require.Equal(t, []string{"w0", "w1", "w2", "w3", "w4", "w8"}, left(t, store))
	require.Empty(t, prune(t, store))

	setPolicy(t, store, policy("four", func(p *dlqstore.RetentionPolicy) { p.KeepFor, p.KeepLast = 150*time.Minute, 2 }))
	require.Equal(t, map[string]int64{"four": 2}, prune(t, store))
	require.Equal(t, []string{"w0", "w1", "w2", "w8"}, left(t, store))
	setPolicy(t, store, policy("four", func(p *dlqstore.RetentionPolicy) { p.KeepFor, p.KeepLast = time.Hour, 100 }))
	require.Equal(t, map[string]int64{"four": 1}, prune(t, store))
	_, err := store.Unpin(t.Context(), keyOf("w8"), "me")
	require.NoError(t, err)
	require.Equal(t, map[string]int64{"four": 1}, prune(t, store))
	require.Equal(t, []string{"w0", "w1"}, left(t, store))
}

// TestPruneTies proves that dead letters of one instant are kept by number all the
// same.
func TestPruneTies(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	for i := range 5 {
		move(t, store, letter(keyOf(fmt.Sprint("w", i))))
	}
	setPolicy(t, store, policy("two", func(p *dlqstore.RetentionPolicy) { p.KeepFor, p.KeepLast = 0, 2 }))
	require.Equal(t, map[string]int64{"two": 3}, prune(t, store))
	require.Equal(t, []string{"w3", "w4"}, left(t, store))
}

// TestPruneMostSpecific proves that of several policies which select a dead letter
// only one governs it: the one with the most selectors, then the first by name; and
// that the next takes over when it is gone.
func TestPruneMostSpecific(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	day := 24 * time.Hour
	plain := func(dl *dlqstore.DeadLetter) { dl.JobType, dl.Tags = "Plain", nil }
	tagged := func(dl *dlqstore.DeadLetter) { dl.JobType = "Tagged" }
	zombie := func(dl *dlqstore.DeadLetter) { dl.JobType, dl.Reason = "Tagged", job.ReasonZombie }
	for name, kind := range map[string]func(*dlqstore.DeadLetter){"plain": plain, "tagged": tagged, "zombie": zombie} {
		for _, days := range []int{2, 5, 40} {
			aged(t, store, fmt.Sprintf("%s-%02d", name, days), time.Duration(days)*day, kind)
		}
	}
	setPolicy(t, store, policy("all", func(p *dlqstore.RetentionPolicy) { p.KeepFor = day }))
	setPolicy(t, store, policy("all-again", func(p *dlqstore.RetentionPolicy) { p.KeepFor = time.Hour }))
	setPolicy(t, store, policy("b-tag", func(p *dlqstore.RetentionPolicy) { p.TagKey, p.TagValue, p.KeepFor = "tenant", "acme", 4*day }))
	setPolicy(t, store, policy("c-type", func(p *dlqstore.RetentionPolicy) { p.JobType, p.KeepFor = "Tagged", day }))
	setPolicy(t, store, policy("zombies", func(p *dlqstore.RetentionPolicy) {
		p.JobType, p.Reason, p.KeepFor = "Tagged", job.ReasonZombie, 30*day
	}))
	require.Equal(t, map[string]int64{"all": 3, "b-tag": 2, "zombies": 1}, prune(t, store))
	require.Equal(t, []string{"tagged-02", "zombie-02", "zombie-05"}, left(t, store))

	require.NoError(t, store.RemoveRetention(t.Context(), "default", "b-tag", "me"))
	require.Equal(t, map[string]int64{"c-type": 1}, prune(t, store))
	require.NoError(t, store.RemoveRetention(t.Context(), "default", "zombies", "me"))
	require.Equal(t, map[string]int64{"c-type": 2}, prune(t, store))
}

// fakePlan freezes dead letters as the bulk verbs do.
func fakePlan(t testing.TB, store *dlqstore.Store, id, state string, ids ...string) {
	t.Helper()
	run(t, store, `insert into deadletter.plans (id, namespace, verb, filter, actor, expires_at, matched, members, state)
		values ($1, 'default', 'replay', '{}', 'me', now() + interval '1 hour', 1, 1, $2)`, id, state)
	for i, workflowID := range ids {
		run(t, store, `insert into deadletter.plan_items (plan_id, position, namespace, workflow_id, run_id, revision)
			values ($1, $2, 'default', $3, $3 || '-run', 1)`, id, i+1, workflowID)
	}
}

// TestPruneHeld proves that a plan which can still be applied, or is, holds its
// members until it has ended, whatever became of them, and that a replay which has not started
// holds its dead letter.
func TestPruneHeld(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	held := []string{"applying", "applying-done", "expired", "finished", "paused", "planned", "replaying"}
	for _, id := range held {
		aged(t, store, id, 48*time.Hour)
	}
	for _, state := range []string{"applying", "paused", "planned", "finished"} {
		fakePlan(t, store, state, state, state)
	}
	fakePlan(t, store, "applying-done", "applying", "applying-done")
	run(t, store, `update deadletter.plan_items set state = 'done' where plan_id = 'applying-done'`)
	fakePlan(t, store, "expired", "planned", "expired")
	run(t, store, `update deadletter.plans set expires_at = now() - interval '1 second' where id = 'expired'`)
	begin(t, store, keyOf("replaying"), "r")

	setPolicy(t, store, policy("a day"))
	reports, err := store.PruneReports(t.Context(), "default")
	require.NoError(t, err)
	require.EqualValues(t, 2, reports[0].WouldPrune)
	require.EqualValues(t, 5, reports[0].Held)
	require.Equal(t, map[string]int64{"a day": 2}, prune(t, store))
	require.Equal(t, []string{"applying", "applying-done", "paused", "planned", "replaying"}, left(t, store))

	run(t, store, `update deadletter.plans set state = 'cancelled'`)
	require.NoError(t, store.ConfirmReplay(t.Context(), "r", "new-run"))
	require.Equal(t, map[string]int64{"a day": 5}, prune(t, store))
	require.Empty(t, left(t, store))
}

// TestPruneLocked proves that a prune waits for nobody: a dead letter that another
// transaction holds stays for the next run, and one that is held by the time it is
// locked stays too.
func TestPruneLocked(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	aged(t, store, "busy", 48*time.Hour)
	aged(t, store, "free", 47*time.Hour)
	setPolicy(t, store, policy("a day"))
	tx, err := store.Pool().Begin(t.Context())
	require.NoError(t, err)
	_, err = store.BeginReplayTx(t.Context(), tx, dlqstore.ReplayRequest{Key: keyOf("busy"), RequestID: "r", Actor: "me"})
	require.NoError(t, err)
	require.Equal(t, map[string]int64{"a day": 1}, prune(t, store))
	require.NoError(t, tx.Commit(t.Context()))
	require.Empty(t, prune(t, store))
	require.Equal(t, []string{"busy"}, left(t, store))
	require.NoError(t, store.ConfirmReplay(t.Context(), "r", "new-run"))
	require.Equal(t, map[string]int64{"a day": 1}, prune(t, store))
}

// TestPruneTogether proves that prunes, purges and replays of the same rows leave
// one defined outcome for each: it is gone once, by one of them, and not while its
// replay has not started; and no attempt without its dead letter.
func TestPruneTogether(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	const rows = 1200
	run(t, store, `insert into deadletter.dead_letters (namespace, workflow_id, run_id, reason, job_type, payloads, dead_at)
		select 'default', 'w' || i, 'w' || i || '-run', 'fatal_error', 'T', '', now() - interval '2 days' from generate_series(1, $1) i`, rows)
	run(t, store, `insert into deadletter.attempts (namespace, workflow_id, run_id, attempt) select namespace, workflow_id, run_id, 1 from deadletter.dead_letters`)
	setPolicy(t, store, policy("a day"))

	replayed := make([]error, rows)
	errs := concurrently(6, func(i int) error {
		switch i {
		case 0, 1, 2:
			_, err := store.Prune(t.Context(), dlqstore.PruneRequest{Namespace: "default", Actor: "retention"})
			return err
		case 3:
			_, err := store.PurgeMatching(t.Context(), dlqstore.PurgeRequest{All: true, Limit: rows, Actor: "me"})
			return err
		default:
			for n := i - 4; n < rows; n += 2 {
				key := keyOf(fmt.Sprint("w", n+1))
				_, replayed[n] = store.BeginReplay(t.Context(), dlqstore.ReplayRequest{Key: key, RequestID: key.WorkflowID, Actor: "me"})
			}
			return nil
		}
	})
	require.NoError(t, errors.Join(errs...))
	require.Equal(t, rows, scalar[int](t, store, `select count(*) from deadletter.events where verb in ('prune', 'purge')`)+len(left(t, store)))
	require.Equal(t, scalar[int](t, store, `select count(*) from deadletter.events where verb in ('prune', 'purge')`),
		scalar[int](t, store, `select count(distinct workflow_id) from deadletter.events where verb in ('prune', 'purge')`))
	require.Equal(t, len(left(t, store)), scalar[int](t, store, `select count(*) from deadletter.attempts`))
	for n, err := range replayed {
		id := fmt.Sprint("w", n+1)
		pruned := scalar[bool](t, store, `select exists (select from deadletter.events where verb = 'prune' and workflow_id = $1)`, id)
		if err == nil {
			require.False(t, pruned, "%s was pruned between its replay and its start", id)
		} else {
			require.ErrorIs(t, err, dlqstore.ErrNotFound)
		}
	}
}

// TestPruneRaces proves the same for a plan that locks its members as it freezes
// them: a member is never pruned while the plan is not over.
func TestPruneRaces(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	const rows = 2000
	run(t, store, `insert into deadletter.dead_letters (namespace, workflow_id, run_id, reason, payloads, dead_at)
		select 'default', 'w' || i, 'w' || i || '-run', 'fatal_error', '', now() - interval '2 days' from generate_series(1, $1) i`, rows)
	setPolicy(t, store, policy("a day"))
	fakePlan(t, store, "all", "planned")
	freeze := func(part int) error {
		_, err := store.Pool().Exec(t.Context(), `
			with frozen as (select namespace, workflow_id, run_id from deadletter.dead_letters order by dead_at desc, workflow_id desc limit 20 offset $1 for key share)
			insert into deadletter.plan_items (plan_id, position, namespace, workflow_id, run_id, revision)
			select 'all', row_number() over () + $1, namespace, workflow_id, run_id, 1 from frozen`, part*20)
		return err
	}
	require.NoError(t, freeze(0))
	errs := concurrently(3, func(i int) error {
		if i > 0 {
			_, err := store.Prune(t.Context(), dlqstore.PruneRequest{Namespace: "default", Actor: "retention"})
			return err
		}
		for part := 1; part < rows/20; part++ {
			if err := freeze(part); err != nil {
				return err
			}
		}
		return nil
	})
	require.NoError(t, errors.Join(errs...))
	require.GreaterOrEqual(t, len(left(t, store)), 20)
	require.Zero(t, scalar[int](t, store, `select count(*) from deadletter.plan_items i
		where not exists (select from deadletter.dead_letters d where d.workflow_id = i.workflow_id)`))
}

// TestPruneInterrupted proves that a prune which is cut off keeps what its batches
// did, says how much, and that the next one does the rest and nothing twice.
func TestPruneInterrupted(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	run(t, store, `insert into deadletter.dead_letters (namespace, workflow_id, run_id, reason, payloads, dead_at)
		select 'default', 'w' || i, 'r', 'fatal_error', '', now() - interval '2 days' from generate_series(1, 1300) i`)
	setPolicy(t, store, policy("a day"))
	// Fails once a batch is through.
	run(t, store, `create function cut() returns trigger language plpgsql as $$ begin
		if (select count(*) from deadletter.events where verb = 'prune') >= 500 then perform pg_terminate_backend(pg_backend_pid()); end if; return null; end $$`)
	run(t, store, `create trigger cut before delete on deadletter.dead_letters for each statement execute function cut()`)
	pruned, err := store.Prune(t.Context(), dlqstore.PruneRequest{Namespace: "default", Actor: "retention"})
	require.ErrorIs(t, err, dlqstore.ErrUnavailable)
	require.ErrorContains(t, err, `prune by policy "a day"`)
	require.Equal(t, map[string]int64{"a day": 500}, pruned.ByPolicy)
	require.False(t, pruned.Done)
	run(t, store, `drop trigger cut on deadletter.dead_letters`)

	pruned, err = store.Prune(t.Context(), dlqstore.PruneRequest{Namespace: "default", Actor: "retention", Within: time.Nanosecond})
	require.NoError(t, err)
	require.False(t, pruned.Done)
	require.Empty(t, pruned.ByPolicy)
	require.Equal(t, map[string]int64{"a day": 800}, prune(t, store))
	require.Equal(t, 1300, scalar[int](t, store, `select count(distinct workflow_id) from deadletter.events where verb = 'prune'`))
}

// TestPruneReport proves that a report says what would go, by type and reason, and
// what stays for a pin, that a candidate is judged among the policies there are,
// and that nothing is touched.
func TestPruneReport(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	for i := range 7 {
		aged(t, store, fmt.Sprint("old", i), time.Duration(30+i)*time.Hour, func(dl *dlqstore.DeadLetter) {
			if i > 3 {
				dl.JobType, dl.Reason = "Charge", job.ReasonZombie
			}
		})
	}
	aged(t, store, "young", time.Hour)
	_, err := store.Pin(t.Context(), keyOf("old0"), "me")
	require.NoError(t, err)
	before := scalar[int](t, store, `select count(*) from deadletter.events`)

	report, err := store.PruneReport(t.Context(), policy("a day"))
	require.NoError(t, err)
	require.EqualValues(t, 6, report.WouldPrune)
	require.EqualValues(t, 1, report.Pinned)
	require.Zero(t, report.Held)
	require.Equal(t, []dlqstore.PruneGroup{
		{JobType: "Charge", Reason: job.ReasonZombie, Count: 3}, {JobType: "SendEmail", Reason: job.ReasonMaxRetriesExceeded, Count: 3},
	}, report.Groups)
	require.False(t, report.MoreGroups)
	require.WithinDuration(t, time.Now().Add(-36*time.Hour), *report.Oldest, time.Minute)
	require.WithinDuration(t, time.Now().Add(-31*time.Hour), *report.Newest, time.Minute)
	require.Len(t, report.Sample, 5)
	require.Equal(t, keyOf("old6"), report.Sample[0].Key)
	require.Equal(t, *report.Oldest, report.Sample[0].DeadAt)

	setPolicy(t, store, policy("charges", func(p *dlqstore.RetentionPolicy) { p.JobType, p.KeepFor = "Charge", 0; p.KeepLast = 2 }))
	report, err = store.PruneReport(t.Context(), policy("a day", func(p *dlqstore.RetentionPolicy) { p.Enabled = false }))
	require.NoError(t, err)
	require.EqualValues(t, 3, report.WouldPrune)
	require.False(t, report.Policy.Enabled)
	reports, err := store.PruneReports(t.Context(), "default")
	require.NoError(t, err)
	require.Len(t, reports, 1)
	require.EqualValues(t, 1, reports[0].WouldPrune)
	require.Equal(t, before+1, scalar[int](t, store, `select count(*) from deadletter.events`))
	require.Len(t, left(t, store), 8)

	run(t, store, `insert into deadletter.dead_letters (namespace, workflow_id, run_id, reason, job_type, payloads, dead_at)
		select 'default', 'many' || i, 'r', 'fatal_error', 'Type' || i, '', now() - interval '2 days' from generate_series(1, 101) i`)
	report, err = store.PruneReport(t.Context(), policy("a day"))
	require.NoError(t, err)
	require.True(t, report.MoreGroups)
	require.Len(t, report.Groups, 100)
	require.EqualValues(t, 104, report.WouldPrune)
	require.True(t, slices.IsSortedFunc(report.Groups, func(a, b dlqstore.PruneGroup) int { return int(b.Count - a.Count) }))
}
