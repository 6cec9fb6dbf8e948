package dlqstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/deadletter-dev/deadletter/internal/text"
)

const (
	selectRevisionOf = `
select` + revisionColumns + `
from {schema}.revisions
where request_id = @request_id`

	selectLastRevision = `
select` + revisionColumns + `
from {schema}.revisions
where namespace = @namespace and workflow_id = @workflow_id and run_id = @run_id and revision = @revision`

	// insertRevision keeps what was before, and inserts nothing if another dead
	// letter's edit has the request id.
	insertRevision = `
insert into {schema}.revisions (
	namespace, workflow_id, run_id, revision, request_id, actor, plan_id, reverted_to, diff,
	payloads, payload_json, options_payload, options, task_queue, tags, max_attempts, priority
)
select d.namespace, d.workflow_id, d.run_id, d.revision + 1, @request_id::text, @actor::text, @plan_id::text, @reverted_to::int, @diff::json,
	case when @arguments then d.payloads end, case when @arguments then d.payload_json end,
	case when @job then d.options_payload end, case when @job then d.options end, case when @job then d.task_queue end,
	case when @job then d.tags end, case when @job then d.max_attempts end,
	case when @of_priority then d.priority end
from {schema}.dead_letters d
where d.namespace = @namespace and d.workflow_id = @workflow_id and d.run_id = @run_id
on conflict (request_id) do nothing
returning` + revisionColumns

	updateDeadLetter = `
update {schema}.dead_letters
set revision = revision + 1,
	payloads = case when @arguments then @payloads else payloads end,
	payload_json = case when @arguments then {schema}.jsonb_or_null(@payload_json) else payload_json end,
	options_payload = case when @job then @options_payload else options_payload end,
	options = case when @job then {schema}.jsonb_or_null(@options) else options end,
	task_queue = case when @job then @task_queue else task_queue end,
	tags = case when @job then @tags::jsonb else tags end,
	max_attempts = case when @job then @max_attempts::int else max_attempts end,
	priority = case when @of_priority then @priority::jsonb else priority end
where namespace = @namespace and workflow_id = @workflow_id and run_id = @run_id`

	insertEditEvent = `
insert into {schema}.events (verb, actor, namespace, workflow_id, run_id, request_id, plan_id, detail)
values ('edit', @actor, @namespace, @workflow_id, @run_id, @request_id, @plan_id, @detail::jsonb)`

	// selectContentAt takes each part from the first edit after the revision that
	// touched it: what was before that edit is what the revision had.
	selectContentAt = `
select a.payloads, a.payload_json, o.options_payload, o.options, o.task_queue, o.tags, o.max_attempts, p.priority
from (values (1)) as one
left join lateral (
	select payloads, payload_json from {schema}.revisions
	where namespace = @namespace and workflow_id = @workflow_id and run_id = @run_id and revision > @revision and payloads is not null
	order by revision limit 1
) a on true
left join lateral (
	select options_payload, options, task_queue, tags, max_attempts from {schema}.revisions
	where namespace = @namespace and workflow_id = @workflow_id and run_id = @run_id and revision > @revision and options_payload is not null
	order by revision limit 1
) o on true
left join lateral (
	select priority from {schema}.revisions
	where namespace = @namespace and workflow_id = @workflow_id and run_id = @run_id and revision > @revision and priority is not null
	order by revision limit 1
) p on true`
)

// Content is what an edit can change of a dead letter. A part that is nil is left
// as it is.
type Content struct {
	Arguments *Arguments
	Options   *JobOptions
	Priority  json.RawMessage // an object
}

// Arguments are the columns that hold a job's arguments.
type Arguments struct {
	Payloads    []byte
	PayloadJSON json.RawMessage // nil when not readable
}

// JobOptions are the columns that hold a job's options object, or are made from it.
type JobOptions struct {
	OptionsPayload []byte
	Options        json.RawMessage
	TaskQueue      string
	Tags           map[string]string
	MaxAttempts    *int // nil for no limit
}

// EditRequest asks for a new revision of one dead letter.
type EditRequest struct {
	Key
	// Revision is the one that the caller has seen. Required: a newer one is a
	// *ConflictError.
	Revision int
	// RequestID makes the request repeatable: an edit that was made under it is
	// returned and nothing changes, whatever else is asked for. Empty means a fresh
	// one. At most 1000 bytes.
	RequestID string
	Actor     string
	// PlanID is the plan that the edit belongs to; empty for none.
	PlanID string
	// RevertTo is the earlier revision that Change starts from, 1 being the
	// original; 0 for the newest.
	RevertTo int
	// Change works out the edit, under the dead letter's lock; it must not call the
	// store. The dead letter is as RevertTo says. Its error undoes the edit and is
	// returned as it is. Required; package operator has the one that edits.
	Change func(dl *DeadLetter) (Content, error)
	// Compare tells what changed, for people. Required.
	Compare func(before, after *DeadLetter) Diff
}

