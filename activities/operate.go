package activities

import (
	"context"
	"errors"
	"fmt"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"

	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/internal/edit"
	"github.com/deadletter-dev/deadletter/internal/replay"
	"github.com/deadletter-dev/deadletter/job"
)

// Replay starts a new job from a dead letter of the activity's own namespace.
// Without a request id the id is the activity's own, so that its retries are one
// request. A request that can never succeed fails non-retryably with
// job.NotFoundErrorType, job.AmbiguousErrorType or job.RefusedErrorType.
func (a *Activities) Replay(ctx context.Context, in job.ReplayInput) (job.ReplayOutput, error) {
	info := activity.GetInfo(ctx)
	in = in.Signed(ownRequestID(info), "workflow "+info.WorkflowExecution.ID)
	asked := dlqstore.Asked{
		Verb: dlqstore.VerbReplay, Key: dlqstore.Key{Namespace: info.Namespace, WorkflowID: in.WorkflowID, RunID: in.RunID},
		Actor: in.Actor, RequestID: in.RequestID,
	}
	if err := in.Check(); err != nil {
		return job.ReplayOutput{}, a.refuse(ctx, asked, err)
	}
	key, err := a.Store.ResolveFor(ctx, asked)
	if err != nil {
		return job.ReplayOutput{}, final(err)
	}
	starter := replay.Starter{Store: a.Store, Service: a.client(ctx, info).WorkflowService()}
	out, err := starter.Replay(ctx, dlqstore.ReplayRequest{Key: key, RequestID: in.RequestID, Actor: in.Actor, AllowSuperseded: in.AllowSuperseded})
	return out, final(err)
}

// Purge removes one dead letter of the activity's own namespace for good. One
// that is gone already, or never was, is job.NotFoundErrorType, unless this very
// activity removed it in an earlier attempt.
func (a *Activities) Purge(ctx context.Context, in job.PurgeInput) error {
	info := activity.GetInfo(ctx)
	in = in.Signed(ownRequestID(info), "workflow "+info.WorkflowExecution.ID)
	key := dlqstore.Key{Namespace: info.Namespace, WorkflowID: in.WorkflowID, RunID: in.RunID}
	if err := in.Check(); err != nil {
		return a.refuse(ctx, dlqstore.Asked{Verb: dlqstore.VerbPurge, Key: key, Actor: in.Actor, RequestID: in.RequestID}, err)
	}
	return final(a.Store.PurgeRequested(ctx, key, in.RequestID, in.Actor))
}

// Edit makes a new revision of one dead letter of the activity's own namespace, and
// replays it if that is asked for, in one step. Without a request id the id is the
// activity's own. A request that can never succeed fails non-retryably with
// job.NotFoundErrorType, job.AmbiguousErrorType, job.RefusedErrorType, or with
// job.ConflictErrorType when the dead letter was edited since the caller saw it.
func (a *Activities) Edit(ctx context.Context, in job.EditInput) (job.EditOutput, error) {
	info := activity.GetInfo(ctx)
	in = in.Signed(ownRequestID(info), "workflow "+info.WorkflowExecution.ID)
	asked := dlqstore.Asked{
		Verb: dlqstore.VerbEdit, Key: dlqstore.Key{Namespace: info.Namespace, WorkflowID: in.WorkflowID, RunID: in.RunID},
		Actor: in.Actor, RequestID: in.RequestID,
	}
	if err := in.Check(); err != nil {
		return job.EditOutput{}, a.refuse(ctx, asked, err)
	}
	key, err := a.Store.ResolveFor(ctx, asked)
	if err != nil {
		return job.EditOutput{}, final(err)
	}
	request := edit.Request(dlqstore.EditRequest{
		Key: key, Revision: in.Revision, RevertTo: in.RevertTo, RequestID: in.RequestID, Actor: in.Actor,
	}, in.Edit)
	if !in.Replay {
		_, revision, err := a.Store.Edit(ctx, request)
		return editOutput(revision, nil), final(err)
	}
	start, revision, err := a.Store.EditAndBeginReplay(ctx, request, in.AllowSuperseded)
	if err != nil {
		return job.EditOutput{}, final(err)
	}
	out, err := replay.Starter{Store: a.Store, Service: a.client(ctx, info).WorkflowService()}.Finish(ctx, start)
	return editOutput(revision, &out), final(err)
}

