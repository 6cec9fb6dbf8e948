-- Every name is qualified: a migration does not depend on the search path. The
-- schema may have any name: inside a literal its quotes are doubled, and the tag
-- around a function's body is one that no name can contain by chance.

-- Where a live job stands. A dead letter is a row of its own, so no status of
-- that name exists.
create type {{.schema}}.job_status as enum ('queued', 'processing', 'done', 'cancelled');

-- The value as jsonb, or null where jsonb cannot hold it (a \u0000, half a
-- surrogate pair, a number or a nesting beyond its limits). A readable copy is
-- not worth a move that fails forever.
create function {{.schema}}.jsonb_or_null(value text) returns pg_catalog.jsonb
language plpgsql immutable strict parallel safe
as $body_{{sha256sum .schema}}$
begin
    return value::pg_catalog.jsonb;
exception
    when data_exception or program_limit_exceeded then
        return null;
end
$body_{{sha256sum .schema}}$;

create table {{.schema}}.dead_letters (
    namespace text not null check (namespace <> ''),
    workflow_id text not null check (workflow_id <> ''),
    run_id text not null check (run_id <> ''),
    first_run_id text not null default '',
    job_type text not null default '',
    task_queue text not null default '',
    workflow_task_queue text not null default '',
    reason text not null constraint dead_letters_reason_check check (reason in (
        'max_retries_exceeded', 'fatal_error', 'cancelled', 'zombie', 'circuit_breaker_open',
        'throttled', 'retry_lifetime_expired', 'timeout', 'unknown_job_type', 'terminated'
    )),
    attempts int check (attempts >= 0), -- null: unknown
    max_attempts int, -- null: no limit
    error_type text not null default '',
    error_message text not null default '',
    error_stack text not null default '',
    retry_state text not null default '',
    tags jsonb not null default '{}' check (jsonb_typeof(tags) = 'object'),
    options jsonb,
    payload_json jsonb,
    priority jsonb not null default '{}' check (jsonb_typeof(priority) = 'object'),
    worker_identity text not null default '',
    enqueued_at timestamptz,
    first_attempt_at timestamptz,
    last_attempt_at timestamptz,
    dead_at timestamptz not null default now(),
    resurrection_count int not null default 0 check (resurrection_count >= 0),
    last_resurrection_at timestamptz,
    generation int not null default 0 check (generation >= 0),
    replayed_from_workflow_id text,
    replayed_from_run_id text,
    fingerprint text not null default '',
    revision int not null default 1,
    superseded_at timestamptz,
    superseded_by_run_id text,
    -- protobuf messages as the wire held them
    payloads bytea not null,
    options_payload bytea,
    failure bytea,
    last_heartbeat_details bytea,
    memo bytea,
    search_attributes bytea,
    header bytea,
    user_metadata bytea,
    primary key (namespace, workflow_id, run_id)
);

-- Lists page by (dead_at, namespace, workflow_id, run_id). Only the index on
-- namespace carries the whole key: an entry of three long names would pass the
-- size limit of an index entry, and an insert must never fail for that.
create index dead_letters_dead_at_idx on {{.schema}}.dead_letters (dead_at);
create index dead_letters_namespace_idx on {{.schema}}.dead_letters (namespace, dead_at, workflow_id, run_id);
create index dead_letters_workflow_id_idx on {{.schema}}.dead_letters (workflow_id);
create index dead_letters_job_type_idx on {{.schema}}.dead_letters (job_type, dead_at);
create index dead_letters_reason_idx on {{.schema}}.dead_letters (reason, dead_at);
create index dead_letters_task_queue_idx on {{.schema}}.dead_letters (task_queue, dead_at);
create index dead_letters_fingerprint_idx on {{.schema}}.dead_letters (fingerprint, dead_at);
create index dead_letters_tags_idx on {{.schema}}.dead_letters using gin (tags jsonb_path_ops);
create index dead_letters_replayed_idx on {{.schema}}.dead_letters (dead_at) where resurrection_count > 0;
create index dead_letters_not_replayed_idx on {{.schema}}.dead_letters (dead_at) where resurrection_count = 0;

create table {{.schema}}.attempts (
    namespace text not null,
    workflow_id text not null,
    run_id text not null,
    attempt int not null check (attempt > 0),
    started_at timestamptz,
    ended_at timestamptz,
    worker_identity text not null default '',
    error_type text not null default '',
    error_message text not null default '',
    error_stack text not null default '',
    wait_ms bigint, -- until the next attempt
    primary key (namespace, workflow_id, run_id, attempt),
    foreign key (namespace, workflow_id, run_id) references {{.schema}}.dead_letters on delete cascade
);

-- No foreign key: a replay outlives its dead letter, because it is what makes its
-- request id idempotent.
create table {{.schema}}.replays (
    request_id text primary key,
    namespace text not null, -- of the dead letter, as are the next two
    workflow_id text not null,
    run_id text not null,
    new_workflow_id text not null,
    new_run_id text, -- null until Temporal confirmed the start
    actor text not null default '',
    requested_at timestamptz not null default now(),
    started_at timestamptz,
    status {{.schema}}.job_status,
    outcome text check (outcome in ('succeeded', 'dead_lettered', 'cancelled', 'refused')),
    error text,
    finished_at timestamptz,
    unique (namespace, new_workflow_id)
);

create index replays_dead_letter_idx on {{.schema}}.replays (namespace, workflow_id, run_id);
create index replays_pending_idx on {{.schema}}.replays (requested_at) where new_run_id is null and outcome is null;

create table {{.schema}}.events (
    id bigint generated always as identity primary key,
    verb text not null,
    actor text not null default '',
    at timestamptz not null default now(),
    namespace text not null,
    workflow_id text not null,
    run_id text not null,
    request_id text,
    detail jsonb not null default '{}'
);

create index events_dead_letter_idx on {{.schema}}.events (namespace, workflow_id, run_id);

-- One move per job, forever: this makes a move exactly-once and a purge final.
create unique index events_one_move_idx on {{.schema}}.events (namespace, workflow_id, run_id) where verb = 'move';
