package dlqstore

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/deadletter-dev/deadletter/internal/text"
	"github.com/deadletter-dev/deadletter/job"
)

const (
	// settleReplay confirms the start too: a job that has ended has started,
	// whatever became of the process that started it. The first outcome stays.
	settleReplay = `
update {schema}.replays r
set outcome = @outcome, finished_at = now(), status = @status::{schema}.job_status,
	new_run_id = coalesce(r.new_run_id, @first_run_id), started_at = coalesce(r.started_at, now()),
	same_fingerprint = (
		select d.fingerprint = @fingerprint from {schema}.dead_letters d
		where (d.namespace, d.workflow_id, d.run_id) = (r.namespace, r.workflow_id, r.run_id) and @fingerprint <> ''
	)
where r.namespace = @namespace and r.new_workflow_id = @workflow_id and r.outcome is null
returning r.workflow_id, r.run_id, r.request_id`

	insertSettleEvent = `
insert into {schema}.events (verb, actor, namespace, workflow_id, run_id, request_id, detail)
values ('settle', @actor, @namespace, @workflow_id, @run_id, @request_id, @detail::jsonb)`

	// supersedeDeadLetters marks the dead letters of earlier runs of a job that a
	// person reset, and that then succeeded.
	supersedeDeadLetters = `
with superseded as (
	update {schema}.dead_letters
	set superseded_at = now(), superseded_by_run_id = @run_id
	where namespace = @namespace and workflow_id = @workflow_id and first_run_id = @first_run_id
		and run_id <> @run_id and superseded_at is null
	returning run_id
)
insert into {schema}.events (verb, actor, namespace, workflow_id, run_id, detail)
select 'supersede', @actor, @namespace::text, @workflow_id::text, run_id, jsonb_build_object('run_id', @run_id::text)
from superseded`
)

// SettleRequest says how a replayed or reset job ended.
type SettleRequest struct {
	// Key is the job's own final run.
	Key
	// FirstRunID is the run that its enqueue, or its replay, returned.
	FirstRunID string
	Outcome    job.Outcome
	// Replayed is true for a job that a replay started.
	Replayed bool
	Actor    string
}

// Settle notes the outcome of a replayed job in its replay, and marks the dead
// letters of earlier runs of the same job as superseded when it succeeded. It may
// be repeated. A job that became a dead letter settles in its move.
func (s *Store) Settle(ctx context.Context, request SettleRequest) error {
	return s.inTx(ctx, beginWrite, func(ctx context.Context, tx pgx.Tx) error { return s.SettleTx(ctx, tx, request) })
}

// SettleTx is Settle in the caller's transaction.
func (s *Store) SettleTx(ctx context.Context, tx pgx.Tx, request SettleRequest) error {
	tx = own(tx)
	status := job.StatusDone
	if request.Outcome == job.OutcomeCancelled {
		status = job.StatusCancelled
	}
	if request.Replayed {
		if err := s.settleReplay(ctx, tx, request, &status, ""); err != nil {
			return fmt.Errorf("settle %s: %w", request.Key, classify(err))
		}
	}
	if request.Outcome != job.OutcomeSucceeded {
		return nil
	}
	args := request.args()
	args["first_run_id"], args["actor"] = request.FirstRunID, text.Bounded(request.Actor, maxName)
	if _, err := tx.Exec(ctx, s.sql(supersedeDeadLetters), args); err != nil {
		return fmt.Errorf("settle %s: %w", request.Key, classify(err))
	}
	return nil
}

// settleReplay leaves the status null for a job that died: it is no longer live.
func (s *Store) settleReplay(ctx context.Context, tx pgx.Tx, request SettleRequest, status *job.Status, fingerprint string) error {
	args := request.args()
	args["outcome"], args["status"], args["first_run_id"], args["fingerprint"] = string(request.Outcome), status, request.FirstRunID, fingerprint
	var workflowID, runID, requestID string
	rows, err := tx.Query(ctx, s.sql(settleReplay), args)
	if err != nil {
		return err
	}
	found := false
	_, err = pgx.ForEachRow(rows, []any{&workflowID, &runID, &requestID}, func() error {
		found = true // at most one: new workflow ids are unique
		return nil
	})
	if err != nil || !found {
		return err
	}
	event := Key{request.Namespace, workflowID, runID}.args()
	event["actor"], event["request_id"] = text.Bounded(request.Actor, maxName), requestID
	event["detail"] = encoded(map[string]string{"outcome": string(request.Outcome), "new_workflow_id": request.WorkflowID})
	_, err = tx.Exec(ctx, s.sql(insertSettleEvent), event)
	return err
}

// settleDead notes in the replay that its job died again.
func (s *Store) settleDead(ctx context.Context, tx pgx.Tx, dl *DeadLetter, actor string) error {
	outcome := job.OutcomeDeadLettered
	if dl.Reason == job.ReasonCancelled {
		outcome = job.OutcomeCancelled
	}
	return s.settleReplay(ctx, tx, SettleRequest{Key: dl.Key, FirstRunID: dl.FirstRunID, Outcome: outcome, Actor: actor}, nil, dl.Fingerprint)
}
