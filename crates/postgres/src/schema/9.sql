-- Schema 9: alerts and silences.

-- An alert. Key: its id, which sorts by when it fired. Goes some time after it was resolved, or with its
-- tenant.
CREATE TABLE alerts (
    id           bytea PRIMARY KEY,
    tenant       text,                       -- tenants.id; nothing for what concerns the server
    rule         text NOT NULL,
    fired_at     bigint NOT NULL,
    resolved_at  bigint,                     -- nothing while it is open
    settled      boolean NOT NULL,           -- whether it is resolved and nothing is left to publish
    record       text NOT NULL               -- JSON
);
CREATE INDEX alerts_open ON alerts (id) WHERE NOT settled;
CREATE INDEX alerts_by_tenant ON alerts (tenant, id);
CREATE INDEX alerts_by_end ON alerts (resolved_at) WHERE settled;

-- Alerts of which nothing is published for a time. Key: its id. Goes some time after it ended, or with its
-- tenant.
CREATE TABLE silences (
    id      bytea PRIMARY KEY,
    tenant  text,                            -- tenants.id; nothing for all
    until   bigint NOT NULL,
    record  text NOT NULL                    -- JSON
);
CREATE INDEX silences_by_end ON silences (until);
