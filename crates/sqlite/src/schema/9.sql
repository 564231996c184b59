-- Schema 9: who brought an event, and what the audit trail says about one thing.

-- Who brought the event, in a few bytes (accepted_by.rs). Behind the payload: lists read it for the events of
-- one page alone. Events of earlier versions have none.
ALTER TABLE events ADD COLUMN accepted_by BLOB;

-- What an entry is about, by its id: people ask for the entries about one thing.
ALTER TABLE audit ADD COLUMN target TEXT NOT NULL DEFAULT '';
UPDATE audit SET target = coalesce(json_extract(record, '$.target'), '');
CREATE INDEX audit_by_target ON audit (tenant, target, id);
