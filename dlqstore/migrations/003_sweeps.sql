-- How far the sweep has come in each namespace: every job that closed before the
-- watermark and was visible has its dead letter, or needs none.
create table {{.schema}}.sweeps (
    namespace text primary key,
    watermark timestamptz not null,
    swept_at timestamptz not null default now()
);
