package activities

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/internal/closed"
	"github.com/deadletter-dev/deadletter/internal/pace"
	"github.com/deadletter-dev/deadletter/internal/text"
	"github.com/deadletter-dev/deadletter/job"
)

const (
	// sweepOverlap is how far a sweep looks back behind the watermark: a job may be
	// visible that much later than it closed. On a dev server it takes milliseconds.
	sweepOverlap = 5 * time.Minute
	// sweepPageSize bounds one page, and sweepParallel how many histories of it are
	// in memory at once.
	sweepPageSize = 200
	sweepParallel = 4
	// sweepStretch is how long one activity goes on to further pages.
	sweepStretch = 20 * time.Second
	// sweepReading bounds the reading of one job's history.
	sweepReading = 30 * time.Second
	// beatInterval is well within the heartbeat timeouts of our own workflows.
	beatInterval = 4 * time.Second
	// maxLastError bounds what a sweep's state says of a job that was left.
	maxLastError = 1 << 10
)

// SweepPage is one stretch of a sweep: it takes pages of closed jobs from the
// server's list, writes the dead letters that the database does not know of, and
// returns where it stopped. After the last page it moves the watermark. It may run any
// number of times, beside others of its kind; killed, it loses nothing.
//
// A job whose dead letter cannot be written stops nothing: it is noted in the store,
// and tried again by itself at the beginning of later sweeps.
func (a *Activities) SweepPage(ctx context.Context, state job.SweepState) error {
	info := activity.GetInfo(ctx)
	s := sweep{
		activities: a,
		service:    pace.New(a.client(ctx, info).WorkflowService(), nil),
		namespace:  info.Namespace,
		state:      state,
	}
	stopBeating := beatWhile(ctx)
	err := s.run(ctx, info)
	stopBeating()
	if err != nil {
		return laterIfRejected(err)
	}
	return completePlain(ctx, s.service, info, s.state)
}

// rejectedDelay is how long the sweep and the retention wait after Postgres has rejected
// a statement of theirs: no retry mends that, but a person may. If their workflows ended
// instead, the schedules would leave a closed one at each interval.
const rejectedDelay = 5 * time.Minute

func laterIfRejected(err error) error {
	if !errors.Is(err, dlqstore.ErrRejected) {
		return err
	}
	return temporal.NewApplicationErrorWithOptions(err.Error(), job.RefusedErrorType, temporal.ApplicationErrorOptions{NextRetryDelay: rejectedDelay})
}

func beatWhile(ctx context.Context) (stop func()) {
	done := make(chan struct{})
	var beating sync.WaitGroup
	beating.Go(func() {
		ticker := time.NewTicker(beatInterval)
		defer ticker.Stop()
		for {
			select {
			case <-done:
				return
			case <-ctx.Done():
				return
			case <-ticker.C:
				activity.RecordHeartbeat(ctx)
			}
		}
	})
	return func() {
		close(done)
		beating.Wait()
	}
}

type sweep struct {
	activities *Activities
	service    workflowservice.WorkflowServiceClient
	namespace  string

	mu    sync.Mutex // of state, while a page is worked on
	state job.SweepState
}

// run asks the schedule first whether to sweep at all.
func (s *sweep) run(ctx context.Context, info activity.Info) error {
	if !s.state.Begun {
		every, err := askSchedule(ctx, s.service, info, job.SweepScheduleID)
		if err != nil {
			return err
		}
		s.state.Every = every
		if s.state.Again && every == 0 {
			s.state.Done = true // paused or deleted since the last one
			return nil
		}
	}
	return s.stretch(ctx)
}

func (s *sweep) stretch(ctx context.Context) error {
	started := time.Now()
	if !s.state.Begun {
		watermark, err := s.activities.Store.SweepWatermark(ctx, s.namespace)
		if err != nil {
			return err
		}
		if !watermark.IsZero() {
			from := watermark.Add(-sweepOverlap)
			if s.state.From == nil || from.Before(*s.state.From) {
				s.state.From = &from
			}
		} else {
			s.state.From = nil // no sweep has looked at anything yet
		}
		s.state.Begun = true
		if err := s.retryLeft(ctx); err != nil {
			return err
		}
	}
	for {
		if err := s.page(ctx); err != nil {
			return err
		}
		if len(s.state.PageToken) == 0 {
			return s.finish(ctx)
		}
		if time.Since(started) >= sweepStretch {
			return nil
		}
	}
}

// finish moves the watermark to the beginning of the sweep, or to the first job
// that was left without a note of it.
func (s *sweep) finish(ctx context.Context) error {
	watermark := s.state.Until
	if left := s.state.OldestLeft; left != nil && left.Before(watermark) {
		watermark = *left
	}
	var begunFrom *time.Time
	if s.state.From != nil {
		from := s.state.From.Add(sweepOverlap)
		begunFrom = &from
	}
	if _, err := s.activities.Store.AdvanceSweep(ctx, s.namespace, watermark, begunFrom); err != nil {
		return err
	}
	s.state.Done = true
	return nil
}

