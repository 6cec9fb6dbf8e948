package operator

import (
	"context"
	"errors"

	"github.com/google/uuid"

	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/internal/edit"
	"github.com/deadletter-dev/deadletter/internal/replay"
	"github.com/deadletter-dev/deadletter/job"
)

// EditRequest asks for a new revision of one dead letter.
type EditRequest struct {
	// WorkflowID names the dead letter. Required.
	WorkflowID string
	// RunID is needed only when several runs of the workflow id are dead letters.
	RunID string
	// Revision is the one that the caller has seen. Required: a newer one is a
	// *dlqstore.ConflictError.
	Revision int
	// Edit says what to change.
	Edit job.Edit
	// RevertTo is an earlier revision to start from, 1 being the original; Edit may
	// then be empty. 0 means the newest.
	RevertTo int
	// Replay starts a new job from the edited dead letter, in one step: neither
	// happens without the other, whatever crashes. AllowSuperseded is as in a
	// ReplayRequest.
	Replay          bool
	AllowSuperseded bool
	// RequestID makes the request repeatable: the same id means the same revision
	// and the same new job. Empty means a fresh id.
	RequestID string
	// Actor is who asks. Required.
	Actor string
	// PlanID is the plan that the edit belongs to; empty for none.
	PlanID string
}

// Edited is what came of an edit.
type Edited struct {
	Key dlqstore.Key
	// DeadLetter is as it is after the edit. It is nil when the request was one that
	// had been done before, and the dead letter has been purged since.
	DeadLetter *dlqstore.DeadLetter
	// Revision has the difference, for people. It is nil when DeadLetter is.
	Revision  *dlqstore.Revision
	RequestID string // the request's, or the fresh one
	// Replay is set when one was asked for and its start is confirmed.
	Replay *job.ReplayOutput
}

// PreviewEdit returns what an edit would change of a dead letter, which must have
// its wire bytes as Get returns them, and writes nothing. The difference is empty
// when nothing would change. The error is a *dlqstore.EditError.
func PreviewEdit(dl *dlqstore.DeadLetter, e job.Edit) (dlqstore.Diff, error) {
	preview, err := edit.Try(dl, e)
	return preview.Diff, err
}

// Edit makes a new revision of a dead letter's arguments, queue, policy, tags or
// priority. What the edit does not name stays byte for byte, and what was before
// can be had again by RevertTo.
//
// The error is dlqstore.ErrNotFound, ErrAmbiguous, ErrRequestConflict, a
// *dlqstore.ConflictError, an *dlqstore.EditError or a *dlqstore.SupersededError
// when nothing was done and repeating the call cannot help; an event tells of it.
//
// With Replay the edit may be made and the start fail: Edited then comes beside the
// error. Of an outage, the workers of the dead-letter queue finish the replay, and
// the same RequestID may be used again.
func (o *Operator) Edit(ctx context.Context, request EditRequest) (*Edited, error) {
	return editStored(ctx, o.store, o.namespace, request, replay.Starter{Store: o.store, Service: o.service})
}

// EditStored is Operator.Edit without Temporal: a request with Replay is refused.
func EditStored(ctx context.Context, store *dlqstore.Store, namespace string, request EditRequest) (*Edited, error) {
	if request.Replay {
		return nil, errors.New("operator: a replay needs Temporal: use Operator.Edit")
	}
	return editStored(ctx, store, namespace, request, replay.Starter{})
}

func editStored(ctx context.Context, store *dlqstore.Store, namespace string, request EditRequest, starter replay.Starter) (*Edited, error) {
	if request.Actor == "" {
		return nil, ErrNoActor
	}
	if request.RequestID == "" {
		request.RequestID = uuid.NewString()
	}
	key, err := store.ResolveFor(ctx, dlqstore.Asked{
		Verb: dlqstore.VerbEdit, Key: dlqstore.Key{Namespace: namespace, WorkflowID: request.WorkflowID, RunID: request.RunID},
		Actor: request.Actor, RequestID: request.RequestID, PlanID: request.PlanID,
	})
	if err != nil {
		return nil, err
	}
	wanted := edit.Request(dlqstore.EditRequest{
		Key: key, Revision: request.Revision, RevertTo: request.RevertTo,
		RequestID: request.RequestID, Actor: request.Actor, PlanID: request.PlanID,
	}, request.Edit)
	if !request.Replay {
		dl, revision, err := store.Edit(ctx, wanted)
		if err != nil {
			return nil, err
		}
		return &Edited{Key: key, DeadLetter: dl, Revision: revision, RequestID: request.RequestID}, nil
	}
	start, revision, err := store.EditAndBeginReplay(ctx, wanted, request.AllowSuperseded)
	if err != nil {
		return nil, err
	}
	done := &Edited{Key: key, DeadLetter: start.DeadLetter, Revision: revision, RequestID: request.RequestID}
	out, err := starter.Finish(ctx, start)
	if err != nil {
		return done, err
	}
	done.Replay = &out
	return done, nil
}
