package dlqstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deadletter-dev/deadletter/internal/text"
)

const (
	noteColumns = `
	n.id, n.namespace, n.workflow_id, n.run_id, n.fingerprint, n.actor, n.at, n.note`

	// insertNote and insertGroupNote insert nothing where there is no dead letter
	// to be noted.
	insertNote = `
insert into {schema}.notes as n (namespace, workflow_id, run_id, actor, note, request_id)
select d.namespace, d.workflow_id, d.run_id, @actor::text, @note::text, @request_id::text
from {schema}.dead_letters d
where d.namespace = @namespace and d.workflow_id = @workflow_id and d.run_id = @run_id
for key share
on conflict (request_id) do nothing
returning` + noteColumns

	insertGroupNote = `
insert into {schema}.notes as n (namespace, fingerprint, actor, note, request_id)
select d.namespace, d.fingerprint, @actor::text, @note::text, @request_id::text
from {schema}.dead_letters d
where d.namespace = @namespace and d.fingerprint = @fingerprint
limit 1
on conflict (request_id) do nothing
returning` + noteColumns

	selectRequestedNote = `
select` + noteColumns + `
from {schema}.notes n
where n.request_id = @request_id`

	insertNoteEvent = `
insert into {schema}.events (verb, actor, namespace, workflow_id, run_id, request_id, detail)
values ('note', @actor, @namespace, @workflow_id, @run_id, @request_id, @detail::jsonb)`

	selectNotes = `
select` + noteColumns + `
from {schema}.notes n
where n.namespace = @namespace and n.workflow_id = @workflow_id and n.run_id = @run_id
union all
select` + noteColumns + `
from {schema}.notes n
where n.namespace = @namespace and n.fingerprint = @fingerprint and @fingerprint <> ''
order by id`
)

// MaxNote bounds the text of a note, in bytes. A longer one is refused, not cut.
const MaxNote = 8 << 10

// Note is what a person has to say of a dead letter, or of all that have one
// fingerprint: its group. That of a dead letter goes with it.
type Note struct {
	ID         int64     `json:"id"`
	Namespace  string    `json:"namespace"`
	WorkflowID *string   `json:"workflow_id"` // nil, as RunID, for a group's
	RunID      *string   `json:"run_id"`
	Group      *string   `json:"fingerprint"` // nil for a dead letter's
	Actor      string    `json:"actor"`
	At         time.Time `json:"at"`
	Text       string    `json:"note"`
}

// NoteRequest asks for a note. One of Key's ids and Fingerprint is given.
type NoteRequest struct {
	// Key names one dead letter, or with its namespace alone where the group is.
	Key
	Fingerprint string
	Text        string
	// RequestID makes the request repeatable: the same id means the same note. Empty
	// means a note of its own.
	RequestID string
	Actor     string
}

// AddNote keeps a note, with an event in the same transaction. It is ErrNotFound
// where there is no such dead letter, or none with the fingerprint; an empty text,
// or one of more than MaxNote bytes, is ErrRefused; a request id that stands for
// another note is ErrRequestConflict.
func (s *Store) AddNote(ctx context.Context, request NoteRequest) (note *Note, err error) {
	err = s.inTx(ctx, beginWrite, func(ctx context.Context, tx pgx.Tx) error {
		note, err = s.AddNoteTx(ctx, tx, request)
		return err
	})
	if err != nil {
		return nil, s.NoteRefusal(ctx, Asked{Verb: VerbNote, Key: request.Key, Actor: request.Actor, RequestID: request.RequestID}, err)
	}
	return note, nil
}

