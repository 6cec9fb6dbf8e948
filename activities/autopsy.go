package activities

import (
	"fmt"
	"slices"

	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	failurepb "go.temporal.io/api/failure/v1"
	historypb "go.temporal.io/api/history/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/sdk/converter"

	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/internal/closed"
	"github.com/deadletter-dev/deadletter/internal/lineage"
	"github.com/deadletter-dev/deadletter/job"
)

// autopsy writes the dead letter of a job that was ended from outside. What the
// job would have told its terminal activity is worked out from its history. The
// key is the caller's.
func autopsy(t *trail, end closed.Verdict) (*dlqstore.DeadLetter, []dlqstore.Attempt, error) {
	in, told := toldMove(t)
	known := true // what earlier executions of the handler were charged
	if !told {
		in, known = inferMove(t)
	}
	in.Reason, in.Note, in.Fault = job.ReasonTerminated, "", nil

	var last ended
	if told {
		last.said = saying("the last attempt", t.failure())
		if in.ScheduledEventID == 0 {
			t.started, t.closed = nil, nil // the job has counted that one
		}
	} else {
		last = lastAttempt(t, &in)
	}
	dl, attempts, err := certify(in, t)
	if err != nil {
		return nil, nil, err
	}
	if last.attempt != nil {
		dl.WorkerIdentity = last.attempt.WorkerIdentity
		if !slices.ContainsFunc(attempts, func(a dlqstore.Attempt) bool { return a.Attempt == last.attempt.Attempt }) {
			attempts = append(attempts, *last.attempt)
		}
	}
	if !known {
		dl.Attempts, attempts = nil, nil
	}

	start := t.start.GetWorkflowExecutionStartedEventAttributes()
	d := describeEnd(end, start)
	dl.ErrorType, dl.ErrorMessage, dl.ErrorStack = d.kind, d.message+last.said, d.stack
	dl.DeadAt = end.Event.GetEventTime().AsTime()
	failure := end.Failure()
	if failure != nil {
		if err := marshalInto(&dl.Failure, boundFailure(failure)); err != nil {
			return nil, nil, err
		}
	}
	dl.Fingerprint = fingerprint(dl, failure)
	return dl, attempts, nil
}

// toldMove returns what the job told its terminal activity, if it got that far.
func toldMove(t *trail) (in job.MoveInput, ok bool) {
	input := t.move.GetActivityTaskScheduledEventAttributes().GetInput()
	if len(input.GetPayloads()) == 0 || converter.GetDefaultDataConverter().FromPayloads(input, &in) != nil {
		return job.MoveInput{}, false
	}
	return in, true
}

// inferMove works it out from the start event, and where that is encrypted from
// what the handler was scheduled as. It reports whether the count of attempts that
// it starts from is right: it is not where the job's worker, without the plugin,
// did not tell it.
func inferMove(t *trail) (in job.MoveInput, known bool) {
	start := t.start.GetWorkflowExecutionStartedEventAttributes()
	in.Lineage = lineage.FromMemo(start.GetMemo())
	if options, readable := optionsOf(start); options != nil {
		in.JobType, in.TaskQueue, in.Policy, in.Tags, in.OptionsReadable = options.Type, options.TaskQueue, options.Policy, options.Tags, readable
		if in.TaskQueue == "" {
			in.TaskQueue = start.GetTaskQueue().GetName()
		}
	}
	handler := t.scheduled.GetActivityTaskScheduledEventAttributes()
	if handler != nil && !in.OptionsReadable {
		in.JobType, in.TaskQueue = handler.GetActivityType().GetName(), handler.GetTaskQueue().GetName()
		in.Policy.MaxAttempts = int(handler.GetRetryPolicy().GetMaximumAttempts())
	}
	continues := start.GetInitiator() == enumspb.CONTINUE_AS_NEW_INITIATOR_WORKFLOW && start.GetContinuedExecutionRunId() != ""
	known = t.executions <= 1 && !continues
	var carried job.Carried
	if readPlain(start.GetHeader(), job.CarriedHeader, &carried) {
		in.Created, in.Charged, in.Log = carried.Created, carried.Charged, carried.Attempts
		known = t.executions <= 1
	}
	var plan job.Plan
	if readPlain(handler.GetHeader(), job.PlanHeader, &plan) {
		in.Charged, known = plan.Charged, true
		if budget := in.Policy.MaxAttempts; !in.OptionsReadable && budget > 0 {
			in.Policy.MaxAttempts = budget + plan.Charged // the server's is what was left
		}
	}
	return in, known
}

