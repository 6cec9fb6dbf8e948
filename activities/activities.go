package activities

import (
	"context"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"

	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/job"
)

// Activities are the activities of the dead-letter task queue. The fields are set
// once; the methods are safe for concurrent use.
type Activities struct {
	// Store keeps the dead letters. Required.
	Store *dlqstore.Store
	// MoveTx, if set, runs inside the transaction of every move.
	MoveTx dlqstore.Hook
	// OnClient, if set, is told the worker's client and namespace by each activity.
	OnClient func(c client.Client, namespace string)

	// spared are closed runs that need no dead letter.
	spared runSet
	turns  turns
}

// client returns the worker's own client.
func (a *Activities) client(ctx context.Context, info activity.Info) client.Client {
	c := activity.GetClient(ctx)
	if a.OnClient != nil {
		a.OnClient(c, info.Namespace)
	}
	return c
}

// Registry is the part of a worker that Register needs.
type Registry interface {
	RegisterActivityWithOptions(a any, options activity.RegisterOptions)
}

// Register registers the activities under their wire names.
func (a *Activities) Register(r Registry) {
	for name, fn := range map[string]any{
		job.MoveActivityType:      a.Move,
		job.ReplayActivityType:    a.Replay,
		job.PurgeActivityType:     a.Purge,
		job.EditActivityType:      a.Edit,
		job.PlanActivityType:      a.Plan,
		job.NoteActivityType:      a.Note,
		job.PinActivityType:       a.Pin,
		job.RefuseActivityType:    a.Refuse,
		job.SettleActivityType:    a.Settle,
		job.SweepPageActivityType: a.SweepPage,
		job.BulkBeginActivityType: a.BulkBegin,
		job.BulkStepActivityType:  a.BulkStep,
		job.BulkWatchActivityType: a.BulkWatch,
		job.BulkMarkActivityType:  a.BulkMark,
		job.PruneActivityType:     a.Prune,
	} {
		r.RegisterActivityWithOptions(fn, activity.RegisterOptions{Name: name})
	}
}

// RegisterForJobs registers what a worker that runs jobs needs.
func RegisterForJobs(r Registry) {
	r.RegisterActivityWithOptions(StartDelay, activity.RegisterOptions{Name: job.StartDelayActivityType})
	r.RegisterActivityWithOptions(Attempt, activity.RegisterOptions{Name: job.AttemptActivityType})
}
