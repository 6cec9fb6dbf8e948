-- Which request made a plan or a note, so that it may be repeated; null where it
-- had no id.
alter table {{.schema}}.plans add column request_id text constraint plans_request_id_key unique;
alter table {{.schema}}.notes add column request_id text constraint notes_request_id_key unique;
