package dlqstore

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deadletter-dev/deadletter/job"
)

// Bounds of what Lineage returns.
const (
	MaxAncestors   = 50
	MaxDescendants = 200
	maxLineDepth   = 50
)

const (
	// selectAncestors goes from a dead letter to the one that it was replayed from,
	// and so on. One that is purged ends the line: its key is known, and no more.
	selectAncestors = `
with recursive line (depth, workflow_id, run_id) as (
	select 1, d.replayed_from_workflow_id, d.replayed_from_run_id
	from {schema}.dead_letters d
	where d.namespace = @namespace and d.workflow_id = @workflow_id and d.run_id = @run_id
	union all
	select line.depth + 1, d.replayed_from_workflow_id, d.replayed_from_run_id
	from line
	join {schema}.dead_letters d on d.namespace = @namespace and d.workflow_id = line.workflow_id and d.run_id = line.run_id
	where line.depth < @depth
)
select @namespace::text, line.workflow_id, line.run_id, d.reason, d.dead_at, d.generation, d.resurrection_count
from line
left join {schema}.dead_letters d on d.namespace = @namespace and d.workflow_id = line.workflow_id and d.run_id = line.run_id
where line.workflow_id is not null and line.run_id is not null
order by line.depth`

	// selectDescendants goes from a dead letter to its replays, and from each of
	// those that died to its own.
	selectDescendants = `
with recursive line (depth, request_id, workflow_id) as (
	select 1, r.request_id, r.new_workflow_id
	from {schema}.replays r
	where r.namespace = @namespace and r.workflow_id = @workflow_id and r.run_id = @run_id
	union all
	select line.depth + 1, r.request_id, r.new_workflow_id
	from line
	join {schema}.replays r on r.namespace = @namespace and r.workflow_id = line.workflow_id
	where line.depth < @depth
)
select line.depth,` + replayColumns + `
from line
join {schema}.replays r using (request_id)
order by line.depth, r.requested_at, r.request_id
limit @limit`
)

// Ancestor is a dead letter that a job was replayed from.
type Ancestor struct {
	Key
	// The rest is nil when the dead letter has been purged.
	Reason            *job.Reason `json:"reason"`
	DeadAt            *time.Time  `json:"dead_at"`
	Generation        *int        `json:"generation"`
	ResurrectionCount *int        `json:"resurrection_count"`
}

// Descendant is a replay down the line of a dead letter.
type Descendant struct {
	// Depth is 1 for a replay of the dead letter itself, 2 for a replay of one of
	// those, and so on.
	Depth int `json:"depth"`
	Replay
}

// Lineage is where a dead letter comes from and what became of it.
type Lineage struct {
	// Ancestors are the dead letters before it, the nearest first; at most
	// MaxAncestors.
	Ancestors []Ancestor `json:"ancestors"`
	// Descendants are its replays and theirs, by depth; at most MaxDescendants.
	Descendants []Descendant `json:"descendants"`
}

// Lineage returns both ways of a dead letter's line.
func (s *Store) Lineage(ctx context.Context, key Key) (line Lineage, err error) {
	if !key.holdable() {
		return Lineage{}, nil
	}
	err = s.inTx(ctx, beginRead, func(ctx context.Context, tx pgx.Tx) error {
		args := key.args()
		args["depth"], args["limit"] = MaxAncestors, MaxDescendants
		if line.Ancestors, err = collect(ctx, tx, s.sql(selectAncestors), args, scanAncestor); err != nil {
			return err
		}
		args["depth"] = maxLineDepth
		line.Descendants, err = collect(ctx, tx, s.sql(selectDescendants), args, scanDescendant)
		return err
	})
	if err != nil {
		return Lineage{}, fmt.Errorf("lineage of %s: %w", key, err)
	}
	return line, nil
}

func scanAncestor(row pgx.CollectableRow) (Ancestor, error) {
	var a Ancestor
	err := row.Scan(&a.Namespace, &a.WorkflowID, &a.RunID, &a.Reason, &a.DeadAt, &a.Generation, &a.ResurrectionCount)
	utc(a.DeadAt)
	return a, err
}

func scanDescendant(row pgx.CollectableRow) (Descendant, error) {
	var d Descendant
	err := row.Scan(append([]any{&d.Depth}, d.targets()...)...)
	d.inUTC()
	return d, err
}
