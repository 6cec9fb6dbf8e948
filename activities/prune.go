package activities

import (
	"context"
	"errors"
	"time"

	"go.temporal.io/sdk/activity"

	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/job"
)

// retentionActor is who prunes by schedule.
const retentionActor = "retention"

// pruneStretch is how long one activity begins further batches.
const pruneStretch = 20 * time.Second

// Prune is one stretch of a retention run: it removes what the enabled policies of
// the activity's own namespace let go. It may run any number of times, beside
// others of its kind; killed, it loses nothing. What a batch could not do fails the
// activity only when no batch before it did anything.
//
// Of the state it reads where the run stands. Runs of earlier builds hand over none.
func (a *Activities) Prune(ctx context.Context, state job.PruneOutput) error {
	info := activity.GetInfo(ctx)
	service := a.client(ctx, info).WorkflowService()
	if !state.Begun {
		every, err := askSchedule(ctx, service, info, job.RetentionScheduleID)
		if err != nil {
			return err
		}
		again := state.Again
		state = job.PruneOutput{Begun: true, Every: every}
		if again && every == 0 { // paused or deleted since the last one
			state.Done = true
			return completePlain(ctx, service, info, state)
		}
	}
	stopBeating := beatWhile(ctx)
	pruned, err := a.Store.Prune(ctx, dlqstore.PruneRequest{Namespace: info.Namespace, Actor: retentionActor, Within: pruneStretch})
	stopBeating()
	if err != nil && (len(pruned.ByPolicy) == 0 || errors.Is(err, context.Canceled)) {
		return laterIfRejected(err)
	}
	return completePlain(ctx, service, info, job.PruneOutput{Pruned: pruned.ByPolicy, Done: pruned.Done, Begun: true, Every: state.Every})
}
