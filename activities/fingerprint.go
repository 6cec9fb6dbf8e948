package activities

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"

	"github.com/deadletter-dev/deadletter/dlqstore"
)

// particular matches what differs between two occurrences of one error: ids,
// addresses and numbers.
var particular = regexp.MustCompile(`(?i)0x[0-9a-f]+|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]*[0-9][0-9a-f]*`)

// fingerprint groups dead letters that died of the same cause: job type, reason,
// error type, and the message without its particulars.
func fingerprint(dl *dlqstore.DeadLetter) string {
	hash := sha256.New()
	message := dl.ErrorMessage[:min(len(dl.ErrorMessage), dlqstore.MaxErrorMessage)]
	for _, part := range []string{
		dl.JobType, string(dl.Reason), dl.ErrorType,
		particular.ReplaceAllString(message, "#"),
	} {
		hash.Write([]byte(part))
		hash.Write([]byte{0})
	}
	return hex.EncodeToString(hash.Sum(nil)[:8])
}
