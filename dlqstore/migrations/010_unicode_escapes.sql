-- In a database of encoding SQL_ASCII a Unicode escape above ASCII is a feature that is
-- not supported, rather than bad data. A readable copy with one is left out too.
create or replace function {{.schema}}.jsonb_or_null(value text) returns pg_catalog.jsonb
language plpgsql immutable strict parallel safe
as $body_{{sha256sum .schema}}$
begin
    return value::pg_catalog.jsonb;
exception
    when data_exception or program_limit_exceeded or feature_not_supported then
        return null;
end
$body_{{sha256sum .schema}}$;
