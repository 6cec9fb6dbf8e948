package job

import (
	"regexp"
	"strings"
)

// GoUnknownType is the error type of the failure with which a Go worker answers a
// task of an activity type that it does not know. PHP's workers, which Go code runs,
// use it too.
const GoUnknownType = "ActivityNotRegisteredError"

// unknownTypes are the failures with which the workers of other SDKs do. Handlers
// may raise errors of these types too, so the message decides: it names the activity
// type at %s.
var unknownTypes = map[string]string{
	"NotFoundError":                      `^Activity (function |method )?%s is not registered on this worker\b`, // TypeScript, Python, .NET, Ruby
	"java.lang.IllegalArgumentException": `^Activity Type "%s" is not registered with a worker\b`,
}

// IsUnknownType reports whether a failure of this type and message says that the
// worker which took the task does not know the job type.
func IsUnknownType(errorType, message, jobType string) bool {
	if errorType == GoUnknownType {
		return true
	}
	form, ambiguous := unknownTypes[errorType]
	if !ambiguous {
		return false
	}
	// The spelling of "worker" differs between SDKs in its first letter's case.
	said, err := regexp.MatchString("(?i)"+strings.ReplaceAll(form, "%s", "(?-i:"+regexp.QuoteMeta(jobType)+")"), message)
	return err == nil && said
}
