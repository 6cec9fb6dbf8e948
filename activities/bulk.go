package activities

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"go.temporal.io/sdk/activity"
	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"

	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/internal/edit"
	"github.com/deadletter-dev/deadletter/internal/pace"
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
	bulkChunkTime = time.Second
	// bulkChunkLimit ends a chunk whose servers hang.
	bulkChunkLimit = time.Minute
	// bulkLanes is how many chunks are under way at once when no rate is asked for.
	bulkLanes = 2
	// bulkTries is how often a start is tried within a chunk. A chunk of which not
	// one start succeeds is an outage, and is tried again as a whole, up to
	// bulkOutageTries times: some three minutes. Where others succeed, a start is given
	// up when it was decided bulkGiveUp ago.
	bulkTries       = 4
	bulkFirstWait   = 200 * time.Millisecond
	bulkOutageTries = 10
	bulkGiveUp      = time.Minute
	// bulkWatch is how long one deadletter.BulkWatch waits, and bulkPoll how often it looks.
	bulkWatch = 5 * time.Minute
	bulkPoll  = 500 * time.Millisecond
)

// BulkBegin lets a plan's operation begin, or go on after its workflow was ended
// from outside. A plan that has ended, expired, or never was cannot.
func (a *Activities) BulkBegin(ctx context.Context, in job.BulkInput) (job.BulkPlan, error) {
	info := activity.GetInfo(ctx)
	fault := in.Check()
	if want := job.BulkWorkflowID(in.PlanID); fault == nil && info.WorkflowExecution.ID != want {
		// Under one id there is one operation, which can be found, paused and cancelled.
		fault = errors.New("an operation of this plan must have workflow id " + want)
	}
	if fault != nil {
		return job.BulkPlan{}, a.refuse(ctx, dlqstore.Asked{
			Verb: dlqstore.VerbApply, Key: dlqstore.Key{Namespace: info.Namespace}, Actor: cmp.Or(in.Actor, "workflow"), PlanID: in.PlanID,
		}, fault)
	}
	plan, err := a.Store.BeginPlan(ctx, info.Namespace, in.PlanID, in.Actor, in.Settings)
	if err != nil {
		return job.BulkPlan{}, finalWork(err)
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
		return job.BulkStepped{}, finalWork(err)
	}
	switch {
	case plan.State.IsFinal():
		return job.BulkStepped{Progress: plan.Progress()}, nil
	case plan.State == job.PlanPlanned:
		return job.BulkStepped{}, final(&dlqstore.PlanStateError{ID: plan.ID, Cause: "it has not been applied"})
	}
	began := plan.Progress().Ended()
	if in.Ended != nil {
		began = *in.Ended
	}
	step := a.newBulkStep(ctx, plan, plan.Parameters.WithDefaults())
	step.taken = int(plan.Progress().Ended() - began)
	heeding, stop := heed(ctx, a.client(ctx, info).WorkflowService(), info)
	err = step.stretch(heeding, in.Limit)
	stop()
	if err != nil {
		return job.BulkStepped{}, finalWork(err)
	}
	plan, err = a.Store.Plan(context.WithoutCancel(ctx), info.Namespace, in.PlanID)
	if err != nil {
		return job.BulkStepped{}, finalWork(err)
	}
	return job.BulkStepped{Taken: int(plan.Progress().Ended() - began), Progress: plan.Progress()}, nil
}

type bulkStep struct {
	store   *dlqstore.Store
	starter replay.Starter
	plan    *dlqstore.Plan
	limiter *rate.Limiter
	slots   chan struct{} // one for each start that may be under way
	// outage allows a chunk without one success to fail as a whole.
	outage bool

	mu     sync.Mutex
	after  int // the position behind which the next chunk begins
	inHand int // members of chunks under way
	taken  int // done and failed, by earlier tries too
}

