package job

// Outcome is how a replayed job ended: a closed set.
type Outcome string

// The outcomes. A refused replay never started a job.
const (
	OutcomeSucceeded    Outcome = "succeeded"
	OutcomeDeadLettered Outcome = "dead_lettered"
	OutcomeCancelled    Outcome = "cancelled"
	OutcomeRefused      Outcome = "refused"
)

// SettleInput is what a replayed or reset job tells the store when it leaves no
// dead letter of its own.
type SettleInput struct {
	Outcome Outcome `json:"outcome"`
	// Replayed is true for a job that a replay started.
	Replayed bool `json:"replayed"`
	// FirstRunID is the run that enqueue, or the replay, returned.
	FirstRunID string `json:"first_run_id"`
}
