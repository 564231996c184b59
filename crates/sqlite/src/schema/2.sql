-- Schema 2: replays, and figures over time.

-- A replay. Key: its id. Written by changes; goes some time after it finished, or with its tenant.
CREATE TABLE replays (
    id           BLOB PRIMARY KEY,
    tenant       INTEGER NOT NULL,           -- tenants.num
    finished_at  INTEGER,                    -- nothing while it runs
    record       TEXT NOT NULL               -- JSON
) STRICT, WITHOUT ROWID;
CREATE INDEX replays_by_tenant ON replays (tenant, id);
CREATE INDEX replays_by_end ON replays (finished_at, id);

-- What happened in a minute or an hour. Key: when it began and whose it is; ordered by time, so that
-- what is added and what is pruned lies together. Goes by age, or with its tenant.
CREATE TABLE figures (
    resolution  INTEGER NOT NULL,            -- numbers.rs: resolutions
    at          INTEGER NOT NULL,
    scope       INTEGER NOT NULL,            -- numbers.rs: scopes
    num         INTEGER NOT NULL,            -- tenants.num or endpoints.num, by scope; 0 for all
    figures     BLOB NOT NULL,               -- packed_figures.rs
    PRIMARY KEY (resolution, at, scope, num)
) STRICT, WITHOUT ROWID;
CREATE INDEX figures_by_scope ON figures (scope, num, resolution, at);
