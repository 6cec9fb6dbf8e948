package dlqstore

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deadletter-dev/deadletter/internal/text"
)

const (
	// lockPrunable and lockNext are around the conditions of a policy. What another
	// transaction holds is left for the next run: a replay may be on its way.
	lockPrunable = `
select d.dead_at, d.namespace, d.workflow_id, d.run_id
from {schema}.dead_letters d`
	lockNext = `
order by d.dead_at, d.workflow_id, d.run_id
limit @batch
for update of d skip locked`

	whereUnpinned   = `not d.pinned`
	whereAfterBatch = `(d.dead_at, d.workflow_id, d.run_id) > (@after_dead_at, @after_workflow_id, @after_run_id)`

	// deletePruned looks once more at who holds the rows, now that they are locked:
	// a replay that was counted, or a plan that locked its members, since the first
	// look is seen by this statement.
	deletePruned = `
with gone as (
	delete from {schema}.dead_letters d
	using unnest(@namespaces::text[], @workflow_ids::text[], @run_ids::text[]) as k (namespace, workflow_id, run_id)
	where d.namespace = k.namespace and d.workflow_id = k.workflow_id and d.run_id = k.run_id
		and not ` + heldDeadLetter + `
	returning d.namespace, d.workflow_id, d.run_id, d.reason, d.job_type, d.dead_at
)
insert into {schema}.events (verb, actor, namespace, workflow_id, run_id, detail)
select 'prune', @actor, gone.namespace, gone.workflow_id, gone.run_id,
	jsonb_build_object('policy', @policy::text, 'reason', gone.reason, 'job_type', gone.job_type, 'dead_at', gone.dead_at)
from gone`

	selectPruned = `
select detail ->> 'policy', count(*), max(at)
from {schema}.events
where verb = 'prune' and namespace = @namespace and at >= @since
group by detail ->> 'policy'
order by detail ->> 'policy'`
)

const pruneBatch = 500

// PruneRequest asks for what the enabled policies of a namespace say.
type PruneRequest struct {
	Namespace string
	Actor     string
	// Within bounds the time after which no other batch begins. Zero means that it
	// ends when nothing more is due.
	Within time.Duration
}

// Pruned is what a prune did.
type Pruned struct {
	// ByPolicy counts the dead letters that are gone, by the name of the policy.
	ByPolicy map[string]int64
	// Done is false when the time was over first.
	Done bool
}

// Prune removes the dead letters that the enabled policies let go, with their
// attempts, in batches of one transaction each, and writes an event of verb prune
// for each. What it did it returns also with an error. It may run any number of
// times, at once or after a crash: each dead letter goes once, and none that was
// pruned is ever moved again. A policy that is changed meanwhile counts from the
// next batch on.
//
// Of a prune, a purge and a replay of one dead letter at the same time, the first
// wins: a purge or a replay that comes second is ErrNotFound, and a prune leaves
// alone what is gone or about to be replayed.
func (s *Store) Prune(ctx context.Context, request PruneRequest) (Pruned, error) {
	pruned := Pruned{ByPolicy: map[string]int64{}}
	policies, err := s.RetentionPolicies(ctx, request.Namespace)
	if err != nil {
		return pruned, fmt.Errorf("prune: %w", err)
	}
	started := time.Now()
	for _, g := range governingOf(policies) {
		var after *locked
		for {
			if request.Within > 0 && time.Since(started) >= request.Within {
				return pruned, nil
			}
			var gone int64
			gone, after, err = s.pruneNext(ctx, request, g.policy.Name, after)
			if err != nil {
				return pruned, fmt.Errorf("prune by policy %q: %w", g.policy.Name, err)
			}
			if gone > 0 {
				pruned.ByPolicy[g.policy.Name] += gone
			}
			if after == nil {
				break
			}
		}
	}
	pruned.Done = true
	return pruned, nil
}

// locked is a row that a batch has locked.
type locked struct {
	DeadAt time.Time
	Key
}

// pruneNext prunes one batch and returns its end, nil when there was none.
func (s *Store) pruneNext(ctx context.Context, request PruneRequest, policy string, after *locked) (gone int64, last *locked, err error) {
	err = s.inTx(ctx, beginWrite, func(ctx context.Context, tx pgx.Tx) error {
		gone, last, err = s.pruneBatch(ctx, tx, request, policy, after)
		return err
	})
	if err != nil {
		return 0, nil, err
	}
	return gone, last, nil
}

func (s *Store) pruneBatch(ctx context.Context, tx pgx.Tx, request PruneRequest, policy string, after *locked) (int64, *locked, error) {
	policies, err := collect(ctx, tx, s.sql(selectPolicies), pgx.NamedArgs{"namespace": request.Namespace}, scanPolicy)
	if err != nil {
		return 0, nil, err
	}
	for _, g := range governingOf(policies) {
		if g.policy.Name != policy {
			continue
		}
		rows, err := s.lockBatch(ctx, tx, g, after)
		if err != nil || len(rows) == 0 {
			return 0, nil, err
		}
		gone, err := s.deleteBatch(ctx, tx, rows, policy, request.Actor)
		return gone, &rows[len(rows)-1], err
	}
	return 0, nil, nil // removed or disabled meanwhile
}

func (s *Store) lockBatch(ctx context.Context, tx pgx.Tx, g governing, after *locked) ([]locked, error) {
	text, args := s.lockQuery(g, after)
	return collect(ctx, tx, text, args, pgx.RowToStructByPos[locked])
}

func (s *Store) lockQuery(g governing, after *locked) (string, pgx.NamedArgs) {
	conditions := []string{whereUnpinned, "not " + s.sql(heldDeadLetter)}
	if after != nil {
		conditions = append(conditions, whereAfterBatch)
	}
	where, args := g.due(s, conditions...)
	if after != nil {
		args["after_dead_at"], args["after_workflow_id"], args["after_run_id"] = after.DeadAt, after.WorkflowID, after.RunID
	}
	args["batch"] = pruneBatch
	return s.sql(lockPrunable) + where + lockNext, args
}

func (s *Store) deleteBatch(ctx context.Context, tx pgx.Tx, rows []locked, policy, actor string) (int64, error) {
	namespaces, workflows, runs := make([]string, len(rows)), make([]string, len(rows)), make([]string, len(rows))
	for i := range rows {
		namespaces[i], workflows[i], runs[i] = rows[i].Namespace, rows[i].WorkflowID, rows[i].RunID
	}
	done, err := tx.Exec(ctx, s.sql(deletePruned), pgx.NamedArgs{
		"namespaces": namespaces, "workflow_ids": workflows, "run_ids": runs, "policy": policy, "actor": text.Bounded(actor, maxName),
	})
	return done.RowsAffected(), classify(err)
}

// PolicyPruned counts what one policy has pruned.
type PolicyPruned struct {
	Policy string    `json:"policy"`
	Pruned int64     `json:"pruned"`
	LastAt time.Time `json:"last_at"`
}

// PrunedSince counts the dead letters of a namespace that were pruned since then,
// by policy, also by those that are no more.
func (s *Store) PrunedSince(ctx context.Context, namespace string, since time.Time) ([]PolicyPruned, error) {
	counts, err := query(ctx, s, selectPruned, pgx.NamedArgs{"namespace": namespace, "since": since}, pgx.RowToStructByPos[PolicyPruned])
	if err != nil {
		return nil, fmt.Errorf("count what was pruned: %w", err)
	}
	for i := range counts {
		utc(&counts[i].LastAt)
	}
	return counts, nil
}