func (a *Activities) newBulkStep(ctx context.Context, plan *dlqstore.Plan, settings job.BulkSettings) *bulkStep {
	info := activity.GetInfo(ctx)
	limit := rate.Inf
	if settings.Rate > 0 {
		limit = rate.Limit(settings.Rate)
	}
	return &bulkStep{
		store: a.Store, plan: plan,
		starter: replay.Starter{Store: a.Store, Service: pace.New(a.client(ctx, info).WorkflowService(), nil)},
		limiter: rate.NewLimiter(limit, 1), slots: make(chan struct{}, settings.Concurrency), outage: info.Attempt < bulkOutageTries,
	}
}

// stretch ends early, without an error, when ctx does: the operation is paused or
// cancelled then, and what has ended is in the store.
func (s *bulkStep) stretch(ctx context.Context, limit int) error {
	until := time.Now().Add(bulkStretch)
	lanes := 1
	if s.limiter.Limit() == rate.Inf {
		lanes = bulkLanes // Postgres works on one chunk while Temporal does on the other
	}
	s.limiter.Allow() // its first token is free, and there may have been a stretch just before
	group, ctx := errgroup.WithContext(ctx)
	for range lanes {
		group.Go(func() error {
			for ctx.Err() == nil && time.Now().Before(until) {
				if more, err := s.next(ctx, limit); err != nil || !more {
					return err
				}
			}
			return nil
		})
	}
	return group.Wait()
}

