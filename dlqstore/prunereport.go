package dlqstore

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deadletter-dev/deadletter/job"
)

const (
	// countDue and groupDue are around the conditions of a policy. The total comes
	// first; offset 0 has who holds a row looked up once.
	countDue = `
select grouping(x.job_type) = 1, coalesce(x.job_type, ''), coalesce(x.reason, ''),
	count(*) filter (where not x.pinned and not x.held), count(*) filter (where x.pinned), count(*) filter (where x.held and not x.pinned),
	min(x.dead_at) filter (where not x.pinned and not x.held), max(x.dead_at) filter (where not x.pinned and not x.held)
from (
	select d.job_type, d.reason, d.dead_at, d.pinned, ` + heldDeadLetter + ` as held
	from {schema}.dead_letters d`
	groupDue = `
	offset 0
) x
group by grouping sets ((x.job_type, x.reason), ())
order by 1 desc, 4 desc, 2, 3
limit @groups`

	sampleDue = `
select d.namespace, d.workflow_id, d.run_id, d.job_type, d.reason, d.dead_at
from {schema}.dead_letters d`
	firstDue = `
order by d.dead_at, d.workflow_id, d.run_id
limit @sample`
)

const (
	maxPruneGroups = 100
	pruneSample    = 5
)

// PruneReport says what a policy would remove now.
type PruneReport struct {
	Policy RetentionPolicy `json:"policy"`
	// WouldPrune counts the dead letters that would go; Pinned and Held those that
	// are due and stay, pinned, or held by a plan or by a replay that is starting.
	WouldPrune int64 `json:"would_prune"`
	Pinned     int64 `json:"pinned"`
	Held       int64 `json:"held"`
	// Oldest and Newest are of those that would go, nil when there is none.
	Oldest *time.Time `json:"oldest"`
	Newest *time.Time `json:"newest"`
	// Groups are by type and reason, the largest first; MoreGroups says that there
	// are more than the 100 listed.
	Groups     []PruneGroup `json:"groups"`
	MoreGroups bool         `json:"more_groups"`
	// Sample has the first that would go, the oldest first.
	Sample []PruneSample `json:"sample"`
}

// PruneGroup counts what would go of one type and reason.
type PruneGroup struct {
	JobType string     `json:"job_type"`
	Reason  job.Reason `json:"reason"`
	Count   int64      `json:"count"`
}

// PruneSample is one dead letter that would go.
type PruneSample struct {
	Key
	JobType string     `json:"job_type"`
	Reason  job.Reason `json:"reason"`
	DeadAt  time.Time  `json:"dead_at"`
}

// PruneReports returns what each enabled policy of the namespace would remove now,
// and removes nothing.
func (s *Store) PruneReports(ctx context.Context, namespace string) ([]PruneReport, error) {
	policies, err := s.RetentionPolicies(ctx, namespace)
	if err != nil {
		return nil, err
	}
	var reports []PruneReport
	for _, g := range governingOf(policies) {
		report, err := s.pruneReport(ctx, g)
		if err != nil {
			return nil, fmt.Errorf("report on policy %q: %w", g.policy.Name, err)
		}
		reports = append(reports, report)
	}
	return reports, nil
}

// PruneReport returns what a policy would remove if it were set and enabled among
// those that its namespace has, and stores nothing.
func (s *Store) PruneReport(ctx context.Context, candidate RetentionPolicy) (PruneReport, error) {
	if err := candidate.Validate(); err != nil {
		return PruneReport{}, fmt.Errorf("report on policy %q: %w", candidate.Name, err)
	}
	policies, err := s.RetentionPolicies(ctx, candidate.Namespace)
	if err != nil {
		return PruneReport{}, err
	}
	candidate = candidate.stored(candidate.Actor)
	for _, g := range governingOf(with(policies, candidate)) {
		if g.policy.Name != candidate.Name {
			continue
		}
		report, err := s.pruneReport(ctx, g)
		if err != nil {
			return PruneReport{}, fmt.Errorf("report on policy %q: %w", candidate.Name, err)
		}
		report.Policy.Enabled = candidate.Enabled
		return report, nil
	}
	panic("dlqstore: a policy is not among those it was put among")
}

func (s *Store) pruneReport(ctx context.Context, g governing) (PruneReport, error) {
	report := PruneReport{Policy: g.policy, Groups: []PruneGroup{}, Sample: []PruneSample{}}
	return report, s.inTx(ctx, beginRead, func(ctx context.Context, tx pgx.Tx) error {
		counts, args := s.countDueQuery(g)
		_, err := collect(ctx, tx, counts, args, func(row pgx.CollectableRow) (bool, error) { return true, report.add(row) })
		if err != nil || report.WouldPrune == 0 {
			return err
		}
		sample, args := s.sampleDueQuery(g)
		report.Sample, err = collect(ctx, tx, sample, args, pgx.RowToStructByPos[PruneSample])
		for i := range report.Sample {
			utc(&report.Sample[i].DeadAt)
		}
		return err
	})
}

func (s *Store) countDueQuery(g governing) (string, pgx.NamedArgs) {
	where, args := g.due(s)
	args["groups"] = maxPruneGroups + 2 // the total, and one that tells whether there are more
	return s.sql(countDue) + where + groupDue, args
}

func (s *Store) sampleDueQuery(g governing) (string, pgx.NamedArgs) {
	where, args := g.due(s, whereUnpinned, "not "+s.sql(heldDeadLetter))
	args["sample"] = pruneSample
	return s.sql(sampleDue) + where + firstDue, args
}

// add takes one row of countDue.
func (r *PruneReport) add(row pgx.CollectableRow) error {
	var total bool
	var group PruneGroup
	var pinned, held int64
	var oldest, newest *time.Time
	if err := row.Scan(&total, &group.JobType, &group.Reason, &group.Count, &pinned, &held, &oldest, &newest); err != nil {
		return err
	}
	switch {
	case total:
		r.WouldPrune, r.Pinned, r.Held, r.Oldest, r.Newest = group.Count, pinned, held, oldest, newest
		if oldest != nil {
			utc(r.Oldest, r.Newest)
		}
	case group.Count == 0: // all of it is pinned or held
	case len(r.Groups) == maxPruneGroups:
		r.MoreGroups = true
	default:
		r.Groups = append(r.Groups, group)
	}
	return nil
}
