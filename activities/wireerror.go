package activities

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"runtime/debug"
	"time"
	"unicode/utf8"

	commonpb "go.temporal.io/api/common/v1"
	failurepb "go.temporal.io/api/failure/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/deadletter-dev/deadletter/internal/text"
	"github.com/deadletter-dev/deadletter/job"
)

// maxWireError bounds the text of an error on its way to the server, which would
// otherwise make a failure that is too large final, or never accept one that is
// not valid UTF-8.
const maxWireError = 64 << 10

// verdict is what a handler's error means to a job.
type verdict struct {
	kind, message string
	nonRetryable  bool
	category      temporal.ApplicationErrorCategory
	details       []any
	// asked is the wait that the handler itself asked for, 0 for none.
	asked time.Duration
	cause error
	// stack is set for a panic.
	stack string
}

// judge reads a handler's error. What the outermost error says counts, unless it
// only wraps: then the strongest of the application errors inside does, since the
// server sees the outermost alone.
func judge(err error) verdict {
	if crash, ok := errors.AsType[*crash](err); ok {
		return verdict{kind: panicType, message: wireText(crash.said), stack: wireText(crash.stack)}
	}
	v := verdict{message: wireText(words(err)), kind: typeName(err), cause: errors.Unwrap(err)}
	deciding, isApplication := err.(*temporal.ApplicationError) //nolint:errorlint // see above
	if isApplication {
		v.message = wireText(deciding.Message())
	} else {
		deciding = strongest(err)
	}
	if deciding != nil {
		if isApplication || meaning(deciding) > 0 {
			v.kind, v.nonRetryable, v.category = deciding.Type(), deciding.NonRetryable(), deciding.Category()
			v.details, v.asked = detailsOf(deciding), deciding.NextRetryDelay()
		}
	}
	v.kind = text.Bounded(v.kind, maxTypeName)
	return v
}

// maxTypeName bounds the type of an error, in bytes.
const maxTypeName = 1000

// words is the text of an error, whose own Error method may panic.
func words(err error) (said string) {
	defer func() {
		if value := recover(); value != nil {
			said = fmt.Sprintf("the Error method of %T panicked: %v", err, value)
		}
	}()
	return err.Error()
}

// sendable reports whether the server would take the whole failure: every text in
// it and in its causes, its details, and its size.
func sendable(err error) (ok bool) {
	defer func() {
		if recover() != nil { // an Error method, or details that do not encode
			ok = false
		}
	}()
	failure := temporal.GetDefaultFailureConverter().ErrorToFailure(err)
	data, failed := proto.Marshal(failure)
	return failed == nil && len(data) <= maxFailure
}

// meaning ranks what an application error inside another error says about the
// job; 0 for an ordinary failure.
func meaning(e *temporal.ApplicationError) int {
	switch {
	case e.NonRetryable() && !job.IsFree(e.Type()):
		return 3
	case job.IsFree(e.Type()):
		return 2
	case e.Type() == job.ThrottledErrorType, e.NextRetryDelay() > 0:
		return 1
	default:
		return 0
	}
}

// strongest looks through fmt.Errorf's %w and errors.Join.
func strongest(err error) *temporal.ApplicationError {
	if found, ok := err.(*temporal.ApplicationError); ok { //nolint:errorlint // it walks the tree itself
		return found
	}
	var inside []error
	switch wrapper := err.(type) { //nolint:errorlint // it walks the tree itself
	case interface{ Unwrap() []error }:
		inside = wrapper.Unwrap()
	case interface{ Unwrap() error }:
		inside = []error{wrapper.Unwrap()}
	}
	var best *temporal.ApplicationError
	for _, err := range inside {
		if err == nil {
			continue
		}
		if found := strongest(err); found != nil && (best == nil || meaning(found) > meaning(best)) {
			best = found
		}
	}
	return best
}

