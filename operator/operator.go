package operator

import (
	"context"
	"errors"
	"fmt"

	"go.temporal.io/sdk/client"

	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/internal/pace"
	"github.com/deadletter-dev/deadletter/internal/replay"
	"github.com/deadletter-dev/deadletter/job"
)

// Config is what an Operator works on.
type Config struct {
	// Store has the dead letters. Required.
	Store *dlqstore.Store
	// Client is connected to the namespace of the jobs. Required. The operator
	// does not close it.
	Client client.Client
	// Namespace is the client's. Empty means "default".
	Namespace string
	// TaskQueue is that of the dead-letter activities, which carry out bulk
	// operations. Empty means job.DefaultTaskQueue.
	TaskQueue string
	// UIURL is where the Temporal UI is, such as http://localhost:8233, for the
	// addresses of jobs. Empty means that there is none to tell.
	UIURL string
	// OnLimited, if not nil, is told once, by a goroutine of a verb, that the Temporal
	// server refuses requests of the namespace for its limits (RESOURCE_EXHAUSTED).
	// The verb goes on, more slowly.
	OnLimited func(error)
}

// Operator runs the verbs on one namespace. It is safe for concurrent use.
type Operator struct {
	store     *dlqstore.Store
	client    client.Client
	service   *pace.Service // the client's, for what is not to be repeated when the server is away
	namespace string
	taskQueue string
	uiURL     string
}

// New returns an operator, or an error that names every fault of the config.
func New(config Config) (*Operator, error) {
	var faults []error
	if config.Store == nil {
		faults = append(faults, errors.New("operator: Config.Store is missing"))
	}
	if config.Client == nil {
		faults = append(faults, errors.New("operator: Config.Client is missing"))
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	if config.Namespace == "" {
		config.Namespace = client.DefaultNamespace
	}
	if config.TaskQueue == "" {
		config.TaskQueue = job.DefaultTaskQueue
	}
	return &Operator{
		store: config.Store, client: config.Client, service: pace.New(config.Client.WorkflowService(), config.OnLimited), namespace: config.Namespace, taskQueue: config.TaskQueue,
		uiURL: config.UIURL,
	}, nil
}

// ErrNoActor is returned by every verb that changes something and is not told
// who asks.
var ErrNoActor = errors.New("operator: the actor is missing: say who asks")

// List returns one page of the namespace's dead letters, without their wire
// bytes, and the cursor of the next page, empty after the last.
func (o *Operator) List(ctx context.Context, filter dlqstore.Filter, page dlqstore.Page) ([]dlqstore.DeadLetter, string, error) {
	filter.Namespace = o.namespace
	return o.store.List(ctx, filter, page)
}

// ReplayRequest asks for one replay.
type ReplayRequest struct {
	// WorkflowID names the dead letter. Required.
	WorkflowID string
	// RunID is needed only when several runs of the workflow id are dead letters.
	RunID string
	// RequestID makes the request repeatable: the same id gives the same new job.
	// Empty means a fresh id: every call is a replay of its own.
	RequestID string
	// AllowSuperseded replays a dead letter whose job, reset by a person, succeeded
	// after all. Without it that is a *dlqstore.SupersededError.
	AllowSuperseded bool
	// Actor is who asks. Required.
	Actor string
}

// Replay starts a new job from a dead letter, with a fresh budget and age, and
// returns when Temporal has confirmed the start. The dead letter stays.
//
// The error is dlqstore.ErrNotFound, ErrAmbiguous, ErrRequestConflict or
// ErrRefused when repeating the call cannot help. After another error, an outage
// say, the same RequestID may be used again; without one the replay may have been
// counted and is then finished by the workers of the dead-letter queue.
func (o *Operator) Replay(ctx context.Context, request ReplayRequest) (job.ReplayOutput, error) {
	if request.Actor == "" {
		return job.ReplayOutput{}, ErrNoActor
	}
	key, err := o.store.ResolveFor(ctx, o.asked(dlqstore.VerbReplay, request.WorkflowID, request.RunID, request.Actor, request.RequestID))
	if err != nil {
		return job.ReplayOutput{}, err
	}
	starter := replay.Starter{Store: o.store, Service: o.service}
	return starter.Replay(ctx, dlqstore.ReplayRequest{Key: key, RequestID: request.RequestID, Actor: request.Actor, AllowSuperseded: request.AllowSuperseded})
}

func (o *Operator) asked(verb, workflowID, runID, actor, requestID string) dlqstore.Asked {
	return dlqstore.Asked{
		Verb: verb, Key: dlqstore.Key{Namespace: o.namespace, WorkflowID: workflowID, RunID: runID}, Actor: actor, RequestID: requestID,
	}
}

// Purge removes one dead letter for good: dlqstore.ErrNotFound when there is
// none, ErrAmbiguous when runID is empty and several runs are dead letters. A
// running job is never touched.
func (o *Operator) Purge(ctx context.Context, workflowID, runID, actor string) (dlqstore.Key, error) {
	if actor == "" {
		return dlqstore.Key{}, ErrNoActor
	}
	key, err := o.store.ResolveFor(ctx, o.asked(dlqstore.VerbPurge, workflowID, runID, actor, ""))
	if err != nil {
		return dlqstore.Key{}, err
	}
	return key, o.store.Purge(ctx, key, actor)
}

// PurgeMatching removes every dead letter of the namespace that the request's
// filter selects, for good. An empty filter without All is
// dlqstore.ErrUnbounded; more matches than Limit are a dlqstore.CapError, and
// nothing is removed.
func (o *Operator) PurgeMatching(ctx context.Context, request dlqstore.PurgeRequest) (int64, error) {
	if request.Actor == "" {
		return 0, ErrNoActor
	}
	request.Filter.Namespace = o.namespace
	return o.store.PurgeMatching(ctx, request)
}

// Count returns how many dead letters of the namespace the filter selects.
func (o *Operator) Count(ctx context.Context, filter dlqstore.Filter) (int64, error) {
	filter.Namespace = o.namespace
	n, err := o.store.Count(ctx, filter)
	if err != nil {
		return 0, fmt.Errorf("operator: count: %w", err)
	}
	return n, nil
}
