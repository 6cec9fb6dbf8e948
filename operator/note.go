package operator

import (
	"context"

	"github.com/deadletter-dev/deadletter/dlqstore"
)

// NoteRequest asks for a note on one dead letter, or on all of a fingerprint.
type NoteRequest struct {
	// WorkflowID names the dead letter; RunID is needed only when several runs of it
	// are dead letters. Without WorkflowID, Fingerprint names a group.
	WorkflowID, RunID string
	Fingerprint       string
	// Text is at most dlqstore.MaxNote bytes.
	Text string
	// RequestID makes the request repeatable: the same id means the same note. Empty
	// means a note of its own.
	RequestID string
	// Actor is who says it. Required.
	Actor string
}

// Note keeps a note, which Show then tells of. The error is dlqstore.ErrNotFound,
// ErrAmbiguous or ErrRefused when repeating the call cannot help; an event tells of
// it.
func (o *Operator) Note(ctx context.Context, request NoteRequest) (*dlqstore.Note, error) {
	return NoteStored(ctx, o.store, o.namespace, request)
}

// NoteStored is Operator.Note, which needs Postgres alone.
func NoteStored(ctx context.Context, store *dlqstore.Store, namespace string, request NoteRequest) (*dlqstore.Note, error) {
	if request.Actor == "" {
		return nil, ErrNoActor
	}
	key := dlqstore.Key{Namespace: namespace, WorkflowID: request.WorkflowID, RunID: request.RunID}
	if request.Fingerprint == "" {
		var err error
		if key, err = store.ResolveFor(ctx, dlqstore.Asked{Verb: dlqstore.VerbNote, Key: key, Actor: request.Actor, RequestID: request.RequestID}); err != nil {
			return nil, err
		}
	}
	return store.AddNote(ctx, dlqstore.NoteRequest{
		Key: key, Fingerprint: request.Fingerprint, Text: request.Text, RequestID: request.RequestID, Actor: request.Actor,
	})
}

// Events returns one page of the namespace's audit, the newest event first, and
// the cursor of the next page, empty after the last.
func (o *Operator) Events(ctx context.Context, filter dlqstore.EventFilter, page dlqstore.EventPage) ([]dlqstore.Event, string, error) {
	filter.Namespace = o.namespace
	return o.store.ListEvents(ctx, filter, page)
}