// detailsOf returns the details of an error that this process made or received.
func detailsOf(e *temporal.ApplicationError) []any {
	for n := job.MaxDetails; n > 0 && e.HasDetails(); n-- {
		values := make([]any, n)
		targets := make([]any, n)
		for i := range values {
			targets[i] = &values[i]
		}
		if e.Details(targets...) == nil {
			for len(values) > 0 && values[len(values)-1] == nil {
				values = values[:len(values)-1]
			}
			return values
		}
	}
	return nil
}

// typeName names an error's Go type as the SDK does: the type of errors.New says
// nothing.
func typeName(err error) string {
	t := reflect.TypeOf(err)
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == reflect.TypeOf(errors.New("")).Elem() {
		return ""
	}
	return t.Name()
}

// wire returns the error in the form in which the SDK sends it with all that the
// verdict says, our trailer behind the handler's own details.
func (v verdict) wire(trailer job.Trailer, wait time.Duration, plain bool) error {
	if v.stack != "" {
		return v.wirePanic(trailer, wait, plain)
	}
	options := temporal.ApplicationErrorOptions{
		NonRetryable:   v.nonRetryable,
		Category:       v.category,
		Cause:          v.cause,
		Details:        append(v.details, trailer),
		NextRetryDelay: wait,
	}
	err := temporal.NewApplicationErrorWithOptions(v.message, v.kind, options)
	if sendable(err) {
		return err
	}
	// What is in the way is left out: the cause, whose words the message has, then
	// the handler's own details.
	options.Cause = nil
	if err = temporal.NewApplicationErrorWithOptions(v.message, v.kind, options); sendable(err) {
		return err
	}
	options.Details = []any{trailer}
	return temporal.NewApplicationErrorWithOptions(v.message, v.kind, options)
}

// panicType is the type that the SDK gives to a panic's failure.
const panicType = "PanicError"

// wirePanic keeps the stack where the Temporal UI looks for it. The SDK has no
// constructor for that, but takes a failure in the wire's own form as it is; with a
// failure converter of the team's own that would go past it, so the stack then
// travels in the message.
func (v verdict) wirePanic(trailer job.Trailer, wait time.Duration, plain bool) error {
	if !plain {
		return temporal.NewApplicationErrorWithOptions(v.message+"\n"+v.stack, panicType,
			temporal.ApplicationErrorOptions{Details: []any{trailer}, NextRetryDelay: wait})
	}
	info := &failurepb.ApplicationFailureInfo{Type: panicType}
	trailer.Heartbeat = nil // it may be secret, and goes past the codec here
	if details, err := converter.GetDefaultDataConverter().ToPayloads(trailer); err == nil {
		info.Details = &commonpb.Payloads{Payloads: details.GetPayloads()}
	}
	if wait > 0 {
		info.NextRetryDelay = durationpb.New(wait)
	}
	return temporal.GetDefaultFailureConverter().FailureToError(&failurepb.Failure{
		Message: v.message, Source: "GoSDK", StackTrace: v.stack,
		FailureInfo: &failurepb.Failure_ApplicationFailureInfo{ApplicationFailureInfo: info},
	})
}

// crash is a panic of a handler.
type crash struct{ said, stack string }

func (c *crash) Error() string { return c.said }

func panicError(value any) error {
	said := fmt.Sprint(value) // survives a value whose own methods panic
	return &crash{said: said, stack: string(debug.Stack())}
}

// isCancellation reports whether an attempt ended because its context did.
func isCancellation(err error) bool {
	return errors.Is(err, context.Canceled) || temporal.IsCanceledError(err)
}

// passes reports whether an error is none of a handler's failures: it completes
// later, or tells the server that the job's cancellation was heeded.
func passes(err error, jobCancelled bool) bool {
	return errors.Is(err, activity.ErrResultPending) || jobCancelled && isCancellation(err)
}

func wireText(message string) string {
	if len(message) <= maxWireError && utf8.ValidString(message) {
		return message
	}
	return text.Bounded(message, maxWireError)
}