// next takes one chunk, and reports whether there may be another.
func (s *bulkStep) next(ctx context.Context, limit int) (more bool, err error) {
	members, err := s.pick(ctx, limit)
	if err != nil && ctx.Err() == nil {
		return false, err
	}
	if len(members) == 0 || s.limiter.Wait(ctx) != nil {
		return false, nil
	}
	// What has begun is finished, also when the operation is told to stop.
	chunk, cancel := context.WithTimeout(context.WithoutCancel(ctx), bulkChunkLimit)
	defer cancel()
	taken, err := s.chunk(chunk, members)
	if rejectsMember(err) {
		taken, err = s.oneByOne(chunk, members)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inHand -= len(members)
	s.taken += taken
	return err == nil, err
}

func (s *bulkStep) pick(ctx context.Context, limit int) ([]dlqstore.Member, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	size := bulkChunk
	if perSecond := s.limiter.Limit(); perSecond != rate.Inf {
		size = min(size, max(1, int(math.Ceil(float64(perSecond)*bulkChunkTime.Seconds()))))
	}
	if limit > 0 {
		size = min(size, limit-s.taken-s.inHand)
	}
	if size <= 0 {
		return nil, nil
	}
	members, err := s.store.Members(ctx, s.plan.ID, s.after, size)
	if err != nil || len(members) == 0 {
		return nil, err
	}
	members = withinBytes(members, bulkChunkBytes)
	s.after = members[len(members)-1].Position
	s.inHand += len(members)
	return members, nil
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

// chunk returns how many of the members are done or failed.
func (s *bulkStep) chunk(ctx context.Context, members []dlqstore.Member) (taken int, err error) {
	if s.plan.Verb == job.BulkReplay {
		starts, err := s.store.BeginMemberReplays(ctx, s.plan, members)
		if err != nil {
			return 0, err
		}
		return s.finish(ctx, starts)
	}
	for range members[1:] { // the first has waited
		if err := s.limiter.Wait(ctx); err != nil {
			return 0, err
		}
	}
	if s.plan.Verb == job.BulkPurge {
		return len(members), s.store.PurgeMembers(ctx, s.plan, members)
	}
	var wanted job.Edit
	if err := json.Unmarshal([]byte(s.plan.Parameters.Edit), &wanted); err != nil {
		return 0, fmt.Errorf("the edit of %s does not decode: %w", s.plan.ID, err)
	}
	return len(members), s.store.EditMembers(ctx, s.plan, members, func(request dlqstore.EditRequest) dlqstore.EditRequest {
		return edit.Request(request, wanted)
	})
}

// rejectsMember reports whether Postgres rejects what a member has in it: a schema that
// does not fit is no member's fault.
func rejectsMember(err error) bool {
	return errors.Is(err, dlqstore.ErrRejected) && !errors.Is(err, dlqstore.ErrSchema)
}

// oneByOne is chunk for members of which Postgres rejects one at least: that one fails,
// with the cause, and the others do not.
func (s *bulkStep) oneByOne(ctx context.Context, members []dlqstore.Member) (taken int, err error) {
	for i := range members {
		n, err := s.chunk(ctx, members[i:i+1])
		if rejectsMember(err) {
			failed := dlqstore.MemberEnd{Position: members[i].Position, State: dlqstore.ItemFailed, Error: err.Error()}
			n, err = 1, s.store.EndMemberReplays(ctx, s.plan, nil, []dlqstore.MemberEnd{failed})
		}
		if err != nil {
			return taken, err
		}
		taken += n
	}
	return taken, nil
}

// finish starts the jobs of replays that are decided, and notes how it went.
func (s *bulkStep) finish(ctx context.Context, starts []dlqstore.MemberStart) (taken int, err error) {
	runs, errs := make([]string, len(starts)), make([]error, len(starts))
	var starting sync.WaitGroup
	tried := 0
	for i := range starts {
		if i > 0 && s.limiter.Wait(ctx) != nil {
			break // those that are left are pending still
		}
		tried++
		s.slots <- struct{}{}
		starting.Go(func() {
			defer func() { <-s.slots }()
			runs[i], errs[i] = start(ctx, s.starter, &starts[i].ReplayStart)
		})
	}
	starting.Wait()
	var started []dlqstore.MemberStarted
	var refused, unsure []dlqstore.MemberEnd
	var outage error
	for i, m := range starts[:tried] {
		switch err := errs[i]; {
		case err == nil:
			started = append(started, dlqstore.MemberStarted{Position: m.Position, NewRunID: runs[i]})
		case replay.IsFinal(err):
			refused = append(refused, dlqstore.MemberEnd{Position: m.Position, State: dlqstore.ItemFailed, Error: err.Error()})
		case ctx.Err() != nil:
			outage = err // the chunk's time is over, and this one is pending still
		default:
			outage = err
			if s.outage && time.Since(m.Replay.RequestedAt) < bulkGiveUp {
				continue // pending still
			}
			unsure = append(unsure, dlqstore.MemberEnd{
				Position: m.Position, State: dlqstore.ItemFailed,
				Error: "the start is not confirmed, and the workers of the dead-letter queue go on trying it: " + err.Error(),
			})
		}
	}
	if len(started) > 0 || !s.outage {
		outage = nil
		refused = append(refused, unsure...)
	}
	// Otherwise nothing gets through, which is no fault of these members.
	if err := s.store.EndMemberReplays(context.WithoutCancel(ctx), s.plan, started, refused); err != nil {
		return 0, err
	}
	return len(started) + len(refused), outage
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
		if err != nil || !in.Wait || outcomes.Open == 0 || outcomes.LeastRefailShare() > in.MaxRefail || time.Since(began) > bulkWatch {
			return outcomes, finalWork(err)
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
			return job.BulkProgress{}, finalWork(err)
		}
	}
	plan, err := a.Store.MarkPlan(ctx, info.Namespace, in.PlanID, in.State, in.Actor, in.Cause)
	if err != nil {
		return job.BulkProgress{}, finalWork(err)
	}
	return plan.Progress(), nil
}

func (a *Activities) finishBegun(ctx context.Context, info activity.Info, planID string) error {
	plan, err := a.Store.Plan(ctx, info.Namespace, planID)
	if err != nil || plan.Verb != job.BulkReplay {
		return err
	}
	settings := plan.Parameters.WithDefaults()
	settings.Rate = 0 // these were paced when they were begun
	step := a.newBulkStep(ctx, plan, settings)
	for {
		starts, err := a.Store.BegunMembers(ctx, plan, bulkChunk)
		if err != nil || len(starts) == 0 {
			return err
		}
		if _, err := step.finish(ctx, starts); err != nil {
			return err
		}
	}
}
