package workflows

import (
	"errors"
	"fmt"
	"slices"

	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/workflow"
	"google.golang.org/protobuf/proto"

	"github.com/deadletter-dev/deadletter/job"
)

const (
	// maxRunning bounds the requests of one kind that run at once: what holds up one kind
	// holds up no other. The server allows a workflow 2,000 pending activities. Runs
	// without an input have it for all signals together.
	maxRunning = 100
	// maxStarted is how many bytes of requests one workflow task starts, beside the first:
	// the server takes no more than 4 MiB in one answer.
	maxStarted = 1 << 20
)

// inbox keeps the requests that a run has accepted, and starts them.
type inbox struct {
	slots []*slot
	// live are the requests that are accepted and not finished, in the order they came.
	live   []*request
	origin string
	// fair is true of runs by the rules of job.OperatorVersion.
	fair bool
	// dropsMisshapen is true of runs that began before heedMisshapen, which also pass on
	// whatever its size is.
	dropsMisshapen bool
	// maxHistory is after how many events a fair run hands over.
	maxHistory int
	// keep is how many bytes of requests the run leaves for the next one: none since
	// version 2 of job.OperatorVersion.
	keep int
	// closed is true of a box without doors.
	closed bool
	// leaving is true when the run does not wait any more for what it has started.
	leaving bool
	// started counts bytes since the history had the length task.
	started, task int
}

// slot takes one kind of request.
type slot struct {
	message string
	// signals is nil while the slot has no door.
	signals workflow.ReceiveChannel
	// received makes the ids of requests that bring none.
	received int
	// urgent came by update: somebody waits for the answer, and the server lets few of them
	// be under way. waiting came by signal.
	urgent, waiting []*request
	// running counts those that came by signal.
	running int
	// open lets signals and updates in.
	open func(ctx workflow.Context) error
	// readable says why a signal is none that runs of before heedMisshapen take.
	readable func(payload *commonpb.Payload) error
	// perform carries out a request, to its end or until the run leaves.
	perform func(ctx workflow.Context, r *request) error
}

// request is one that is accepted.
type request struct {
	job.AcceptedRequest
	payload *commonpb.Payload
	slot    *slot
	// out and err are the answer once done is true.
	out  any
	err  error
	done bool
}

func (b *inbox) open(ctx workflow.Context) error {
	var failed []error
	for _, s := range b.slots {
		if s.open != nil {
			failed = append(failed, s.open(ctx))
		}
	}
	return errors.Join(failed...)
}

// add accepts a request.
func (b *inbox) add(s *slot, accepted job.AcceptedRequest, payload *commonpb.Payload) *request {
	accepted.Message, accepted.Payload = s.message, nil
	r := &request{AcceptedRequest: accepted, payload: payload, slot: s}
	b.live = append(b.live, r)
	return r
}

// accept takes over what another run has accepted. What it cannot read is for a newer
// worker: the panic fails the workflow task alone, which is tried again, and loses none.
func (b *inbox) accept(requests []job.AcceptedRequest) {
	for _, accepted := range requests {
		s := b.slot(accepted.Message)
		if s == nil {
			panic(fmt.Sprintf("deadletter: a request %q is handed over, which this version does not know", accepted.Message))
		}
		var payload *commonpb.Payload
		if len(accepted.Payload) > 0 {
			payload = &commonpb.Payload{}
			if err := proto.Unmarshal(accepted.Payload, payload); err != nil {
				panic(fmt.Sprintf("deadletter: the payload of request %s, which is handed over: %v", accepted.ID, err))
			}
		}
		s.waiting = append(s.waiting, b.add(s, accepted, payload))
	}
}

func (b *inbox) slot(message string) *slot {
	for _, s := range b.slots {
		if s.message == message {
			return s
		}
	}
	return nil
}

// waiting reports whether a signal has come that was not received.
func (b *inbox) waiting() bool {
	for _, s := range b.slots {
		if s.signals != nil && s.signals.Len() > 0 {
			return true
		}
	}
	return false
}

// receive accepts the signals that have come.
func (b *inbox) receive(ctx workflow.Context) {
	for _, s := range b.slots {
		for s.signals != nil {
			r := b.next(ctx, s)
			if r == nil {
				break
			}
			s.waiting = append(s.waiting, r)
		}
	}
}