// retryLeft tries the jobs again that earlier sweeps have left, as many as are due.
func (s *sweep) retryLeft(ctx context.Context) error {
	due, err := s.activities.Store.DueLeft(ctx, s.namespace, sweepPageSize)
	if err != nil {
		return err
	}
	executions := make([]*workflowpb.WorkflowExecutionInfo, len(due))
	for i := range due {
		executions[i] = &workflowpb.WorkflowExecutionInfo{
			Execution: &commonpb.WorkflowExecution{WorkflowId: due[i].WorkflowID, RunId: due[i].RunID},
			CloseTime: timestamppb.New(due[i].ClosedAt),
		}
	}
	unmoved, err := s.unmoved(ctx, executions)
	if err != nil {
		return err
	}
	left, err := s.write(ctx, unmoved)
	if err != nil {
		return err
	}
	for i := range due {
		if !left[due[i].RunID] {
			err := s.activities.Store.ForgetLeft(ctx, s.namespace, due[i].RunID)
			if hopeless(err) || ctx.Err() != nil {
				return err
			}
			if err != nil { // such as a role that may delete nothing
				s.state.LastError = text.Bounded(err.Error(), maxLastError)
			}
		}
	}
	return nil
}

// query selects the jobs that should have a dead letter by the way in which they
// closed: those that were ended from outside, and those that have moved themselves,
// whose dead letters the database may have lost. It has no order, since not every
// visibility store can sort.
func (s *sweep) query() string {
	query := fmt.Sprintf("WorkflowType = '%s' AND %s", job.WorkflowType, closed.Statuses)
	if s.state.From != nil {
		query += fmt.Sprintf(" AND CloseTime >= '%s'", s.state.From.UTC().Format(time.RFC3339Nano))
	}
	return query
}

func (s *sweep) page(ctx context.Context) error {
	list, err := s.service.ListWorkflowExecutions(ctx, &workflowservice.ListWorkflowExecutionsRequest{
		Namespace:     s.namespace,
		PageSize:      sweepPageSize,
		NextPageToken: s.state.PageToken,
		Query:         s.query(),
	})
	if err != nil {
		var invalid *serviceerror.InvalidArgument
		err = fmt.Errorf("activities: list closed jobs: %w", err)
		if errors.As(err, &invalid) { // such as a token of another version of the server
			return temporal.NewNonRetryableApplicationError(err.Error(), job.RefusedErrorType, err)
		}
		return err
	}
	unmoved, err := s.unmoved(ctx, list.GetExecutions())
	if err != nil {
		return err
	}
	if _, err := s.write(ctx, unmoved); err != nil {
		return err
	}
	s.state.PageToken = list.GetNextPageToken()
	return nil
}

func (s *sweep) unmoved(ctx context.Context, listed []*workflowpb.WorkflowExecutionInfo) ([]*workflowpb.WorkflowExecutionInfo, error) {
	keys := make([]dlqstore.Key, len(listed))
	byKey := make(map[dlqstore.Key]*workflowpb.WorkflowExecutionInfo, len(listed))
	for i, execution := range listed {
		keys[i] = s.key(execution.GetExecution())
		byKey[keys[i]] = execution
	}
	keys = slices.DeleteFunc(keys, func(key dlqstore.Key) bool { return s.activities.spared.has(key.RunID) })
	keys, err := s.activities.Store.Unmoved(ctx, keys)
	if err != nil {
		return nil, err
	}
	unmoved := make([]*workflowpb.WorkflowExecutionInfo, len(keys))
	for i, key := range keys {
		unmoved[i] = byKey[key]
	}
	return unmoved, nil
}

func (s *sweep) key(execution *commonpb.WorkflowExecution) dlqstore.Key {
	return dlqstore.Key{Namespace: s.namespace, WorkflowID: execution.GetWorkflowId(), RunID: execution.GetRunId()}
}

// write writes the dead letters of a page, and returns the run ids of those that it had
// to leave. Its error says that no more can be written now, because Postgres or
// Temporal is away or the activity is over; the fault of one job is noted.
func (s *sweep) write(ctx context.Context, unmoved []*workflowpb.WorkflowExecutionInfo) (map[string]bool, error) {
	left := map[string]bool{}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	work := make(chan *workflowpb.WorkflowExecutionInfo)
	var workers sync.WaitGroup
	for range min(sweepParallel, len(unmoved)) {
		workers.Go(func() {
			for execution := range work {
				if ctx.Err() != nil {
					continue
				}
				moved, err := s.one(ctx, execution.GetExecution())
				if hopeless(err) {
					cancel(err)
					continue
				}
				if err := s.note(ctx, execution, moved, err, left); err != nil {
					cancel(err)
				}
			}
		})
	}
	for _, execution := range unmoved {
		work <- execution
	}
	close(work)
	workers.Wait()
	return left, context.Cause(ctx)
}

