package dlqstore

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// insufficientPrivilege is Postgres' SQLSTATE for a missing right.
const insufficientPrivilege = "42501"

// RightsError says which right in the database a role lacks, and how to grant it. It
// unwraps to the error of Postgres.
type RightsError struct {
	Role string
	// Rights and Object are as GRANT takes them: {"DELETE"} and "deadletter"."dead_letters".
	Rights []string
	Object string
	Cause  error
}

// Error names the right and the statement that grants it.
func (e *RightsError) Error() string {
	rights := strings.Join(e.Rights, ", ")
	return fmt.Sprintf("role %q lacks the right %s on %s (SQLSTATE %s): if it should have it, the owner runs: grant %s on %s to %s",
		e.Role, rights, e.Object, insufficientPrivilege, strings.ToLower(rights), e.Object, pgx.Identifier{e.Role}.Sanitize())
}

// Unwrap returns the error of Postgres.
func (e *RightsError) Unwrap() error { return e.Cause }

// selectRights tells what the role lacks on the schema and its tables, as tables name,
// right. The schema is the row without a table.
const selectRights = `
select current_user::text, '' as table_name, 'USAGE' as missing
where not pg_catalog.has_schema_privilege(@schema, 'USAGE')
union all
select current_user::text, c.relname::text, p.missing
from pg_catalog.pg_class c
join pg_catalog.pg_namespace n on n.oid = c.relnamespace
cross join unnest(array['SELECT', 'INSERT', 'UPDATE', 'DELETE']) as p (missing)
where n.nspname = @schema and c.relkind in ('r', 'p') and not pg_catalog.has_table_privilege(c.oid, p.missing)
order by 2, 3`

// isNumbering reports whether a key that only a sequence makes was there already.
func isNumbering(err *pgconn.PgError) bool {
	return err.ConstraintName == err.TableName+"_pkey" && slices.Contains(numberedTables, err.TableName)
}

type missingRight struct{ Role, Table, Right string }

// explained returns err with what to do about it, where that is for the owner of the
// tables: to grant a right, as a *RightsError, or to repair a sequence. Which right it is
// is asked on a connection of its own, for the transaction is over.
func (s *Store) explained(ctx context.Context, err error, statement string) error {
	refused, ok := errors.AsType[*pgconn.PgError](err)
	if ok && isNumbering(refused) {
		return fmt.Errorf("%w: the numbers of the table's rows are behind, as after a cut-over by logical replication: "+
			"run `temporal-deadletter migrate --repair-sequences`", err)
	}
	if explained := (*RightsError)(nil); !ok || refused.Code != insufficientPrivilege || errors.As(err, &explained) {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.timeout)
	defer cancel()
	rows, asking := s.pool.Query(ctx, s.sql(selectRights), pgx.NamedArgs{"schema": s.schema})
	if asking != nil {
		return err
	}
	missing, asking := pgx.CollectRows(rows, pgx.RowToStructByPos[missingRight])
	if asking != nil {
		return err
	}
	if found := rightsFor(s.schema, refused.Message, statement, missing); found != nil {
		found.Cause = err
		return found
	}
	return err
}

// rightsFor finds, among what is missing, what the statement needs on the table that
// Postgres' message names. A table's name is the same in the message of any language.
func rightsFor(schema, message, statement string, missing []missingRight) *RightsError {
	quoted := pgx.Identifier{schema}.Sanitize()
	words := wordsOf(message)
	var found *RightsError
	for _, m := range missing {
		switch {
		case m.Table == "": // nothing is found without it
			return &RightsError{Role: m.Role, Rights: []string{m.Right}, Object: "schema " + quoted}
		case !slices.Contains(words, m.Table) || !needs(statement, quoted+"."+m.Table, m.Right):
			continue
		case found == nil:
			found = &RightsError{Role: m.Role, Object: pgx.Identifier{schema, m.Table}.Sanitize()}
		}
		found.Rights = append(found.Rights, m.Right)
	}
	return found
}

var identifier = regexp.MustCompile(`\w+`)

func wordsOf(message string) []string { return identifier.FindAllString(message, -1) }

// verbsOf are what comes before a table's name in a statement that needs a right on it.
var verbsOf = map[string]string{"SELECT": `(?:from|join|using|table)`, "INSERT": `into`, "UPDATE": `update`, "DELETE": `delete\s+from`}

// needs reports whether a statement needs the right on the table. To lock rows takes
// UPDATE, and so does an insert that updates where there is a row.
func needs(statement, table, right string) bool {
	named := func(before string) bool {
		return regexp.MustCompile(before + `\s+` + regexp.QuoteMeta(table) + `\b`).MatchString(statement)
	}
	switch right {
	case "SELECT":
		return named(verbsOf[right]) || strings.Contains(statement, "returning")
	case "UPDATE":
		return named(verbsOf[right]) || locking.MatchString(statement) && named(verbsOf["SELECT"]) ||
			strings.Contains(statement, "do update") && named(verbsOf["INSERT"])
	default:
		return named(verbsOf[right])
	}
}

var locking = regexp.MustCompile(`for (?:update|no key update|share|key share)\b`)
