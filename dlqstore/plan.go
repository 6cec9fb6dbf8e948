package dlqstore

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/deadletter-dev/deadletter/internal/text"
	"github.com/deadletter-dev/deadletter/job"
)

// Plan is one row of table plans: a bulk verb and the dead letters that it will
// touch, frozen before it touches any.
type Plan struct {
	ID         string          `json:"id"`
	Namespace  string          `json:"namespace"`
	Verb       job.BulkVerb    `json:"verb"`
	Filter     json.RawMessage `json:"filter"`
	Parameters PlanParameters  `json:"parameters"`
	Actor      string          `json:"actor"`
	CreatedAt  time.Time       `json:"created_at"`
	// ExpiresAt is until when the plan can be applied, and holds its members.
	ExpiresAt time.Time `json:"expires_at"`
	// Matched is what the filter selected, Members what is frozen of it.
	Matched int64         `json:"matched"`
	Members int64         `json:"members"`
	Report  PlanReport    `json:"report"`
	State   job.PlanState `json:"state"`
	// Done, Skipped and Failed are how members ended; Skipped counts also those that
	// the plan left out from the start.
	Done      int64      `json:"done"`
	Skipped   int64      `json:"skipped"`
	Failed    int64      `json:"failed"`
	AppliedBy string     `json:"applied_by"`
	AppliedAt *time.Time `json:"applied_at"`
	// FinishedAt is set once the state is final.
	FinishedAt *time.Time `json:"finished_at"`
	StopCause  string     `json:"stop_cause"`
}

// Truncated reports whether the filter selected more than the plan may hold.
func (p *Plan) Truncated() bool { return p.Matched > p.Members+p.Report.LeftOut }

// Pending is how many members have not ended.
func (p *Plan) Pending() int64 { return p.Members - p.Done - p.Skipped - p.Failed }

// Progress is the plan's in the form of the wire.
func (p *Plan) Progress() job.BulkProgress {
	return job.BulkProgress{
		PlanID: p.ID, State: p.State, Members: p.Members, Pending: p.Pending(),
		Done: p.Done, Skipped: p.Skipped, Failed: p.Failed, StopCause: p.StopCause,
	}
}

func (p *Plan) skipsReplayed() bool { return p.Verb == job.BulkReplay && !p.Parameters.IncludeReplayed }

func (p *Plan) skipsSuperseded() bool {
	return p.Verb == job.BulkReplay && !p.Parameters.IncludeSuperseded
}

// PlanParameters say how a plan is carried out.
type PlanParameters struct {
	job.BulkSettings
	// Limit is the request's.
	Limit int `json:"limit,omitempty"`
	// IncludeSuperseded replays also dead letters whose job succeeded later.
	IncludeSuperseded bool `json:"include_superseded,omitempty"`
	// IncludeReplayed replays also dead letters of which a replay, or one down its line,
	// has succeeded, is still under way, or is a dead letter itself by now.
	IncludeReplayed bool `json:"include_replayed,omitempty"`
	// Edit is what an edit or a retag does to each member: the JSON of its request,
	// as a text, because jsonb would alter its numbers.
	Edit string `json:"edit,omitempty"`
}

// PlanReport is what a plan shows of its members.
type PlanReport struct {
	ByReason map[string]int64 `json:"by_reason"`
	ByType   map[string]int64 `json:"by_type"`
	// OldestDeadAt and NewestDeadAt are nil when there is no member.
	OldestDeadAt *time.Time `json:"oldest_dead_at"`
	NewestDeadAt *time.Time `json:"newest_dead_at"`
	// LeftOut are matches that are no members, because a replay of them, or one down its
	// line, has succeeded, is under way or is a dead letter itself; see
	// PlanParameters.IncludeReplayed.
	LeftOut int64 `json:"left_out"`
	// Superseded are members whose job succeeded later, Replayed those that were
	// replayed before, Held those that another plan holds too.
	Superseded int64        `json:"superseded"`
	Replayed   int64        `json:"replayed"`
	Held       int64        `json:"held"`
	Sample     []PlanSample `json:"sample"`
}

