-- Schema 11: alerts and silences.

-- An alert. Key: its id, which sorts by when it fired. Goes some time after it was resolved, or with its
-- tenant.
CREATE TABLE alerts (
    id           BLOB PRIMARY KEY,
    tenant       TEXT,                       -- tenants.id; nothing for what concerns the server
    rule         TEXT NOT NULL,
    fired_at     INTEGER NOT NULL,
    resolved_at  INTEGER,                    -- nothing while it is open
    settled      INTEGER NOT NULL,           -- whether it is resolved and nothing is left to publish
    record       TEXT NOT NULL               -- JSON
) STRICT, WITHOUT ROWID;
CREATE INDEX alerts_open ON alerts (id) WHERE NOT settled;
CREATE INDEX alerts_by_tenant ON alerts (tenant, id);
CREATE INDEX alerts_by_end ON alerts (resolved_at) WHERE settled;

-- Alerts of which nothing is published for a time. Key: its id. Goes some time after it ended, or with its
-- tenant.
CREATE TABLE silences (
    id      BLOB PRIMARY KEY,
    tenant  TEXT,                            -- tenants.id; nothing for all
    until   INTEGER NOT NULL,
    record  TEXT NOT NULL                    -- JSON
) STRICT, WITHOUT ROWID;
CREATE INDEX silences_by_end ON silences (until);
