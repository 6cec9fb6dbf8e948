package dlqstore

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// A statement on groups is the sizes, from the summary where that can answer and
// else from the table, then groupsTop, the filter's clause, groupsOldest, the
// clause again, and groupsEnd. The clause is about a row d and must follow a where.
const (
	sizesOfSummary = `
with kinds as (
	select c.fingerprint, c.task_queue, sum(c.n)::bigint as n
	from {schema}.dead_letter_counts c
	where (@namespace = '' or c.namespace = @namespace) and (@job_type = '' or c.job_type = @job_type)
		and (@reason = '' or c.reason = @reason) and (@task_queue = '' or c.task_queue = @task_queue)
		and (@fingerprint = '' or c.fingerprint = @fingerprint)
	group by c.fingerprint, c.task_queue
	having sum(c.n) <> 0
)`
	sizesOfTable = `
with kinds as (
	select d.fingerprint, d.task_queue, count(*) as n
	from {schema}.dead_letters d`
	sizesOfTableEnd = `
	group by d.fingerprint, d.task_queue
)`

	groupsTop = `, sizes as (
	select k.fingerprint, sum(k.n)::bigint as n, array_agg(k.task_queue order by k.task_queue) as task_queues
	from kinds k
	group by k.fingerprint
), top as (
	select fingerprint, n, task_queues, count(*) over () as groups
	from sizes
	order by n desc, fingerprint
	limit @limit
)
select t.groups, t.fingerprint, t.n, t.task_queues, oldest.dead_at, newest.dead_at,
	newest.job_type, newest.reason, newest.error_type, 
	case getdatabaseencoding() when 'SQL_ASCII' then newest.error_message else left(newest.error_message, 2000) end, -- see firstRunes
	newest.namespace, newest.workflow_id, newest.run_id
from top t
cross join lateral (
	select d.dead_at, d.job_type, d.reason, d.error_type, d.error_message, d.namespace, d.workflow_id, d.run_id
	from {schema}.dead_letters d`
	groupsOldest = `
	order by d.dead_at desc limit 1
) newest
cross join lateral (
	select d.dead_at
	from {schema}.dead_letters d`
	groupsEnd = `
	order by d.dead_at limit 1
) oldest
order by t.n desc, t.fingerprint`

	whereInGroup = `d.fingerprint = t.fingerprint`

	// selectGroupNotes has the newest note on each group, and how many there are.
	selectGroupNotes = `
select distinct on (n.namespace, n.fingerprint)` + noteColumns + `, count(*) over (partition by n.namespace, n.fingerprint)
from unnest(@namespaces::text[], @fingerprints::text[]) as g (namespace, fingerprint)
join {schema}.notes n on n.namespace = g.namespace and n.fingerprint = g.fingerprint
order by n.namespace, n.fingerprint, n.id desc`
)

// Group is the dead letters with one fingerprint: they died of the same cause.
type Group struct {
	Fingerprint string `json:"fingerprint"`
	Count       int64  `json:"count"`
	// FirstDeadAt and LastDeadAt are of those that are there now.
	FirstDeadAt time.Time `json:"first_dead_at"`
	LastDeadAt  time.Time `json:"last_dead_at"`
	TaskQueues  []string  `json:"task_queues"` // sorted
	// The rest is of the newest, for a sample. The message is cut to 2000 characters.
	JobType      string `json:"job_type"`
	Reason       string `json:"reason"`
	ErrorType    string `json:"error_type"`
	ErrorMessage string `json:"error_message"`
	Sample       Key    `json:"sample"`
	// Notes counts what people have said of the group, and Note is the newest of it,
	// nil when there is none.
	Notes int64 `json:"notes"`
	Note  *Note `json:"note"`
}

// Groups groups the dead letters that the filter selects by fingerprint, the
// largest group first. It returns at most limit groups (0 means 50, 1000 is the
// maximum) and how many more there are. It is exact, in one snapshot but for the
// notes.
//
// A filter of namespace, type, reason, queue and fingerprint alone is answered from
// the summary, whatever the size of the table; with any other field all rows that
// it selects are read.
func (s *Store) Groups(ctx context.Context, f Filter, limit int) (groups []Group, more int, err error) {
	if limit, err = (Page{Limit: limit}).limit(); err != nil {
		return nil, 0, fmt.Errorf("groups: %w", err)
	}
	text, args, err := s.groupsQuery(f)
	if err != nil {
		return nil, 0, fmt.Errorf("groups: %w", err)
	}
	args["limit"] = limit
	all := 0
	groups, err = queryFiltered(ctx, s, f, text, args, func(row pgx.CollectableRow) (g Group, err error) {
		err = row.Scan(&all, &g.Fingerprint, &g.Count, &g.TaskQueues, &g.FirstDeadAt, &g.LastDeadAt,
			&g.JobType, &g.Reason, &g.ErrorType, &g.ErrorMessage, &g.Sample.Namespace, &g.Sample.WorkflowID, &g.Sample.RunID)
		utc(&g.FirstDeadAt, &g.LastDeadAt)
		g.ErrorMessage = firstRunes(g.ErrorMessage, 2000)
		return g, err
	})
	if err != nil {
		return nil, 0, fmt.Errorf("groups: %w", err)
	}
	if err := s.addGroupNotes(ctx, groups); err != nil {
		return nil, 0, fmt.Errorf("groups: %w", err)
	}
	return groups, max(all-len(groups), 0), nil
}

func (s *Store) addGroupNotes(ctx context.Context, groups []Group) error {
	if len(groups) == 0 {
		return nil
	}
	type place struct{ namespace, fingerprint string }
	places := make(map[place]*Group, len(groups))
	var namespaces, fingerprints []string
	for i := range groups {
		g := &groups[i]
		places[place{g.Sample.Namespace, g.Fingerprint}] = g
		namespaces, fingerprints = append(namespaces, g.Sample.Namespace), append(fingerprints, g.Fingerprint)
	}
	args := pgx.NamedArgs{"namespaces": namespaces, "fingerprints": fingerprints}
	_, err := query(ctx, s, selectGroupNotes, args, func(row pgx.CollectableRow) (n Note, err error) {
		var count int64
		if err = row.Scan(append(n.targets(), &count)...); err != nil {
			return n, err
		}
		utc(&n.At)
		g := places[place{n.Namespace, *n.Group}]
		g.Notes, g.Note = count, &n
		return n, nil
	})
	return err
}

func (s *Store) groupsQuery(f Filter) (string, pgx.NamedArgs, error) {
	where, args, err := s.where(f)
	if err != nil {
		return "", nil, err
	}
	inGroup, _, err := s.where(f, whereInGroup)
	if err != nil {
		return "", nil, err
	}
	sizes := s.sql(sizesOfTable) + where + s.sql(sizesOfTableEnd)
	if f.isSummarised() {
		sizes = s.sql(sizesOfSummary)
		for name, value := range map[string]string{
			"namespace": f.Namespace, "job_type": f.JobType, "reason": string(f.Reason), "task_queue": f.TaskQueue, "fingerprint": f.Fingerprint,
		} {
			if _, given := args[name]; !given {
				args[name] = value
			}
		}
	}
	return sizes + s.sql(groupsTop) + inGroup + s.sql(groupsOldest) + inGroup + s.sql(groupsEnd), args, nil
}

// isSummarised reports whether table dead_letter_counts can answer for the filter.
func (f Filter) isSummarised() bool {
	f.Namespace, f.JobType, f.Reason, f.TaskQueue, f.Fingerprint = "", "", "", "", ""
	return len(f.clauses().sql) == 0
}