func editOutput(revision *dlqstore.Revision, started *job.ReplayOutput) job.EditOutput {
	out := job.EditOutput{Replay: started}
	if revision != nil {
		out.Revision = revision.Revision
	}
	return out
}

// Note keeps a note on one dead letter of the activity's own namespace, or on all of
// a fingerprint. Without a request id the id is the activity's own.
func (a *Activities) Note(ctx context.Context, in job.NoteInput) error {
	info := activity.GetInfo(ctx)
	in = in.Signed(ownRequestID(info), "workflow "+info.WorkflowExecution.ID)
	key := dlqstore.Key{Namespace: info.Namespace, WorkflowID: in.WorkflowID, RunID: in.RunID}
	asked := dlqstore.Asked{Verb: dlqstore.VerbNote, Key: key, Actor: in.Actor, RequestID: in.RequestID}
	if err := in.Check(); err != nil {
		return a.refuse(ctx, asked, err)
	}
	if in.Fingerprint == "" {
		var err error
		if key, err = a.Store.ResolveFor(ctx, asked); err != nil {
			return final(err)
		}
	}
	_, err := a.Store.AddNote(ctx, dlqstore.NoteRequest{
		Key: key, Fingerprint: in.Fingerprint, Text: in.Text, RequestID: in.RequestID, Actor: in.Actor,
	})
	return final(err)
}

// Pin pins one dead letter of the activity's own namespace, or unpins it.
func (a *Activities) Pin(ctx context.Context, in job.PinInput) error {
	info := activity.GetInfo(ctx)
	in = in.Signed("", "workflow "+info.WorkflowExecution.ID)
	verb, set := dlqstore.VerbPin, a.Store.Pin
	if in.Unpin {
		verb, set = dlqstore.VerbUnpin, a.Store.Unpin
	}
	asked := dlqstore.Asked{Verb: verb, Key: dlqstore.Key{Namespace: info.Namespace, WorkflowID: in.WorkflowID, RunID: in.RunID}, Actor: in.Actor}
	if err := in.Check(); err != nil {
		return a.refuse(ctx, asked, err)
	}
	key, err := a.Store.ResolveFor(ctx, asked)
	if err != nil {
		return final(err)
	}
	_, err = set(ctx, key, in.Actor)
	return final(err)
}

// ownRequestID makes the retries of one activity one request.
func ownRequestID(info activity.Info) string {
	return "activity-" + info.WorkflowExecution.RunID + "-" + info.ActivityID
}

// Settle notes how the activity's own workflow, a replayed or reset job, ended
// without a dead letter.
func (a *Activities) Settle(ctx context.Context, in job.SettleInput) error {
	info := activity.GetInfo(ctx)
	return a.Store.Settle(ctx, dlqstore.SettleRequest{
		Key:        dlqstore.Key{Namespace: info.Namespace, WorkflowID: info.WorkflowExecution.ID, RunID: info.WorkflowExecution.RunID},
		FirstRunID: in.FirstRunID,
		Outcome:    in.Outcome,
		Replayed:   in.Replayed,
		Actor:      runtimeActor,
	})
}

// refuse notes that a request was refused for what is wrong with itself, and returns
// what no retry mends.
func (a *Activities) refuse(ctx context.Context, asked dlqstore.Asked, fault error) error {
	a.Store.NoteRefusal(ctx, asked, fmt.Errorf("%w: %w", dlqstore.ErrRefused, fault))
	return temporal.NewNonRetryableApplicationError(fault.Error(), job.RefusedErrorType, nil)
}

// final turns the errors that no retry can mend into non-retryable application
// errors, by their class.
func final(err error) error {
	for class, kind := range map[error]string{
		dlqstore.ErrNotFound:        job.NotFoundErrorType,
		dlqstore.ErrAmbiguous:       job.AmbiguousErrorType,
		dlqstore.ErrConflict:        job.ConflictErrorType,
		dlqstore.ErrRequestConflict: job.RefusedErrorType,
		dlqstore.ErrRefused:         job.RefusedErrorType,
		dlqstore.ErrUnbounded:       job.RefusedErrorType,
	} {
		if errors.Is(err, class) {
			return temporal.NewNonRetryableApplicationError(err.Error(), kind, nil)
		}
	}
	return err
}
