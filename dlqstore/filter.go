package dlqstore

import (
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deadletter-dev/deadletter/internal/text"
	"github.com/deadletter-dev/deadletter/job"
)

// Filter selects dead letters: those that meet every field that is set. The zero
// value of a field asks nothing, so the zero Filter selects all.
type Filter struct {
	Namespace   string
	WorkflowID  string
	JobType     string
	Reason      job.Reason
	TaskQueue   string
	Fingerprint string
	// ErrorText is a substring of the error's message or type, in any case of
	// letters. No index serves it: on a large table give another field beside it,
	// or the search ends with ErrTimeout.
	ErrorText string
	// Tags must all be there with these values.
	Tags map[string]string
	// DeadAfter is inclusive, DeadBefore exclusive.
	DeadAfter  *time.Time
	DeadBefore *time.Time
	// Replayed selects by whether any replay was made.
	Replayed *bool
}

// IsEmpty reports whether the filter selects everything of its namespace, or of
// all when it names none.
func (f Filter) IsEmpty() bool {
	f.Namespace = ""
	return len(f.conditions()) == 0
}

// The conditions. Each is written only when asked for, so that the planner sees
// which index serves it.
const (
	whereNamespace   = `d.namespace = @namespace`
	whereWorkflowID  = `d.workflow_id = @workflow_id`
	whereJobType     = `d.job_type = @job_type`
	whereReason      = `d.reason = @reason`
	whereTaskQueue   = `d.task_queue = @task_queue`
	whereFingerprint = `d.fingerprint = @fingerprint`
	whereErrorText   = `(strpos(lower(d.error_message), lower(@error_text)) > 0 or strpos(lower(d.error_type), lower(@error_text)) > 0)`
	whereTags        = `d.tags @> @tags::jsonb`
	whereDeadAfter   = `d.dead_at >= @dead_after`
	whereDeadBefore  = `d.dead_at < @dead_before`
	whereReplayed    = `d.resurrection_count > 0`
	whereNotReplayed = `d.resurrection_count = 0`
)

type condition struct {
	sql   string
	name  string // of the argument; empty when the condition has none
	value any
}

func (f Filter) conditions() []condition {
	var all []condition
	for _, given := range []struct{ sql, name, value string }{
		{whereNamespace, "namespace", f.Namespace},
		{whereWorkflowID, "workflow_id", f.WorkflowID},
		{whereJobType, "job_type", f.JobType},
		{whereReason, "reason", string(f.Reason)},
		{whereTaskQueue, "task_queue", f.TaskQueue},
		{whereFingerprint, "fingerprint", f.Fingerprint},
		{whereErrorText, "error_text", f.ErrorText},
	} {
		if given.value != "" {
			all = append(all, condition{given.sql, given.name, text.Holdable(given.value)}) // as it was stored
		}
	}
	if len(f.Tags) > 0 {
		all = append(all, condition{whereTags, "tags", encoded(holdableTags(f.Tags))})
	}
	if f.DeadAfter != nil {
		all = append(all, condition{whereDeadAfter, "dead_after", *f.DeadAfter})
	}
	if f.DeadBefore != nil {
		all = append(all, condition{whereDeadBefore, "dead_before", *f.DeadBefore})
	}
	if f.Replayed != nil {
		if *f.Replayed {
			all = append(all, condition{sql: whereReplayed})
		} else {
			all = append(all, condition{sql: whereNotReplayed})
		}
	}
	return all
}

// where returns the filter's clause after the extra conditions, empty if there is
// nothing to ask, with its arguments.
func (f Filter) where(extra ...string) (string, pgx.NamedArgs) {
	args := pgx.NamedArgs{}
	for _, c := range f.conditions() {
		extra = append(extra, c.sql)
		if c.name != "" {
			args[c.name] = c.value
		}
	}
	if len(extra) == 0 {
		return "", args
	}
	return "\nwhere " + strings.Join(extra, "\n\tand "), args
}
