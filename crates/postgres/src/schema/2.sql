-- Schema 2: replays, and figures over time.

-- A replay. Key: its id. Written by changes; goes some time after it finished, or with its tenant.
CREATE TABLE replays (
    id           bytea PRIMARY KEY,
    tenant       bigint NOT NULL,            -- tenants.num
    finished_at  bigint,                     -- nothing while it runs
    record       text NOT NULL               -- JSON
);
CREATE INDEX replays_by_tenant ON replays (tenant, id);
CREATE INDEX replays_by_end ON replays (finished_at, id);

-- What happened in a minute or an hour. Key: when it began and whose it is. Goes by age, or with its
-- tenant. Room is left on each page, so that adding to a row touches no index.
CREATE TABLE figures (
    resolution  bigint NOT NULL,             -- numbers.rs: resolutions
    at          bigint NOT NULL,
    scope       bigint NOT NULL,             -- numbers.rs: scopes
    num         bigint NOT NULL,             -- tenants.num or endpoints.num, by scope; 0 for all
    figures     bytea NOT NULL,              -- packed_figures.rs; empty while it is being made
    PRIMARY KEY (resolution, at, scope, num)
) WITH (fillfactor = 50);
CREATE INDEX figures_by_scope ON figures (scope, num, resolution, at);
