package activities

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/activity"
)

const (
	// bulkBeat is how often a stretch tells that it lives and asks whether to stop,
	// and bulkBeatLimit how long an answer may take.
	bulkBeat      = time.Second
	bulkBeatLimit = 5 * time.Second
)

// heed heartbeats until stop is called. The context ends when the operation is told
// to wait or to end, or goes on without this try of its activity. The SDK would hold
// most heartbeats back, and let thousands of members be done in the meantime.
func heed(ctx context.Context, service workflowservice.WorkflowServiceClient, info activity.Info) (heeding context.Context, stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var beating sync.WaitGroup
	beating.Go(func() {
		defer cancel()
		ticker := time.NewTicker(bulkBeat)
		defer ticker.Stop()
		for told := false; !told; {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				told = beat(ctx, service, info)
			}
		}
	})
	return ctx, func() {
		cancel()
		beating.Wait()
	}
}

// beat reports whether the activity is to stop.
func beat(ctx context.Context, service workflowservice.WorkflowServiceClient, info activity.Info) bool {
	ctx, cancel := context.WithTimeout(ctx, bulkBeatLimit)
	defer cancel()
	heard, err := service.RecordActivityTaskHeartbeat(ctx, &workflowservice.RecordActivityTaskHeartbeatRequest{
		Namespace: info.Namespace, TaskToken: info.TaskToken, Identity: runtimeActor,
	})
	var gone *serviceerror.NotFound
	return heard.GetCancelRequested() || errors.As(err, &gone)
}
