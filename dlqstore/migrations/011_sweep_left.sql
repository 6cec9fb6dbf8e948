-- Closed jobs whose dead letter the sweep could not write: it goes on without them,
-- and tries each again by itself.
create table if not exists {{.schema}}.sweep_left (
    namespace text not null,
    run_id text not null,
    workflow_id text not null, -- as far as Postgres can hold it
    closed_at timestamptz not null,
    tries int not null default 1,
    first_at timestamptz not null default now(),
    last_at timestamptz not null default now(),
    next_at timestamptz, -- null: never again
    error text not null default '',
    primary key (namespace, run_id)
);

create index if not exists sweep_left_next_idx on {{.schema}}.sweep_left (namespace, next_at);

-- Counts the jobs that were cancelled and moved, also those whose dead letter was
-- purged since.
create index if not exists events_cancelled_idx on {{.schema}}.events (namespace, at)
    where verb = 'move' and detail ->> 'reason' = 'cancelled';
