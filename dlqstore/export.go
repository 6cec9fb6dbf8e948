package dlqstore

import (
	"context"
	"fmt"
	"iter"

	"github.com/jackc/pgx/v5"
)

const selectWithPayloads = `
select` + listColumns + `,` + wireColumns + `
from {schema}.dead_letters d`

const (
	// firstExportPage is doubled from page to page, up to maxPage, while the pages
	// stay below exportBudget.
	firstExportPage = 64
	// exportBudget is the bytes of payloads and texts after which a page ends.
	exportBudget = 8 << 20
)

// ExportRequest says what to export.
type ExportRequest struct {
	Filter Filter
	// Cursor is where to go on: of List, or of CursorAfter. Empty starts anew.
	Cursor string
	// OldestFirst turns the order around. Default: the newest dead letter first.
	OldestFirst bool
	// WithPayloads brings the wire's bytes too, as Get does.
	WithPayloads bool
}

// Export returns all dead letters that the filter selects, page by page in the
// order of List, each page bounded in time. Memory does not grow with their number: a
// page ends at a thousand rows, or at the row that makes it 8 MiB. The first error
// ends it. A dead letter that is there throughout is returned exactly once, also by
// an export that goes on from CursorAfter the last row.
func (s *Store) Export(ctx context.Context, request ExportRequest) iter.Seq2[*DeadLetter, error] {
	return func(yield func(*DeadLetter, error) bool) {
		limit := firstExportPage
		for {
			rows, full, err := s.exportPage(ctx, request, limit)
			if err != nil {
				yield(nil, fmt.Errorf("export: %w", err))
				return
			}
			for _, dl := range rows {
				if !yield(dl, nil) {
					return
				}
			}
			if len(rows) < limit && !full {
				return
			}
			if request.Cursor, err = CursorAfter(rows[len(rows)-1], request.OldestFirst); err != nil {
				yield(nil, fmt.Errorf("export: %w", err))
				return
			}
			if full {
				limit = len(rows) // the next are likely to be as large
			} else {
				limit = min(2*limit, maxPage)
			}
		}
	}
}

// exportPage returns up to limit rows, fewer and full when the budget is spent.
func (s *Store) exportPage(ctx context.Context, request ExportRequest, limit int) (page []*DeadLetter, full bool, err error) {
	listed := scansListed()
	columns, scan := selectList, func(row pgx.CollectableRow) (*DeadLetter, error) {
		dl, err := listed(row)
		return &dl, err
	}
	if request.WithPayloads {
		columns, scan = selectWithPayloads, scanDeadLetter
	}
	text, args, err := s.listQuery(columns, request.Filter, Page{Cursor: request.Cursor, OldestFirst: request.OldestFirst})
	if err != nil {
		return nil, false, err
	}
	args["limit"] = limit
	err = s.inTx(ctx, beginRead+ownPlan, func(ctx context.Context, tx pgx.Tx) error {
		rows, err := tx.Query(ctx, text, args)
		if err != nil {
			return classify(err)
		}
		defer rows.Close()
		spent := 0
		for spent < exportBudget && rows.Next() {
			dl, err := scan(rows)
			if err != nil {
				return classify(err)
			}
			page, spent = append(page, dl), spent+dl.size()
		}
		full = spent >= exportBudget
		rows.Close()
		return classify(rows.Err())
	})
	return page, full, err
}

// size is about how many bytes the dead letter holds.
func (dl *DeadLetter) size() int {
	n := 1000 + len(dl.ErrorMessage) + len(dl.ErrorStack) + len(dl.Options) + len(dl.PayloadJSON)
	for _, wire := range [][]byte{dl.Payloads, dl.OptionsPayload, dl.Failure, dl.LastHeartbeatDetails, dl.Memo, dl.SearchAttributes, dl.Header, dl.UserMetadata} {
		n += len(wire)
	}
	return n
}

// CursorAfter returns the cursor from which a list, or an export, goes on behind a
// dead letter, in the same order.
func CursorAfter(dl *DeadLetter, oldestFirst bool) (string, error) { return cursorAt(dl, oldestFirst) }
