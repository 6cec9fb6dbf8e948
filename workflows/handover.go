package workflows

import (
	"slices"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/workflow"
	"google.golang.org/protobuf/proto"

	"github.com/deadletter-dev/deadletter/job"
)

const (
	// maxHandedOver is how many bytes of requests one run hands to another: the server
	// takes 2 MiB as the input of a run.
	maxHandedOver = 1 << 20
	// largeRequest is from how many bytes on a request has a Backlog of its own, which
	// takes its payload as an argument: as a part of JSON it would be a third larger.
	largeRequest = 256 << 10
)

// Backlog carries out requests that the operator workflow has accepted and not finished
// when its run ended: registered as job.BacklogWorkflowType. It has no doors, and ends when each is
// carried out or refused, even when it is cancelled.
func (w Workflows) Backlog(ctx workflow.Context, in job.Backlog, large converter.RawValue) error {
	ctx, _ = workflow.NewDisconnectedContext(ctx)
	box := w.newInbox(ctx)
	box.fair, box.closed = true, true
	box.accept(in.Requests)
	if large.Payload() != nil && len(box.live) > 0 {
		box.live[len(box.live)-1].payload = large.Payload()
	}
	if err := box.serve(ctx); err != nil || box.served() {
		return err
	}
	return workflow.NewContinueAsNewError(ctx, job.BacklogWorkflowType, backlog(box.live)...)
}

// handOver waits a moment for what is running, and gives what is then not finished to
// backlogs, but for what the box keeps for the next run; a cancelled one has no next. A
// backlog has a type that no older build knows, and so waits for a newer worker, where an
// older one would not read the input of the operator workflow. It is bounded in time, whatever hangs: an activity that goes on in an ended run is the same request
// as the one that the other run starts.
func (b *inbox) handOver(ctx workflow.Context, cancelled error) {
	keep := b.keep
	if cancelled != nil {
		keep = 0
	}
	ctx, _ = workflow.NewDisconnectedContext(ctx)
	b.finishRunning(ctx)
	b.leaving = true
	for {
		// They end at once, since the run is leaving. Signals that came meanwhile are
		// accepted too: a new run does not get them.
		_ = workflow.Await(ctx, func() bool { return workflow.AllHandlersFinished(ctx) })
		b.receive(ctx)
		if len(b.live) == 0 || size(b.live...) <= keep {
			return
		}
		if part := b.part(); startBacklog(ctx, part) == nil {
			b.forget(part...)
		} else {
			_ = workflow.Sleep(ctx, time.Second)
		}
	}
}

// finishRunning waits for what is running, and lets updates start.
func (b *inbox) finishRunning(ctx workflow.Context) {
	quiet := func() bool { return b.running() == 0 && workflow.AllHandlersFinished(ctx) }
	if quiet() {
		return
	}
	timing, stop := workflow.WithCancel(ctx)
	defer stop()
	timer := workflow.NewTimer(timing, handOverGrace)
	over := func() bool {
		info := workflow.GetInfo(ctx)
		return timer.IsReady() || quiet() || info.GetCurrentHistoryLength() >= lastOperatorHistory || info.GetCurrentHistorySize() >= lastOperatorBytes
	}
	for !over() {
		urgent := false
		_ = workflow.Await(ctx, func() bool {
			for _, s := range b.slots {
				urgent = urgent || len(s.urgent) > 0
			}
			return over() || urgent
		})
		if urgent && !b.startUrgent(ctx) {
			return
		}
	}
}

// part returns the first of the requests that fit into one backlog.
func (b *inbox) part() []*request {
	for _, r := range b.live {
		if isLarge(r) {
			return []*request{r}
		}
	}
	bytes := 0
	for n, r := range b.live {
		if bytes += size(r); bytes > maxHandedOver && n > 0 {
			return slices.Clone(b.live[:n])
		}
	}
	return slices.Clone(b.live)
}

func startBacklog(ctx workflow.Context, part []*request) error {
	ctx = workflow.WithChildOptions(ctx, workflow.ChildWorkflowOptions{
		ParentClosePolicy:   enumspb.PARENT_CLOSE_POLICY_ABANDON,
		WorkflowTaskTimeout: OperatorTaskTime,
		StaticSummary:       "Requests that deadletter-operator has accepted",
	})
	return workflow.ExecuteChildWorkflow(ctx, job.BacklogWorkflowType, backlog(part)...).GetChildWorkflowExecution().Get(ctx, nil)
}

// backlog returns the arguments of a Backlog.
func backlog(requests []*request) []any {
	if last := len(requests) - 1; last >= 0 && isLarge(requests[last]) {
		accepted := handedOver(requests[:last])
		return []any{job.Backlog{Requests: append(accepted, requests[last].AcceptedRequest)}, converter.NewRawValue(requests[last].payload)}
	}
	return []any{job.Backlog{Requests: handedOver(requests)}}
}

// unfinished are the requests for the next run.
func (b *inbox) unfinished() []job.AcceptedRequest { return handedOver(b.live) }

func handedOver(requests []*request) []job.AcceptedRequest {
	accepted := make([]job.AcceptedRequest, len(requests))
	for i, r := range requests {
		accepted[i] = r.AcceptedRequest
		accepted[i].Payload = encodedPayload(r.payload)
	}
	return accepted
}

func encodedPayload(payload *commonpb.Payload) []byte {
	if payload == nil {
		return nil
	}
	data, err := proto.MarshalOptions{Deterministic: true}.Marshal(payload)
	if err != nil {
		panic(err) // it came in this form
	}
	return data
}

func isLarge(r *request) bool { return proto.Size(r.payload) > largeRequest }

// size is how many bytes the requests take as the input of a run, or some more.
func size(requests ...*request) (bytes int) {
	for _, r := range requests {
		bytes += proto.Size(r.payload)*4/3 + len(r.ID) + 200
	}
	return bytes
}