// Edit makes a new revision of a dead letter: the columns, what was before in
// table revisions, and an event, in one transaction. Nothing else of the row
// changes. It returns the dead letter as it is then.
//
// The error is ErrNotFound, a *ConflictError, an *EditError where Change makes no
// difference, ErrRequestConflict when the request id is another dead letter's, or
// what Change returned; an event of verb edit_refused tells of it.
func (s *Store) Edit(ctx context.Context, request EditRequest) (*DeadLetter, *Revision, error) {
	var dl *DeadLetter
	var revision *Revision
	err := s.inTx(ctx, beginWrite, func(ctx context.Context, tx pgx.Tx) (err error) {
		dl, revision, err = s.EditTx(ctx, tx, request)
		return err
	})
	if err != nil {
		return nil, nil, s.NoteRefusal(ctx, request.asked(), err)
	}
	return dl, revision, nil
}

func (r EditRequest) asked() Asked {
	return Asked{Verb: VerbEdit, Key: r.Key, Actor: r.Actor, RequestID: r.RequestID, PlanID: r.PlanID}
}

// EditAndBeginReplay is Edit and BeginReplay in one transaction, under one request
// id: both happen or none does, and a repeated call returns what the first one
// made, whatever crashed in between. The caller goes on as after BeginReplay.
func (s *Store) EditAndBeginReplay(ctx context.Context, request EditRequest, allowSuperseded bool) (start *ReplayStart, revision *Revision, err error) {
	if request.RequestID == "" {
		request.RequestID = uuid.NewString()
	}
	err = s.inTx(ctx, beginWrite, func(ctx context.Context, tx pgx.Tx) error {
		// Without a dead letter a request that was done before still has its answer.
		if _, revision, err = s.EditTx(ctx, tx, request); err != nil && !errors.Is(err, ErrNotFound) {
			return err
		}
		start, err = s.BeginReplayTx(ctx, tx, ReplayRequest{
			Key: request.Key, RequestID: request.RequestID, Actor: request.Actor, AllowSuperseded: allowSuperseded,
		})
		return err
	})
	if err != nil {
		return nil, nil, s.NoteRefusal(ctx, request.asked(), err)
	}
	return start, revision, nil
}

// EditTx is Edit in the caller's transaction, without the event of a refusal.
func (s *Store) EditTx(ctx context.Context, tx pgx.Tx, request EditRequest) (*DeadLetter, *Revision, error) {
	tx = own(tx)
	if request.RequestID == "" {
		request.RequestID = uuid.NewString()
	}
	if err := checkRequestID(request.RequestID); err != nil {
		return nil, nil, err
	}
	if request.Revision < 1 {
		return nil, nil, &EditError{Code: EditInvalid, Cause: "the revision is missing: say which one the edit is of, so that it undoes nobody's"}
	}
	if !request.holdable() {
		return nil, nil, notFound(request.Key)
	}
	request.RequestID, request.Actor = text.Holdable(request.RequestID), text.Bounded(request.Actor, maxName)
	dl, revision, err := s.edit(ctx, tx, request)
	if err != nil {
		return nil, nil, fmt.Errorf("edit %s: %w", request.Key, err)
	}
	return dl, revision, nil
}

func (s *Store) edit(ctx context.Context, tx pgx.Tx, request EditRequest) (*DeadLetter, *Revision, error) {
	args := request.args()
	args["request_id"] = request.RequestID
	found, err := first(ctx, tx, s, lockDeadLetter, args, scanDeadLetter)
	if err != nil {
		return nil, nil, err
	}
	if found == nil {
		return nil, nil, ErrNotFound
	}
	before := *found
	known, err := first(ctx, tx, s, selectRevisionOf, args, scanRevision)
	switch {
	case err != nil:
		return nil, nil, err
	case known != nil && known.Key != own(tx).encoding.held(request.Key):
		return nil, nil, fmt.Errorf("request id %q: %w", request.RequestID, ErrRequestConflict)
	case known != nil:
		return before, known, nil
	}
	if request.Revision != before.Revision {
		return nil, nil, s.conflict(ctx, tx, request, before.Revision)
	}
	base := before
	if request.RevertTo != 0 {
		if base, err = s.revertedTo(ctx, tx, before, request.RevertTo); err != nil {
			return nil, nil, err
		}
	}
	changed, err := request.Change(base)
	if err != nil {
		return nil, nil, err
	}
	after := changed.In(base)
	if changed = before.changeTo(after); len(changed.names()) == 0 {
		return nil, nil, &EditError{Code: EditNoChange, Cause: "it would change nothing"}
	}
	return s.writeRevision(ctx, tx, request, before, after, changed)
}

