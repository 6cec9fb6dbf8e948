package dlqstore

import (
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"
)

// The columns of table dead_letters in the order of scanDeadLetter: those of a
// list, and those with the wire's bytes.
const (
	listColumns = `
	d.namespace, d.workflow_id, d.run_id, d.first_run_id, d.job_type, d.task_queue, d.workflow_task_queue,
	d.reason, d.attempts, d.max_attempts, d.error_type, d.error_message, d.error_stack, d.retry_state,
	d.tags, d.options, d.payload_json, d.priority, d.worker_identity,
	d.enqueued_at, d.first_attempt_at, d.last_attempt_at, d.dead_at, d.resurrection_count, d.last_resurrection_at,
	d.generation, d.replayed_from_workflow_id, d.replayed_from_run_id, d.fingerprint, d.revision,
	d.superseded_at, d.superseded_by_run_id, d.pinned, d.pinned_by, d.pinned_at`
	wireColumns = `
	d.payloads, d.options_payload, d.failure, d.last_heartbeat_details,
	d.memo, d.search_attributes, d.header, d.user_metadata`
	replayColumns = `
	r.request_id, r.namespace, r.workflow_id, r.run_id, r.new_workflow_id, r.new_run_id, r.actor,
	r.requested_at, r.started_at, r.status::text, r.outcome, r.same_fingerprint, r.error, r.finished_at, r.revision`
)

func (dl *DeadLetter) listTargets() []any {
	return []any{
		&dl.Namespace, &dl.WorkflowID, &dl.RunID, &dl.FirstRunID, &dl.JobType, &dl.TaskQueue, &dl.WorkflowTaskQueue,
		&dl.Reason, &dl.Attempts, &dl.MaxAttempts, &dl.ErrorType, &dl.ErrorMessage, &dl.ErrorStack, &dl.RetryState,
		&dl.Tags, raw(&dl.Options), raw(&dl.PayloadJSON), raw(&dl.Priority), &dl.WorkerIdentity,
		&dl.EnqueuedAt, &dl.FirstAttemptAt, &dl.LastAttemptAt, &dl.DeadAt, &dl.ResurrectionCount, &dl.LastResurrectionAt,
		&dl.Generation, &dl.ReplayedFromWorkflowID, &dl.ReplayedFromRunID, &dl.Fingerprint, &dl.Revision,
		&dl.SupersededAt, &dl.SupersededByRunID, &dl.Pinned, &dl.PinnedBy, &dl.PinnedAt,
	}
}

// raw has JSON taken as it comes. Postgres has checked it, and the driver would parse
// it again, which is a third of what a page of a list costs in this process.
func raw(message *json.RawMessage) *[]byte { return (*[]byte)(message) }

func (dl *DeadLetter) wireTargets() []any {
	return []any{
		&dl.Payloads, &dl.OptionsPayload, &dl.Failure, &dl.LastHeartbeatDetails,
		&dl.Memo, &dl.SearchAttributes, &dl.Header, &dl.UserMetadata,
	}
}

func (r *Replay) targets() []any {
	return []any{
		&r.RequestID, &r.Namespace, &r.WorkflowID, &r.RunID, &r.NewWorkflowID, &r.NewRunID, &r.Actor,
		&r.RequestedAt, &r.StartedAt, &r.Status, &r.Outcome, &r.SameFingerprint, &r.Error, &r.FinishedAt, &r.Revision,
	}
}

func (dl *DeadLetter) inUTC() {
	utc(&dl.DeadAt, dl.EnqueuedAt, dl.FirstAttemptAt, dl.LastAttemptAt, dl.LastResurrectionAt, dl.SupersededAt, dl.PinnedAt)
}

func (r *Replay) inUTC() { utc(&r.RequestedAt, r.StartedAt, r.FinishedAt) }

func utc(times ...*time.Time) {
	for _, t := range times {
		if t != nil {
			*t = t.UTC()
		}
	}
}

// scansListed returns what scans the rows of one list, one by one. Lists are long, so
// the rows share what it allocates.
func scansListed() pgx.RowToFunc[DeadLetter] {
	var dl DeadLetter
	targets := dl.listTargets()
	return func(row pgx.CollectableRow) (DeadLetter, error) {
		dl = DeadLetter{}
		err := row.Scan(targets...)
		dl.inUTC()
		return dl, err
	}
}

func scanDeadLetter(row pgx.CollectableRow) (*DeadLetter, error) {
	dl := new(DeadLetter)
	err := row.Scan(append(dl.listTargets(), dl.wireTargets()...)...)
	dl.inUTC()
	return dl, err
}

func scanReplay(row pgx.CollectableRow) (Replay, error) {
	var r Replay
	err := row.Scan(r.targets()...)
	r.inUTC()
	return r, err
}

func scanAttempt(row pgx.CollectableRow) (Attempt, error) {
	var a Attempt
	var waitMS *int64
	err := row.Scan(&a.Attempt, &a.StartedAt, &a.EndedAt, &a.WorkerIdentity, &a.ErrorType, &a.ErrorMessage, &a.ErrorStack, &waitMS)
	a.Wait = duration(waitMS)
	utc(a.StartedAt, a.EndedAt)
	return a, err
}

func scanEvent(row pgx.CollectableRow) (Event, error) {
	var e Event
	err := row.Scan(&e.ID, &e.Verb, &e.Actor, &e.At, &e.Namespace, &e.WorkflowID, &e.RunID, &e.RequestID, &e.PlanID, &e.Detail)
	utc(&e.At)
	return e, err
}

func scanStart(row pgx.CollectableRow) (ReplayStart, error) {
	var replay Replay
	dl := new(DeadLetter)
	targets := append(replay.targets(), dl.listTargets()...)
	err := row.Scan(append(targets, dl.wireTargets()...)...)
	replay.inUTC()
	dl.inUTC()
	return ReplayStart{Replay: replay, DeadLetter: dl}, err
}
