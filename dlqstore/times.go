package dlqstore

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"
)

// timeForms are those in which the project's own output writes a time.
var timeForms = []string{time.RFC3339, "2006-01-02 15:04:05Z07:00", "2006-01-02 15:04Z07:00"}

// ParseTime reads a time as the tools of this project print it: 2026-01-31T10:00:00Z,
// 2026-01-31 10:00:00Z or 2026-01-31 10:00Z. Another time zone, such as +02:00, may
// stand in the place of Z, and a fraction behind the seconds.
func ParseTime(text string) (time.Time, error) {
	for _, form := range timeForms {
		if at, err := time.Parse(form, text); err == nil {
			return at, nil
		}
	}
	return time.Time{}, fmt.Errorf("%q is not a time such as 2026-01-31T10:00:00Z or 2026-01-31 10:00:00Z", text)
}

// filterTime is a time in the JSON of a filter.
type filterTime time.Time

// UnmarshalJSON reads a string by ParseTime.
func (t *filterTime) UnmarshalJSON(data []byte) error {
	if bytes.Equal(data, []byte("null")) {
		return nil
	}
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		return err
	}
	at, err := ParseTime(text)
	*t = filterTime(at)
	return err
}

// readFilter is Filter's JSON as it is read.
type readFilter struct {
	plainFilter
	DeadAfter      *filterTime `json:"dead_after"`
	DeadBefore     *filterTime `json:"dead_before"`
	EnqueuedAfter  *filterTime `json:"enqueued_after"`
	EnqueuedBefore *filterTime `json:"enqueued_before"`
}

func (r readFilter) filter() Filter {
	f := Filter(r.plainFilter)
	f.DeadAfter, f.DeadBefore = (*time.Time)(r.DeadAfter), (*time.Time)(r.DeadBefore)
	f.EnqueuedAfter, f.EnqueuedBefore = (*time.Time)(r.EnqueuedAfter), (*time.Time)(r.EnqueuedBefore)
	return f
}
