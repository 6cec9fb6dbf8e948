package dlqstore

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/deadletter-dev/deadletter/internal/text"
	"github.com/deadletter-dev/deadletter/job"
)

// moveDeadLetter is the whole move, so that it takes one trip to the server. The event
// claims the job: its unique index lets one move in, a concurrent one waits there and
// then inserts nothing. It returns no row when the job was moved before; also when the
// dead letter is there without its event, which can only be after somebody pruned that.
// Of two attempts with one number the first is kept.
const moveDeadLetter = `
with claimed as (
	insert into {schema}.events (verb, actor, namespace, workflow_id, run_id, detail)
	values ('move', @actor, @namespace, @workflow_id, @run_id, @detail::jsonb)
	on conflict (namespace, workflow_id, run_id) where verb = 'move' do nothing
	returning namespace, workflow_id, run_id
), moved as (
	insert into {schema}.dead_letters (
		namespace, workflow_id, run_id, first_run_id, job_type, task_queue, workflow_task_queue,
		reason, attempts, max_attempts, error_type, error_message, error_stack, retry_state,
		tags, options, payload_json, priority, worker_identity,
		enqueued_at, first_attempt_at, last_attempt_at, dead_at,
		generation, replayed_from_workflow_id, replayed_from_run_id, fingerprint,
		payloads, options_payload, failure, last_heartbeat_details, memo, search_attributes, header, user_metadata
	)
	select
		namespace, workflow_id, run_id, @first_run_id::text, @job_type::text, @task_queue::text, @workflow_task_queue::text,
		@reason::text, @attempts::int, @max_attempts::int, @error_type::text, @error_message::text, @error_stack::text, @retry_state::text,
		@tags::jsonb, {schema}.jsonb_or_null(@options), {schema}.jsonb_or_null(@payload_json),
		coalesce({schema}.jsonb_or_null(@priority), '{}'), @worker_identity::text,
		@enqueued_at::timestamptz, @first_attempt_at::timestamptz, @last_attempt_at::timestamptz, coalesce(@dead_at::timestamptz, now()),
		@generation::int, @replayed_from_workflow_id::text, @replayed_from_run_id::text, @fingerprint::text,
		@payloads::bytea, @options_payload::bytea, @failure::bytea, @last_heartbeat_details::bytea,
		@memo::bytea, @search_attributes::bytea, @header::bytea, @user_metadata::bytea
	from claimed
	on conflict (namespace, workflow_id, run_id) do nothing
	returning namespace, workflow_id, run_id, options is null as no_options, payload_json is null as no_payload_json, priority, dead_at
), attempted as (
	insert into {schema}.attempts (
		namespace, workflow_id, run_id,
		attempt, started_at, ended_at, worker_identity, error_type, error_message, error_stack, wait_ms
	)
	select namespace, workflow_id, run_id,
		a.attempt, a.started_at, a.ended_at, a.worker_identity, a.error_type, a.error_message, a.error_stack, a.wait_ms
	from moved, unnest(
		@attempt_numbers::int[], @started_at::timestamptz[], @ended_at::timestamptz[], @worker_identities::text[],
		@error_types::text[], @error_messages::text[], @error_stacks::text[], @wait_ms::bigint[]
	) as a (attempt, started_at, ended_at, worker_identity, error_type, error_message, error_stack, wait_ms)
	on conflict do nothing
)
select no_options, no_payload_json, priority, dead_at from moved`

// Move writes a dead letter, its attempts and an event in one transaction, runs
// the hook (nil for none) in it, and reports whether this call did so: false
// without an error means that the job was moved before, and is so also when it
// has been purged since. ResurrectionCount, LastResurrectionAt, Revision, the
// Superseded and the Pinned fields of dl are not written; neither dl nor attempts is altered.
// Give each attempt a number of its own.
func (s *Store) Move(ctx context.Context, dl *DeadLetter, attempts []Attempt, actor string, hook Hook) (moved bool, err error) {
	if hook == nil && dl.Generation == 0 {
		return s.moveAtOnce(ctx, dl, attempts, actor)
	}
	err = s.inTx(ctx, beginWrite, func(ctx context.Context, tx pgx.Tx) error {
		moved, err = s.MoveTx(ctx, tx, dl, attempts, actor, withTheirSearchPath(hook))
		return err
	})
	return moved && err == nil, err
}