// PlanSample is one of the members, for people.
type PlanSample struct {
	WorkflowID   string     `json:"workflow_id"`
	RunID        string     `json:"run_id"`
	JobType      string     `json:"job_type"`
	Reason       job.Reason `json:"reason"`
	DeadAt       time.Time  `json:"dead_at"`
	ErrorMessage string     `json:"error_message"` // the first 200 runes
}

const (
	// DefaultPlanLimit and MaxPlanLimit bound the members of a plan.
	DefaultPlanLimit = 100_000
	MaxPlanLimit     = 1_000_000
	// PlanLifetime is how long a plan that nobody applies can be applied.
	PlanLifetime = 24 * time.Hour
	// planTimeout bounds the freezing, which takes longer than other operations.
	planTimeout = 5 * time.Minute
)

const (
	insertPlan = `
insert into {schema}.plans (id, namespace, verb, filter, parameters, actor, expires_at, matched, members, request_id)
values (@id, @namespace, @verb, @filter::jsonb, @parameters::jsonb, @actor, now() + @lifetime_ms * interval '1 millisecond', @matched, 0, @request_id::text)`

	// selectRequestedPlan finds the plan of a request, and whether it is of this one.
	selectRequestedPlan = `
select id, (namespace, verb, filter, parameters) = (@namespace, @verb, @filter::jsonb, @parameters::jsonb)
from {schema}.plans
where request_id = @request_id`

	// replayedForGood is true of a dead letter d whose work is elsewhere: a replay of it
	// has succeeded, is under way, or died again and is a dead letter in its turn, or
	// this is true of a replay of that one, which may be purged by now. Another one would
	// do the work twice.
	replayedForGood = `exists (
		select from {schema}.replays r
		where r.namespace = d.namespace and r.workflow_id = d.workflow_id and r.run_id = d.run_id and ` + hasTheWork + `
	)`
	// hasTheWork is true of such a replay r. Few need to be followed further. That a
	// person's reset made a job succeed after all is told by its event alone once its dead
	// letter is purged. Like membersByKey it looks up by key, whatever the statistics are.
	hasTheWork = `(r.outcome is null or r.outcome = 'succeeded' or (
		select true from {schema}.dead_letters n where n.namespace = r.namespace and n.workflow_id = r.new_workflow_id limit 1
	) or (
		select true from {schema}.events v where v.namespace = r.namespace and v.workflow_id = r.new_workflow_id and v.verb = 'supersede' limit 1
	) or (
		select true from {schema}.replays t where t.namespace = r.namespace and t.workflow_id = r.new_workflow_id limit 1
	) and exists (
		with recursive line (workflow_id, outcome) as (
			select r.new_workflow_id, r.outcome
			union
			select l.new_workflow_id, l.outcome
			from line cross join lateral (
				select t.new_workflow_id, t.outcome
				from {schema}.replays t
				where t.namespace = r.namespace and t.workflow_id = line.workflow_id
				offset 0
			) l
		)
		select from line
		where outcome is null or outcome = 'succeeded' or (
			select true from {schema}.dead_letters n where n.namespace = r.namespace and n.workflow_id = line.workflow_id limit 1
		) or (
			select true from {schema}.events v where v.namespace = r.namespace and v.workflow_id = line.workflow_id and v.verb = 'supersede' limit 1
		)
	))`

	// freezeChosen, the filter's clause and freezeMembers make one statement.
	freezeChosen = `
insert into {schema}.plan_items (plan_id, position, namespace, workflow_id, run_id, revision, state, error, finished_at)
select @id, row_number() over (order by c.dead_at, c.namespace, c.workflow_id, c.run_id),
	c.namespace, c.workflow_id, c.run_id, c.revision,
	case when c.left_out then 'skipped' else 'pending' end,
	case when c.left_out then 'superseded: the job succeeded in a later run' else '' end,
	case when c.left_out then now() end
from (
	select d.namespace, d.workflow_id, d.run_id, d.revision, d.dead_at, d.superseded_at is not null and @skip_superseded as left_out
	from {schema}.dead_letters d`
	freezeMembers = `
	order by d.dead_at, d.namespace, d.workflow_id, d.run_id
	limit @limit
) c`

	countPlanMembers = `
update {schema}.plans
set members = (select count(*) from {schema}.plan_items where plan_id = @id),
	skipped = (select count(*) from {schema}.plan_items where plan_id = @id and state = 'skipped')
where id = @id`

	selectPlanGroups = `
select d.reason, d.job_type, count(*), min(d.dead_at), max(d.dead_at),
	count(*) filter (where d.superseded_at is not null), count(*) filter (where d.resurrection_count > 0),
	count(*) filter (where exists (
		select from (
			select other.plan_id from {schema}.plan_items other
			where (other.namespace, other.workflow_id, other.run_id) = (i.namespace, i.workflow_id, i.run_id)
				and other.state = 'pending' and other.plan_id <> i.plan_id
			offset 0 -- by the dead letter's key, and not by the plans: they have many members
		) other join {schema}.plans p on p.id = other.plan_id
		where p.state in ('applying', 'paused') or p.state = 'planned' and p.expires_at > now()
	))
from {schema}.plan_items i
join {schema}.dead_letters d on (d.namespace, d.workflow_id, d.run_id) = (i.namespace, i.workflow_id, i.run_id)
where i.plan_id = @id
group by 1, 2`

	selectPlanSample = `
select d.workflow_id, d.run_id, d.job_type, d.reason, d.dead_at,
	case getdatabaseencoding() when 'SQL_ASCII' then d.error_message else left(d.error_message, 200) end -- see firstRunes
from {schema}.plan_items i
join {schema}.dead_letters d on (d.namespace, d.workflow_id, d.run_id) = (i.namespace, i.workflow_id, i.run_id)
where i.plan_id = @id
order by i.position
limit 10`

	storePlanReport = `
update {schema}.plans set report = @report::jsonb where id = @id`

	insertPlanEvent = `
insert into {schema}.events (verb, actor, namespace, workflow_id, run_id, request_id, plan_id, detail)
values (@verb, @actor, @namespace, '', '', @request_id, @id, @detail::jsonb)`
)

