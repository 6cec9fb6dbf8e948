package dlqstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/puddle/v2"
)

// Errors that callers branch on; test with errors.Is.
var (
	// ErrNotFound: there is no such dead letter or request.
	ErrNotFound = errors.New("not found")
	// ErrAmbiguous: several runs of the workflow id are dead letters, see AmbiguousError.
	ErrAmbiguous = errors.New("several runs match")
	// ErrUnbounded: an empty filter, where "all" was not said.
	ErrUnbounded = errors.New("the filter selects everything; say so if that is meant")
	// ErrRequestConflict: the request id already stands for something else:
	// another dead letter, another run or another outcome.
	ErrRequestConflict = errors.New("the request id is already used otherwise")
	// ErrSuperseded: the job has succeeded since, see SupersededError.
	ErrSuperseded = errors.New("the dead letter is superseded")
	// ErrConflict: the dead letter was edited since, see ConflictError.
	ErrConflict = errors.New("revision conflict")
	// ErrRefused: the request cannot be done, now or later, see RefusedError.
	ErrRefused = errors.New("refused")
	// ErrRejected: Postgres rejects the statement, and would reject it again: a missing
	// right, a broken constraint, a value that it cannot hold. It is ErrRefused.
	ErrRejected error = &rejected{}
	// ErrBusy: a replay of the dead letter is counted and not started yet; try again
	// in some seconds.
	ErrBusy = errors.New("a replay of it is being started")
	// ErrBadCursor: the cursor is not one that List returned for this order.
	ErrBadCursor = errors.New("not a cursor of this list")
	// ErrSchema: the schema is missing, or not of a version that this build can use.
	ErrSchema = errors.New("the database schema does not fit")
	// ErrUnavailable: Postgres cannot be reached or cannot serve now; try later.
	ErrUnavailable = errors.New("postgres is unavailable")
	// ErrClosed: the store was closed, by Close.
	ErrClosed = errors.New("the store is closed")
	// ErrTimeout: Postgres did not finish in time, or a lock was not free in time.
	ErrTimeout = errors.New("postgres did not finish in time")
)

// errMissing is the rejection of a statement for a schema that does not fit.
var errMissing = fmt.Errorf("%w: %w", ErrSchema, ErrRejected)

// rejected is the type of ErrRejected.
type rejected struct{}

// Error says that no retry helps.
func (*rejected) Error() string { return "postgres rejects it, and a retry would not help" }

// Unwrap returns ErrRefused.
func (*rejected) Unwrap() error { return ErrRefused }

// SupersededError says that a replay would do again what has been done: the job
// was reset by a person and succeeded. It is ErrSuperseded and ErrRefused.
type SupersededError struct {
	Key
	At      time.Time
	ByRunID *string // the run that succeeded
}

// Error says when, and by which run.
func (e *SupersededError) Error() string {
	by := ""
	if e.ByRunID != nil {
		by = " as run " + *e.ByRunID
	}
	return fmt.Sprintf("%v: the job was reset and succeeded at %s%s: a replay would do its work again; allow that if it is meant",
		ErrSuperseded, e.At.UTC().Format(time.RFC3339), by)
}

// Unwrap returns ErrSuperseded and ErrRefused.
func (e *SupersededError) Unwrap() []error { return []error{ErrSuperseded, ErrRefused} }

// ConflictError says that a dead letter has been edited since the caller saw it.
// It is ErrConflict.
type ConflictError struct {
	Key
	Seen, Current int // revisions
	// Actor and At are of the current revision; empty when it is the original.
	Actor string
	At    time.Time
}

// Error names both revisions.
func (e *ConflictError) Error() string {
	if e.Seen > e.Current {
		return fmt.Sprintf("%v: the edit is of revision %d, which does not exist; the newest is %d", ErrConflict, e.Seen, e.Current)
	}
	if e.Actor == "" {
		return fmt.Sprintf("%v: the edit is of revision %d, and the newest is revision %d", ErrConflict, e.Seen, e.Current)
	}
	return fmt.Sprintf("%v: the edit is of revision %d, and %s made revision %d at %s",
		ErrConflict, e.Seen, e.Actor, e.Current, e.At.UTC().Format(time.RFC3339))
}

// Unwrap returns ErrConflict.
func (e *ConflictError) Unwrap() error { return ErrConflict }

// Why an edit was refused.
const (
	EditUnreadable = "unreadable"  // what it would change is encrypted, or no JSON
	EditInvalid    = "invalid"     // the edit itself, or what it would make
	EditTestFailed = "test_failed" // a test operation of a JSON patch
	EditNoChange   = "no_change"   // all is as the edit wants it
)

// EditError says why an edit was refused. It is ErrRefused.
type EditError struct {
	Code  string // one of the Edit constants
	Cause string // for people; it may name keys of the arguments, but no value
}