// moveAtOnce is the move of a job that no replay started, without a hook: there is
// nothing to decide between its statements.
func (s *Store) moveAtOnce(ctx context.Context, dl *DeadLetter, attempts []Attempt, actor string) (moved bool, err error) {
	if err := dl.check(); err != nil {
		return false, fmt.Errorf("move %s: %w", dl.Key, err)
	}
	affected, err := s.atOnce(ctx, s.sql(moveDeadLetter), dl.stored().moveArgs(attempts, actor))
	if err != nil {
		return false, fmt.Errorf("move %s: %w", dl.Key, err)
	}
	return affected > 0, nil
}

// MoveTx is Move in the caller's transaction.
func (s *Store) MoveTx(ctx context.Context, tx pgx.Tx, dl *DeadLetter, attempts []Attempt, actor string, hook Hook) (moved bool, err error) {
	tx = own(tx)
	if err := dl.check(); err != nil {
		return false, fmt.Errorf("move %s: %w", dl.Key, err)
	}
	stored := dl.stored()
	if moved, err = s.insertMove(ctx, tx, stored, attempts, actor); err != nil {
		return false, fmt.Errorf("move %s: %w", dl.Key, classify(err))
	}
	if !moved || hook == nil {
		return moved, nil
	}
	if err := hook(ctx, callers(tx), stored); err != nil {
		return false, fmt.Errorf("move %s: hook: %w", dl.Key, err)
	}
	// A hook that ended the transaction by SQL took the dead letter with it, and the
	// commit to come would not say so.
	still, err := first(ctx, tx, s, selectRuns, stored.Key.args(), pgx.RowTo[string])
	if err != nil || still == nil {
		return false, errors.Join(fmt.Errorf("move %s: the hook ended the transaction: leave commit and rollback to the caller", dl.Key), err)
	}
	return true, nil
}

func (s *Store) insertMove(ctx context.Context, tx pgx.Tx, dl *DeadLetter, attempts []Attempt, actor string) (moved bool, err error) {
	var noOptions, noPayloadJSON bool
	err = tx.QueryRow(ctx, s.sql(moveDeadLetter), dl.moveArgs(attempts, actor)).Scan(&noOptions, &noPayloadJSON, &dl.Priority, &dl.DeadAt)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	dl.inUTC()
	if noOptions {
		dl.Options = nil
	}
	if noPayloadJSON {
		dl.PayloadJSON = nil
	}
	if dl.Generation > 0 {
		err = s.settleDead(ctx, tx, dl, actor)
	}
	return err == nil, err
}

func (dl *DeadLetter) moveArgs(attempts []Attempt, actor string) pgx.NamedArgs {
	args := dl.args()
	args["actor"] = text.Bounded(actor, maxName)
	args["detail"] = encoded(map[string]any{"reason": string(dl.Reason), "job_type": dl.JobType, "attempts": dl.Attempts})
	maps.Copy(args, attemptArgs(attempts))
	return args
}

func (dl *DeadLetter) check() error {
	if err := dl.Key.check(); err != nil {
		return err
	}
	_, err := job.ParseReason(string(dl.Reason))
	return err
}

// stored returns a copy with every text as the table holds it.
func (dl *DeadLetter) stored() *DeadLetter {
	c := *dl
	for _, name := range []*string{
		&c.FirstRunID, &c.JobType, &c.TaskQueue, &c.WorkflowTaskQueue, &c.ErrorType, &c.RetryState, &c.WorkerIdentity, &c.Fingerprint,
	} {
		*name = text.Bounded(*name, maxName)
	}
	c.ErrorMessage = text.Bounded(c.ErrorMessage, MaxErrorMessage)
	c.ErrorStack = text.Bounded(c.ErrorStack, MaxErrorStack)
	c.Tags = holdableTags(dl.Tags)
	c.Generation = *inRange(&c.Generation)
	if c.MaxAttempts != nil && *c.MaxAttempts < 0 {
		c.MaxAttempts = nil // a policy's way to say no limit
	}
	c.Attempts, c.MaxAttempts = inRange(c.Attempts), inRange(c.MaxAttempts)
	if !bytes.HasPrefix(bytes.TrimSpace(c.Priority), []byte("{")) {
		c.Priority = nil
	}
	for _, ancestor := range []**string{&c.ReplayedFromWorkflowID, &c.ReplayedFromRunID} {
		if *ancestor != nil {
			held := text.Bounded(**ancestor, maxName)
			*ancestor = &held
		}
	}
	if c.Payloads == nil {
		c.Payloads = []byte{} // a job without arguments
	}
	c.ResurrectionCount, c.LastResurrectionAt, c.Revision = 0, nil, 1
	c.SupersededAt, c.SupersededByRunID = nil, nil
	c.Pinned, c.PinnedBy, c.PinnedAt = false, nil, nil
	return &c
}

