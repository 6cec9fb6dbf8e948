package dlqstore

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deadletter-dev/deadletter/job"
)

// DeadLetter is one row of table dead_letters. Its JSON has the columns' names;
// columns that hold wire bytes are not in it. Times have microseconds and are in
// UTC when read.
type DeadLetter struct {
	Key
	// FirstRunID is the run that enqueue returned, the same as RunID unless the
	// job continued as new.
	FirstRunID string `json:"first_run_id"`
	JobType    string `json:"job_type"`
	// TaskQueue is the handler's; WorkflowTaskQueue is the job workflow's own.
	TaskQueue         string     `json:"task_queue"`
	WorkflowTaskQueue string     `json:"workflow_task_queue"`
	Reason            job.Reason `json:"reason"`
	// Attempts is how many attempts were charged, nil when unknown.
	Attempts *int `json:"attempts"`
	// MaxAttempts is the policy's budget, nil for no limit. A move stores a
	// negative one as nil.
	MaxAttempts  *int   `json:"max_attempts"`
	ErrorType    string `json:"error_type"`
	ErrorMessage string `json:"error_message"` // at most MaxErrorMessage bytes
	ErrorStack   string `json:"error_stack"`   // at most MaxErrorStack bytes
	RetryState   string `json:"retry_state"`
	// Tags is never nil when read.
	Tags map[string]string `json:"tags"`
	// Options is the job's options object, nil when it is not readable.
	Options json.RawMessage `json:"options"`
	// PayloadJSON is an array of the handler's arguments, nil when they are not
	// readable. Postgres keeps every number's digits and normalises the rest
	// (spaces, order of keys); Payloads is the exact copy.
	PayloadJSON json.RawMessage `json:"payload_json"`
	// Priority is an object, {} by default.
	Priority               json.RawMessage `json:"priority"`
	WorkerIdentity         string          `json:"worker_identity"`
	EnqueuedAt             *time.Time      `json:"enqueued_at"`
	FirstAttemptAt         *time.Time      `json:"first_attempt_at"`
	LastAttemptAt          *time.Time      `json:"last_attempt_at"`
	DeadAt                 time.Time       `json:"dead_at"` // zero in a move means now
	ResurrectionCount      int             `json:"resurrection_count"`
	LastResurrectionAt     *time.Time      `json:"last_resurrection_at"`
	Generation             int             `json:"generation"`
	ReplayedFromWorkflowID *string         `json:"replayed_from_workflow_id"` // nil for an original job
	ReplayedFromRunID      *string         `json:"replayed_from_run_id"`
	Fingerprint            string          `json:"fingerprint"`
	Revision               int             `json:"revision"` // 1 when moved
	SupersededAt           *time.Time      `json:"superseded_at"`
	SupersededByRunID      *string         `json:"superseded_by_run_id"`
	// Pinned keeps it from every retention policy; by whom and since when.
	Pinned   bool       `json:"pinned"`
	PinnedBy *string    `json:"pinned_by"`
	PinnedAt *time.Time `json:"pinned_at"`

	// The bytes of the wire; List leaves them out.

	// Payloads is the handler's arguments, a temporal.api.common.v1.Payloads.
	Payloads []byte `json:"-"`
	// OptionsPayload is the workflow's first argument, a Payload.
	OptionsPayload []byte `json:"-"`
	// Failure is the final failure, a temporal.api.failure.v1.Failure.
	Failure []byte `json:"-"`
	// LastHeartbeatDetails is a Payloads.
	LastHeartbeatDetails []byte `json:"-"`
	// Memo, SearchAttributes, Header and UserMetadata are the messages of the
	// job's start event.
	Memo             []byte `json:"-"`
	SearchAttributes []byte `json:"-"`
	Header           []byte `json:"-"`
	UserMetadata     []byte `json:"-"`
}

// Attempt is one attempt of a dead job, counted from 1.
type Attempt struct {
	Attempt        int        `json:"attempt"`
	StartedAt      *time.Time `json:"started_at"`
	EndedAt        *time.Time `json:"ended_at"`
	WorkerIdentity string     `json:"worker_identity"`
	ErrorType      string     `json:"error_type"`
	ErrorMessage   string     `json:"error_message"` // bounded like a dead letter's
	ErrorStack     string     `json:"error_stack"`
	// Wait is the delay between this attempt and the next, nil when there was
	// none or it is unknown. Stored, and written in JSON, as wait_ms.
	Wait *time.Duration `json:"-"`
}

