-- What may be removed by itself, and when. A dead letter is governed by one policy
-- at most: the one with the most selectors of those that select it, then the first
-- by name.
create table {{.schema}}.retention_policies (
    namespace text not null check (namespace <> ''),
    name text not null check (name <> ''),
    job_type text, -- null: any, as for the other selectors
    reason text,
    tag_key text,
    tag_value text,
    keep_for_ms bigint check (keep_for_ms > 0), -- since dead_at
    keep_last bigint check (keep_last > 0), -- the newest of those it governs
    enabled boolean not null, -- one that is not governs nothing
    actor text not null,
    updated_at timestamptz not null default now(),
    primary key (namespace, name),
    constraint retention_policies_keep_check check (keep_for_ms is not null or keep_last is not null),
    constraint retention_policies_tag_check check ((tag_key is null) = (tag_value is null))
);

-- A pinned dead letter is never pruned. Purges take it all the same.
alter table {{.schema}}.dead_letters add column pinned boolean not null default false;
alter table {{.schema}}.dead_letters add column pinned_by text;
alter table {{.schema}}.dead_letters add column pinned_at timestamptz;

-- How much was pruned, by which policy.
create index events_prune_idx on {{.schema}}.events (namespace, at, (detail ->> 'policy')) where verb = 'prune';
