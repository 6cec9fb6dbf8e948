package dlqstore

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"
)

const revisionColumns = `
	namespace, workflow_id, run_id, revision, request_id, actor, at, plan_id, reverted_to, diff`

const selectRevisions = `
select` + revisionColumns + `
from {schema}.revisions
where namespace = @namespace and workflow_id = @workflow_id and run_id = @run_id
order by revision`

// Revision is one edit of a dead letter. What was before it stays recoverable:
// EditRequest.RevertTo brings it back. It goes with the dead letter.
type Revision struct {
	Key
	// Revision is the number that the edit made; a dead letter begins with 1.
	Revision  int       `json:"revision"`
	RequestID string    `json:"request_id"`
	Actor     string    `json:"actor"`
	At        time.Time `json:"at"`
	PlanID    *string   `json:"plan_id"`
	// RevertedTo is the earlier revision that the edit started from, nil for the
	// one before it.
	RevertedTo *int `json:"reverted_to"`
	Diff       Diff `json:"diff"`
}

// Diff tells a person what an edit changed.
type Diff struct {
	Changes []Change `json:"changes"`
	// LeftOut is how many changes are not among them.
	LeftOut int `json:"left_out,omitempty"`
}

// Change is one place that an edit changed.
type Change struct {
	// Path is a JSON pointer that begins with /arguments, /task_queue, /policy,
	// /tags, /options or /priority.
	Path string `json:"path"`
	// Before and After are nil where there was nothing, or where it is too long to
	// be shown; then BeforeBytes and AfterBytes say how long.
	Before      json.RawMessage `json:"before,omitempty"`
	After       json.RawMessage `json:"after,omitempty"`
	BeforeBytes int             `json:"before_bytes,omitempty"`
	AfterBytes  int             `json:"after_bytes,omitempty"`
}

// Revisions returns the edits of a dead letter, the oldest first.
func (s *Store) Revisions(ctx context.Context, key Key) ([]Revision, error) {
	return listOf(ctx, s, "revisions", selectRevisions, key, scanRevision)
}

func scanRevision(row pgx.CollectableRow) (Revision, error) {
	var r Revision
	var diff []byte
	err := row.Scan(&r.Namespace, &r.WorkflowID, &r.RunID, &r.Revision, &r.RequestID, &r.Actor, &r.At, &r.PlanID, &r.RevertedTo, &diff)
	if err != nil {
		return r, err
	}
	utc(&r.At)
	return r, json.Unmarshal(diff, &r.Diff)
}

func scanContent(row pgx.CollectableRow) (Content, error) {
	var c Content
	var a Arguments
	var o JobOptions
	var taskQueue *string
	err := row.Scan(&a.Payloads, &a.PayloadJSON, &o.OptionsPayload, &o.Options, &taskQueue, &o.Tags, &o.MaxAttempts, &c.Priority)
	if a.Payloads != nil {
		c.Arguments = &a
	}
	if o.OptionsPayload != nil {
		o.TaskQueue = *taskQueue
		c.Options = &o
	}
	return c, err
}
