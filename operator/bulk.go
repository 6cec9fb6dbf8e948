package operator

import (
	"context"
	"errors"
	"fmt"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"

	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/internal/edit"
	"github.com/deadletter-dev/deadletter/job"
)

// followInterval is how often FollowPlan looks.
const followInterval = 500 * time.Millisecond

// CreatePlan freezes the dead letters of the namespace that the request's filter
// selects, and changes none of them; see dlqstore.Store.CreatePlan. For an edit or
// a retag call CreateEditPlan.
func (o *Operator) CreatePlan(ctx context.Context, request dlqstore.PlanRequest) (*dlqstore.Plan, error) {
	if request.Actor == "" {
		return nil, ErrNoActor
	}
	request.Filter.Namespace = o.namespace
	return o.store.CreatePlan(ctx, request)
}

// CreateEditPlan is CreatePlan for an edit or, if it changes nothing but tags, a
// retag: the plan has what would change of each member, and leaves out, with the
// cause, those that the edit cannot be done to or would not change.
func (o *Operator) CreateEditPlan(ctx context.Context, request dlqstore.PlanRequest, wanted job.Edit) (*dlqstore.Plan, error) {
	request, err := WithEdit(request, wanted)
	if err != nil {
		return nil, err
	}
	return o.CreatePlan(ctx, request)
}

// WithEdit returns the request for a plan of an edit, or of a retag if that is its
// verb, for callers with a store and no Temporal.
func WithEdit(request dlqstore.PlanRequest, wanted job.Edit) (dlqstore.PlanRequest, error) {
	planned, err := edit.Plan(request, wanted)
	if err != nil {
		return request, fmt.Errorf("operator: plan: %w", err)
	}
	return planned, nil
}

// Plan returns a plan and how far its operation is, or dlqstore.ErrNotFound.
func (o *Operator) Plan(ctx context.Context, planID string) (*dlqstore.Plan, error) {
	return o.store.Plan(ctx, o.namespace, planID)
}

// Plans returns the newest plans of the namespace, the newest first: at most limit
// of them, 50 if that is 0.
func (o *Operator) Plans(ctx context.Context, limit int) ([]dlqstore.Plan, error) {
	return o.store.Plans(ctx, o.namespace, limit)
}

// PlanItems returns members of a plan and what became of each; see
// dlqstore.Store.PlanItems.
func (o *Operator) PlanItems(ctx context.Context, planID string, state dlqstore.ItemState, after, limit int) ([]dlqstore.PlanItem, error) {
	if _, err := o.Plan(ctx, planID); err != nil {
		return nil, err
	}
	return o.store.PlanItems(ctx, planID, state, after, limit)
}

// ApplyRequest asks for the operation of a plan.
type ApplyRequest struct {
	PlanID string
	// Settings replace those of the plan; nil keeps them.
	Settings *job.BulkSettings
	Actor    string
}

// Apply starts the operation of a plan, which the workers of the dead-letter queue
// carry out, and returns when Temporal has accepted it. A plan that is being
// applied goes on as it is, whoever applies it again, and one whose workflow was
// terminated goes on from where it was. A plan that has ended or expired is a
// *dlqstore.PlanStateError, of which an event of verb apply_refused tells.
func (o *Operator) Apply(ctx context.Context, request ApplyRequest) (plan *dlqstore.Plan, err error) {
	if request.Actor == "" {
		return nil, ErrNoActor
	}
	defer func() { err = o.noteRefusal(ctx, dlqstore.VerbApply, request.PlanID, request.Actor, err) }()
	plan, err = o.Plan(ctx, request.PlanID)
	if err != nil {
		return nil, err
	}
	if err := plan.Appliable(); err != nil {
		return nil, err
	}
	if request.Settings != nil {
		if err := request.Settings.Check(plan.Verb); err != nil {
			return nil, fmt.Errorf("operator: apply %s: %w", plan.ID, err)
		}
	}
	_, err = o.client.ExecuteWorkflow(ctx, client.StartWorkflowOptions{
		ID:                       job.BulkWorkflowID(plan.ID),
		TaskQueue:                o.taskQueue,
		WorkflowIDConflictPolicy: enumspb.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING,
		// One that completed is final; one that was terminated may go on.
		WorkflowIDReusePolicy: enumspb.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE_FAILED_ONLY,
		StaticSummary:         fmt.Sprintf("Bulk %s of %d dead letters", plan.Verb, plan.Members),
	}, job.BulkWorkflowType, job.BulkInput{PlanID: plan.ID, Actor: request.Actor, Settings: request.Settings})
	var ended *serviceerror.WorkflowExecutionAlreadyStarted
	if err != nil && !errors.As(err, &ended) {
		return nil, fmt.Errorf("operator: apply %s: %w", plan.ID, err)
	}
	return plan, nil
}

