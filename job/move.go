package job

import "time"

// MoveInput is what a dying job tells its terminal activity. It is small by
// construction and encoded as plain JSON whatever codec the job uses, so it
// holds no argument and no handler's error text: the activity reads those, as
// the wire held them, from the job's own history.
type MoveInput struct {
	Reason    Reason            `json:"reason"`
	JobType   string            `json:"job_type"`
	TaskQueue string            `json:"task_queue"`
	Policy    Policy            `json:"policy"`
	Tags      map[string]string `json:"tags,omitempty"`
	Lineage   Lineage           `json:"lineage"`
	// OptionsReadable is false when the options object could not be understood;
	// the fields above then hold what could.
	OptionsReadable bool `json:"options_readable"`
	// Created is when the job's first run started.
	Created time.Time `json:"created"`
	// Charged counts the attempts of earlier activity executions of this job.
	Charged int `json:"charged"`
	// Log has the attempts as their workers saw them, without their messages, as
	// far as the workflow knows them.
	Log []AttemptRecord `json:"log,omitempty"`
	// Note is what the workflow adds to the last error, in our own words.
	Note string `json:"note,omitempty"`
	// ScheduledEventID names the handler's last activity execution in the history,
	// 0 when none was scheduled. StartedEventID is 0 when the history does not
	// hold the start of its last attempt.
	ScheduledEventID int64 `json:"scheduled_event_id,omitempty"`
	StartedEventID   int64 `json:"started_event_id,omitempty"`
	// Attempts is the count of all attempts where the workflow knows it.
	Attempts *int `json:"attempts,omitempty"`
	// Fault is what the dead letter says where the history has no failure.
	Fault *Fault `json:"fault,omitempty"`
}

// Fault is the error of a job that no handler failed: refused, cancelled or too
// old before any attempt. It is our own words, bounded.
type Fault struct {
	Type    string `json:"type"`
	Message string `json:"message"`
}

// MoveResult is what the terminal activity found out on the way.
type MoveResult struct {
	// Moved is false in a result that is not the activity's own: anybody can
	// complete a pending activity.
	Moved bool `json:"moved"`
	// Attempts is the dead letter's count, nil when unknown.
	Attempts *int `json:"attempts,omitempty"`
}

// DeadLettered is the detail of the error, of type DeadLetteredErrorType, that a
// dead-lettered job fails with.
type DeadLettered struct {
	Reason Reason `json:"reason"`
	// Attempts is nil when unknown.
	Attempts *int `json:"attempts,omitempty"`
}
