package activities

import (
	"context"
	"errors"
	"math"
	"sync"
	"time"

	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/activity"
	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"

	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/internal/replay"
	"github.com/deadletter-dev/deadletter/job"
)

const (
	// bulkStretch is how long one deadletter.BulkStep goes on to further chunks.
	bulkStretch = 20 * time.Second
	// bulkChunk and bulkChunkBytes bound what one transaction takes, and what is in
	// memory at once.
	bulkChunk      = 100
	bulkChunkBytes = 16 << 20
	// bulkChunkTime is how long a chunk may take at the chosen rate: a pause or a
	// cancellation waits for it.
	bulkChunkTime = 2 * time.Second
	// bulkChunkLimit ends a chunk whose servers hang.
	bulkChunkLimit = time.Minute
	// bulkTries is how often a start is tried within a chunk. A chunk of which not
	// one start succeeds is an outage, and is tried again as a whole, up to
	// bulkOutageTries times: some ten minutes.
	bulkTries       = 4
	bulkFirstWait   = 200 * time.Millisecond
	bulkOutageTries = 20
	// bulkWatch is how long one deadletter.BulkWatch waits, and bulkPoll how often it looks.
	bulkWatch = 5 * time.Minute
	bulkPoll  = 500 * time.Millisecond
)

// BulkBegin lets a plan's operation begin, or go on after its workflow was ended
// from outside. A plan that has ended, expired, or never was cannot.
func (a *Activities) BulkBegin(ctx context.Context, in job.BulkInput) (job.BulkPlan, error) {
	plan, err := a.Store.BeginPlan(ctx, activity.GetInfo(ctx).Namespace, in.PlanID, in.Actor, in.Settings)
	if err != nil {
		return job.BulkPlan{}, final(err)
	}
	return job.BulkPlan{Verb: plan.Verb, Settings: plan.Parameters.WithDefaults(), Progress: plan.Progress()}, nil
}

// BulkStep works on pending members of a plan for some seconds, or until Limit of
// them are done or failed, and ends each in the store. It may be killed anywhere
// and run beside itself: no member is done twice.
func (a *Activities) BulkStep(ctx context.Context, in job.BulkStep) (job.BulkStepped, error) {
	info := activity.GetInfo(ctx)
	plan, err := a.Store.Plan(ctx, info.Namespace, in.PlanID)
	if err != nil {
		return job.BulkStepped{}, final(err)
	}
	step := bulkStep{
		store: a.Store, service: a.client(ctx, info).WorkflowService(), plan: plan, settings: in.Settings,
		limiter: rate.NewLimiter(limitOf(in.Settings.Rate), 1),
		outage:  info.Attempt < bulkOutageTries,
	}
	stopBeating := beatWhile(ctx)
	err = step.stretch(ctx, in.Limit)
	stopBeating()
	if err != nil {
		return job.BulkStepped{}, err
	}
	plan, err = a.Store.Plan(context.WithoutCancel(ctx), info.Namespace, in.PlanID)
	if err != nil {
		return job.BulkStepped{}, err
	}
	return job.BulkStepped{Taken: step.taken, Progress: plan.Progress()}, nil
}

func limitOf(perSecond float64) rate.Limit {
	if perSecond <= 0 {
		return rate.Inf
	}
	return rate.Limit(perSecond)
}

type bulkStep struct {
	store    *dlqstore.Store
	service  workflowservice.WorkflowServiceClient
	plan     *dlqstore.Plan
	settings job.BulkSettings
	limiter  *rate.Limiter
	// outage allows a chunk without one success to fail as a whole.
	outage bool
	taken  int // done and failed
}

// stretch ends early, without an error, when ctx does: the operation is paused or
// cancelled then, and what has ended is in the store.
func (s *bulkStep) stretch(ctx context.Context, limit int) error {
	began := time.Now()
	s.limiter.Allow() // its first token is free, and there may have been a stretch just before
	for ctx.Err() == nil && time.Since(began) < bulkStretch {
		size := s.chunkSize()
		if limit > 0 {
			size = min(size, limit-s.taken)
		}
		if size <= 0 {
			return nil
		}
		members, err := s.store.Members(ctx, s.plan.ID, 0, size)
		if err != nil || len(members) == 0 {
			return ignoreEnd(ctx, err)
		}
		if s.limiter.Wait(ctx) != nil {
			return nil
		}
		// What has begun is finished, also when the operation is told to stop.
		chunk, cancel := context.WithTimeout(context.WithoutCancel(ctx), bulkChunkLimit)
		err = s.chunk(chunk, withinBytes(members, bulkChunkBytes))
		cancel()
		if err != nil {
			return err
		}
	}
	return nil
}