// plainAttempt is Attempt without its methods.
type plainAttempt Attempt

type wireAttempt struct {
	plainAttempt
	WaitMS *int64 `json:"wait_ms"`
}

// MarshalJSON writes the columns' names.
func (a Attempt) MarshalJSON() ([]byte, error) {
	return json.Marshal(wireAttempt{plainAttempt(a), milliseconds(a.Wait)})
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (a *Attempt) UnmarshalJSON(data []byte) error {
	var w wireAttempt
	if err := json.Unmarshal(data, &w); err != nil {
		return err
	}
	*a = Attempt(w.plainAttempt)
	a.Wait = duration(w.WaitMS)
	return nil
}

func milliseconds(d *time.Duration) *int64 {
	if d == nil {
		return nil
	}
	ms := d.Milliseconds()
	return &ms
}

func duration(ms *int64) *time.Duration {
	if ms == nil {
		return nil
	}
	d := time.Duration(*ms) * time.Millisecond
	return &d
}

// Replay is one row of table replays: a request to start a job anew, and what
// came of it. It outlives the dead letter, whose key it carries.
type Replay struct {
	Key
	RequestID     string `json:"request_id"`
	NewWorkflowID string `json:"new_workflow_id"`
	// NewRunID is nil until Temporal confirmed the start.
	NewRunID    *string    `json:"new_run_id"`
	Actor       string     `json:"actor"`
	RequestedAt time.Time  `json:"requested_at"`
	StartedAt   *time.Time `json:"started_at"` // when the start was confirmed
	// Status is the last live status seen of the new job.
	Status *job.Status `json:"status"`
	// Outcome is how the new job ended, nil while it has not.
	Outcome *job.Outcome `json:"outcome"`
	// SameFingerprint says of a job that died again whether it died of the same cause.
	SameFingerprint *bool      `json:"same_fingerprint"`
	Error           *string    `json:"error"` // why it was refused
	FinishedAt      *time.Time `json:"finished_at"`
	// Revision is that of the dead letter which the new job was started from, also
	// when it was edited since; nil for a replay from before there were any.
	Revision *int `json:"revision"`
}

// The verbs of events.
const (
	VerbMove          = "move"
	VerbReplay        = "replay"
	VerbReplayRefused = "replay_refused"
	VerbPurge         = "purge"
	VerbPurgeRefused  = "purge_refused"
	VerbEdit          = "edit"
	VerbEditRefused   = "edit_refused"
	VerbNote          = "note"
	VerbNoteRefused   = "note_refused"
	VerbSettle        = "settle"    // the outcome of a replay became known
	VerbSupersede     = "supersede" // the job, reset by a person, succeeded after all

	// Of plans as a whole.
	VerbPlan   = "plan"
	VerbApply  = "apply"
	VerbPause  = "pause"
	VerbResume = "resume"
	VerbFinish = "finish"
	VerbCancel = "cancel"
	VerbStop   = "stop"
	VerbPrune  = "prune" // removed by a retention policy
	VerbPin    = "pin"
	VerbUnpin  = "unpin"

	VerbRetentionSet    = "retention_set"
	VerbRetentionRemove = "retention_remove"

	// Of a live job; what was refused has verb …_refused.
	VerbJobRetryNow        = "job_retry_now"
	VerbJobRetryNowRefused = "job_retry_now_refused"
	VerbJobCancel          = "job_cancel"
	VerbJobCancelRefused   = "job_cancel_refused"
)

// Event is one row of table events: who did what to a dead letter, and when. One
// that is not of one dead letter has an empty workflow id and run id.
type Event struct {
	Key
	ID        int64           `json:"id"`
	Verb      string          `json:"verb"`
	Actor     string          `json:"actor"`
	At        time.Time       `json:"at"`
	RequestID *string         `json:"request_id"`
	PlanID    *string         `json:"plan_id"` // nil outside of plans
	Detail    json.RawMessage `json:"detail"`
}

// Hook runs inside the transaction of a move, after the rows are written: what
// it writes through tx becomes visible exactly when the dead letter does, and an
// error from it undoes both. It gets the dead letter as stored, and runs once per
// job that is moved, but again after each failed try. Its statements have the search
// path of the role, the database or the URL, whatever the store's own statements have.
type Hook func(ctx context.Context, tx pgx.Tx, dl *DeadLetter) error