// Error gives the cause.
func (e *EditError) Error() string { return fmt.Sprintf("the edit is refused: %s", e.Cause) }

// Unwrap returns ErrRefused.
func (e *EditError) Unwrap() error { return ErrRefused }

// AmbiguousError lists the runs of a workflow id that are dead letters, the
// newest first, at most 100 of them. It is ErrAmbiguous.
type AmbiguousError struct {
	Namespace  string
	WorkflowID string
	RunIDs     []string
}

// Error lists the run ids.
func (e *AmbiguousError) Error() string {
	return fmt.Sprintf("dead letter %s/%s: %v, name one: %s", e.Namespace, e.WorkflowID, ErrAmbiguous, strings.Join(e.RunIDs, ", "))
}

// Unwrap returns ErrAmbiguous.
func (e *AmbiguousError) Unwrap() error { return ErrAmbiguous }

// RefusedError says why a request was refused. It is ErrRefused.
type RefusedError struct {
	RequestID string
	Cause     string
}

// Error gives the cause.
func (e *RefusedError) Error() string {
	return fmt.Sprintf("request %q: %v: %s", e.RequestID, ErrRefused, e.Cause)
}

// Unwrap returns ErrRefused.
func (e *RefusedError) Unwrap() error { return ErrRefused }

// faultyError is a request with faults that show by itself. It is ErrRefused, and
// has only the faults in its text.
type faultyError struct{ faults error }

func (e faultyError) Error() string   { return e.faults.Error() }
func (e faultyError) Unwrap() []error { return []error{e.faults, ErrRefused} }

// CapError says that more dead letters match a purge than it may remove. Nothing
// was purged.
type CapError struct {
	Matched int64
	Limit   int
}

// Error gives both numbers.
func (e *CapError) Error() string {
	return fmt.Sprintf("%d dead letters match, more than the limit of %d: nothing was purged", e.Matched, e.Limit)
}

// classify names a failure of Postgres, by SQLSTATE or by the kind of the
// connection's error, never by its text. The result holds neither the database
// URL nor a password.
func classify(err error) error {
	if err == nil {
		return nil
	}
	var connect *pgconn.ConnectError
	if errors.As(err, &connect) {
		err = connect.Unwrap() // without the URL's user and database
	}
	if sentinel := sentinelOf(err, connect != nil); sentinel != nil {
		return fmt.Errorf("%w: %w", sentinel, err)
	}
	return err
}

// sentinelOf returns nil for an error that callers have no use to tell apart.
func sentinelOf(err error, connecting bool) error {
	if ofStandby(err) {
		return ErrUnavailable
	}
	if connecting && refusedByPooler(err) {
		return nil
	}
	if pgErr := (*pgconn.PgError)(nil); errors.As(err, &pgErr) {
		sentinel := sentinelOfState(pgErr)
		if connecting && errors.Is(sentinel, ErrRejected) {
			return nil // it rejects the session, whatever the request is
		}
		return sentinel
	}
	if errors.Is(err, context.Canceled) {
		return nil
	}
	var network net.Error
	switch {
	case errors.Is(err, puddle.ErrClosedPool):
		return ErrClosed
	case connecting:
		return ErrUnavailable
	case errors.Is(err, context.DeadlineExceeded):
		return ErrTimeout
	case errors.Is(err, pgconn.ErrConnClosed), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.As(err, &network):
		return ErrUnavailable
	default:
		return nil
	}
}

func sentinelOfState(err *pgconn.PgError) error {
	if isUnavailable(err.Code) {
		return ErrUnavailable
	}
	switch err.Code {
	case "57014", "55P03", "25P03", "25P04": // query cancelled, lock not available, idle and whole transaction timeouts
		return ErrTimeout
	case "3F000": // no such schema
		return ErrSchema
	case "42P01", "42703", "42883": // no such table, column, function
		return errMissing
	case "42P05": // a prepared statement of another client, behind a pooler: the next try may have its own
		return nil
	case notSupported:
		if err.Routine == "RevalidateCachedQuery" { // a plan of before a migration, which pgx forgets on this error
			return nil
		}
		return ErrRejected
	}
	if isNumbering(err) { // the next try takes the next number
		return nil
	}
	switch err.Code[:min(2, len(err.Code))] {
	case "22", "23", "42": // data exceptions, constraints, syntax and rights
		return ErrRejected
	default:
		return nil
	}
}

// rejection says in a few words why Postgres rejects a statement, for the audit; empty
// for any other error. A data exception's message may quote the value, so only its
// SQLSTATE is told.
func rejection(err error) string {
	pgErr := (*pgconn.PgError)(nil)
	if !errors.As(err, &pgErr) || !errors.Is(err, ErrRejected) {
		return ""
	}
	message := pgErr.Message
	if strings.HasPrefix(pgErr.Code, "22") {
		message = "data exception"
	}
	return fmt.Sprintf("%s (%s)", message, pgErr.Code)
}
