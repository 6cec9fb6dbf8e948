package activities

import (
	"maps"
	"slices"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	failurepb "go.temporal.io/api/failure/v1"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/job"
)

// noteRecords keeps what our interceptor put behind the details of a failure, or
// in front of the heartbeat of an attempt that timed out.
func (t *trail) noteRecords(failure *failurepb.Failure) {
	t.checkpoint = nil
	for f := failure; f != nil; f = f.GetCause() {
		if details := f.GetApplicationFailureInfo().GetDetails().GetPayloads(); len(details) > 0 {
			if trailer, ok := job.ParseTrailer(details[len(details)-1].GetData()); ok {
				t.keep(trailer)
				if t.checkpoint == nil {
					t.checkpoint = trailer.Heartbeat
				}
			}
		}
		beat := f.GetTimeoutFailureInfo().GetLastHeartbeatDetails().GetPayloads()
		if len(beat) == 0 {
			continue
		}
		if trailer, ok := job.ParseTrailer(beat[0].GetData()); ok {
			t.keep(trailer)
			beat = beat[1:]
		}
		if len(beat) > 0 {
			t.checkpoint, _ = proto.MarshalOptions{Deterministic: true}.Marshal(&commonpb.Payloads{Payloads: beat})
		}
	}
}

func (t *trail) keep(trailer job.Trailer) {
	for _, record := range trailer.Attempts {
		if t.records == nil {
			t.records = map[int]job.AttemptRecord{}
		}
		t.records[record.Attempt] = record
	}
}

// knownAttempts returns all attempts that anything tells of, and sets the dead
// letter's count where it can be known. Of the last attempt the history itself
// tells, and of the failure before it; of the others the log does.
func knownAttempts(in job.MoveInput, t *trail, dl *dlqstore.DeadLetter) []dlqstore.Attempt {
	known := map[int]dlqstore.Attempt{}
	for _, record := range in.Log { // without messages
		known[record.Attempt] = fromRecord(record)
	}
	for _, record := range t.records {
		known[record.Attempt] = fromRecord(record)
	}
	started := t.started.GetActivityTaskStartedEventAttributes()
	switch {
	case in.ScheduledEventID == 0 && in.Attempts != nil:
		dl.Attempts = in.Attempts // it ended between two executions of the handler
	case started != nil:
		last := in.Charged + int(started.GetAttempt())
		dl.Attempts, dl.WorkerIdentity = &last, started.GetIdentity()
		addEarlier(known, last-1, started.GetLastFailure())
		attempt := known[last]
		attempt.Attempt, attempt.WorkerIdentity = last, started.GetIdentity()
		attempt.StartedAt, attempt.EndedAt = timeOf(t.started.GetEventTime()), timeOf(t.closed.GetEventTime())
		known[last] = fill(attempt, t.failure())
	case t.pending != nil:
		last := in.Charged + int(t.pending.GetAttempt())
		dl.Attempts, dl.WorkerIdentity = &last, t.pending.GetLastWorkerIdentity()
		addEarlier(known, last-1, t.pending.GetLastFailure())
		known[last] = dlqstore.Attempt{
			Attempt: last, StartedAt: timeOf(t.pending.GetLastStartedTime()), WorkerIdentity: t.pending.GetLastWorkerIdentity(),
		}
	case in.Attempts != nil:
		dl.Attempts = in.Attempts
	}
	attempts := make([]dlqstore.Attempt, 0, len(known))
	for _, n := range slices.Sorted(maps.Keys(known)) {
		attempts = append(attempts, known[n])
	}
	return attempts
}

// numbered returns the attempts with a row for each one of which nothing tells, up
// to the last maxGaps of them. They are ordered by their number.
func numbered(attempts []dlqstore.Attempt, count *int) []dlqstore.Attempt {
	if count == nil {
		return attempts
	}
	all := slices.Clone(attempts)
	for n := max(1, *count-maxGaps); n <= *count; n++ {
		if !slices.ContainsFunc(attempts, func(a dlqstore.Attempt) bool { return a.Attempt == n }) {
			all = append(all, dlqstore.Attempt{Attempt: n, ErrorMessage: notRecorded})
		}
	}
	slices.SortFunc(all, func(a, b dlqstore.Attempt) int { return a.Attempt - b.Attempt })
	return all
}

// notRecorded is the message of an attempt of which nothing tells but its number.
const notRecorded = "not recorded: it timed out, its worker was lost, or its worker runs without the plugin"

func fromRecord(record job.AttemptRecord) dlqstore.Attempt {
	return dlqstore.Attempt{
		Attempt: record.Attempt, StartedAt: nonZero(record.Started), EndedAt: nonZero(record.Ended),
		WorkerIdentity: record.Identity, ErrorType: record.Type, ErrorMessage: record.Message, Wait: record.Wait,
	}
}

// addEarlier adds the attempt before the last one where no log tells of it: the
// server keeps its failure, but not its times.
func addEarlier(known map[int]dlqstore.Attempt, n int, failure *failurepb.Failure) {
	if failure == nil || n < 1 {
		return
	}
	if attempt := known[n]; attempt.ErrorMessage == "" || attempt.StartedAt == nil {
		attempt.Attempt = n
		known[n] = fill(attempt, failure)
	}
}

func fill(a dlqstore.Attempt, failure *failurepb.Failure) dlqstore.Attempt {
	if failure != nil {
		d := describe(failure)
		a.ErrorType, a.ErrorMessage, a.ErrorStack = d.kind, d.message, d.stack
	}
	return a
}

// keepAttemptTimes sets when the first and the last attempt started. Where no log
// tells of the first one, the history still has when the handler was put on its
// queue, which is the closest time there is.
func keepAttemptTimes(dl *dlqstore.DeadLetter, attempts []dlqstore.Attempt, t *trail) {
	if dl.Attempts == nil || *dl.Attempts == 0 || len(attempts) == 0 {
		return
	}
	dl.LastAttemptAt = attempts[len(attempts)-1].StartedAt
	if first := attempts[0]; first.Attempt == 1 && first.StartedAt != nil {
		dl.FirstAttemptAt = first.StartedAt
	} else {
		dl.FirstAttemptAt = timeOf(t.scheduled.GetEventTime())
	}
}

func timeOf(ts *timestamppb.Timestamp) *time.Time {
	if ts == nil {
		return nil
	}
	at := ts.AsTime()
	return &at
}

func nonZero(at time.Time) *time.Time {
	if at.IsZero() {
		return nil
	}
	return &at
}
