package dlqstore_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/internal/devstack/devtest"
	"github.com/deadletter-dev/deadletter/job"
)

// TestMembersAreReadByKey proves that a chunk of a plan reads the dead letters and
// replays of its members and few others, however many there are, also where Postgres
// has no statistics of the tables, as soon after an outage.
func TestMembersAreReadByKey(t *testing.T) {
	t.Parallel()
	const others, chunk = 10_000, 50
	url := devtest.Postgres(t)
	setup := openAt(t, url)
	for _, table := range []string{"dead_letters", "replays", "plan_items"} {
		run(t, setup, `alter table deadletter.`+table+` set (autovacuum_enabled = off)`)
	}
	move(t, setup, letter(keyOf("template")))
	run(t, setup, `
insert into deadletter.dead_letters
select (json_populate_record(d, json_build_object('workflow_id', 'w' || i, 'dead_at', d.dead_at + i * interval '1 s'))).*
from deadletter.dead_letters d, generate_series(1, $1::int) i
where d.workflow_id = 'template'`, others)
	run(t, setup, `
insert into deadletter.replays (request_id, namespace, workflow_id, run_id, new_workflow_id, new_run_id, outcome)
select 'r' || i, d.namespace, d.workflow_id, d.run_id, 'n' || i, 'r', 'dead_lettered'
from generate_series(1, $1::int) i
join deadletter.dead_letters d on d.workflow_id = 'w' || i`, others)
	plans := map[job.BulkVerb]*dlqstore.Plan{}
	for _, verb := range []job.BulkVerb{job.BulkReplay, job.BulkPurge} {
		plans[verb] = begun(t, setup, plan(t, setup, dlqstore.PlanRequest{Verb: verb, All: true}))
	}
	setup.Close()

	watch, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer func() { require.NoError(t, watch.Close(t.Context())) }()
	type counts struct{ read, written int }
	// tell waits until the server has counted what a store that is closed has written.
	tell := func(table string, written int) (read int) {
		var c counts
		require.Eventually(t, func() bool {
			require.NoError(t, watch.QueryRow(t.Context(), `
select seq_tup_read + coalesce(idx_tup_fetch, 0), n_tup_ins + n_tup_upd + n_tup_del
from pg_stat_user_tables where schemaname = 'deadletter' and relname = $1`, table).Scan(&c.read, &c.written))
			return c.written == written
		}, time.Minute, 50*time.Millisecond, "%d rows of %s are written", written, table)
		return c.read
	}
	lettersWritten, replaysWritten, itemsWritten := others+1, others, 2*(others+1)
	for _, step := range []struct {
		name                    string
		letters, replays, items int // rows that it writes
		do                      func(store *dlqstore.Store)
	}{
		{"a replay begins", chunk, chunk, 0, func(store *dlqstore.Store) {
			made := plans[job.BulkReplay]
			members, err := store.Members(t.Context(), made.ID, 0, chunk)
			require.NoError(t, err)
			starts, err := store.BeginMemberReplays(t.Context(), made, members)
			require.NoError(t, err)
			require.Len(t, starts, chunk)
		}},
		{"a replay ends", 0, chunk, chunk, func(store *dlqstore.Store) {
			var started []dlqstore.MemberStarted
			for i := range chunk {
				started = append(started, dlqstore.MemberStarted{Position: i + 1, NewRunID: "run"})
			}
			require.NoError(t, store.EndMemberReplays(t.Context(), plans[job.BulkReplay], started, nil))
		}},
		{"a purge", chunk, 0, chunk, func(store *dlqstore.Store) {
			made := plans[job.BulkPurge]
			members, err := store.Members(t.Context(), made.ID, chunk, chunk)
			require.NoError(t, err)
			require.NoError(t, store.PurgeMembers(t.Context(), made, members))
		}},
	} {
		letters, replays, items := tell("dead_letters", lettersWritten), tell("replays", replaysWritten), tell("plan_items", itemsWritten)
		store, err := dlqstore.Open(t.Context(), url)
		require.NoError(t, err)
		step.do(store)
		store.Close()
		lettersWritten, replaysWritten, itemsWritten = lettersWritten+step.letters, replaysWritten+step.replays, itemsWritten+step.items
		letters, replays = tell("dead_letters", lettersWritten)-letters, tell("replays", replaysWritten)-replays
		items = tell("plan_items", itemsWritten) - items
		t.Logf("%s: %d dead letters, %d replays, %d members read", step.name, letters, replays, items)
		require.LessOrEqual(t, letters, 8*chunk, step.name)
		require.LessOrEqual(t, replays, 8*chunk, step.name)
		require.LessOrEqual(t, items, 8*chunk, step.name)
	}
}
