package activities

import (
	"errors"
	"fmt"
	"reflect"
	"unicode/utf8"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"

	"github.com/deadletter-dev/deadletter/internal/text"
)

// maxWireError bounds the text of an error on its way to the server, which would
// otherwise make a failure that is too large final, or never accept one that is
// not valid UTF-8.
const maxWireError = 64 << 10

// wireError makes a handler's error mean on the server what it means in Go: a
// non-retryable error inside another one stays non-retryable, and text that the
// wire cannot carry becomes text that it can.
func wireError(err error) error {
	if err == nil || errors.Is(err, activity.ErrResultPending) || temporal.IsCanceledError(err) {
		return err
	}
	outer, isApplication := err.(*temporal.ApplicationError) //nolint:errorlint // the server reads the outermost error only
	inner, hasInner := errors.AsType[*temporal.ApplicationError](err)
	promote := !isApplication && hasInner && inner.NonRetryable()
	fits := wireText(err.Error()) == err.Error()
	if fits && !promote {
		return err
	}
	options := temporal.ApplicationErrorOptions{}
	kind := reflect.Indirect(reflect.ValueOf(err)).Type().Name() // as the SDK names it
	message := err.Error()
	switch {
	case isApplication:
		kind, message = outer.Type(), outer.Message()
		options.NonRetryable, options.NextRetryDelay, options.Category = outer.NonRetryable(), outer.NextRetryDelay(), outer.Category()
	case promote:
		kind = inner.Type()
		options.NonRetryable, options.Category = true, inner.Category()
	}
	if fits {
		options.Cause = err
	}
	return temporal.NewApplicationErrorWithOptions(wireText(message), kind, options)
}

func wireText(message string) string {
	if len(message) <= maxWireError && utf8.ValidString(message) {
		return message
	}
	return text.Bounded(message, maxWireError)
}

// cleanPanic lets a panic go on, with a text that the wire can carry. The stack
// that the SDK prints still starts at the panic.
func cleanPanic() {
	value := recover()
	if value == nil {
		return
	}
	said := fmt.Sprint(value)
	if clean := wireText(said); clean != said {
		panic(clean)
	}
	panic(value)
}
