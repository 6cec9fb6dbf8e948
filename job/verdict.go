package job

import "encoding/json"

// Snooze is the first detail of an application error of type SnoozeErrorType:
// run the job again later, free of charge.
type Snooze struct {
	// Delay is a duration string.
	Delay  string `json:"delay"`
	Reason string `json:"reason,omitempty"`
}

// Throttle is the first detail of an application error of type
// ThrottledErrorType: the attempt counts, and the next waits that long.
type Throttle struct {
	// RetryAfter is a duration string.
	RetryAfter string `json:"retry_after"`
}

// IsFree reports whether failures of the type cost no attempt.
func IsFree(errorType string) bool {
	switch errorType {
	case SnoozeErrorType, CircuitOpenErrorType, WorkerShutdownErrorType:
		return true
	default:
		return false
	}
}

// FreeErrorTypes are those of IsFree.
func FreeErrorTypes() []string {
	return []string{SnoozeErrorType, CircuitOpenErrorType, WorkerShutdownErrorType}
}

// ParseTrailer reads a trailer from JSON; false for anything else.
func ParseTrailer(data []byte) (Trailer, bool) {
	var t Trailer
	if json.Unmarshal(data, &t) != nil || t.Version != TrailerVersion {
		return Trailer{}, false
	}
	return t, true
}
