-- One lock for all of it, so that it is not upgraded half-way: moves wait meanwhile.
-- Table events is another migration's, because moves and replays lock the two in
-- different orders.
lock table {{.schema}}.dead_letters in share row exclusive mode;

create index dead_letters_enqueued_at_idx on {{.schema}}.dead_letters (enqueued_at);
create index dead_letters_attempts_idx on {{.schema}}.dead_letters (attempts, dead_at);
create index dead_letters_generation_idx on {{.schema}}.dead_letters (generation, dead_at);
create index dead_letters_superseded_idx on {{.schema}}.dead_letters (dead_at) where superseded_at is not null;
create index dead_letters_not_superseded_idx on {{.schema}}.dead_letters (dead_at) where superseded_at is null;
create index dead_letters_payload_json_idx on {{.schema}}.dead_letters using gin (payload_json jsonb_path_ops);
-- Pairs. Two long names fit into an index entry, three do not.
create index dead_letters_job_type_reason_idx on {{.schema}}.dead_letters (job_type, reason, dead_at);
create index dead_letters_task_queue_reason_idx on {{.schema}}.dead_letters (task_queue, reason, dead_at);
create index dead_letters_namespace_fingerprint_idx on {{.schema}}.dead_letters (namespace, fingerprint, dead_at);
create index dead_letters_fingerprint_replayed_idx on {{.schema}}.dead_letters (fingerprint, dead_at) where resurrection_count > 0;
create index dead_letters_fingerprint_not_replayed_idx on {{.schema}}.dead_letters (fingerprint, dead_at) where resurrection_count = 0;

-- The index behind searches in error texts, where extension pg_trgm is there or may
-- be created. A managed Postgres may refuse either; lists work without, more slowly.
-- Each migrate calls this, so it may be there later.
create function {{.schema}}.ensure_error_text_index() returns boolean
language plpgsql
as $body_{{sha256sum .schema}}$
declare
    operators text;
begin
    if to_regclass('{{replace "'" "''" .schema}}.dead_letters_error_text_idx') is not null then
        return true;
    end if;
    if not exists (select from pg_catalog.pg_extension where extname = 'pg_trgm') then
        begin
            -- Beside the other extensions of the database: of one of our schemas it
            -- would go with that schema, from under everybody else.
            create extension pg_trgm schema public;
        exception when others then
            null; -- refused, not on the machine, or made by another at this moment
        end;
    end if;
    select quote_ident(n.nspname) into operators
    from pg_catalog.pg_extension e join pg_catalog.pg_namespace n on n.oid = e.extnamespace
    where e.extname = 'pg_trgm';
    if operators is null then
        return false;
    end if;
    execute 'create index dead_letters_error_text_idx on {{replace "'" "''" .schema}}.dead_letters using gin (error_message '
        || operators || '.gin_trgm_ops, error_type ' || operators || '.gin_trgm_ops)';
    return true;
exception
    when insufficient_privilege then -- not the table's owner, or no use of that schema
        return false;
end
$body_{{sha256sum .schema}}$;

select {{.schema}}.ensure_error_text_index();

-- How many dead letters there are of each kind: the sum of n over the rows of a
-- kind. Triggers only append, so that nobody waits for a row of the summary;
-- Store.Compact folds the rows of a kind into one. No index here can refuse a row.
create table {{.schema}}.dead_letter_counts (
    namespace text not null,
    job_type text not null,
    task_queue text not null,
    reason text not null,
    fingerprint text not null,
    n bigint not null,
    folded boolean not null default false
);

create index dead_letter_counts_fresh_idx on {{.schema}}.dead_letter_counts (folded) where not folded;
create index dead_letter_counts_fingerprint_idx on {{.schema}}.dead_letter_counts using hash (fingerprint);

-- It runs as its owner: whoever may write dead letters keeps the summary right.
create function {{.schema}}.count_dead_letters() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp
as $body_{{sha256sum .schema}}$
begin
    if tg_op = 'INSERT' then
        insert into {{.schema}}.dead_letter_counts (namespace, job_type, task_queue, reason, fingerprint, n)
        select namespace, job_type, task_queue, reason, fingerprint, count(*)
        from added group by 1, 2, 3, 4, 5;
    elsif tg_op = 'DELETE' then
        insert into {{.schema}}.dead_letter_counts (namespace, job_type, task_queue, reason, fingerprint, n)
        select namespace, job_type, task_queue, reason, fingerprint, -count(*)
        from gone group by 1, 2, 3, 4, 5;
    else -- TRUNCATE, under a lock that leaves nobody else at the table
        insert into {{.schema}}.dead_letter_counts (namespace, job_type, task_queue, reason, fingerprint, n)
        select namespace, job_type, task_queue, reason, fingerprint, -sum(n)
        from {{.schema}}.dead_letter_counts group by 1, 2, 3, 4, 5 having sum(n) <> 0;
    end if;
    return null;
end
$body_{{sha256sum .schema}}$;

-- Of an update only the rows that change their kind count: a replay updates many
-- rows, and the kind of none.
create function {{.schema}}.recount_dead_letter() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp
as $body_{{sha256sum .schema}}$
begin
    insert into {{.schema}}.dead_letter_counts (namespace, job_type, task_queue, reason, fingerprint, n) values
        (old.namespace, old.job_type, old.task_queue, old.reason, old.fingerprint, -1),
        (new.namespace, new.job_type, new.task_queue, new.reason, new.fingerprint, 1);
    return null;
end
$body_{{sha256sum .schema}}$;

create trigger count_inserted after insert on {{.schema}}.dead_letters
    referencing new table as added
    for each statement execute function {{.schema}}.count_dead_letters();
create trigger count_deleted after delete on {{.schema}}.dead_letters
    referencing old table as gone
    for each statement execute function {{.schema}}.count_dead_letters();
create trigger count_updated after update on {{.schema}}.dead_letters
    for each row when ((old.namespace, old.job_type, old.task_queue, old.reason, old.fingerprint)
        is distinct from (new.namespace, new.job_type, new.task_queue, new.reason, new.fingerprint))
    execute function {{.schema}}.recount_dead_letter();
create trigger count_truncated after truncate on {{.schema}}.dead_letters
    for each statement execute function {{.schema}}.count_dead_letters();

insert into {{.schema}}.dead_letter_counts (namespace, job_type, task_queue, reason, fingerprint, n, folded)
select namespace, job_type, task_queue, reason, fingerprint, count(*), true
from {{.schema}}.dead_letters group by 1, 2, 3, 4, 5;
