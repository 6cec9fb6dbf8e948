package activities

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strings"

	failurepb "go.temporal.io/api/failure/v1"

	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/job"
)

// fingerprint groups dead letters that died of the same cause: the same job type,
// reason, root error type, and place. The place is the first application frame of
// the root's stack or, as most errors have none, the message without its
// particulars.
//
// The reason is part of it although one fault can end jobs for two: what to do about
// jobs that lost their worker is another matter than about those that used up their
// attempts, and a group says one thing.
//
// failure is what dl was written from, nil when that is no failure.
func fingerprint(dl *dlqstore.DeadLetter, failure *failurepb.Failure) string {
	kind, message := dl.ErrorType, dl.ErrorMessage
	place := ""
	for f := failure; f != nil; f = causeOf(f) {
		kind = failureType(f)
		if frame := firstFrame(f.GetStackTrace()); frame != "" {
			place = "frame " + frame
		}
	}
	if failure.GetTimeoutFailureInfo() != nil {
		message = failure.GetMessage() // not what the attempt before it said
	}
	switch {
	case dl.Reason == job.ReasonUnknownJobType, job.IsUnknownType(kind, message, dl.JobType):
		// The message lists what the worker knows, in another order each time.
		place = "unknown"
	case place == "":
		place = "message " + withoutParticulars(message)
	}
	hash := sha256.New()
	for _, part := range []string{dl.JobType, string(dl.Reason), kind, place} {
		hash.Write([]byte(part))
		hash.Write([]byte{0})
	}
	return hex.EncodeToString(hash.Sum(nil)[:8])
}

// causeOf returns the failure inside. What a timeout carries there is the failure of
// the attempt before, which did not make it.
func causeOf(f *failurepb.Failure) *failurepb.Failure {
	if f.GetTimeoutFailureInfo() != nil {
		return nil
	}
	return f.GetCause()
}

// particular matches what differs between two occurrences of one error, longest
// forms first: URLs, addresses of mail, values in quotes, addresses of IPv6, and
// whatever has a digit, as numbers, ids, hashes, times and addresses of IPv4 do.
var particular = regexp.MustCompile(`(?i)` + strings.Join([]string{
	`[a-z][a-z0-9+.-]*://[^\s"'` + "`" + `<>]+`,
	`[\w.+-]+@[\w-]+(?:\.[\w-]+)+`,
	`"(?:[^"\\]|\\.)*"`,
	"`[^`]*`",
	`\B'(?:[^'\\]|\\.)*'\B`, // no apostrophe
	`\b(?:[0-9a-f]{0,4}:){2,7}[0-9a-f]{0,4}\b`,
	`[\w-]*\d[\w-]*`,
}, "|"))

// particulars matches marks that nothing but punctuation divides: parts of one
// address, or a list of any length.
var particulars = regexp.MustCompile(`#(?:[\s,;:./()\[\]-]*#)+`)

// withoutParticulars leaves of a message what says the cause: each particular is a
// mark, neighbouring marks are one, and white space is one space.
func withoutParticulars(message string) string {
	message = message[:min(len(message), dlqstore.MaxErrorMessage)]
	message = particular.ReplaceAllLiteralString(message, "#")
	message = particulars.ReplaceAllLiteralString(message, "#")
	return strings.Join(strings.Fields(message), " ")
}
