package deadletter

import "github.com/deadletter-dev/deadletter/job"

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
// "replay"; PurgeInput is that of the purge activity, EditInput
// and EditOutput those of the edit activity.
type (
	ReplayInput  = job.ReplayInput
	ReplayOutput = job.ReplayOutput
	PurgeInput   = job.PurgeInput
	EditInput    = job.EditInput
	EditOutput   = job.EditOutput
)
