package job_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/deadletter-dev/deadletter/job"
)

// TestIsUnknownType proves that the answer of each SDK's worker to a task of an
// unknown type is told from an error that a handler raises with the same type.
func TestIsUnknownType(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		errorType, message string
		unknown            bool
	}{
		{"ActivityNotRegisteredError", "unable to find activityType=Send(Email). Supported types: []", true},
		{"NotFoundError", `Activity function Send(Email) is not registered on this Worker, available activities: ["a"]`, true},
		{"NotFoundError", "Activity function Send(Email) is not registered on this worker, available activities: a", true},
		{"NotFoundError", "Activity Send(Email) is not registered on this worker, available activities: a", true},
		{"java.lang.IllegalArgumentException", `Activity Type "Send(Email)" is not registered with a worker. Known types are: a`, true},
		{"NotFoundError", "customer 4711 not found", false},
		{"NotFoundError", "Activity function Other is not registered on this worker, available activities: a", false},
		{"NotFoundError", "Activity function SEND(EMAIL) is not registered on this worker, available activities: a", false},
		{"NotFoundError", "upstream: Activity function Send(Email) is not registered on this worker", false},
		{"java.lang.IllegalArgumentException", "negative amount", false},
		{"", "Activity function Send(Email) is not registered on this worker", false},
	} {
		require.Equal(t, c.unknown, job.IsUnknownType(c.errorType, c.message, "Send(Email)"), "%s: %s", c.errorType, c.message)
	}
}