// PlanRequest asks for a plan.
type PlanRequest struct {
	Verb job.BulkVerb
	// Filter selects the members, in one namespace, which it must name.
	Filter Filter
	// All allows a filter that selects every dead letter of the namespace.
	All bool
	// Limit is the most members: 0 means DefaultPlanLimit, MaxPlanLimit is the most.
	// The oldest matches are taken, and the plan says that there were more.
	Limit      int
	Parameters PlanParameters
	// Preview works out, for an edit or a retag, what would change of a member; its
	// *EditError leaves the member out, with the cause. It must not call the store.
	Preview func(dl *DeadLetter) (Diff, error)
	// RequestID makes the request repeatable: the same id gives the same plan, as it
	// was frozen the first time. Empty means a plan of its own.
	RequestID string
	Actor     string
}

func (r PlanRequest) check() error {
	var faults []error
	if _, err := job.ParseBulkVerb(string(r.Verb)); err != nil {
		faults = append(faults, err)
	}
	if r.Filter.Namespace == "" {
		faults = append(faults, errors.New("the filter names no namespace"))
	}
	if r.Filter.Reason != "" {
		if _, err := job.ParseReason(string(r.Filter.Reason)); err != nil {
			faults = append(faults, err)
		}
	}
	if r.Filter.IsEmpty() && !r.All {
		faults = append(faults, ErrUnbounded)
	}
	if edits := r.Verb == job.BulkEdit || r.Verb == job.BulkRetag; edits != (r.Preview != nil) || edits != (r.Parameters.Edit != "") {
		faults = append(faults, errors.New("an edit or a retag needs an Edit and a Preview, and no other verb takes one"))
	}
	if r.Limit < 0 || r.Limit > MaxPlanLimit {
		faults = append(faults, fmt.Errorf("a limit of %d members: at most %d, 0 for %d", r.Limit, MaxPlanLimit, DefaultPlanLimit))
	}
	faults = append(faults, r.Parameters.Check(r.Verb), r.Filter.check(), checkRequestID(r.RequestID))
	if err := errors.Join(faults...); err != nil {
		return faultyError{err}
	}
	return nil
}