func (s *Store) writeRevision(ctx context.Context, tx pgx.Tx, request EditRequest, before, after *DeadLetter, changed Content) (*DeadLetter, *Revision, error) {
	args := changed.args()
	for name, value := range request.args() {
		args[name] = value
	}
	args["request_id"], args["actor"], args["plan_id"] = request.RequestID, request.Actor, orNull(request.PlanID)
	args["reverted_to"] = nil
	if request.RevertTo != 0 {
		args["reverted_to"] = request.RevertTo
	}
	diff, err := diffText(request.Compare(before, after))
	if err != nil {
		return nil, nil, err
	}
	args["diff"] = diff
	revision, err := first(ctx, tx, s, insertRevision, args, scanRevision)
	switch {
	case err != nil:
		return nil, nil, err
	case revision == nil: // taken by another dead letter: calls for this one wait at the lock
		return nil, nil, fmt.Errorf("request id %q: %w", request.RequestID, ErrRequestConflict)
	}
	if _, err := tx.Exec(ctx, s.sql(updateDeadLetter), args); err != nil {
		return nil, nil, classify(err)
	}
	detail := map[string]any{"revision": revision.Revision, "changed": changed.names()}
	if request.RevertTo != 0 {
		detail["reverted_to"] = request.RevertTo
	}
	args["detail"] = encoded(detail)
	if _, err := tx.Exec(ctx, s.sql(insertEditEvent), args); err != nil {
		return nil, nil, classify(err)
	}
	stored, err := first(ctx, tx, s, selectDeadLetter, args, scanDeadLetter)
	if err != nil || stored == nil {
		return nil, nil, errors.Join(err, errors.New("the row is not there after its update"))
	}
	return *stored, revision, nil
}

// conflict says who made the revision that the caller has not seen.
func (s *Store) conflict(ctx context.Context, tx pgx.Tx, request EditRequest, current int) error {
	conflict := &ConflictError{Key: request.Key, Seen: request.Revision, Current: current}
	args := request.args()
	args["revision"] = current
	last, err := first(ctx, tx, s, selectLastRevision, args, scanRevision)
	if err != nil {
		return err
	}
	if last != nil {
		conflict.Actor, conflict.At = last.Actor, last.At
	}
	return conflict
}

func (s *Store) revertedTo(ctx context.Context, tx pgx.Tx, dl *DeadLetter, revision int) (*DeadLetter, error) {
	if revision < 1 || revision > dl.Revision {
		return nil, &EditError{Code: EditInvalid, Cause: fmt.Sprintf("there is no revision %d to go back to; the newest is %d, and the original 1", revision, dl.Revision)}
	}
	past, err := s.contentAt(ctx, tx, dl.Key, revision)
	if err != nil {
		return nil, err
	}
	return past.In(dl), nil
}

// contentAt returns what has been edited since a revision, as it was then.
func (s *Store) contentAt(ctx context.Context, tx pgx.Tx, key Key, revision int) (Content, error) {
	args := key.args()
	args["revision"] = revision
	past, err := first(ctx, tx, s, selectContentAt, args, scanContent)
	if err != nil {
		return Content{}, err
	}
	return *past, nil
}

// In returns a copy of the dead letter with the content in it.
func (c Content) In(dl *DeadLetter) *DeadLetter {
	changed := *dl
	if a := c.Arguments; a != nil {
		changed.Payloads, changed.PayloadJSON = a.Payloads, a.PayloadJSON
	}
	if o := c.Options; o != nil {
		changed.OptionsPayload, changed.Options = o.OptionsPayload, o.Options
		changed.TaskQueue, changed.Tags, changed.MaxAttempts = o.TaskQueue, o.Tags, o.MaxAttempts
	}
	if c.Priority != nil {
		changed.Priority = c.Priority
	}
	return &changed
}

// changeTo returns the parts in which another version differs.
func (dl *DeadLetter) changeTo(other *DeadLetter) (changed Content) {
	if !slices.Equal(dl.Payloads, other.Payloads) {
		changed.Arguments = &Arguments{Payloads: other.Payloads, PayloadJSON: other.PayloadJSON}
	}
	if !slices.Equal(dl.OptionsPayload, other.OptionsPayload) {
		changed.Options = &JobOptions{
			OptionsPayload: other.OptionsPayload, Options: other.Options,
			TaskQueue: other.TaskQueue, Tags: other.Tags, MaxAttempts: other.MaxAttempts,
		}
	}
	if !slices.Equal(dl.Priority, other.Priority) {
		changed.Priority = other.Priority
	}
	return changed
}

func (c Content) names() []string {
	names := []string{}
	for _, part := range []struct {
		name    string
		touched bool
	}{{"arguments", c.Arguments != nil}, {"options", c.Options != nil}, {"priority", c.Priority != nil}} {
		if part.touched {
			names = append(names, part.name)
		}
	}
	return names
}

func (c Content) args() pgx.NamedArgs {
	args := pgx.NamedArgs{"arguments": c.Arguments != nil, "job": c.Options != nil, "of_priority": c.Priority != nil}
	arguments, options := c.Arguments, c.Options
	if arguments == nil {
		arguments = &Arguments{}
	}
	if options == nil {
		options = &JobOptions{}
	}
	args["payloads"], args["payload_json"] = arguments.Payloads, jsonText(arguments.PayloadJSON)
	args["options_payload"], args["options"], args["task_queue"] = options.OptionsPayload, jsonText(options.Options), options.TaskQueue
	args["tags"], args["max_attempts"], args["priority"] = encoded(holdableTags(options.Tags)), options.MaxAttempts, jsonText(c.Priority)
	return args
}

func orNull(s string) *string {
	if s == "" {
		return nil
	}
	held := text.Bounded(s, maxName)
	return &held
}
