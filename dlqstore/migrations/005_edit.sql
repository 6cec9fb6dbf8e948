-- What edits changed. Each row holds what was before its edit, so that every
-- revision can be had again; all of it goes with the dead letter.
create table {{.schema}}.revisions (
    namespace text not null,
    workflow_id text not null,
    run_id text not null,
    revision int not null check (revision > 1), -- that the edit made
    request_id text not null constraint revisions_request_id_key unique,
    actor text not null,
    at timestamptz not null default now(),
    plan_id text,
    reverted_to int, -- the revision that it started from, null for the one before
    diff json not null, -- json and not jsonb: the digits and escapes are the point
    -- The wire's bytes and the columns made from them, null where the edit left
    -- them alone: of the arguments, of the options object, and of the priority.
    payloads bytea,
    payload_json jsonb,
    options_payload bytea,
    options jsonb,
    task_queue text,
    tags jsonb,
    max_attempts int,
    priority jsonb,
    primary key (namespace, workflow_id, run_id, revision),
    foreign key (namespace, workflow_id, run_id) references {{.schema}}.dead_letters on delete cascade
);

-- Which revision a replay took; null for replays from before there were any.
alter table {{.schema}}.replays add column revision int;

-- A note is on one dead letter, and goes with it, or on all of a fingerprint.
create table {{.schema}}.notes (
    id bigint generated always as identity primary key,
    namespace text not null,
    workflow_id text,
    run_id text,
    fingerprint text,
    actor text not null,
    at timestamptz not null default now(),
    note text not null,
    check ((workflow_id is null) = (run_id is null) and (workflow_id is null) <> (fingerprint is null)),
    foreign key (namespace, workflow_id, run_id) references {{.schema}}.dead_letters on delete cascade
);

create index notes_dead_letter_idx on {{.schema}}.notes (namespace, workflow_id, run_id, id) where workflow_id is not null;
create index notes_fingerprint_idx on {{.schema}}.notes (namespace, fingerprint, id) where fingerprint is not null;

-- The audit lists by id, the newest first. Moves are left out where they would
-- make up nearly all of an index.
create index events_verb_idx on {{.schema}}.events (verb, id) where verb <> 'move';
create index events_actor_idx on {{.schema}}.events (actor, id);
create index events_at_idx on {{.schema}}.events (at);
