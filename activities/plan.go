package activities

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"go.temporal.io/sdk/activity"

	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/internal/edit"
	"github.com/deadletter-dev/deadletter/job"
)

// Plan freezes the dead letters of the activity's own namespace that a filter
// selects, and changes none of them. Without a request id the id is the activity's
// own, so that its retries make one plan. It heartbeats every 4 seconds. A request that
// can never succeed, or that Postgres does not finish in five minutes, fails
// non-retryably with job.RefusedErrorType. The answer is without its Parameters.Edit.
func (a *Activities) Plan(ctx context.Context, in job.PlanInput, by job.Sender) (*dlqstore.Plan, error) {
	info := activity.GetInfo(ctx)
	in = in.Signed(sender(info, by))
	request, err := planRequest(in, info.Namespace)
	if err != nil {
		return nil, a.refuse(ctx, dlqstore.Asked{
			Verb: dlqstore.VerbPlan, Key: dlqstore.Key{Namespace: info.Namespace}, Actor: in.Actor, RequestID: in.RequestID,
		}, err)
	}
	stopBeating := beatWhile(ctx)
	plan, err := a.createPlan(ctx, request)
	stopBeating()
	if err != nil {
		return nil, final(err)
	}
	plan.Parameters.Edit = "" // what the caller knows might make the answer too large
	return plan, nil
}

// planTurn is how long a plan waits for its turn in one try: the store's five minutes must
// fit into what is left of the try.
const planTurn = 30 * time.Second

func (a *Activities) createPlan(ctx context.Context, request dlqstore.PlanRequest) (*dlqstore.Plan, error) {
	waiting, cancel := context.WithTimeout(ctx, planTurn)
	defer cancel()
	done, err := a.turn(waiting, dlqstore.VerbPlan)
	if err != nil {
		return nil, fmt.Errorf("activities: wait for other plans: %w", err)
	}
	defer done()
	return a.Store.CreatePlan(ctx, request)
}

func planRequest(in job.PlanInput, namespace string) (dlqstore.PlanRequest, error) {
	request := dlqstore.PlanRequest{
		Verb: in.Verb, All: in.All, Limit: in.Limit,
		Parameters: dlqstore.PlanParameters{
			BulkSettings: in.BulkSettings, IncludeSuperseded: in.IncludeSuperseded, IncludeReplayed: in.IncludeReplayed,
		},
		RequestID: in.RequestID, Actor: in.Actor,
	}
	if err := in.Check(); err != nil {
		return request, err
	}
	if len(in.Filter) > 0 {
		if err := json.Unmarshal(in.Filter, &request.Filter); err != nil {
			return request, err
		}
	}
	if own := request.Filter.Namespace; own != "" && own != namespace {
		return request, fmt.Errorf("filter: namespace %q is not this one, %q: ask there", own, namespace)
	}
	request.Filter.Namespace = namespace
	if in.Edit == nil {
		return request, nil
	}
	return edit.Plan(request, *in.Edit)
}