func (k Key) args() pgx.NamedArgs {
	return pgx.NamedArgs{"namespace": k.Namespace, "workflow_id": k.WorkflowID, "run_id": k.RunID}
}

func (dl *DeadLetter) args() pgx.NamedArgs {
	args := dl.Key.args()
	for name, value := range map[string]any{
		"first_run_id": dl.FirstRunID, "job_type": dl.JobType, "task_queue": dl.TaskQueue, "workflow_task_queue": dl.WorkflowTaskQueue,
		"reason": string(dl.Reason), "attempts": dl.Attempts, "max_attempts": dl.MaxAttempts,
		"error_type": dl.ErrorType, "error_message": dl.ErrorMessage, "error_stack": dl.ErrorStack, "retry_state": dl.RetryState,
		"tags": encoded(dl.Tags), "options": jsonText(dl.Options), "payload_json": jsonText(dl.PayloadJSON), "priority": jsonText(dl.Priority),
		"worker_identity": dl.WorkerIdentity,
		"enqueued_at":     dl.EnqueuedAt, "first_attempt_at": dl.FirstAttemptAt, "last_attempt_at": dl.LastAttemptAt, "dead_at": orNow(dl.DeadAt),
		"generation": dl.Generation, "replayed_from_workflow_id": dl.ReplayedFromWorkflowID, "replayed_from_run_id": dl.ReplayedFromRunID,
		"fingerprint": dl.Fingerprint,
		"payloads":    dl.Payloads, "options_payload": dl.OptionsPayload, "failure": dl.Failure, "last_heartbeat_details": dl.LastHeartbeatDetails,
		"memo": dl.Memo, "search_attributes": dl.SearchAttributes, "header": dl.Header, "user_metadata": dl.UserMetadata,
	} {
		args[name] = value
	}
	return args
}

func orNow(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// jsonText returns nil for what is not JSON, or is the null that an absent value
// encodes to.
func jsonText(raw json.RawMessage) *string {
	if !utf8.Valid(raw) || !json.Valid(raw) || string(bytes.TrimSpace(raw)) == "null" {
		return nil
	}
	text := string(raw)
	return &text
}

// inRange keeps a count, which may come from a job's own memo, within its column.
func inRange(n *int) *int {
	if n == nil {
		return nil
	}
	held := min(max(*n, 0), math.MaxInt32)
	return &held
}

func attemptArgs(attempts []Attempt) pgx.NamedArgs {
	var (
		numbers                        []int
		started, ended                 []*time.Time
		identity, kind, message, trace []string
		waits                          []*int64
	)
	for _, a := range attempts {
		numbers = append(numbers, a.Attempt)
		started, ended = append(started, a.StartedAt), append(ended, a.EndedAt)
		identity, kind = append(identity, text.Bounded(a.WorkerIdentity, maxName)), append(kind, text.Bounded(a.ErrorType, maxName))
		message, trace = append(message, text.Bounded(a.ErrorMessage, MaxErrorMessage)), append(trace, text.Bounded(a.ErrorStack, MaxErrorStack))
		waits = append(waits, milliseconds(a.Wait))
	}
	return pgx.NamedArgs{
		"attempt_numbers": numbers, "started_at": started, "ended_at": ended, "worker_identities": identity,
		"error_types": kind, "error_messages": message, "error_stacks": trace, "wait_ms": waits,
	}
}
