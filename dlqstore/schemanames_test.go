package dlqstore_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/internal/devstack/devtest"
)

// hostileNames are names of schemas that end a literal, an identifier or a function's
// body, or mean something to a template, a format or a driver.
var hostileNames = []string{
	`a'b;drop`, `a''b`, `a"b`, `a""; drop schema bystander cascade; --`, `a$function$b`, `$$`, `$body$`, `a\'b`, `\`,
	`a'; drop schema bystander cascade; --`, `a$function$; drop schema bystander cascade; --`,
	`{schema}`, `{{.schema}}`, `{{`, `%s%d`, `@namespace`, `$1`, `--`, `/*`, ` `, `a b`, "a\nb", `select`, `public.x`, `日本語`,
	strings.Repeat("n", 63),
}

// TestHostileSchemaNames proves that a schema of any name is made from nothing, and
// upgraded from the version at which earlier builds stopped for some of them, that
// every table works in it then, and that nothing of a name is run as SQL.
func TestHostileSchemaNames(t *testing.T) {
	t.Parallel()
	for _, from := range []int{0, 6} {
		t.Run(fmt.Sprintf("from version %d", from), func(t *testing.T) {
			t.Parallel()
			url := devtest.Postgres(t)
			bystander := openAt(t, url, dlqstore.WithSchema("bystander"))
			for _, name := range hostileNames {
				if from > 0 {
					require.NoError(t, dlqstore.MigrateTo(t.Context(), url, name, from))
				}
				require.NoError(t, dlqstore.Migrate(t.Context(), url, dlqstore.WithSchema(name)))
				store, err := dlqstore.Open(t.Context(), url, dlqstore.WithSchema(name))
				require.NoError(t, err, name)
				useEverything(t, store, "plain")
				store.Close()
			}
			schemas := scalar[[]string](t, bystander, `select array_agg(nspname::text) from pg_namespace where nspname not like 'pg\_%' and nspname not in ('information_schema', 'public')`)
			require.ElementsMatch(t, append([]string{"bystander"}, hostileNames...), schemas)
			require.Zero(t, scalar[int](t, bystander, `select count(*) from bystander.events`))
		})
	}
}