// CreatePlan freezes the dead letters that a filter selects now, the oldest first,
// with their revisions, and changes none of them. What is counted, frozen and
// reported is one snapshot. A request with faults is ErrRefused, an empty filter
// without All also ErrUnbounded, a request id that stands for another plan is
// ErrRequestConflict, and a freeze of more than five minutes is ErrRefused: an event of
// verb plan_refused tells of it.
func (s *Store) CreatePlan(ctx context.Context, request PlanRequest) (*Plan, error) {
	id, err := s.createPlan(ctx, request)
	if err != nil {
		err = s.NoteRefusal(ctx, Asked{
			Verb: VerbPlan, Key: Key{Namespace: request.Filter.Namespace}, Actor: request.Actor, RequestID: request.RequestID,
		}, err)
		return nil, fmt.Errorf("plan: %w", err)
	}
	return s.within(planTimeout).Plan(ctx, request.Filter.Namespace, id) // behind a migration, say
}

func (s *Store) createPlan(ctx context.Context, request PlanRequest) (id string, err error) {
	if err := request.check(); err != nil {
		return "", err
	}
	if request.Limit == 0 {
		request.Limit = DefaultPlanLimit
	}
	request.Parameters.Limit = request.Limit
	patient, began := s.within(planTimeout), time.Now()
	for range maxPlanRaces {
		err = patient.inTx(ctx, beginFreeze, func(ctx context.Context, tx pgx.Tx) error {
			id, err = s.freeze(ctx, tx, request)
			return err
		})
		if !lostRace(err) {
			break
		}
		// The same request was under way twice; the other one's plan is there now.
	}
	if errors.Is(err, ErrTimeout) && time.Since(began) >= planTimeout {
		err = fmt.Errorf("%w: it takes more than %s: narrow the filter: %w", ErrRefused, planTimeout, err)
	}
	return id, err
}

// maxPlanRaces is how often a request may lose against itself before it is an error.
const maxPlanRaces = 5

// lostRace reports whether a transaction failed because another one committed the
// same key first, while it waited or before its snapshot could tell.
func lostRace(err error) bool {
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (pgErr.Code == "23505" || pgErr.Code == "40001")
}

// newPlanID returns a fresh id that can be typed and read aloud.
func newPlanID() string { return "plan-" + strings.ToLower(rand.Text()[:10]) }

// freeze makes the plan of a request, unless it is there, and returns its id.
func (s *Store) freeze(ctx context.Context, tx pgx.Tx, request PlanRequest) (id string, err error) {
	plan := pgx.NamedArgs{
		"id": newPlanID(), "namespace": request.Filter.Namespace, "verb": string(request.Verb), "filter": holdableJSON(request.Filter),
		"parameters": holdableJSON(request.Parameters), "request_id": orNull(request.RequestID),
		"actor": text.Bounded(request.Actor, maxName), "lifetime_ms": PlanLifetime.Milliseconds(),
	}
	known, err := first(ctx, tx, s, selectRequestedPlan, plan, pgx.RowToStructByPos[requestedPlan])
	switch {
	case err != nil:
		return "", err
	case known != nil && !known.Same:
		return "", fmt.Errorf("request id %q: %w", request.RequestID, ErrRequestConflict)
	case known != nil:
		return known.ID, nil
	}
	return plan["id"].(string), s.freezeNew(ctx, tx, plan, request)
}

type requestedPlan struct {
	ID   string
	Same bool
}

