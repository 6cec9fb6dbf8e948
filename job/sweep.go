package job

import "time"

// SweepState is where a sweep stands: the argument of a sweep that goes on as a
// new run, what each activity deadletter.SweepPage takes and returns, and the
// sweep's result. The zero value, or no argument, is a fresh sweep.
type SweepState struct {
	// Until is when the sweep began, by the server's clock.
	Until time.Time `json:"until"`
	// From is the oldest close time that is looked at, nil for all that the
	// namespace retains. It is set with Begun.
	From  *time.Time `json:"from,omitempty"`
	Begun bool       `json:"begun"`
	// PageToken is the server's place in the list.
	PageToken []byte `json:"page_token,omitempty"`
	Done      bool   `json:"done"`

	// Every is how long the workflow waits until it sweeps again, as its schedule says;
	// zero for one that ends after this sweep.
	Every time.Duration `json:"every,omitempty"`
	// Again is true of a sweep that another one in the same workflow went before.
	Again bool `json:"again,omitempty"`

	// Moved counts the dead letters that were written, without those of an activity
	// that was killed.
	Moved int `json:"moved"`
	// Left counts the jobs that could not be written; later sweeps try them again.
	Left int `json:"left"`
	// OldestLeft is the earliest close time among those that a sweep of an earlier
	// build has left without a note in the database: it holds the watermark.
	OldestLeft *time.Time `json:"oldest_left,omitempty"`
	// LastError is why the latest of them was left.
	LastError string `json:"last_error,omitempty"`
}