// FollowPlan tells of a plan's progress until its operation has ended, or ctx has:
// the operation goes on without its followers. It looks at Postgres only.
func (o *Operator) FollowPlan(ctx context.Context, planID string, progress func(*dlqstore.Plan)) (*dlqstore.Plan, error) {
	ticker := time.NewTicker(followInterval)
	defer ticker.Stop()
	for {
		plan, err := o.Plan(ctx, planID)
		switch {
		case err != nil && (ctx.Err() != nil || !errors.Is(err, dlqstore.ErrUnavailable) && !errors.Is(err, dlqstore.ErrTimeout)):
			return nil, err
		case err == nil:
			progress(plan)
			if plan.State.IsFinal() {
				return plan, nil
			}
		}
		select {
		case <-ctx.Done():
			return plan, ctx.Err()
		case <-ticker.C:
		}
	}
}

// PausePlan has the operation of a plan wait, after the few members that it has in
// hand. A pause is taken when a worker of the dead-letter queue gets to it. Of a plan
// that has ended, or whose operation has not begun, it is a *dlqstore.PlanStateError,
// of which an event of verb pause_refused tells; so with the next two.
func (o *Operator) PausePlan(ctx context.Context, planID, actor string) error {
	return o.control(ctx, planID, job.BulkPauseMessage, actor)
}

// ResumePlan has a paused operation go on.
func (o *Operator) ResumePlan(ctx context.Context, planID, actor string) error {
	return o.control(ctx, planID, job.BulkResumeMessage, actor)
}

// CancelPlan ends the operation of a plan, after the few members that it has in
// hand: the others stay as they are. A plan that was not applied is void then.
func (o *Operator) CancelPlan(ctx context.Context, planID, actor string) error {
	if actor == "" {
		return ErrNoActor
	}
	plan, err := o.Plan(ctx, planID)
	if err != nil {
		return o.noteRefusal(ctx, dlqstore.VerbCancel, planID, actor, err)
	}
	if plan.State != job.PlanPlanned {
		return o.control(ctx, planID, job.BulkCancelMessage, actor)
	}
	// An operation may have been started and not have begun.
	err = o.signal(ctx, planID, job.BulkCancelMessage, actor)
	if notFound := (*serviceerror.NotFound)(nil); errors.As(err, &notFound) {
		_, err = o.store.MarkPlan(ctx, o.namespace, planID, job.PlanCancelled, actor, "")
	}
	return err
}

// control sends a message, whose name is that of the verb in the audit.
func (o *Operator) control(ctx context.Context, planID, message, actor string) (err error) {
	if actor == "" {
		return ErrNoActor
	}
	defer func() { err = o.noteRefusal(ctx, message, planID, actor, err) }()
	plan, err := o.Plan(ctx, planID)
	switch {
	case err != nil:
		return err
	case plan.State.IsFinal():
		return &dlqstore.PlanStateError{ID: planID, Cause: fmt.Sprintf("it is %s", plan.State)}
	}
	err = o.signal(ctx, planID, message, actor)
	notFound := (*serviceerror.NotFound)(nil)
	switch {
	case errors.As(err, &notFound) && plan.State == job.PlanPlanned:
		return &dlqstore.PlanStateError{ID: planID, Cause: "it has not been applied"}
	case errors.As(err, &notFound):
		return &dlqstore.PlanStateError{ID: planID, Cause: "its workflow has ended; apply it again, and it goes on from where it was"}
	default:
		return err
	}
}

// noteRefusal writes an event if the error is a refusal of a verb on a plan.
func (o *Operator) noteRefusal(ctx context.Context, verb, planID, actor string, err error) error {
	return o.store.NoteRefusal(ctx, dlqstore.Asked{Verb: verb, Key: dlqstore.Key{Namespace: o.namespace}, Actor: actor, PlanID: planID}, err)
}

func (o *Operator) signal(ctx context.Context, planID, message, actor string) error {
	return o.client.SignalWorkflow(ctx, job.BulkWorkflowID(planID), "", message, job.BulkControl{Actor: actor})
}