// AddNoteTx is AddNote in the caller's transaction, without the event of a refusal.
func (s *Store) AddNoteTx(ctx context.Context, tx pgx.Tx, request NoteRequest) (*Note, error) {
	tx = own(tx)
	if request.Fingerprint != "" && request.WorkflowID != "" {
		return nil, errors.New("a note is on one dead letter or on a fingerprint, not on both")
	}
	if err := errors.Join(checkNote(request.Text), checkRequestID(request.RequestID)); err != nil {
		return nil, err
	}
	if !request.holdable() {
		return nil, notFound(request.Key)
	}
	args := request.args()
	args["fingerprint"], args["actor"] = text.Holdable(request.Fingerprint), text.Bounded(request.Actor, maxName)
	args["note"], args["request_id"] = text.Holdable(request.Text), orNull(request.RequestID)
	statement := insertNote
	if request.Fingerprint != "" {
		statement = insertGroupNote
	}
	note, err := first(ctx, tx, s, statement, args, scanNote)
	if err != nil {
		return nil, fmt.Errorf("note on %s: %w", request.subject(), err)
	}
	if note == nil && request.RequestID != "" {
		known, err := first(ctx, tx, s, selectRequestedNote, args, scanNote)
		switch {
		case err != nil:
			return nil, fmt.Errorf("note on %s: %w", request.subject(), err)
		case known != nil && known.is(own(tx).encoding.named(insertNote, args)):
			return known, nil
		case known != nil:
			return nil, fmt.Errorf("request id %q: %w", request.RequestID, ErrRequestConflict)
		}
	}
	switch {
	case note == nil && request.Fingerprint != "":
		return nil, fmt.Errorf("no dead letter of %s has the fingerprint %q: %w", request.Namespace, request.Fingerprint, ErrNotFound)
	case note == nil:
		return nil, notFound(request.Key)
	}
	detail := map[string]any{"note": note.ID}
	if request.Fingerprint != "" {
		detail["fingerprint"] = args["fingerprint"]
	}
	args["detail"] = encoded(detail)
	if _, err := tx.Exec(ctx, s.sql(insertNoteEvent), args); err != nil {
		return nil, fmt.Errorf("note on %s: %w", request.subject(), classify(err))
	}
	return note, nil
}

// is reports whether the note is what the arguments ask for, whoever asks.
func (n *Note) is(args pgx.NamedArgs) bool {
	given := func(value *string) any {
		if value == nil {
			return ""
		}
		return *value
	}
	return n.Text == args["note"] && n.Namespace == args["namespace"] && given(n.Group) == args["fingerprint"] &&
		given(n.WorkflowID) == args["workflow_id"] && given(n.RunID) == args["run_id"]
}

func (r NoteRequest) subject() string {
	if r.Fingerprint != "" {
		return "fingerprint " + r.Fingerprint
	}
	return r.String()
}

func checkNote(note string) error {
	switch {
	case strings.TrimSpace(note) == "":
		return fmt.Errorf("a note needs a text: %w", ErrRefused)
	case len(text.Holdable(note)) > MaxNote:
		return fmt.Errorf("the note has %d bytes, and %d is the most: say it in fewer words, or link to the rest: %w", len(note), MaxNote, ErrRefused)
	default:
		return nil
	}
}

// Notes returns the notes on a dead letter and those on its fingerprint, the
// oldest first. An empty fingerprint has none.
func (s *Store) Notes(ctx context.Context, key Key, fingerprint string) ([]Note, error) {
	if !key.holdable() {
		return nil, nil
	}
	args := key.args()
	args["fingerprint"] = text.Holdable(fingerprint)
	notes, err := query(ctx, s, selectNotes, args, scanNote)
	if err != nil {
		return nil, fmt.Errorf("notes on %s: %w", key, err)
	}
	return notes, nil
}

func scanNote(row pgx.CollectableRow) (Note, error) {
	var n Note
	err := row.Scan(n.targets()...)
	utc(&n.At)
	return n, err
}

// targets are what noteColumns is scanned into.
func (n *Note) targets() []any {
	return []any{&n.ID, &n.Namespace, &n.WorkflowID, &n.RunID, &n.Group, &n.Actor, &n.At, &n.Text}
}
