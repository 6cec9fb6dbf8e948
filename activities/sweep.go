package activities

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/api/serviceerror"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"

	"github.com/deadletter-dev/deadletter/dlqstore"
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
// server's list, writes the dead letters that are missing, and returns where it
// stopped. After the last page it moves the watermark. It may run any number of
// times, beside others of its kind; killed, it loses nothing.
//
// A job whose dead letter cannot be written does not stop the others; it holds
// the watermark.
func (a *Activities) SweepPage(ctx context.Context, state job.SweepState) error {
	info := activity.GetInfo(ctx)
	s := sweep{
		activities: a,
		service:    a.client(ctx, info).WorkflowService(),
		namespace:  info.Namespace,
		state:      state,
	}
	stopBeating := beatWhile(ctx)
	err := s.stretch(ctx)
	stopBeating()
	if err != nil {
		return err
	}
	return completePlain(ctx, s.service, info, s.state)
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

func (s *sweep) stretch(ctx context.Context) error {
	started := time.Now()
	if !s.state.Begun {
		watermark, err := s.activities.Store.SweepWatermark(ctx, s.namespace)
		if err != nil {
			return err
		}
		if !watermark.IsZero() {
			from := watermark.Add(-sweepOverlap)
			s.state.From = &from
		}
		s.state.Begun = true
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
// that was left.
func (s *sweep) finish(ctx context.Context) error {
	watermark := s.state.Until
	if left := s.state.OldestLeft; left != nil && left.Before(watermark) {
		watermark = *left
	}
	if _, err := s.activities.Store.AdvanceSweep(ctx, s.namespace, watermark); err != nil {
		return err
	}
	s.state.Done = true
	return nil
}

// query selects the jobs that closed without running our code to its end, and
// those that were dead-lettered as they should: a failure looks the same. It has
// no order, since not every visibility store can sort.
func (s *sweep) query() string {
	query := fmt.Sprintf("WorkflowType = '%s' AND ExecutionStatus IN ('Terminated', 'TimedOut', 'Failed')", job.WorkflowType)
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
	if err := s.write(ctx, unmoved); err != nil {
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

// write writes the dead letters of a page. Its error says that no more can be
// written now, because Postgres or Temporal is away or the activity is over; the
// fault of one job is noted in the state.
func (s *sweep) write(ctx context.Context, unmoved []*workflowpb.WorkflowExecutionInfo) error {
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
				s.note(execution, moved, err)
			}
		})
	}
	for _, execution := range unmoved {
		work <- execution
	}
	close(work)
	workers.Wait()
	return context.Cause(ctx)
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

func (s *sweep) note(execution *workflowpb.WorkflowExecutionInfo, moved bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if moved {
		s.state.Moved++
	}
	if err == nil {
		return
	}
	s.state.Left++
	s.state.LastError = text.Bounded(err.Error(), maxLastError)
	closed := execution.GetCloseTime().AsTime()
	if s.state.OldestLeft == nil || closed.Before(*s.state.OldestLeft) {
		s.state.OldestLeft = &closed
	}
}

// one writes the dead letter of one job, if it is dead.
func (s *sweep) one(ctx context.Context, execution *commonpb.WorkflowExecution) (moved bool, err error) {
	dl, attempts, err := s.examine(ctx, execution)
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
	case dl == nil:
		return false, nil
	}
	return s.activities.Store.Move(ctx, dl, numbered(attempts, dl.Attempts), runtimeActor, s.activities.MoveTx)
}

// examine returns nil for a job that is not dead.
func (s *sweep) examine(ctx context.Context, execution *commonpb.WorkflowExecution) (*dlqstore.DeadLetter, []dlqstore.Attempt, error) {
	ctx, cancel := context.WithTimeout(ctx, sweepReading)
	defer cancel()
	end, err := readClose(ctx, s.service, s.namespace, execution)
	if err != nil || !end.isFinal() {
		return nil, nil, err
	}
	livesOn, err := s.wasReset(ctx, execution, end)
	if err != nil || livesOn {
		return nil, nil, err
	}
	t, err := readTrail(ctx, s.service, s.namespace, execution, 0)
	if err != nil {
		return nil, nil, err
	}
	dl, attempts, err := autopsy(t, end)
	if err != nil {
		return nil, nil, err
	}
	dl.Key = s.key(execution)
	return dl, attempts, nil
}
