package deadletter

import (
	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/job"
)

// Names on the wire, for starts that do not go through Enqueue.
const (
	// WorkflowType is the workflow type of a job. Its first argument is a JobOptions.
	WorkflowType = job.WorkflowType
	// DefaultTaskQueue is where the dead-letter activities are served by default.
	DefaultTaskQueue = job.DefaultTaskQueue
	// OperatorWorkflowID is the workflow that takes signals and updates.
	OperatorWorkflowID = job.OperatorWorkflowID
	// ReplayActivityType is the activity by which a workflow replays a dead letter.
	ReplayActivityType = job.ReplayActivityType
	// PurgeActivityType is the activity by which a workflow purges one.
	PurgeActivityType = job.PurgeActivityType
	// EditActivityType is the activity by which a workflow edits one, and replays it.
	EditActivityType = job.EditActivityType
	// PlanActivityType is the activity by which a workflow plans what to do with many.
	PlanActivityType = job.PlanActivityType
	// NoteActivityType is the activity by which a workflow leaves a note on one.
	NoteActivityType = job.NoteActivityType
	// PinActivityType is the activity by which a workflow pins one, or unpins it.
	PinActivityType = job.PinActivityType
	// MaxArguments is how many arguments a handler can get.
	MaxArguments = job.MaxArguments
)

// Policy says how a job is retried and when automatic execution stops. The zero
// value takes every default.
type Policy = job.Policy

// JobOptions is the first argument of a job's workflow: what Enqueue makes of a Job.
type JobOptions = job.Options

// Reason says why a job is dead.
type Reason = job.Reason

// ReplayInput and ReplayOutput are the messages of signal, update and activity
// "replay", and the others those of "purge", "edit", "plan", "note" and "pin".
type (
	ReplayInput  = job.ReplayInput
	ReplayOutput = job.ReplayOutput
	PurgeInput   = job.PurgeInput
	EditInput    = job.EditInput
	EditOutput   = job.EditOutput
	PlanInput    = job.PlanInput
	NoteInput    = job.NoteInput
	PinInput     = job.PinInput
	// Plan is what the update and the activity "plan" return.
	Plan = dlqstore.Plan
	// BulkInput starts workflow deadletter.BulkOperation, which applies a plan.
	BulkInput = job.BulkInput
)
