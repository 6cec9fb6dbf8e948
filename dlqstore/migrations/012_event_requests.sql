-- A refusal is noted once per request id, so it is looked for by that.
create index if not exists events_request_idx on {{.schema}}.events (request_id) where request_id is not null;
