package dlqstore_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/internal/devstack/devtest"
)

const testRows = 30_000

// TestFindIndexes proves that no page of a list reads the whole table: of any
// single filter and of the commonest pairs, within a namespace and without, newest
// and oldest first, at the beginning and from a cursor.
func TestFindIndexes(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	copyRows(t, store, testRows)
	for name, filter := range rowFilters(testRows) {
		for _, namespace := range []string{"default", ""} {
			filter.Namespace = namespace
			for _, oldest := range []bool{false, true} {
				page := dlqstore.Page{OldestFirst: oldest}
				require.NotContains(t, explain(t, store, filter, page), "Seq Scan", name)
				rows, _, err := store.List(t.Context(), filter, page)
				require.NoError(t, err)
				require.NotEmpty(t, rows, "%s: the test's rows have none of these", name)
				page.Cursor, err = dlqstore.CursorAfter(&rows[len(rows)/2], oldest)
				require.NoError(t, err)
				require.NotContains(t, explain(t, store, filter, page), "Seq Scan", name)
			}
		}
	}
	for index, filter := range map[string]dlqstore.Filter{
		"dead_letters_error_text_idx":   rowFilters(testRows)["error text rare"],
		"dead_letters_payload_json_idx": rowFilters(testRows)["argument"],
	} {
		require.Contains(t, explain(t, store, filter, dlqstore.Page{}), index)
	}
}

// TestNoTrigrams proves that a database whose owner refuses pg_trgm is migrated
// and searched without its index, and gets the index by a later migrate.
func TestNoTrigrams(t *testing.T) {
	t.Parallel()
	role := newRole(t)
	url := devtest.Postgres(t)
	store := openAt(t, url, dlqstore.WithSchema("other"))
	run(t, store, `drop extension pg_trgm cascade`)
	run(t, store, `create schema deadletter authorization `+role)
	database := scalar[string](t, store, `select quote_ident(current_database())`)
	run(t, store, `alter database `+database+` set role to `+role)

	limited := openAt(t, url)
	move(t, limited, letter(keyOf("w")))
	rows, _, err := limited.List(t.Context(), dlqstore.Filter{ErrorText: "NO SUCH"}, dlqstore.Page{})
	require.NoError(t, err)
	require.Len(t, rows, 1)
	const indexes = `select count(*) from pg_indexes where schemaname = 'deadletter' and indexname = 'dead_letters_error_text_idx'`
	require.Zero(t, scalar[int](t, limited, indexes))

	run(t, store, `create extension pg_trgm schema public`)
	require.NoError(t, dlqstore.Migrate(t.Context(), url))
	require.Equal(t, 1, scalar[int](t, limited, indexes))
	run(t, store, `alter database `+database+` reset role`)
}
