package dlqstore

import (
	"maps"
	"slices"
	"time"
)

// What the tests of package dlqstore_test see of the inside.
var (
	NewWorkflowID = newWorkflowID
	CursorAt      = cursorAt
	Classify      = classify
	SchemaVersion = schemaVersion
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

// Queries returns every statement of the store as it is sent, by a name for
// people: the registered ones, and those that filters make.
func (s *Store) Queries(filters map[string]Filter) (map[string]string, error) {
	queries := map[string]string{}
	for _, statement := range statements {
		if !slices.Contains([]string{purgeVictims, purgeSelected, freezeChosen, freezeMembers, heldDeadLetter, whereTooMany, wherePastLast, countDue}, statement) { // parts of one
			queries[statement] = s.sql(statement)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(filters)) {
		where, _ := filters[name].where()
		queries["count "+name] = s.sql(selectCount) + where
		queries["freeze "+name] = s.sql(freezeChosen) + where + s.sql(freezeMembers)
		queries["purge "+name] = s.sql(purgeVictims) + where + s.sql(purgeSelected)
		for _, oldest := range []bool{false, true} {
			cursor, err := cursorAt(&DeadLetter{Key: Key{"n", "w", "r"}}, oldest)
			if err != nil {
				return nil, err
			}
			for order, page := range map[string]Page{"": {OldestFirst: oldest}, " from a cursor": {OldestFirst: oldest, Cursor: cursor}} {
				text, _, err := s.listQuery(filters[name], page)
				if err != nil {
					return nil, err
				}
				direction := map[bool]string{false: " newest first", true: " oldest first"}[oldest]
				queries["list "+name+direction+order] = text
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

// ListQuery returns the statement of a first page and its arguments.
func (s *Store) ListQuery(f Filter) (string, map[string]any, error) {
	text, args, err := s.listQuery(f, Page{})
	return text, args, err
}
