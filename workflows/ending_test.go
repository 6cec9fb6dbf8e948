package workflows

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	failurepb "go.temporal.io/api/failure/v1"
	"go.temporal.io/sdk/temporal"

	"github.com/deadletter-dev/deadletter/job"
)

func application(kind string, nonRetryable bool) *failurepb.Failure {
	return &failurepb.Failure{Message: "boom", FailureInfo: &failurepb.Failure_ApplicationFailureInfo{
		ApplicationFailureInfo: &failurepb.ApplicationFailureInfo{Type: kind, NonRetryable: nonRetryable},
	}}
}

func timeout(kind enumspb.TimeoutType, cause *failurepb.Failure) *failurepb.Failure {
	return &failurepb.Failure{Message: "activity timeout", Cause: cause, FailureInfo: &failurepb.Failure_TimeoutFailureInfo{
		TimeoutFailureInfo: &failurepb.TimeoutFailureInfo{TimeoutType: kind},
	}}
}

func serverFailure() *failurepb.Failure {
	return &failurepb.Failure{Message: "Failure exceeds size limit.", FailureInfo: &failurepb.Failure_ServerFailureInfo{
		ServerFailureInfo: &failurepb.ServerFailureInfo{},
	}}
}

func unknownToTypeScript() *failurepb.Failure {
	failure := application("NotFoundError", false)
	failure.Message = "Activity function SendEmail is not registered on this Worker, available activities: []"
	return failure
}

func cancelledFailure() *failurepb.Failure {
	return &failurepb.Failure{FailureInfo: &failurepb.Failure_CanceledFailureInfo{CanceledFailureInfo: &failurepb.CanceledFailureInfo{}}}
}

