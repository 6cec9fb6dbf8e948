package activities

import (
	"fmt"

	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/sdk/converter"

	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/job"
)

// autopsy writes the dead letter of a job that was ended from outside. What the
// job would have told its terminal activity is worked out from its history. The
// key is the caller's.
func autopsy(t *trail, end closing) (*dlqstore.DeadLetter, []dlqstore.Attempt, error) {
	start := t.start.GetWorkflowExecutionStartedEventAttributes()
	in, told := toldMove(t)
	if !told {
		in = inferMove(t)
	}
	in.Reason = job.ReasonTerminated

	last := endOfPending(t)
	if last.known {
		in.Attempts = &last.attempts
	} else if t.scheduled == nil && !told {
		in.Attempts = new(int) // no handler was ever due to run
	}
	dl, attempts, err := certify(in, t)
	if err != nil {
		return nil, nil, err
	}
	if last.attempt != nil {
		attempts = []dlqstore.Attempt{*last.attempt}
		dl.WorkerIdentity = last.attempt.WorkerIdentity
	}
	if !told && (t.executions > 1 || start.GetInitiator() == enumspb.CONTINUE_AS_NEW_INITIATOR_WORKFLOW && start.GetContinuedExecutionRunId() != "") {
		// What earlier executions of the handler were charged is the workflow's to know.
		dl.Attempts, attempts = nil, nil
	}

	dl.DeadAt = end.event.GetEventTime().AsTime()
	before := dl.ErrorMessage
	d := end.describe(start)
	dl.ErrorType, dl.ErrorMessage, dl.ErrorStack = d.kind, d.message, d.stack
	switch {
	case before != "" && t.failure() != nil:
		dl.ErrorMessage += fmt.Sprintf(" (the last attempt: %s)", before)
	case last.attempt != nil && last.attempt.ErrorMessage != "":
		dl.ErrorMessage += fmt.Sprintf(" (the last attempt: %s)", last.attempt.ErrorMessage)
	case t.pending.GetLastFailure() != nil:
		dl.ErrorMessage += fmt.Sprintf(" (the attempt before: %s)", describe(t.pending.GetLastFailure()).message)
	}
	if details := last.heartbeat; details != nil {
		if err := marshalInto(&dl.LastHeartbeatDetails, details); err != nil {
			return nil, nil, err
		}
	}
	if failure := end.failure(); failure != nil {
		if err := marshalInto(&dl.Failure, boundFailure(failure)); err != nil {
			return nil, nil, err
		}
	}
	dl.Fingerprint = fingerprint(dl)
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
// what the handler was scheduled as.
func inferMove(t *trail) job.MoveInput {
	start := t.start.GetWorkflowExecutionStartedEventAttributes()
	in := job.MoveInput{Lineage: lineageOf(start)}
	if options, readable := optionsOf(start); options != nil {
		in.JobType, in.TaskQueue, in.Policy, in.Tags, in.OptionsReadable = options.Type, options.TaskQueue, options.Policy, options.Tags, readable
		if in.TaskQueue == "" {
			in.TaskQueue = start.GetTaskQueue().GetName()
		}
	}
	if handler := t.scheduled.GetActivityTaskScheduledEventAttributes(); handler != nil && !in.OptionsReadable {
		in.JobType, in.TaskQueue = handler.GetActivityType().GetName(), handler.GetTaskQueue().GetName()
		in.Policy.MaxAttempts = int(handler.GetRetryPolicy().GetMaximumAttempts())
	}
	return in
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

func lineageOf(start *historypb.WorkflowExecutionStartedEventAttributes) (lineage job.Lineage) {
	payload := start.GetMemo().GetFields()[job.LineageMemoKey]
	if payload == nil || converter.GetDefaultDataConverter().FromPayload(payload, &lineage) != nil {
		return job.Lineage{}
	}
	return lineage
}

// pendingEnd is what is known of the attempts of a handler that was still to end
// when its workflow was closed.
type pendingEnd struct {
	known    bool
	attempts int
	// attempt is the last one when it had ended: the handler waited for its next.
	attempt   *dlqstore.Attempt
	heartbeat *commonpb.Payloads
}

// endOfPending reads the state in which the server keeps the handler of a closed
// workflow. One that runs is left to certify; of one that waits the server
// counts the attempt to come, so it is taken out of the trail.
func endOfPending(t *trail) pendingEnd {
	p := t.pending
	if p == nil {
		return pendingEnd{}
	}
	end := pendingEnd{heartbeat: p.GetHeartbeatDetails()}
	if started := p.GetLastStartedTime(); started != nil && started.AsTime().Unix() > 0 {
		return end
	}
	t.pending = nil
	end.known, end.attempts = true, max(int(p.GetAttempt())-1, 0)
	if end.attempts > 0 {
		last := dlqstore.Attempt{Attempt: end.attempts, EndedAt: timeOf(p.GetLastAttemptCompleteTime()), WorkerIdentity: p.GetLastWorkerIdentity()}
		fill(&last, p.GetLastFailure())
		end.attempt = &last
	}
	return end
}
