package dlqstore

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deadletter-dev/deadletter/internal/text"
)

// EventFilter selects audit events: those that meet every field that is set. The
// zero value of a field asks nothing.
type EventFilter struct {
	Namespace  string
	WorkflowID string
	RunID      string
	Actor      string
	Verb       string // one of the Verb constants
	PlanID     string
	// Since is inclusive, Until exclusive.
	Since *time.Time
	Until *time.Time
}

// EventPage says which part of the audit to return.
type EventPage struct {
	// Cursor is what the call before returned as next; empty starts the list.
	Cursor string
	// Limit is the most events to return: 0 means 50, and 1000 is the maximum.
	Limit int
}

// The conditions. Each is written only when asked for, so that the planner sees
// which index serves it.
const (
	selectAudit = `
select` + eventColumns + `
from {schema}.events e`

	whereEventNamespace  = `e.namespace = @namespace`
	whereEventWorkflowID = `e.workflow_id = @workflow_id`
	whereEventRunID      = `e.run_id = @run_id`
	whereEventActor      = `e.actor = @actor`
	whereEventVerb       = `e.verb = @verb`
	// whereNoMove makes the index on verbs fit, which leaves moves out.
	whereNoMove      = `e.verb <> 'move'`
	whereEventPlan   = `e.plan_id = @plan_id`
	whereEventSince  = `e.at >= @since`
	whereEventUntil  = `e.at < @until`
	whereEventBefore = `e.id < @before_id`

	// newestEvent orders by id: one order without ties, which nothing that is
	// committed later changes for the pages behind it. Ids follow the order in which
	// events were written, times that in which their transactions began.
	newestEvent = "\norder by e.id desc" + limitRows
)

// ListEvents returns one page of the audit, the newest event first, and the cursor
// of the next page, empty after the last. Events outlive their dead letters.
func (s *Store) ListEvents(ctx context.Context, f EventFilter, page EventPage) (events []Event, next string, err error) {
	limit, err := Page{Limit: page.Limit}.limit()
	if err != nil {
		return nil, "", fmt.Errorf("events: %w", err)
	}
	query, args, err := s.eventsQuery(f, page)
	if err != nil {
		return nil, "", fmt.Errorf("events: %w", err)
	}
	args["limit"] = limit + 1 // one more tells whether there is a next page
	events, err = queryText(ctx, s, beginRead, query, args, scanEvent)
	if err != nil {
		return nil, "", fmt.Errorf("events: %w", err)
	}
	if len(events) <= limit {
		return events, "", nil
	}
	next, err = eventCursorAt(events[limit-1].ID)
	return events[:limit], next, err
}

func (s *Store) eventsQuery(f EventFilter, page EventPage) (string, pgx.NamedArgs, error) {
	var where []string
	args := pgx.NamedArgs{}
	add := func(condition, name string, value any) {
		where = append(where, condition)
		args[name] = value
	}
	for _, given := range []struct{ condition, name, value string }{
		{whereEventNamespace, "namespace", f.Namespace},
		{whereEventWorkflowID, "workflow_id", f.WorkflowID},
		{whereEventRunID, "run_id", f.RunID},
		{whereEventActor, "actor", f.Actor},
		{whereEventVerb, "verb", f.Verb},
		{whereEventPlan, "plan_id", f.PlanID},
	} {
		if given.value != "" {
			add(given.condition, given.name, text.Bounded(given.value, maxName)) // as it was stored
		}
	}
	if f.Verb != "" && f.Verb != VerbMove {
		where = append(where, whereNoMove)
	}
	if f.Since != nil {
		add(whereEventSince, "since", *f.Since)
	}
	if f.Until != nil {
		add(whereEventUntil, "until", *f.Until)
	}
	if page.Cursor != "" {
		before, err := parseEventCursor(page.Cursor)
		if err != nil {
			return "", nil, err
		}
		add(whereEventBefore, "before_id", before)
	}
	clause := ""
	if len(where) > 0 {
		clause = "\nwhere " + strings.Join(where, "\n\tand ")
	}
	return s.sql(selectAudit) + clause + newestEvent, args, nil
}

// eventCursor is the last event of a page. Callers hold it as opaque text.
type eventCursor struct {
	Version int   `json:"v"`
	ID      int64 `json:"e"`
}

func eventCursorAt(id int64) (string, error) {
	encoded, err := json.Marshal(eventCursor{Version: cursorVersion, ID: id})
	return base64.RawURLEncoding.EncodeToString(encoded), err
}

// parseEventCursor refuses whatever eventCursorAt did not write, a list's cursor
// too.
func parseEventCursor(cursor string) (int64, error) {
	var c eventCursor
	decoded, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil || json.Unmarshal(decoded, &c) != nil {
		return 0, fmt.Errorf("%w: it does not decode", ErrBadCursor)
	}
	if c.Version != cursorVersion {
		return 0, fmt.Errorf("%w: it is of version %d, this build reads %d", ErrBadCursor, c.Version, cursorVersion)
	}
	if c.ID <= 0 {
		return 0, fmt.Errorf("%w: it is no place in the audit", ErrBadCursor)
	}
	return c.ID, nil
}
