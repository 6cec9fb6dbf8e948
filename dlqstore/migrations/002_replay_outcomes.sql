-- Whether a replayed job that died again died of the same cause; null while it
-- has not, or when the dead letter was purged before.
alter table {{.schema}}.replays add column same_fingerprint boolean;

