package edit

import (
	"errors"
	"fmt"

	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/internal/jsonedit"
	"github.com/deadletter-dev/deadletter/job"
)

// Preview is what an edit would make of a dead letter.
type Preview struct {
	// Content has the parts that the edit gives; parts may be as they were.
	dlqstore.Content
	// Diff is empty when nothing would change.
	Diff dlqstore.Diff
}

// Try returns what the edit would make of the dead letter, which must have its
// wire bytes, and writes nothing. Its error is that of Apply.
func Try(dl *dlqstore.DeadLetter, e job.Edit) (Preview, error) {
	content, err := Apply(dl, e)
	if err != nil {
		return Preview{}, err
	}
	return Preview{Content: content, Diff: Compare(dl, content.In(dl))}, nil
}

// Apply returns the parts of the dead letter that the edit touches, as they are
// after it. The error is a *dlqstore.EditError that says why it cannot be done.
func Apply(dl *dlqstore.DeadLetter, e job.Edit) (content dlqstore.Content, err error) {
	if err := e.Validate(); err != nil {
		return content, invalid("%w", err)
	}
	if content.Arguments, err = editArguments(dl, e); err != nil {
		return dlqstore.Content{}, err
	}
	if e.TouchesOptions() {
		if content.Options, err = editOptions(dl, e); err != nil {
			return dlqstore.Content{}, err
		}
	}
	if e.Priority != nil {
		if content.Priority, err = editPriority(dl, e); err != nil {
			return dlqstore.Content{}, err
		}
	}
	return content, nil
}

// Request fills in how the store is to edit: with the functions of this package.
func Request(request dlqstore.EditRequest, e job.Edit) dlqstore.EditRequest {
	request.Change = func(dl *dlqstore.DeadLetter) (dlqstore.Content, error) { return Apply(dl, e) }
	request.Compare = Compare
	return request
}

func refused(code, format string, args ...any) error {
	return &dlqstore.EditError{Code: code, Cause: fmt.Errorf(format, args...).Error()}
}

func invalid(format string, args ...any) error { return refused(dlqstore.EditInvalid, format, args...) }

func unreadable(format string, args ...any) error {
	return refused(dlqstore.EditUnreadable, format, args...)
}

// asRefusal is err as an EditError that begins with where.
func asRefusal(where string, err error) error {
	var already *dlqstore.EditError
	if err == nil || errors.As(err, &already) {
		return err
	}
	return invalid("%s: %w", where, err)
}

func parseGiven(name string, given []byte) (jsonedit.Value, error) {
	v, err := jsonedit.Parse(given)
	return v, asRefusal(name, err)
}
