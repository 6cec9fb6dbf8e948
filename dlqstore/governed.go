package dlqstore

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

const (
	// heldDeadLetter is true of a dead letter d that must not go yet: it is a
	// member of a plan that has not ended, or a replay of it is counted and not started.
	heldDeadLetter = `(exists (
		select from (
			select i.plan_id from {schema}.plan_items i
			where i.namespace = d.namespace and i.workflow_id = d.workflow_id and i.run_id = d.run_id
			offset 0 -- by the dead letter's key, and not by the plans: they have many members
		) i join {schema}.plans p on p.id = i.plan_id
		where p.state in ('applying', 'paused') or p.state = 'planned' and p.expires_at > now()
	) or ` + startingReplay + `)`

	whereTooOld = `d.dead_at < now() - @keep_for_ms::bigint * interval '1 millisecond'`

	// whereTooMany and wherePastLast are around the conditions of the policy, on k:
	// what is older than the last one kept. It is looked for anew in each statement,
	// so that fewer are never kept because others purge meanwhile.
	whereTooMany = `(d.dead_at, d.workflow_id, d.run_id) < (
		select k.dead_at, k.workflow_id, k.run_id
		from {schema}.dead_letters k`
	wherePastLast = `
			and not k.pinned
		order by k.dead_at desc, k.workflow_id desc, k.run_id desc
		offset @keep_last::bigint - 1
		limit 1
	)`
)

// selectors counts what makes one policy more specific than another.
func (p *RetentionPolicy) selectors() (n int) {
	for _, selector := range []string{p.JobType, string(p.Reason), p.TagKey} {
		if selector != "" {
			n++
		}
	}
	return n
}

// moreSpecific orders policies as selectPolicies does.
func moreSpecific(a, b RetentionPolicy) int {
	return cmp.Or(cmp.Compare(b.selectors(), a.selectors()), strings.Compare(a.Name, b.Name))
}

// with returns the policies as they are once candidate is set and enabled.
func with(policies []RetentionPolicy, candidate RetentionPolicy) []RetentionPolicy {
	candidate.Enabled = true
	policies = slices.DeleteFunc(slices.Clone(policies), func(p RetentionPolicy) bool { return p.Name == candidate.Name })
	policies = append(policies, candidate)
	slices.SortFunc(policies, moreSpecific)
	return policies
}

// governing is one enabled policy among the others: the condition on what it
// governs, and on what of that is due to go.
type governing struct {
	policy RetentionPolicy
	before []RetentionPolicy // enabled and more specific
}

// governingOf returns the enabled policies, the most specific first.
func governingOf(policies []RetentionPolicy) []governing {
	enabled := slices.DeleteFunc(slices.Clone(policies), func(p RetentionPolicy) bool { return !p.Enabled })
	all := make([]governing, len(enabled))
	for i := range enabled {
		all[i] = governing{policy: enabled[i], before: enabled[:i]}
	}
	return all
}

// due returns the clause on dead letters d that the policy governs and that may
// go, pinned and held ones among them, after the extra conditions, and its
// arguments.
func (g *governing) due(s *Store, extra ...string) (string, pgx.NamedArgs) {
	args := pgx.NamedArgs{"namespace": g.policy.Namespace}
	conditions := append(g.governs("d", args), extra...)
	var passed []string
	if g.policy.KeepFor > 0 {
		args["keep_for_ms"] = g.policy.KeepFor.Milliseconds()
		passed = append(passed, whereTooOld)
	}
	if g.policy.KeepLast > 0 {
		args["keep_last"] = g.policy.KeepLast
		passed = append(passed, s.sql(whereTooMany)+clause(g.governs("k", args))+s.sql(wherePastLast))
	}
	return clause(append(conditions, "("+strings.Join(passed, " or ")+")")), args
}

// governs returns the conditions on a row of that alias, and adds their arguments.
func (g *governing) governs(alias string, args pgx.NamedArgs) []string {
	conditions := append([]string{alias + ".namespace = @namespace"}, g.policy.selecting(alias, "own", args)...)
	for i := range g.before {
		other := &g.before[i]
		// One without a selector is the last but for those like it.
		taken := append([]string{"true"}, other.selecting(alias, fmt.Sprint("other", i), args)...)
		conditions = append(conditions, "not ("+strings.Join(taken, " and ")+")")
	}
	return conditions
}

// selecting returns the policy's own conditions. The prefix keeps the arguments of
// several policies apart.
func (p *RetentionPolicy) selecting(alias, prefix string, args pgx.NamedArgs) (conditions []string) {
	add := func(form, name string, value any) {
		args[prefix+"_"+name] = value
		conditions = append(conditions, fmt.Sprintf(form, alias, prefix+"_"+name))
	}
	if p.JobType != "" {
		add("%s.job_type = @%s", "job_type", p.JobType)
	}
	if p.Reason != "" {
		add("%s.reason = @%s", "reason", string(p.Reason))
	}
	if p.TagKey != "" {
		add("%s.tags @> @%s::jsonb", "tags", encoded(map[string]string{p.TagKey: p.TagValue}))
	}
	return conditions
}

func clause(conditions []string) string {
	return "\nwhere " + strings.Join(conditions, "\n\tand ")
}
