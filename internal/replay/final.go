package replay

import (
	"errors"

	"github.com/deadletter-dev/deadletter/dlqstore"
)

// IsFinal reports whether repeating the same request can never help.
func IsFinal(err error) bool {
	for _, class := range []error{dlqstore.ErrNotFound, dlqstore.ErrAmbiguous, dlqstore.ErrConflict, dlqstore.ErrRequestConflict, dlqstore.ErrRefused} {
		if errors.Is(err, class) {
			return true
		}
	}
	return false
}
