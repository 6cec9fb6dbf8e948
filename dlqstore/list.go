package dlqstore

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

const (
	selectList = `
select` + listColumns + `
from {schema}.dead_letters d`

	selectCount = `
select count(*)
from {schema}.dead_letters d`

	// Key columns break ties of dead_at, so a page's end is one place.
	newestFirst = "\norder by d.dead_at desc, d.namespace desc, d.workflow_id desc, d.run_id desc"
	oldestFirst = "\norder by d.dead_at, d.namespace, d.workflow_id, d.run_id"

	whereOlder = `(d.dead_at, d.namespace, d.workflow_id, d.run_id) < (@after_dead_at, @after_namespace, @after_workflow_id, @after_run_id)`
	whereNewer = `(d.dead_at, d.namespace, d.workflow_id, d.run_id) > (@after_dead_at, @after_namespace, @after_workflow_id, @after_run_id)`

	limitRows = "\nlimit @limit"
)

const (
	defaultPage = 50
	maxPage     = 1000
)

// Page says which part of a list to return.
type Page struct {
	// Cursor is what the call before returned as next; empty starts the list.
	Cursor string
	// Limit is the most rows to return: 0 means 50, and 1000 is the maximum.
	Limit int
	// OldestFirst turns the order around. Default: the newest dead letter first.
	OldestFirst bool
}

func (p Page) limit() (int, error) {
	switch {
	case p.Limit < 0 || p.Limit > maxPage:
		return 0, fmt.Errorf("a page of %d rows: at most %d, 0 for %d", p.Limit, maxPage, defaultPage)
	case p.Limit == 0:
		return defaultPage, nil
	default:
		return p.Limit, nil
	}
}

// List returns one page of the dead letters that the filter selects, without the
// wire's bytes, and the cursor of the next page, empty after the last. A dead
// letter that is there throughout the listing is listed exactly once, whatever
// else comes and goes.
func (s *Store) List(ctx context.Context, f Filter, page Page) (rows []DeadLetter, next string, err error) {
	limit, err := page.limit()
	if err != nil {
		return nil, "", fmt.Errorf("list: %w", err)
	}
	text, args, err := s.listQuery(selectList, f, page)
	if err != nil {
		return nil, "", fmt.Errorf("list: %w", err)
	}
	args["limit"] = limit + 1 // one more tells whether there is a next page
	rows, err = queryFiltered(ctx, s, f, text, args, scansListed())
	if err != nil {
		return nil, "", fmt.Errorf("list: %w", err)
	}
	if len(rows) <= limit {
		return rows, "", nil
	}
	rows = rows[:limit]
	next, err = cursorAt(&rows[limit-1], page.OldestFirst)
	return rows, next, err
}

// listQuery is one of the selects on dead letters, with the filter and the order.
func (s *Store) listQuery(columns string, f Filter, page Page) (string, pgx.NamedArgs, error) {
	order, after := newestFirst, whereOlder
	if page.OldestFirst {
		order, after = oldestFirst, whereNewer
	}
	var start []string
	var from cursor
	if page.Cursor != "" {
		var err error
		if from, err = parseCursor(page.Cursor); err != nil {
			return "", nil, err
		}
		if from.OldestFirst != page.OldestFirst {
			return "", nil, fmt.Errorf("%w: it belongs to the other order", ErrBadCursor)
		}
		start = []string{after}
	}
	where, args, err := s.where(f, start...)
	if err != nil {
		return "", nil, err
	}
	if page.Cursor != "" {
		from.addTo(args)
	}
	return s.sql(columns) + where + order + limitRows, args, nil
}

// Count returns how many dead letters the filter selects.
func (s *Store) Count(ctx context.Context, f Filter) (int64, error) {
	where, args, err := s.where(f)
	if err != nil {
		return 0, fmt.Errorf("count: %w", err)
	}
	counts, err := queryFiltered(ctx, s, f, s.sql(selectCount)+where, args, pgx.RowTo[int64])
	if err != nil {
		return 0, fmt.Errorf("count: %w", err)
	}
	return counts[0], nil
}
