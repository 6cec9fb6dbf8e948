package activities

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"

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
func (a *Activities) Replay(ctx context.Context, in job.ReplayInput, by job.Sender) (job.ReplayOutput, error) {
	info := activity.GetInfo(ctx)
	done, err := a.turn(ctx, dlqstore.VerbReplay)
	if err != nil {
		return job.ReplayOutput{}, err
	}
	defer done()
	in = in.Signed(sender(info, by))
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
func (a *Activities) Purge(ctx context.Context, in job.PurgeInput, by job.Sender) error {
	info := activity.GetInfo(ctx)
	done, err := a.turn(ctx, dlqstore.VerbPurge)
	if err != nil {
		return err
	}
	defer done()
	in = in.Signed(sender(info, by))
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
func (a *Activities) Edit(ctx context.Context, in job.EditInput, by job.Sender) (job.EditOutput, error) {
	info := activity.GetInfo(ctx)
	done, err := a.turn(ctx, dlqstore.VerbEdit)
	if err != nil {
		return job.EditOutput{}, err
	}
	defer done()
	in = in.Signed(sender(info, by))
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
func (a *Activities) Note(ctx context.Context, in job.NoteInput, by job.Sender) error {
	info := activity.GetInfo(ctx)
	done, err := a.turn(ctx, dlqstore.VerbNote)
	if err != nil {
		return err
	}
	defer done()
	in = in.Signed(sender(info, by))
	key := dlqstore.Key{Namespace: info.Namespace, WorkflowID: in.WorkflowID, RunID: in.RunID}
	asked := dlqstore.Asked{Verb: dlqstore.VerbNote, Key: key, Actor: in.Actor, RequestID: in.RequestID}
	if err := in.Check(); err != nil {
		return a.refuse(ctx, asked, err)
	}
	if in.Fingerprint == "" {
		if key, err = a.Store.ResolveFor(ctx, asked); err != nil {
			return final(err)
		}
	}
	_, err = a.Store.AddNote(ctx, dlqstore.NoteRequest{
		Key: key, Fingerprint: in.Fingerprint, Text: in.Text, RequestID: in.RequestID, Actor: in.Actor,
	})
	return final(err)
}

// Pin pins one dead letter of the activity's own namespace, or unpins it.
func (a *Activities) Pin(ctx context.Context, in job.PinInput, by job.Sender) error {
	info := activity.GetInfo(ctx)
	done, err := a.turn(ctx, dlqstore.VerbPin)
	if err != nil {
		return err
	}
	defer done()
	requestID, actor := sender(info, by)
	in = in.Signed(requestID, actor)
	verb, set := dlqstore.VerbPin, a.Store.Pin
	if in.Unpin {
		verb, set = dlqstore.VerbUnpin, a.Store.Unpin
	}
	asked := dlqstore.Asked{Verb: verb, Key: dlqstore.Key{Namespace: info.Namespace, WorkflowID: in.WorkflowID, RunID: in.RunID}, Actor: in.Actor, RequestID: requestID}
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

// Refuse writes the event of a request that was refused when its event could not be
// written, or in the workflow. Its errors are retryable.
func (a *Activities) Refuse(ctx context.Context, in job.RefuseInput) error {
	detail := string(in.Detail)
	if detail == "" {
		detail = "{}"
	}
	return a.Store.Refuse(ctx, dlqstore.Asked{
		Verb: in.Verb, Key: dlqstore.Key{Namespace: activity.GetInfo(ctx).Namespace, WorkflowID: in.WorkflowID, RunID: in.RunID},
		Actor: in.Actor, RequestID: in.RequestID, PlanID: in.PlanID,
	}, detail, in.UnlessDone)
}

// sender returns the id and the actor of a request that says neither. The activity's own
// id makes its retries one request.
func sender(info activity.Info, by job.Sender) (requestID, actor string) {
	return cmp.Or(by.RequestID, "activity-"+info.WorkflowExecution.RunID+"-"+info.ActivityID),
		cmp.Or(by.Actor, "workflow "+info.WorkflowExecution.ID)
}

// Settle notes how the activity's own workflow, a replayed or reset job, ended
// without a dead letter. What Postgres rejects is noted as a refusal and not tried
// again: the job's own end waits for it.
func (a *Activities) Settle(ctx context.Context, in job.SettleInput) error {
	info := activity.GetInfo(ctx)
	key := dlqstore.Key{Namespace: info.Namespace, WorkflowID: info.WorkflowExecution.ID, RunID: info.WorkflowExecution.RunID}
	err := a.Store.Settle(ctx, dlqstore.SettleRequest{
		Key:        key,
		FirstRunID: in.FirstRunID,
		Outcome:    in.Outcome,
		Replayed:   in.Replayed,
		Actor:      runtimeActor,
	})
	if errors.Is(err, dlqstore.ErrSchema) {
		return err // and no refusal, see finalWork
	}
	return final(a.Store.NoteRefusal(ctx, dlqstore.Asked{Verb: dlqstore.VerbSettle, Key: key, Actor: runtimeActor}, err))
}

// refuse notes that a request was refused for what is wrong with itself, and returns
// what no retry mends.
func (a *Activities) refuse(ctx context.Context, asked dlqstore.Asked, fault error) error {
	return final(a.Store.NoteRefusal(ctx, asked, faulty{fault}))
}

// faulty is a request that is refused for what is wrong with itself, in its own words.
type faulty struct{ error }

func (f faulty) Unwrap() []error { return []error{f.error, dlqstore.ErrRefused} }

// finals are the errors that no retry can mend, and the types that they have on the
// wire. The first that fits counts.
var finals = []struct {
	class error
	kind  string
}{
	{dlqstore.ErrNotFound, job.NotFoundErrorType},
	{dlqstore.ErrAmbiguous, job.AmbiguousErrorType},
	{dlqstore.ErrConflict, job.ConflictErrorType},
	{dlqstore.ErrRequestConflict, job.RefusedErrorType},
	{dlqstore.ErrRefused, job.RefusedErrorType}, // dlqstore.ErrRejected is one
	{dlqstore.ErrUnbounded, job.RefusedErrorType},
}

// final turns the errors that no retry can mend into non-retryable application errors,
// by their class. When a refusal's event is still to be written, the error's detail is
// the job.RefuseInput that writes it.
func final(err error) error {
	for _, f := range finals {
		if !errors.Is(err, f.class) {
			continue
		}
		unaudited := (*dlqstore.UnauditedError)(nil)
		if !errors.As(err, &unaudited) {
			return temporal.NewNonRetryableApplicationError(err.Error(), f.kind, nil)
		}
		return temporal.NewNonRetryableApplicationError(err.Error(), f.kind, nil, job.RefuseInput{
			Verb: unaudited.Verb, WorkflowID: unaudited.WorkflowID, RunID: unaudited.RunID, PlanID: unaudited.PlanID,
			RequestID: unaudited.RequestID, Actor: unaudited.Actor, Detail: json.RawMessage(unaudited.Detail),
		})
	}
	return err
}

// finalWork is final for work that was accepted long ago. A schema that does not fit is
// waited for, as an outage is: it may be on its way back from a dump.
func finalWork(err error) error {
	if errors.Is(err, dlqstore.ErrSchema) {
		return err
	}
	return final(err)
}
