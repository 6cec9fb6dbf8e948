package testsuite_test

import (
	"context"
	"encoding/json"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/converter"
	"google.golang.org/protobuf/proto"

	"github.com/deadletter-dev/deadletter"
	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/job"
)

// TestSuccess proves that a job which succeeds, at once or after failed attempts,
// completes with the handler's own bytes, writes no dead letter and costs the
// eleven events of a bare workflow with one activity.
func TestSuccess(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	payload := &commonpb.Payload{
		Metadata: map[string][]byte{converter.MetadataEncoding: []byte("binary/odd"), "note": []byte("kept")},
		Data:     []byte{0, 1, 2, 255},
	}
	var failures atomic.Int32
	w.startJobs(handlers{
		"Raw": func(context.Context) (converter.RawValue, error) { return converter.NewRawValue(payload), nil },
		"Third": func(context.Context) (string, error) {
			if failures.Add(1) < 3 {
				return "", errors.New("not yet")
			}
			return "third time lucky", nil
		},
		"Nothing": func(context.Context) error { return nil },
	})
	w.startDLQ(nil)

	for _, jobType := range []string{"Raw", "Third", "Nothing"} {
		run := w.enqueue(deadletter.Job{Type: jobType, Policy: quick(3)})
		require.NoError(t, w.wait(run, nil))
		require.Equal(t, enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED, w.status(run))

		events := settled(w.history(run))
		require.Len(t, events, 11, jobType)
		handlerResult := events[6].GetActivityTaskCompletedEventAttributes().GetResult()
		jobResult := events[10].GetWorkflowExecutionCompletedEventAttributes().GetResult()
		require.True(t, proto.Equal(handlerResult, jobResult), "%s: handler %v, job %v", jobType, handlerResult, jobResult)
		if jobType == "Raw" {
			require.True(t, proto.Equal(payload, jobResult.GetPayloads()[0]))
		}
	}
	require.Zero(t, w.count())
}

type emailArgs struct {
	To   string      `json:"to"`
	Size json.Number `json:"size"`
}

// TestMaxRetriesExceeded proves the whole path of a job that always fails: the
// number of calls, the dead letter's every field, how the workflow closes, and
// what it costs in history.
func TestMaxRetriesExceeded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var calls atomic.Int32
	w.startJobs(handlers{"SendEmail": func(_ context.Context, args emailArgs) error {
		calls.Add(1)
		return errors.New("mailbox of " + args.To + " is full")
	}})
	w.startDLQ(nil)

	run := w.enqueue(deadletter.Job{Type: "SendEmail", Policy: quick(3), Tags: map[string]string{"tenant": "acme"}},
		emailArgs{To: "a@b.c", Size: "9007199254740993"})
	err := w.wait(run, nil)
	require.EqualValues(t, 3, calls.Load())

	require.ErrorContains(t, err, "dead-lettered: max_retries_exceeded after 3 attempts: mailbox of a@b.c is full")
	details, ok := deadletter.AsDeadLettered(err)
	require.True(t, ok)
	require.Equal(t, job.ReasonMaxRetriesExceeded, details.Reason)
	require.Equal(t, 3, *details.Attempts)
	require.Equal(t, enumspb.WORKFLOW_EXECUTION_STATUS_FAILED, w.status(run))
	events := settled(w.history(run))
	require.LessOrEqual(t, len(events), 17)
	closing := events[len(events)-1].GetWorkflowExecutionFailedEventAttributes().GetFailure().GetApplicationFailureInfo()
	require.Equal(t, "deadletter.DeadLettered", closing.GetType())
	require.True(t, closing.GetNonRetryable())

	dl := w.dead(run)
	require.Equal(t, w.key(run), dl.Key)
	require.Equal(t, run.GetRunID(), dl.FirstRunID)
	require.Equal(t, "SendEmail", dl.JobType)
	require.Equal(t, w.queue, dl.TaskQueue)
	require.Equal(t, w.queue, dl.WorkflowTaskQueue)
	require.Equal(t, job.ReasonMaxRetriesExceeded, dl.Reason)
	require.Equal(t, 3, *dl.Attempts)
	require.Equal(t, 3, *dl.MaxAttempts)
	require.Equal(t, "mailbox of a@b.c is full", dl.ErrorMessage)
	require.Equal(t, "MaximumAttemptsReached", dl.RetryState)
	require.Equal(t, map[string]string{"tenant": "acme"}, dl.Tags)
	require.JSONEq(t, `[{"to":"a@b.c","size":9007199254740993}]`, string(dl.PayloadJSON))
	require.Contains(t, string(dl.PayloadJSON), "9007199254740993", "no digit may be lost")
	require.Zero(t, dl.ResurrectionCount)
	require.Zero(t, dl.Generation)
	require.Equal(t, 1, dl.Revision)
	require.NotEmpty(t, dl.Fingerprint)
	require.NotEmpty(t, dl.WorkerIdentity)

	var stored commonpb.Payloads
	require.NoError(t, proto.Unmarshal(dl.Payloads, &stored))
	sent := events[0].GetWorkflowExecutionStartedEventAttributes().GetInput().GetPayloads()[1:]
	require.True(t, proto.Equal(&commonpb.Payloads{Payloads: sent}, &stored), "the payload is not as it was sent")

	inOrder(t, dl.EnqueuedAt, dl.FirstAttemptAt, dl.LastAttemptAt, &dl.DeadAt)
	attempts, err := w.store.Attempts(t.Context(), dl.Key)
	require.NoError(t, err)
	require.NotEmpty(t, attempts)
	last := attempts[len(attempts)-1]
	require.Equal(t, 3, last.Attempt)
	require.Equal(t, "mailbox of a@b.c is full", last.ErrorMessage)
	inOrder(t, last.StartedAt, last.EndedAt)
	require.Equal(t, []string{dlqstore.VerbMove}, w.verbs(dl.Key))
}

func inOrder(t *testing.T, times ...*time.Time) {
	t.Helper()
	for i, at := range times {
		require.NotNil(t, at, "time %d is missing", i)
		if i > 0 {
			require.False(t, at.Before(*times[i-1]), "time %d, %s, is before the one in front, %s", i, at, times[i-1])
		}
	}
}

// verbs lists the audit of one dead letter.
func (w *world) verbs(key dlqstore.Key) []string {
	w.t.Helper()
	events, err := w.store.Events(w.t.Context(), key)
	require.NoError(w.t, err)
	var verbs []string
	for _, event := range events {
		verbs = append(verbs, event.Verb)
	}
	return verbs
}