func (s *Store) freezeNew(ctx context.Context, tx pgx.Tx, plan pgx.NamedArgs, request PlanRequest) error {
	id := plan["id"].(string)
	where, args, err := s.where(request.Filter)
	if err != nil {
		return err
	}
	matched, err := collect(ctx, tx, s.sql(selectCount)+where, args, pgx.RowTo[int64])
	if err != nil {
		return err
	}
	plan["matched"] = matched[0]
	if _, err := tx.Exec(ctx, s.sql(insertPlan), plan); err != nil {
		return classify(err)
	}
	leftOut := int64(0)
	if request.Verb == job.BulkReplay && !request.Parameters.IncludeReplayed {
		replayed, args, err := s.where(request.Filter, s.sql(replayedForGood))
		if err != nil {
			return err
		}
		counts, err := collect(ctx, tx, s.sql(selectCount)+replayed, args, pgx.RowTo[int64])
		if err != nil {
			return err
		}
		leftOut = counts[0]
		if where, _, err = s.where(request.Filter, "not "+s.sql(replayedForGood)); err != nil {
			return err
		}
	}
	args["id"], args["limit"] = id, request.Limit
	args["skip_superseded"] = request.Verb == job.BulkReplay && !request.Parameters.IncludeSuperseded
	if _, err := tx.Exec(ctx, s.sql(freezeChosen)+where+s.sql(freezeMembers), args); err != nil {
		return classify(err)
	}
	if request.Preview != nil {
		if err := s.previewMembers(ctx, tx, id, request); err != nil {
			return err
		}
	}
	if _, err := tx.Exec(ctx, s.sql(countPlanMembers), plan); err != nil {
		return classify(err)
	}
	report, err := s.planReport(ctx, tx, plan)
	if err != nil {
		return err
	}
	report.LeftOut = leftOut
	plan["report"] = holdableJSON(report)
	if _, err := tx.Exec(ctx, s.sql(storePlanReport), plan); err != nil {
		return classify(err)
	}
	plan["detail"] = encoded(map[string]any{"verb": request.Verb, "matched": matched[0]})
	plan["verb"] = VerbPlan
	_, err = tx.Exec(ctx, s.sql(insertPlanEvent), plan)
	return classify(err)
}

// maxReportTypes keeps a report readable where job types abound.
const maxReportTypes = 50

func (s *Store) planReport(ctx context.Context, tx pgx.Tx, plan pgx.NamedArgs) (PlanReport, error) {
	report := PlanReport{ByReason: map[string]int64{}, ByType: map[string]int64{}}
	rows, err := tx.Query(ctx, s.sql(selectPlanGroups), plan)
	if err != nil {
		return report, classify(err)
	}
	var reason, jobType string
	var n, superseded, replayed, held int64
	var oldest, newest time.Time
	_, err = pgx.ForEachRow(rows, []any{&reason, &jobType, &n, &oldest, &newest, &superseded, &replayed, &held}, func() error {
		if _, known := report.ByType[jobType]; !known && len(report.ByType) >= maxReportTypes {
			jobType = "(others)"
		}
		report.ByReason[reason] += n
		report.ByType[jobType] += n
		report.Superseded, report.Replayed, report.Held = report.Superseded+superseded, report.Replayed+replayed, report.Held+held
		if at := oldest.UTC(); report.OldestDeadAt == nil || at.Before(*report.OldestDeadAt) {
			report.OldestDeadAt = &at
		}
		if at := newest.UTC(); report.NewestDeadAt == nil || at.After(*report.NewestDeadAt) {
			report.NewestDeadAt = &at
		}
		return nil
	})
	if err != nil {
		return report, classify(err)
	}
	report.Sample, err = collect(ctx, tx, s.sql(selectPlanSample), plan, pgx.RowToStructByPos[PlanSample])
	for i := range report.Sample {
		utc(&report.Sample[i].DeadAt)
		report.Sample[i].ErrorMessage = firstRunes(report.Sample[i].ErrorMessage, 200)
	}
	return report, err
}
