package dlqstore

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deadletter-dev/deadletter/internal/text"
	"github.com/deadletter-dev/deadletter/job"
)

// Filter selects dead letters: those that meet every field that is set. The zero
// value of a field asks nothing, so the zero Filter selects all. An index serves
// each field.
//
// Its JSON is stable: a plan keeps it. A key that this build does not know is an
// error when read, for to ignore it would select more than was meant.
type Filter struct {
	Namespace   string     `json:"namespace,omitempty"`
	WorkflowID  string     `json:"workflow_id,omitempty"`
	JobType     string     `json:"job_type,omitempty"`
	Reason      job.Reason `json:"reason,omitempty"`
	TaskQueue   string     `json:"task_queue,omitempty"`
	Fingerprint string     `json:"fingerprint,omitempty"`
	// ErrorText is a substring of the error's message or type, in any case of
	// letters. Its index needs extension pg_trgm and three letters or digits in a
	// row: without those, a search that finds little on a large table may end with
	// ErrTimeout, unless another field narrows it.
	ErrorText string `json:"error_text,omitempty"`
	// Tags must all be there with these values.
	Tags map[string]string `json:"tags,omitempty"`
	// DeadAfter is inclusive, DeadBefore exclusive, and so with the next two.
	DeadAfter  *time.Time `json:"dead_after,omitempty"`
	DeadBefore *time.Time `json:"dead_before,omitempty"`
	// A row whose time of enqueueing is unknown meets neither. The order is by death,
	// so a wide range far from where the list begins takes a walk there.
	EnqueuedAfter  *time.Time `json:"enqueued_after,omitempty"`
	EnqueuedBefore *time.Time `json:"enqueued_before,omitempty"`
	// MinAttempts and MaxAttempts are inclusive. A row whose attempts are unknown
	// meets neither.
	MinAttempts *int `json:"min_attempts,omitempty"`
	MaxAttempts *int `json:"max_attempts,omitempty"`
	// Generation is 0 for original jobs, 1 for their replays, and so on.
	Generation *int `json:"generation,omitempty"`
	// Replayed selects by whether any replay was made.
	Replayed *bool `json:"replayed,omitempty"`
	// Superseded selects by whether the same job succeeded later, after a reset.
	Superseded *bool `json:"superseded,omitempty"`
	// Where must all hold; at most MaxConditions.
	Where []Condition `json:"where,omitempty"`
}

// plainFilter is Filter without its methods.
type plainFilter Filter

// UnmarshalJSON refuses a key that it does not know, one in another case, and one that is
// there twice.
func (f *Filter) UnmarshalJSON(data []byte) error {
	var read readFilter
	if err := job.Decode(data, &read); err != nil {
		return fmt.Errorf("dlqstore: read a filter: %w", err)
	}
	*f = read.filter()
	return nil
}

// check refuses a filter that no statement is made of.
func (f Filter) check() error {
	if len(f.Where) > MaxConditions {
		return fmt.Errorf("the filter has %d conditions on arguments: at most %d", len(f.Where), MaxConditions)
	}
	for name, number := range map[string]*int{"min_attempts": f.MinAttempts, "max_attempts": f.MaxAttempts, "generation": f.Generation} {
		if number != nil && (*number > math.MaxInt32 || *number < math.MinInt32) {
			return fmt.Errorf("the filter's %s is %d: no dead letter has that", name, *number)
		}
	}
	for i := range f.Where {
		if f.Where[i].value == nil {
			return errors.New("the filter has an empty condition on arguments: make one with ParseCondition")
		}
	}
	return nil
}

// IsEmpty reports whether the filter selects everything of its namespace, or of
// all when it names none.
func (f Filter) IsEmpty() bool {
	f.Namespace = ""
	return len(f.clauses().sql) == 0
}

