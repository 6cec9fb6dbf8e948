-- A plan freezes the dead letters that a bulk verb will touch, before it touches
-- any: what is applied is what was shown.
create table {{.schema}}.plans (
    id text primary key,
    namespace text not null,
    verb text not null constraint plans_verb_check check (verb in ('replay', 'purge', 'edit', 'retag')),
    filter jsonb not null, -- as it was asked for
    parameters jsonb not null default '{}', -- rate, concurrency, canary, patch, tags
    actor text not null,
    created_at timestamptz not null default now(),
    expires_at timestamptz not null, -- until then a plan that nobody applied can be, and holds its members
    matched bigint not null, -- what the filter selected
    members bigint not null, -- what is frozen: fewer when truncated
    report jsonb not null default '{}', -- what was shown of the members
    state text not null default 'planned' constraint plans_state_check check (state in (
        'planned', 'applying', 'paused', 'finished', 'cancelled', 'stopped'
    )),
    -- How the members ended, counted by the statements that end them.
    done bigint not null default 0,
    skipped bigint not null default 0,
    failed bigint not null default 0,
    applied_by text not null default '',
    applied_at timestamptz,
    finished_at timestamptz,
    stop_cause text not null default ''
);

create index plans_created_at_idx on {{.schema}}.plans (namespace, created_at);

create table {{.schema}}.plan_items (
    plan_id text not null references {{.schema}}.plans on delete cascade,
    position int not null check (position > 0),
    namespace text not null,
    workflow_id text not null,
    run_id text not null,
    revision int not null, -- of the dead letter when it was frozen
    state text not null default 'pending' constraint plan_items_state_check check (state in (
        'pending', 'done', 'skipped', 'failed', 'left'
    )),
    error text not null default '', -- why it was skipped or failed
    detail json, -- of an edit: what would change; json and not jsonb: the digits are the point
    finished_at timestamptz,
    primary key (plan_id, position)
);

create index plan_items_pending_idx on {{.schema}}.plan_items (plan_id, position) where state = 'pending';
-- Which dead letters a plan holds until it ends: retention keeps away from them.
create index plan_items_held_idx on {{.schema}}.plan_items (namespace, workflow_id, run_id);
create index plan_items_ended_idx on {{.schema}}.plan_items (plan_id, state, position) where state <> 'pending';

-- Which plan an event belongs to; null outside of plans. An event that is not of
-- one dead letter has an empty workflow_id and run_id.
alter table {{.schema}}.events add column plan_id text;
create index events_plan_idx on {{.schema}}.events (plan_id, id) where plan_id is not null;