// readPlain reads what our workflow put into a header: plain JSON under any codec.
func readPlain(header *commonpb.Header, name string, into any) bool {
	payload := header.GetFields()[name]
	return payload != nil && converter.GetDefaultDataConverter().FromPayload(payload, into) == nil
}

// optionsOf reads the options object as the workflow does; nil when it is not
// plain JSON, not readable when the workflow would refuse it.
func optionsOf(start *historypb.WorkflowExecutionStartedEventAttributes) (options *job.Options, readable bool) {
	input := start.GetInput().GetPayloads()
	if len(input) == 0 || string(input[0].GetMetadata()[converter.MetadataEncoding]) != converter.MetadataEncodingJSON {
		return nil, false
	}
	options = new(job.Options)
	err := options.UnmarshalJSON(input[0].GetData())
	options.Policy = options.Policy.WithDefaults()
	return options, err == nil
}

// ended is an attempt that was over when its workflow was closed.
type ended struct {
	attempt *dlqstore.Attempt
	// said are the words about the last failure there was, for the dead letter.
	said string
}

// lastAttempt prepares the trail and the count for certify, which knows of
// handlers that failed for good or still run. Here the handler may also wait: for
// a worker, for its next attempt, or after an end that was free of charge.
func lastAttempt(t *trail, in *job.MoveInput) ended {
	if p := t.pending; p != nil {
		t.notePending(p)
		if at := p.GetLastStartedTime(); at != nil && at.AsTime().Unix() > 0 { // it runs
			return ended{said: saying("the attempt before", p.GetLastFailure())}
		}
		t.pending = nil
		// The server counts the attempt that is to come.
		return t.count(in, in.Charged+max(int(p.GetAttempt())-1, 0), p)
	}
	failure := t.failure()
	started := t.started.GetActivityTaskStartedEventAttributes()
	switch {
	case t.scheduled == nil:
		return t.count(in, in.Charged, nil)
	case started != nil && isFree(failure, in):
		// Its last attempt does not count.
		t.started, t.closed = nil, nil
		end := t.count(in, in.Charged+max(int(started.GetAttempt())-1, 0), nil)
		end.said = saying("the last attempt", failure)
		return end
	default:
		return ended{said: saying("the last attempt", failure)}
	}
}

// isFree reports whether the attempt that ended so costs nothing. A job that is not
// moving yet waits out its grace when its type is unknown.
func isFree(failure *failurepb.Failure, in *job.MoveInput) bool {
	kind := failure.GetApplicationFailureInfo().GetType()
	return job.IsFree(kind) || in.Policy.UnknownTypeGrace > 0 && job.IsUnknownType(kind, failure.GetMessage(), in.JobType)
}

// count sets how many attempts there were; p is the state of a handler that waits
// for its next one.
func (t *trail) count(in *job.MoveInput, attempts int, p *workflowpb.PendingActivityInfo) ended {
	in.Attempts = &attempts
	if p.GetLastFailure() == nil || attempts == in.Charged {
		return ended{}
	}
	last := fill(dlqstore.Attempt{
		Attempt: attempts, EndedAt: timeOf(p.GetLastAttemptCompleteTime()), WorkerIdentity: p.GetLastWorkerIdentity(),
	}, p.GetLastFailure())
	return ended{attempt: &last, said: saying("the last attempt", p.GetLastFailure())}
}

// notePending keeps what our interceptor told of the attempts so far, as it is
// kept of those of a failure.
func (t *trail) notePending(p *workflowpb.PendingActivityInfo) {
	t.noteRecords(&failurepb.Failure{
		Cause: p.GetLastFailure(),
		FailureInfo: &failurepb.Failure_TimeoutFailureInfo{TimeoutFailureInfo: &failurepb.TimeoutFailureInfo{
			LastHeartbeatDetails: p.GetHeartbeatDetails(),
		}},
	})
}

func saying(which string, failure *failurepb.Failure) string {
	if failure == nil {
		return ""
	}
	return fmt.Sprintf(" (%s: %s)", which, describe(failure).message)
}
