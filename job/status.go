package job

import (
	"database/sql/driver"
	"fmt"
)

// Status is where a live job stands. A dead letter is a row in Postgres, never
// a status: everything here that parses or writes one refuses "dead_letter".
type Status string

// The statuses.
const (
	StatusQueued     Status = "queued"     // waits for a worker, or for its next attempt
	StatusProcessing Status = "processing" // an attempt is running
	StatusDone       Status = "done"       // completed
	StatusCancelled  Status = "cancelled"  // cancelled, without a dead letter
)

// ParseStatus returns the status with that exact text. "dead_letter", like any
// other text outside the set, is an error.
func ParseStatus(text string) (Status, error) {
	switch s := Status(text); s {
	case StatusQueued, StatusProcessing, StatusDone, StatusCancelled:
		return s, nil
	case "dead_letter":
		return "", fmt.Errorf("job: dead_letter is not a status: a dead letter is a row of its own, not a live job; use queued, processing, done or cancelled")
	default:
		return "", fmt.Errorf("job: %q is not a status; use queued, processing, done or cancelled", text)
	}
}

// MarshalText writes the status, and refuses one outside the set.
func (s Status) MarshalText() ([]byte, error) {
	parsed, err := ParseStatus(string(s))
	return []byte(parsed), err
}

// UnmarshalText reads a status, and refuses one outside the set.
func (s *Status) UnmarshalText(text []byte) error {
	parsed, err := ParseStatus(string(text))
	if err != nil {
		return err
	}
	*s = parsed
	return nil
}

// Value writes the status to a database, and refuses one outside the set.
func (s Status) Value() (driver.Value, error) {
	parsed, err := ParseStatus(string(s))
	return string(parsed), err
}

// Scan reads a status from a database, and refuses one outside the set.
func (s *Status) Scan(src any) error {
	switch v := src.(type) {
	case string:
		return s.UnmarshalText([]byte(v))
	case []byte:
		return s.UnmarshalText(v)
	default:
		return fmt.Errorf("job: cannot read a status from %T", src)
	}
}
