package dlqstore

import "testing"

// EventsQuery returns the statement of a page of the audit and its arguments.
func (s *Store) EventsQuery(f EventFilter, page EventPage) (string, map[string]any, error) {
	text, args, err := s.eventsQuery(f, page)
	return text, args, err
}

// EventCursor is the cursor behind an event.
func EventCursor(t *testing.T, id int64) string {
	t.Helper()
	cursor, err := eventCursorAt(id)
	if err != nil {
		t.Fatal(err)
	}
	return cursor
}