// needsOwnPlan reports whether the best plan depends on how common the values are.
// For other filters it is the index that has them and the order, whatever they are,
// and to plan anew would take longer than to read a page.
func (f Filter) needsOwnPlan() bool {
	return f.ErrorText != "" || len(f.Tags) > 0 || len(f.Where) > 0 || f.EnqueuedAfter != nil || f.EnqueuedBefore != nil ||
		f.MinAttempts != nil || f.MaxAttempts != nil
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
	whereErrorText   = `(d.error_message ilike @error_text or d.error_type ilike @error_text)`
	whereTags        = `d.tags @> @tags::jsonb`
	whereDeadAfter   = `d.dead_at >= @dead_after`
	whereDeadBefore  = `d.dead_at < @dead_before`

	whereEnqueuedAfter  = `d.enqueued_at >= @enqueued_after`
	whereEnqueuedBefore = `d.enqueued_at < @enqueued_before`
	whereMinAttempts    = `d.attempts >= @min_attempts`
	whereMaxAttempts    = `d.attempts <= @max_attempts`
	whereAttempts       = `d.attempts = @attempts` // where the order's index can serve it
	whereGeneration     = `d.generation = @generation`
	whereReplayed       = `d.resurrection_count > 0`
	whereNotReplayed    = `d.resurrection_count = 0`
	whereSuperseded     = `d.superseded_at is not null`
	whereNotSuperseded  = `d.superseded_at is null`

	// whereArgument has the condition's place among the others in its names. The
	// index serves the containment. The path makes it exact: containment compares
	// no places within arrays. The coalesce keeps Postgres from counting on that
	// comparison to leave next to nothing, and so from reading all that is contained
	// where the first rows in order would do. A value that jsonb cannot hold is in
	// no row.
	whereArgument = `d.payload_json @> {schema}.jsonb_or_null(@container_%[1]d)
	and coalesce(jsonb_path_query_first(d.payload_json, @path_%[1]d::jsonpath, '{}', true) = {schema}.jsonb_or_null(@value_%[1]d), false)`
)

// clauses collects what a filter asks for, with the arguments.
type clauses struct {
	sql  []string
	args pgx.NamedArgs
}

func (c *clauses) add(sql string) { c.sql = append(c.sql, sql) }

func (c *clauses) addText(sql, name, value string) {
	if value != "" {
		c.add(sql)
		c.args[name] = text.Holdable(value) // as it was stored
	}
}

// addValue asks nothing when value is nil.
func addValue[T any](c *clauses, sql, name string, value *T) {
	if value != nil {
		c.add(sql)
		c.args[name] = *value
	}
}

func (c *clauses) addChoice(yes, no string, value *bool) {
	switch {
	case value == nil:
	case *value:
		c.add(yes)
	default:
		c.add(no)
	}
}

func (f Filter) clauses() clauses {
	c := clauses{args: pgx.NamedArgs{}}
	c.addText(whereNamespace, "namespace", f.Namespace)
	c.addText(whereWorkflowID, "workflow_id", f.WorkflowID)
	c.addText(whereJobType, "job_type", f.JobType)
	c.addText(whereReason, "reason", string(f.Reason))
	c.addText(whereTaskQueue, "task_queue", f.TaskQueue)
	c.addText(whereFingerprint, "fingerprint", f.Fingerprint)
	if f.ErrorText != "" {
		c.addText(whereErrorText, "error_text", "%"+likeEscaper.Replace(f.ErrorText)+"%")
	}
	if len(f.Tags) > 0 {
		c.add(whereTags)
		c.args["tags"] = encoded(holdableTags(f.Tags))
	}
	addValue(&c, whereDeadAfter, "dead_after", f.DeadAfter)
	addValue(&c, whereDeadBefore, "dead_before", f.DeadBefore)
	addValue(&c, whereEnqueuedAfter, "enqueued_after", f.EnqueuedAfter)
	addValue(&c, whereEnqueuedBefore, "enqueued_before", f.EnqueuedBefore)
	if f.MinAttempts != nil && f.MaxAttempts != nil && *f.MinAttempts == *f.MaxAttempts {
		addValue(&c, whereAttempts, "attempts", f.MinAttempts)
	} else {
		addValue(&c, whereMinAttempts, "min_attempts", f.MinAttempts)
		addValue(&c, whereMaxAttempts, "max_attempts", f.MaxAttempts)
	}
	addValue(&c, whereGeneration, "generation", f.Generation)
	c.addChoice(whereReplayed, whereNotReplayed, f.Replayed)
	c.addChoice(whereSuperseded, whereNotSuperseded, f.Superseded)
	for i, condition := range f.Where {
		c.add(fmt.Sprintf(whereArgument, i))
		c.args[fmt.Sprintf("container_%d", i)] = condition.container()
		c.args[fmt.Sprintf("path_%d", i)] = condition.jsonPath()
		c.args[fmt.Sprintf("value_%d", i)] = string(condition.value)
	}
	return c
}

// likeEscaper takes the meaning from the wildcards of LIKE.
var likeEscaper = strings.NewReplacer(`\`, `\\`, `%`, `\%`, `_`, `\_`)

// where returns the filter's clause after the extra conditions, empty if there is
// nothing to ask, with its arguments.
func (s *Store) where(f Filter, extra ...string) (string, pgx.NamedArgs, error) {
	if err := f.check(); err != nil {
		return "", nil, err
	}
	c := f.clauses()
	all := extra // which have the schema's name, and are not to be searched for its marker again
	for _, condition := range c.sql {
		all = append(all, qualify(condition, s.schema))
	}
	if len(all) == 0 {
		return "", c.args, nil
	}
	return "\nwhere " + strings.Join(all, "\n\tand "), c.args, nil
}
