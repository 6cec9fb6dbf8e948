package dlqstore

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Inspection is what to know of a database before the store is used on it.
type Inspection struct {
	// Migrated reports whether the schema has been created, of any version.
	Migrated bool
	// Encoding is the database's, by Postgres' name. Only one of UTF8 holds every text.
	Encoding string
	// Behind are the sequences whose next number a row may have already: an insert
	// will fail. Those that the role may not read are left out.
	Behind []Sequence
}

// numberedTables are those whose rows a sequence numbers.
var numberedTables = []string{"events", "notes"}

// Sequence numbers the rows of a table.
type Sequence struct {
	Table  string `json:"table"`
	Column string `json:"column"`
	// Next is the number that the next row would get, Highest the highest that a row has.
	Next    int64 `json:"next"`
	Highest int64 `json:"highest"`
}

// String names the column and both numbers.
func (s Sequence) String() string {
	return fmt.Sprintf("the next %s of table %s is %d, and there is a row with %d", s.Column, s.Table, s.Next, s.Highest)
}

const (
	// selectSequences finds the sequences of numberedTables: the schema may have tables of
	// others.
	selectSequences = `
select c.relname::text, a.attname::text, sn.nspname::text, s.relname::text, s.oid,
	has_schema_privilege(n.oid, 'USAGE') and has_sequence_privilege(s.oid, 'SELECT') and has_table_privilege(c.oid, 'SELECT')
from pg_depend d
join pg_class s on s.oid = d.objid and s.relkind = 'S'
join pg_namespace sn on sn.oid = s.relnamespace
join pg_class c on c.oid = d.refobjid
join pg_namespace n on n.oid = c.relnamespace
join pg_attribute a on a.attrelid = c.oid and a.attnum = d.refobjsubid
where d.classid = 'pg_class'::regclass and d.refclassid = 'pg_class'::regclass
	and d.deptype in ('i', 'a') and n.nspname = @schema and c.relname = any (@tables::text[])
order by 1, 2`

	// selectPosition and those below it have %[1]s for the sequence, %[2]s for the table and
	// %[3]s for the column, all quoted.
	selectPosition = `
select (select case when is_called then last_value + 1 else last_value end from %[1]s),
	(select coalesce(max(%[3]s), 0) from %[2]s)`

	// lockNumbered keeps inserts away, and lets reads go on.
	lockNumbered = `lock table %[2]s in share row exclusive mode`

	advanceSequence = `select setval($1::oid::regclass, (select max(%[3]s) from %[2]s))`
)

// sequence is a Sequence with what SQL calls it.
type sequence struct {
	Sequence
	name, table, column string
	oid                 uint32
	readable            bool
}

// sql is one of the statements on a sequence.
func (s *sequence) sql(statement string) string {
	return fmt.Sprintf(statement, s.name, s.table, s.column)
}

// Inspect looks at a database, and changes nothing.
func Inspect(ctx context.Context, databaseURL string, opts ...Option) (*Inspection, error) {
	inspection := &Inspection{}
	err := onConnection(ctx, databaseURL, opts, func(conn *pgx.Conn, schema string) error {
		inspection.Encoding = string(encodingOf(conn.PgConn()))
		return inTxOn(ctx, conn, beginRead, func(tx pgx.Tx) error {
			err := tx.QueryRow(ctx, selectVersionExists, pgx.NamedArgs{"schema": schema}).Scan(&inspection.Migrated)
			if err != nil {
				return err
			}
			behind, err := behindOf(ctx, tx, schema)
			for _, s := range behind {
				inspection.Behind = append(inspection.Behind, s.Sequence)
			}
			return err
		})
	})
	if err != nil {
		return nil, fmt.Errorf("inspect the dead letter store: %w", err)
	}
	return inspection, nil
}

// RepairSequences sets each sequence that is behind to the highest number of its table,
// and returns those, as they were. Inserts wait meanwhile. Sequences are behind after a
// cut-over by logical replication, which copies rows and no sequence. It takes the role
// that owns the tables.
func RepairSequences(ctx context.Context, databaseURL string, opts ...Option) ([]Sequence, error) {
	repaired := []Sequence{}
	err := onConnection(ctx, databaseURL, opts, func(conn *pgx.Conn, schema string) error {
		err := inTxOn(ctx, conn, beginWrite, func(tx pgx.Tx) error {
			behind, err := behindOf(ctx, tx, schema)
			if err != nil {
				return err
			}
			for _, s := range behind {
				if err := s.repair(ctx, tx); err != nil {
					return err
				}
				repaired = append(repaired, s.Sequence)
			}
			return nil
		})
		return withSchemaRights(ctx, conn, schema, err)
	})
	if err != nil {
		return nil, fmt.Errorf("repair the sequences of the dead letter store: %w", err)
	}
	return repaired, nil
}

// inTxOn runs fn in a transaction with our search path.
func inTxOn(ctx context.Context, conn *pgx.Conn, begin string, fn func(tx pgx.Tx) error) error {
	return classify(pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{BeginQuery: begin + "; " + ourSearchPath}, fn))
}

func behindOf(ctx context.Context, tx pgx.Tx, schema string) (behind []sequence, err error) {
	rows, err := tx.Query(ctx, selectSequences, pgx.NamedArgs{"schema": schema, "tables": numberedTables})
	if err != nil {
		return nil, err
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (s sequence, err error) {
		var sequenceSchema, name string
		err = row.Scan(&s.Table, &s.Column, &sequenceSchema, &name, &s.oid, &s.readable)
		s.name = pgx.Identifier{sequenceSchema, name}.Sanitize()
		s.table, s.column = pgx.Identifier{schema, s.Table}.Sanitize(), pgx.Identifier{s.Column}.Sanitize()
		return s, err
	})
	if err != nil {
		return nil, err
	}
	for _, s := range all {
		if !s.readable {
			continue
		}
		if err := tx.QueryRow(ctx, s.sql(selectPosition)).Scan(&s.Next, &s.Highest); err != nil {
			return nil, err
		}
		if s.Next <= s.Highest {
			behind = append(behind, s)
		}
	}
	return behind, nil
}

func (s *sequence) repair(ctx context.Context, tx pgx.Tx) error {
	if _, err := tx.Exec(ctx, s.sql(lockNumbered)); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, s.sql(advanceSequence), s.oid)
	return err
}