func ignoreEnd(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

func (s *bulkStep) chunkSize() int {
	if s.settings.Rate <= 0 {
		return bulkChunk
	}
	return min(bulkChunk, max(1, int(math.Ceil(s.settings.Rate*bulkChunkTime.Seconds()))))
}

// withinBytes keeps the first members, and at least one.
func withinBytes(members []dlqstore.Member, limit int) []dlqstore.Member {
	size := 0
	for i, m := range members {
		if size += m.Bytes; size > limit && i > 0 {
			return members[:i]
		}
	}
	return members
}

func (s *bulkStep) chunk(ctx context.Context, members []dlqstore.Member) error {
	if s.plan.Verb == job.BulkReplay {
		return s.replay(ctx, members)
	}
	for range members[1:] { // the first has waited
		if err := s.limiter.Wait(ctx); err != nil {
			return err
		}
	}
	s.taken += len(members)
	return s.store.PurgeMembers(ctx, s.plan, members)
}

func (s *bulkStep) replay(ctx context.Context, members []dlqstore.Member) error {
	starts, err := s.store.BeginMemberReplays(ctx, s.plan, members)
	if err != nil {
		return err
	}
	return s.finish(ctx, starts)
}

// finish starts the jobs of replays that are decided, and notes how it went.
func (s *bulkStep) finish(ctx context.Context, starts []dlqstore.MemberStart) error {
	starter := replay.Starter{Store: s.store, Service: s.service}
	var mu sync.Mutex
	var started []dlqstore.MemberStarted
	var refused []dlqstore.MemberEnd
	var unsure []error
	var unsureEnds []dlqstore.MemberEnd
	group := errgroup.Group{}
	group.SetLimit(s.settings.Concurrency)
	for i := range starts {
		if i > 0 && s.limiter.Wait(ctx) != nil {
			break // those that are left are pending still
		}
		group.Go(func() error {
			runID, err := start(ctx, starter, &starts[i].ReplayStart)
			mu.Lock()
			defer mu.Unlock()
			position := starts[i].Position
			switch {
			case err == nil:
				started = append(started, dlqstore.MemberStarted{Position: position, NewRunID: runID})
			case replay.IsFinal(err):
				refused = append(refused, dlqstore.MemberEnd{Position: position, State: dlqstore.ItemFailed, Error: err.Error()})
			default:
				unsure = append(unsure, err)
				unsureEnds = append(unsureEnds, dlqstore.MemberEnd{
					Position: position, State: dlqstore.ItemFailed,
					Error: "the start is not confirmed, and the workers of the dead-letter queue go on trying it: " + err.Error(),
				})
			}
			return nil
		})
	}
	_ = group.Wait() // its functions return no error
	if len(unsure) > 0 && len(started) == 0 && s.outage {
		// Nothing gets through: that is no fault of these members.
		return errors.Join(s.store.EndMemberReplays(context.WithoutCancel(ctx), s.plan, nil, refused), unsure[0])
	}
	s.taken += len(started) + len(refused) + len(unsureEnds)
	return s.store.EndMemberReplays(context.WithoutCancel(ctx), s.plan, started, append(refused, unsureEnds...))
}

// start tries a start a few times: one may fail where others do not.
func start(ctx context.Context, starter replay.Starter, replayed *dlqstore.ReplayStart) (runID string, err error) {
	wait := bulkFirstWait
	for try := 1; ; try++ {
		runID, err = starter.Start(ctx, replayed)
		if err == nil || replay.IsFinal(err) || try == bulkTries {
			return runID, err
		}
		select {
		case <-ctx.Done():
			return "", err
		case <-time.After(wait):
			wait *= 3
		}
	}
}

// BulkWatch tells what became of the jobs that a plan has replayed. With Wait it
// returns when the end of all is known, or after some minutes.
func (a *Activities) BulkWatch(ctx context.Context, in job.BulkWatch) (job.BulkOutcomes, error) {
	ticker := time.NewTicker(bulkPoll)
	defer ticker.Stop()
	began := time.Now()
	for {
		outcomes, err := a.Store.Outcomes(ctx, in.PlanID)
		if err != nil || !in.Wait || outcomes.Open == 0 || time.Since(began) > bulkWatch {
			return outcomes, err
		}
		activity.RecordHeartbeat(ctx)
		select {
		case <-ctx.Done():
			return outcomes, ctx.Err()
		case <-ticker.C:
		}
	}
}

// BulkMark notes that an operation is paused, goes on or has ended. Before an end
// it finishes what was begun: a replay that is counted is started.
func (a *Activities) BulkMark(ctx context.Context, in job.BulkMark) (job.BulkProgress, error) {
	info := activity.GetInfo(ctx)
	if in.State.IsFinal() {
		if err := a.finishBegun(ctx, info, in.PlanID); err != nil {
			return job.BulkProgress{}, err
		}
	}
	plan, err := a.Store.MarkPlan(ctx, info.Namespace, in.PlanID, in.State, in.Actor, in.Cause)
	if err != nil {
		return job.BulkProgress{}, final(err)
	}
	return plan.Progress(), nil
}

func (a *Activities) finishBegun(ctx context.Context, info activity.Info, planID string) error {
	plan, err := a.Store.Plan(ctx, info.Namespace, planID)
	if err != nil || plan.Verb != job.BulkReplay {
		return err
	}
	step := bulkStep{
		store: a.Store, service: a.client(ctx, info).WorkflowService(), plan: plan, settings: plan.Parameters.WithDefaults(),
		limiter: rate.NewLimiter(rate.Inf, 1), outage: info.Attempt < bulkOutageTries,
	}
	for {
		starts, err := a.Store.BegunMembers(ctx, plan, bulkChunk)
		if err != nil || len(starts) == 0 {
			return err
		}
		if err := step.finish(ctx, starts); err != nil {
			return err
		}
	}
}
