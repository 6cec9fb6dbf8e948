package dlqstore_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/internal/devstack/devtest"
)

// TestRepairSequences proves that sequences which are behind their rows are found, by
// the error of a verb too, and set right while others insert; that only the owner may;
// and that neither changes a schema that is sound.
func TestRepairSequences(t *testing.T) {
	t.Parallel()
	const schema = `s'q "1"`
	role := newRole(t)
	url, opt := devtest.Postgres(t), dlqstore.WithSchema(schema)
	store := openAt(t, url, opt)
	table := func(name string) string { return pgx.Identifier{schema, name}.Sanitize() }
	sound, err := dlqstore.Inspect(t.Context(), url, opt)
	require.NoError(t, err)
	require.Empty(t, sound.Behind)
	require.Equal(t, 2, scalar[int](t, store, `select count(*) from information_schema.columns where table_schema = $1 and is_identity = 'YES'`, schema), "all of them are looked at")
	run(t, store, fmt.Sprintf(`create table %[1]s (id serial); insert into %[1]s values (1)`, table("of somebody else")))
	for i := range 30 {
		key := keyOf(fmt.Sprint("w", i))
		move(t, store, letter(key))
		_, err := store.AddNote(t.Context(), dlqstore.NoteRequest{Key: key, Text: "note", Actor: "ann"})
		require.NoError(t, err)
	}
	sound, err = dlqstore.Inspect(t.Context(), url, opt)
	require.NoError(t, err)
	require.Empty(t, sound.Behind)
	repaired, err := dlqstore.RepairSequences(t.Context(), url, opt)
	require.NoError(t, err)
	require.Empty(t, repaired)

	// What logical replication leaves: the rows, and sequences as they were made.
	for _, numbered := range []string{"events", "notes"} {
		run(t, store, fmt.Sprintf(`alter table %s alter column id restart`, table(numbered)))
	}
	const highest = 1_000_000 // failures that take a number each do not reach it
	run(t, store, fmt.Sprintf(`insert into %s (id, verb, namespace, workflow_id, run_id) overriding system value values (%d, 'pin', 'n', 'w', 'r')`, table("events"), highest))
	want := []dlqstore.Sequence{{Table: "events", Column: "id", Next: 1, Highest: highest}, {Table: "notes", Column: "id", Next: 1, Highest: 30}}
	behind, err := dlqstore.Inspect(t.Context(), url, opt)
	require.NoError(t, err)
	require.Equal(t, want, behind.Behind)
	_, err = store.Move(t.Context(), letter(keyOf("after")), nil, "worker", nil)
	require.ErrorContains(t, err, "temporal-deadletter migrate --repair-sequences")
	want[0].Next = 2 // the failed insert took a number
	run(t, store, fmt.Sprintf(`grant usage on schema %s to %s`, pgx.Identifier{schema}.Sanitize(), role))
	run(t, store, fmt.Sprintf(`grant select on all tables in schema %s to %[2]s; grant select on all sequences in schema %[1]s to %[2]s`, pgx.Identifier{schema}.Sanitize(), role))
	run(t, store, `alter database `+scalar[string](t, store, `select quote_ident(current_database())`)+` set role to `+role)
	_, err = dlqstore.RepairSequences(t.Context(), url, opt)
	require.ErrorContains(t, err, `run migrate as its owner "postgres"`)
	refused, ok := errors.AsType[*pgconn.PgError](err)
	require.True(t, ok)
	require.Equal(t, "42501", refused.Code)
	run(t, store, `alter database `+scalar[string](t, store, `select quote_ident(current_database())`)+` reset role`)

	errs := concurrently(9, func(i int) (err error) {
		if i == 0 {
			repaired, err = dlqstore.RepairSequences(t.Context(), url, opt)
			return err
		}
		for try := 0; ; try++ { // as a worker does
			_, err = store.Move(t.Context(), letter(keyOf(fmt.Sprint("at once ", i))), nil, "worker", nil)
			if err == nil || !strings.Contains(err.Error(), "--repair-sequences") || try == 1000 {
				return err
			}
		}
	})
	require.NoError(t, errors.Join(errs...))
	require.Len(t, repaired, 2)
	require.Equal(t, want[1], repaired[1])
	require.EqualValues(t, highest, repaired[0].Highest)
	sound, err = dlqstore.Inspect(t.Context(), url, opt)
	require.NoError(t, err)
	require.Empty(t, sound.Behind)
	move(t, store, letter(keyOf("after")))
}
