-- How many events of each verb there were in each hour: appended and folded as the
-- counts of dead letters are. Events that are pruned later did happen, and count.
lock table {{.schema}}.events in share row exclusive mode;

create table {{.schema}}.event_counts (
    namespace text not null,
    hour timestamptz not null,
    verb text not null,
    n bigint not null,
    folded boolean not null default false
);

create index event_counts_fresh_idx on {{.schema}}.event_counts (folded) where not folded;
create index event_counts_hour_idx on {{.schema}}.event_counts (hour);

create function {{.schema}}.count_events() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp
as $body_{{sha256sum .schema}}$
begin
    insert into {{.schema}}.event_counts (namespace, hour, verb, n)
    select namespace, date_trunc('hour', at, 'UTC'), verb, count(*)
    from added group by 1, 2, 3;
    return null;
end
$body_{{sha256sum .schema}}$;

create trigger count_inserted after insert on {{.schema}}.events
    referencing new table as added
    for each statement execute function {{.schema}}.count_events();

insert into {{.schema}}.event_counts (namespace, hour, verb, n, folded)
select namespace, date_trunc('hour', at, 'UTC'), verb, count(*), true
from {{.schema}}.events group by 1, 2, 3;