// next accepts one signal, nil if there is none.
func (b *inbox) next(ctx workflow.Context, s *slot) *request {
	// Taken raw: the SDK skips a signal that does not decode in silence, and the count
	// would then depend on which signals came together.
	var raw converter.RawValue
	if !s.signals.ReceiveAsync(&raw) {
		return nil
	}
	s.received++
	id := requestID(s.message, "signal", fmt.Sprintf("%s-%d", b.origin, s.received))
	return b.add(s, job.AcceptedRequest{Via: "signal", ID: id, Accepted: workflow.Now(ctx)}, raw.Payload())
}

func requestID(message, via, id string) string {
	if message != job.ReplayMessage { // whose ids are older than the others
		id = message + "-" + id
	}
	return via + "-" + id
}

// startable reports whether a request waits that may be started.
func (b *inbox) startable() bool {
	for _, s := range b.slots {
		if len(s.urgent) > 0 || len(s.waiting) > 0 && s.running < maxRunning {
			return true
		}
	}
	return false
}

// served reports that no more will come, and nothing is left.
func (b *inbox) served() bool { return b.closed && len(b.live) == 0 }

// start starts what may be started. It returns false when there is more than fits into
// the workflow task.
func (b *inbox) start(ctx workflow.Context) bool {
	if !b.startUrgent(ctx) {
		return false
	}
	for _, s := range b.slots {
		for ; len(s.waiting) > 0 && s.running < maxRunning; s.waiting = s.waiting[1:] {
			if !b.fits(ctx, s.waiting[0]) {
				return false
			}
			s.running++
			b.run(ctx, s.waiting[0], func() { s.running-- })
		}
	}
	return true
}

// startUrgent is start for the updates alone.
func (b *inbox) startUrgent(ctx workflow.Context) bool {
	for _, s := range b.slots {
		for ; len(s.urgent) > 0; s.urgent = s.urgent[1:] {
			if !b.fits(ctx, s.urgent[0]) {
				return false
			}
			b.run(ctx, s.urgent[0], func() {})
		}
	}
	return true
}

// fits reports whether the workflow task may start one more request, and counts it.
func (b *inbox) fits(ctx workflow.Context, r *request) bool {
	if task := workflow.GetInfo(ctx).GetCurrentHistoryLength(); task != b.task {
		b.task, b.started = task, 0
	}
	size := proto.Size(r.payload)
	if b.started > 0 && b.started+size > maxStarted {
		return false
	}
	b.started += size
	return true
}

func (b *inbox) run(ctx workflow.Context, r *request, ended func()) {
	workflow.Go(ctx, func(ctx workflow.Context) {
		defer ended()
		if b.finish(ctx, r); r.err != nil && r.Via == "signal" {
			workflow.GetLogger(ctx).Error("deadletter: a request by signal failed", "signal", r.Message, "error", r.err)
		}
	})
}

// finish carries a request out, to its end unless the run leaves.
func (b *inbox) finish(ctx workflow.Context, r *request) {
	r.err = r.slot.perform(ctx, r)
	if errors.Is(r.err, errLeaving) {
		r.err = nil
		return
	}
	r.done = true
	b.forget(r)
}

// forget takes requests from those that are not finished.
func (b *inbox) forget(gone ...*request) {
	all := make(map[*request]bool, len(gone))
	for _, r := range gone {
		all[r] = true
	}
	b.live = slices.DeleteFunc(b.live, func(r *request) bool { return all[r] })
}

// ready and idle are of the signals of runs without an input.
func (b *inbox) ready() bool { return b.waiting() && b.running() < maxRunning }
func (b *inbox) idle() bool  { return !b.waiting() && b.running() == 0 }

func (b *inbox) running() (n int) {
	for _, s := range b.slots {
		n += s.running
	}
	return n
}

// startSignals starts signals as runs without an input do.
func (b *inbox) startSignals(ctx workflow.Context) {
	for _, s := range b.slots {
		for s.signals != nil && s.signals.Len() > 0 && b.running() < maxRunning {
			r := b.next(ctx, s)
			if r == nil {
				break
			}
			if err := s.readable(r.payload); err != nil {
				b.forget(r)
				workflow.GetLogger(ctx).Error("deadletter: a signal does not decode and is dropped", "signal", s.message, "error", err)
				continue
			}
			s.running++
			b.run(ctx, r, func() { s.running-- })
		}
	}
}
