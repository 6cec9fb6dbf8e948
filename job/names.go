package job

// The names on the wire. Histories, other SDKs and scripts hold them, so they
// are never derived from Go identifiers and never changed.
const (
	// WorkflowType is the workflow type of every job.
	WorkflowType = "deadletter.Job"
	// OperatorWorkflowType is the type of the long-lived operator workflow.
	OperatorWorkflowType = "deadletter.Operator"
	// BacklogWorkflowType carries out requests that the operator workflow has accepted
	// and not finished when its run ended; see Backlog.
	BacklogWorkflowType = "deadletter.Backlog"
	// OperatorWorkflowID is the workflow id of its one instance in a namespace.
	OperatorWorkflowID = "deadletter-operator"

	// SweepWorkflowType is the workflow that finds jobs which closed without a dead letter.
	SweepWorkflowType = "deadletter.Sweep"
	// SweepScheduleID is the schedule that starts it, one in a namespace.
	SweepScheduleID = "deadletter-sweep"

	// BulkWorkflowType is the workflow that applies a plan; see BulkInput.
	BulkWorkflowType = "deadletter.BulkOperation"
	// The signals of a bulk operation, each with a BulkControl.
	BulkPauseMessage  = "pause"
	BulkResumeMessage = "resume"
	BulkCancelMessage = "cancel"
	// BulkProgressQuery answers with a BulkProgress.
	BulkProgressQuery = "progress"
	// BulkBeginActivityType lets an operation begin; see BulkPlan.
	BulkBeginActivityType = "deadletter.BulkBegin"
	// BulkStepActivityType is one stretch of an operation; see BulkStep.
	BulkStepActivityType = "deadletter.BulkStep"
	// BulkWatchActivityType waits for the outcomes of replays; see BulkOutcomes.
	BulkWatchActivityType = "deadletter.BulkWatch"
	// BulkMarkActivityType notes where an operation stands; see BulkMark.
	BulkMarkActivityType = "deadletter.BulkMark"
	// RetentionWorkflowType is the workflow that prunes what retention policies say.
	RetentionWorkflowType = "deadletter.Retention"
	// RetentionScheduleID is the schedule that starts it, one in a namespace.
	RetentionScheduleID = "deadletter-retention"

	// DefaultTaskQueue is the task queue of the dead-letter activities.
	DefaultTaskQueue = "deadletter"

	// MoveActivityType writes a dead letter; only deadletter.Job schedules it.
	MoveActivityType = "deadletter.Move"
	// ReplayActivityType replays one dead letter; see ReplayInput.
	ReplayActivityType = "deadletter.Replay"
	// PurgeActivityType purges one dead letter; see PurgeInput.
	PurgeActivityType = "deadletter.Purge"
	// EditActivityType edits one dead letter; see EditInput.
	EditActivityType = "deadletter.Edit"
	// PlanActivityType makes a plan; see PlanInput.
	PlanActivityType = "deadletter.Plan"
	// NoteActivityType keeps a note; see NoteInput.
	NoteActivityType = "deadletter.Note"
	// PinActivityType pins and unpins; see PinInput.
	PinActivityType = "deadletter.Pin"
	// RefuseActivityType writes the event of a request that is refused; see RefuseInput.
	RefuseActivityType = "deadletter.Refuse"
	// SettleActivityType notes how a replayed or reset job ended.
	SettleActivityType = "deadletter.Settle"
	// SweepPageActivityType is one stretch of a sweep; see SweepState.
	SweepPageActivityType = "deadletter.SweepPage"
	// PruneActivityType is one stretch of a retention run; see PruneOutput.
	PruneActivityType = "deadletter.Prune"
	// StartDelayActivityType is a local activity of the job's own worker that
	// reads the job's start delay from its history.
	StartDelayActivityType = "deadletter.StartDelay"

	// AttemptActivityType is a local activity of the job's own worker that reads the
	// number of an attempt from the job's history.
	AttemptActivityType = "deadletter.Attempt"

	// The operator workflow's signals and updates: see ReplayInput, PurgeInput,
	// EditInput, PlanInput, NoteInput and PinInput.
	ReplayMessage = "replay"
	PurgeMessage  = "purge"
	EditMessage   = "edit"
	PlanMessage   = "plan"
	NoteMessage   = "note"
	PinMessage    = "pin"

	// RetryNowSignal tells a job not to wait any longer: it ends a snooze, the wait
	// after a refusal by a circuit breaker and, sent as signal-with-start, a start
	// delay. One that comes while the handler runs ends the wait that may follow. It
	// has no argument.
	RetryNowSignal = "retry_now"

	// LineageMemoKey is the memo field of a replayed job that holds its Lineage.
	LineageMemoKey = "deadletter.lineage"
)

// IsOwnActivity reports whether a job runs the activity type itself, beside its
// handler.
func IsOwnActivity(activityType string) bool {
	switch activityType {
	case MoveActivityType, SettleActivityType, StartDelayActivityType, AttemptActivityType:
		return true
	default:
		return false
	}
}

// Types of the application errors that the project itself raises.
const (
	// FatalErrorType marks a failure that no retry will mend.
	FatalErrorType = "deadletter.Fatal"
	// ThrottledErrorType marks a failure by which a callee asks for patience: it
	// costs an attempt, and its first detail, a Throttle, says how long to wait.
	ThrottledErrorType = "deadletter.Throttled"
	// SnoozeErrorType asks to run the job later, free of charge; see Snooze.
	SnoozeErrorType = "deadletter.Snooze"
	// CircuitOpenErrorType is the refusal of an open circuit breaker, free of charge.
	CircuitOpenErrorType = "deadletter.CircuitOpen"
	// WorkerShutdownErrorType: a stopping worker interrupted the handler, free of charge.
	WorkerShutdownErrorType = "deadletter.WorkerShutdown"
	// DeadLetteredErrorType is what a dead-lettered job fails with.
	DeadLetteredErrorType = "deadletter.DeadLettered"
	// InvalidJobErrorType marks a job whose options or arguments were refused.
	InvalidJobErrorType = "deadletter.InvalidJob"
	// NotFoundErrorType: no dead letter has the key.
	NotFoundErrorType = "deadletter.NotFound"
	// AmbiguousErrorType: several runs of the workflow id are dead letters.
	AmbiguousErrorType = "deadletter.Ambiguous"
	// ConflictErrorType: the dead letter was edited since the caller saw it.
	ConflictErrorType = "deadletter.Conflict"
	// RefusedErrorType: the request cannot be done, now or later.
	RefusedErrorType = "deadletter.Refused"
	// HandedOverErrorType: the operator workflow goes on in a new run, and has taken the
	// request along. The same update, sent again, gets the answer.
	HandedOverErrorType = "deadletter.HandedOver"
)

// MaxArguments is how many handler arguments a job can carry.
const MaxArguments = 8

// MaxDetails is how many values of a handler's own heartbeat or failure are kept
// beside ours.
const MaxDetails = 16
