package job

import (
	"slices"
	"time"
)

// Headers under which the job's workflow and the interceptor around its handler
// talk to each other, in plain JSON whatever codec there is.
const (
	// PlanHeader holds a Plan, on the handler's activity.
	PlanHeader = "deadletter.plan"
	// CarriedHeader holds a Carried, on a job that continued as new.
	CarriedHeader = "deadletter.carried"
)

// Plan tells the interceptor what the server's retry policy cannot hold.
type Plan struct {
	// Charged counts the attempts of earlier executions of the handler.
	Charged        int           `json:"charged"`
	MaxDelay       time.Duration `json:"max_delay_ns"`
	JitterMaxDelay time.Duration `json:"jitter_max_delay_ns"`
}

// Carried is what a job takes along when it continues as new.
type Carried struct {
	Charged int `json:"charged"`
	// Created is when the first run started, Due when the job was due.
	Created time.Time `json:"created"`
	Due     time.Time `json:"due"`
	// Attempts are those of earlier runs, without their messages.
	Attempts []AttemptRecord `json:"attempts,omitempty"`
	Unknown  UnknownType     `json:"unknown_type,omitzero"`
}

// UnknownType is how often in a row, and since when, workers did not know the type of
// a job. Zero means that the last one did.
type UnknownType struct {
	Since time.Time `json:"since"`
	Tries int       `json:"tries"`
}

// AttemptRecord is one attempt as its worker saw it.
type AttemptRecord struct {
	Attempt  int       `json:"n"`
	Started  time.Time `json:"started"`
	Ended    time.Time `json:"ended"`
	Identity string    `json:"identity,omitempty"`
	Type     string    `json:"type,omitempty"`
	Message  string    `json:"message,omitempty"`
	// Wait is the delay until the next attempt, nil when none followed or it is
	// not known.
	Wait *time.Duration `json:"wait_ns,omitempty"`
}

// Bounds of a log: it travels with heartbeats and failures.
const (
	maxRecords = 50
	// MaxRecordText bounds the message of one record, in bytes.
	MaxRecordText = 400
)

// AddRecord appends to a log, and bounds it: the first tenth and the latest stay.
func AddRecord(log []AttemptRecord, records ...AttemptRecord) []AttemptRecord {
	log = append(slices.Clone(log), records...)
	if over := len(log) - maxRecords; over > 0 {
		log = slices.Delete(log, maxRecords/10, maxRecords/10+over)
	}
	return log
}

// TrailerVersion marks our own values among those of a handler.
const TrailerVersion = 1

// Trailer is the last detail of a handler's failure, and the first of its
// heartbeats: what the interceptor tells the workflow, the terminal activity, and
// the interceptor of the next attempt.
type Trailer struct {
	// Version is TrailerVersion.
	Version int `json:"deadletter"`
	// Attempt is the number of the attempt within its execution.
	Attempt int `json:"attempt,omitempty"`
	// Attempts is the log of this execution.
	Attempts []AttemptRecord `json:"attempts,omitempty"`
	// Heartbeat is the handler's own last heartbeat, a marshalled Payloads.
	Heartbeat []byte `json:"heartbeat,omitempty"`
}