// away is the failure of a read that the next job's would meet too.
type away struct{ error }

func (a away) Unwrap() error { return a.error }

// hopeless reports whether the next job would fail in the same way. What a hook
// says of other services is its job's affair alone.
func hopeless(err error) bool {
	var server away
	return errors.As(err, &server) || errors.Is(err, dlqstore.ErrUnavailable) ||
		errors.Is(err, dlqstore.ErrSchema) || errors.Is(err, dlqstore.ErrClosed)
}

// note counts what became of a job. Its error says that what was left could not be
// noted in the store either.
func (s *sweep) note(ctx context.Context, execution *workflowpb.WorkflowExecutionInfo, moved bool, cause error, left map[string]bool) error {
	key := s.key(execution.GetExecution())
	if cause != nil {
		err := s.activities.Store.LeaveJob(ctx, key, execution.GetCloseTime().AsTime(), text.Bounded(cause.Error(), maxLastError))
		if err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case cause != nil:
		s.state.Left++
		left[key.RunID] = true
		s.state.LastError = text.Bounded(cause.Error(), maxLastError)
	case moved:
		s.state.Moved++
	}
	return nil
}

// one writes the dead letter of one job, if it is dead.
func (s *sweep) one(ctx context.Context, execution *commonpb.WorkflowExecution) (moved bool, err error) {
	run := closed.Run{Service: s.service, Namespace: s.namespace, Execution: execution}
	dead, err := s.examine(ctx, run)
	var (
		gone        *serviceerror.NotFound
		unavailable *serviceerror.Unavailable
		exhausted   *serviceerror.ResourceExhausted
	)
	switch {
	case errors.As(err, &gone):
		return false, nil // deleted, or past its retention, since it was listed
	case errors.As(err, &unavailable), errors.As(err, &exhausted):
		return false, away{err}
	case err != nil:
		return false, err
	case dead == nil:
		s.activities.spared.add(execution.GetRunId())
		return false, nil
	}
	moved, err = s.activities.Store.Move(ctx, dead.letter, numbered(dead.attempts, dead.letter.Attempts), runtimeActor, s.activities.MoveTx)
	if err != nil || !moved || !dead.lost {
		return moved, err
	}
	return true, s.supersede(ctx, run, dead.letter)
}

// deadRun is the dead letter of a closed run. It is lost when the run has moved itself
// once, and the database does not know of it any more.
type deadRun struct {
	letter   *dlqstore.DeadLetter
	attempts []dlqstore.Attempt
	lost     bool
}

// examine returns nil for a job that is not dead.
func (s *sweep) examine(ctx context.Context, run closed.Run) (*deadRun, error) {
	ctx, cancel := context.WithTimeout(ctx, sweepReading)
	defer cancel()
	verdict, err := closed.Judge(ctx, run)
	if err != nil || !verdict.Dead {
		return nil, err
	}
	dead := deadRun{lost: verdict.Told != nil}
	scheduled := int64(0)
	if dead.lost {
		scheduled = verdict.Told.ScheduledEventID
	}
	t, err := readTrail(ctx, s.service, s.namespace, run.Execution, scheduled)
	if err != nil {
		return nil, err
	}
	if dead.lost { // as its own move wrote it
		dead.letter, dead.attempts, err = certify(*verdict.Told, t)
	} else {
		dead.letter, dead.attempts, err = autopsy(t, verdict)
	}
	if err != nil {
		return nil, err
	}
	if dead.lost {
		dead.letter.DeadAt = verdict.ToldAt.GetEventTime().AsTime()
	}
	dead.letter.Key = s.key(run.Execution)
	return &dead, nil
}

// supersede tells a dead letter that was written again what the database has lost with
// it: that a person reset its job since, and that it then succeeded.
func (s *sweep) supersede(ctx context.Context, run closed.Run, dl *dlqstore.DeadLetter) error {
	described, err := run.Latest(ctx)
	latest := described.GetWorkflowExecutionInfo()
	if err != nil || latest.GetStatus() != enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED ||
		latest.GetFirstRunId() != dl.FirstRunID || latest.GetExecution().GetRunId() == dl.RunID {
		return nil //nolint:nilerr // the dead letter is written, and a person can see its job in Temporal
	}
	return s.activities.Store.Settle(ctx, dlqstore.SettleRequest{
		Key: s.key(latest.GetExecution()), FirstRunID: dl.FirstRunID, Outcome: job.OutcomeSucceeded, Replayed: dl.Generation > 0, Actor: runtimeActor,
	})
}
