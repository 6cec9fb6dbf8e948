package dlqstore

import (
	"context"
	"io/fs"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

// What the tests of package dlqstore_test see of the inside.
var (
	NewWorkflowID = newWorkflowID
	CursorAt      = cursorAt
	Classify      = classify
	SchemaVersion = schemaVersion

	EventCursorAt    = eventCursorAt
	ParseEventCursor = parseEventCursor
)

// ParseCursor returns the position as a dead letter.
func ParseCursor(text string) (dl *DeadLetter, oldestFirst bool, err error) {
	c, err := parseCursor(text)
	if err != nil {
		return nil, false, err
	}
	args := map[string]any{}
	c.addTo(args)
	dl = &DeadLetter{Key: Key{Namespace: c.Namespace, WorkflowID: c.WorkflowID, RunID: c.RunID}}
	dl.DeadAt = args["after_dead_at"].(time.Time)
	return dl, c.OldestFirst, nil
}

// partial are statements that are none without another.
var partial = []string{
	startingReplay, replayedForGood, lockVictims, lockVictimsEnd, freezeChosen, freezeMembers, heldDeadLetter, whereTooMany, wherePastLast, countDue,
	selectSpans, sizesOfSummary, sizesOfTable, sizesOfTableEnd, groupsTop, groupsOldest, groupsEnd,
}

// Queries returns every statement of the store as it is sent, by a name for
// people: the registered ones, and those that filters make.
func (s *Store) Queries(filters map[string]Filter) (map[string]string, error) {
	queries := map[string]string{}
	for _, statement := range statements {
		if !slices.Contains(partial, statement) {
			queries[statement] = s.sql(statement)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(filters)) {
		where, _, err := s.where(filters[name])
		if err != nil {
			return nil, err
		}
		if queries["groups "+name], _, err = s.groupsQuery(filters[name]); err != nil {
			return nil, err
		}
		queries["count "+name] = s.sql(selectCount) + where
		queries["spans "+name] = s.sql(selectSpans) + where + bySpan
		queries["freeze "+name] = s.sql(freezeChosen) + where + s.sql(freezeMembers)
		queries["purge "+name] = s.sql(lockVictims) + where + s.sql(lockVictimsEnd)
		for _, oldest := range []bool{false, true} {
			cursor, err := cursorAt(&DeadLetter{Key: Key{"n", "w", "r"}}, oldest)
			if err != nil {
				return nil, err
			}
			for order, page := range map[string]Page{"": {OldestFirst: oldest}, " from a cursor": {OldestFirst: oldest, Cursor: cursor}} {
				direction := map[bool]string{false: " newest first", true: " oldest first"}[oldest]
				for what, columns := range map[string]string{"list ": selectList, "export ": selectWithPayloads} {
					text, _, err := s.listQuery(columns, filters[name], page)
					if err != nil {
						return nil, err
					}
					queries[what+name+direction+order] = text
				}
			}
		}
	}
	return queries, nil
}

// PruneQueries returns what prunes by the last of the policies, and what reports on
// it, by a name for people.
func (s *Store) PruneQueries(policies ...RetentionPolicy) map[string]string {
	all := governingOf(policies)
	g := all[len(all)-1]
	first, _ := s.lockQuery(g, nil)
	next, _ := s.lockQuery(g, &locked{})
	counts, _ := s.countDueQuery(g)
	sample, _ := s.sampleDueQuery(g)
	return map[string]string{"prune": first, "prune on": next, "count due": counts, "sample due": sample}
}

// ListQuery returns the statement of a page and its arguments.
func (s *Store) ListQuery(f Filter, page Page) (string, map[string]any, error) {
	text, args, err := s.listQuery(selectList, f, page)
	if err == nil {
		limit, invalid := page.limit()
		args["limit"], err = limit+1, invalid
	}
	return text, args, err
}

// BareList returns the SELECT of a first page's rows as one would write it by hand.
func (s *Store) BareList(f Filter) (string, map[string]any, error) {
	where, args, err := s.where(f)
	if err != nil {
		return "", nil, err
	}
	args["limit"] = defaultPage + 1
	return s.sql(selectList) + where + "\norder by d.dead_at desc limit @limit", args, nil
}

// MigrationNames returns the names of the migration files in their order.
func MigrationNames() []string {
	files, err := fs.Glob(migrationsDir(), "*.sql")
	if err != nil {
		panic(err)
	}
	return files
}

// MigrateTo makes a schema as an earlier build left it.
func MigrateTo(ctx context.Context, databaseURL, schema string, version int) error {
	conn, err := pgx.Connect(ctx, databaseURL)
	if err != nil {
		return err
	}
	defer closeConn(ctx, conn)
	migrations, err := migrationsOf(schema)
	if err != nil {
		return err
	}
	for range version {
		if _, err := migrateOnce(ctx, conn, schema, migrations); err != nil {
			return err
		}
	}
	return nil
}