// TestClassify proves the reason of each final failure in the forms in which the
// server lines 1.29 and 1.32 report it: they differ in the retry state.
func TestClassify(t *testing.T) {
	t.Parallel()
	const (
		maxAttempts  = enumspb.RETRY_STATE_MAXIMUM_ATTEMPTS_REACHED
		nonRetryable = enumspb.RETRY_STATE_NON_RETRYABLE_FAILURE
		tooLate      = enumspb.RETRY_STATE_TIMEOUT
		asked        = enumspb.RETRY_STATE_CANCEL_REQUESTED
		none         = enumspb.RETRY_STATE_UNSPECIFIED
	)
	for _, c := range []struct {
		name      string
		cause     *failurepb.Failure
		state     enumspb.RetryState
		started   int64
		cancelled bool
		reason    job.Reason
		attempts  int // -1 for unknown
	}{
		{"budget spent", application("", false), maxAttempts, 6, false, job.ReasonMaxRetriesExceeded, 5},
		{"panic", application("PanicError", false), maxAttempts, 6, false, job.ReasonMaxRetriesExceeded, 5},
		{"panic too late", application("PanicError", false), tooLate, 6, false, job.ReasonRetryLifetimeExpired, -1},
		{"fatal", application("deadletter.Fatal", true), nonRetryable, 6, false, job.ReasonFatalError, -1},
		{"fatal on the last attempt", application("x", true), maxAttempts, 6, false, job.ReasonFatalError, 5},
		{"type on the list", application("x", false), nonRetryable, 6, false, job.ReasonFatalError, -1},
		{"next wait too late", application("", false), tooLate, 6, false, job.ReasonRetryLifetimeExpired, -1},
		{"age in an attempt, 1.29", timeout(enumspb.TIMEOUT_TYPE_SCHEDULE_TO_CLOSE, application("", false)), nonRetryable, 6, false, job.ReasonRetryLifetimeExpired, -1},
		{"age in an attempt, 1.32", timeout(enumspb.TIMEOUT_TYPE_SCHEDULE_TO_CLOSE, nil), tooLate, 6, false, job.ReasonRetryLifetimeExpired, -1},
		{"never picked up, 1.29", timeout(enumspb.TIMEOUT_TYPE_SCHEDULE_TO_START, nil), nonRetryable, 0, false, job.ReasonRetryLifetimeExpired, 0},
		{"never picked up, 1.32", timeout(enumspb.TIMEOUT_TYPE_SCHEDULE_TO_START, nil), tooLate, 0, false, job.ReasonRetryLifetimeExpired, 0},
		{"age in the queue again", timeout(enumspb.TIMEOUT_TYPE_SCHEDULE_TO_CLOSE, application("", false)), nonRetryable, 0, false, job.ReasonRetryLifetimeExpired, -1},
		{"attempt timeout", timeout(enumspb.TIMEOUT_TYPE_START_TO_CLOSE, nil), maxAttempts, 6, false, job.ReasonTimeout, 5},
		{"attempt timeout, not retried", timeout(enumspb.TIMEOUT_TYPE_START_TO_CLOSE, nil), nonRetryable, 6, false, job.ReasonTimeout, -1},
		{"zombie", timeout(enumspb.TIMEOUT_TYPE_HEARTBEAT, nil), nonRetryable, 6, false, job.ReasonZombie, -1},
		{"zombie, retried", timeout(enumspb.TIMEOUT_TYPE_HEARTBEAT, nil), maxAttempts, 6, false, job.ReasonZombie, 5},
		{"unknown type", application(job.GoUnknownType, false), maxAttempts, 6, false, job.ReasonUnknownJobType, 5},
		{"unknown type, too late", application(job.GoUnknownType, false), tooLate, 6, false, job.ReasonRetryLifetimeExpired, -1},
		{"unknown type, another SDK", unknownToTypeScript(), maxAttempts, 6, false, job.ReasonUnknownJobType, 5},
		{"cancelled in the grace", application(job.GoUnknownType, false), nonRetryable, 6, true, job.ReasonCancelled, -1},
		{"a handler's own NotFoundError", application("NotFoundError", false), maxAttempts, 6, false, job.ReasonMaxRetriesExceeded, 5},
		{"result too large, 1.29", serverFailure(), nonRetryable, 6, false, job.ReasonFatalError, -1},
		{"cancelled", cancelledFailure(), nonRetryable, 6, true, job.ReasonCancelled, -1},
		{"fails when cancelled", application("", false), asked, 6, true, job.ReasonCancelled, -1},
		{"fails at last, then cancelled", application("", false), maxAttempts, 6, true, job.ReasonMaxRetriesExceeded, 5},
		{"returns a cancellation unasked", application("wrapError", false), maxAttempts, 6, false, job.ReasonMaxRetriesExceeded, 5},
		{"no retry state", application("", false), none, 0, false, job.ReasonMaxRetriesExceeded, -1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			err := temporal.GetDefaultFailureConverter().FailureToError(&failurepb.Failure{
				Message: "activity error", Cause: c.cause,
				FailureInfo: &failurepb.Failure_ActivityFailureInfo{ActivityFailureInfo: &failurepb.ActivityFailureInfo{
					ScheduledEventId: 5, StartedEventId: c.started, RetryState: c.state,
				}},
			})
			end := classify(err, c.cancelled, job.Policy{MaxAttempts: 5}, "SendEmail")
			require.Equal(t, c.reason, end.reason)
			require.EqualValues(t, 5, end.scheduled)
			require.Equal(t, c.started, end.started)
			if c.attempts < 0 {
				require.Nil(t, end.attempts)
			} else {
				require.Equal(t, c.attempts, *end.attempts)
			}
		})
	}
	t.Run("cancelled without waiting", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, job.ReasonCancelled, classify(temporal.NewCanceledError(), true, job.Policy{}, "").reason)
	})
}

// TestErrorText proves that the closing error names the cause of a timeout and
// stays small whatever the handler said.
func TestErrorText(t *testing.T) {
	t.Parallel()
	failure := timeout(enumspb.TIMEOUT_TYPE_START_TO_CLOSE, application("", false))
	require.Equal(t, "activity timeout (the attempt before: boom)", errorText(temporal.GetDefaultFailureConverter().FailureToError(failure)))
	long := errorText(temporal.NewApplicationError(strings.Repeat("€", 1<<20), ""))
	require.LessOrEqual(t, len(long), maxErrorText)
	require.True(t, utf8.ValidString(long))
}
