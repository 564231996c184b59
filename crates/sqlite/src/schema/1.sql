-- Schema 1. Every table says what a row is, who writes it, and when it goes. Keys of events are bytes,
-- as in the other database.

-- The store itself: one row, made with the file. `key_check` opens under the master key alone.
CREATE TABLE store (
    id         INTEGER PRIMARY KEY CHECK (id = 1),
    key_check  BLOB NOT NULL
) STRICT;

-- A tenant. Key: its id. Written by changes; `erasing` by the first step of erasing it, deleted by the
-- last.
CREATE TABLE tenants (
    num         INTEGER PRIMARY KEY AUTOINCREMENT,
    id          TEXT NOT NULL UNIQUE,
    settings    TEXT NOT NULL,               -- JSON
    created_at  INTEGER NOT NULL,
    updated_at  INTEGER NOT NULL,
    erasing     INTEGER NOT NULL DEFAULT 0
) STRICT;

-- An endpoint. Key: its id. Written by changes; status and failing_since by records too. A removed one
-- stays, without its secrets, until its tenant is erased: old deliveries point to it.
CREATE TABLE endpoints (
    num            INTEGER PRIMARY KEY AUTOINCREMENT,
    id             BLOB NOT NULL UNIQUE,
    tenant         INTEGER NOT NULL,         -- tenants.num
    settings       TEXT NOT NULL,            -- JSON
    private        BLOB NOT NULL,            -- sealed JSON; empty once removed
    status         INTEGER NOT NULL,         -- numbers.rs: endpoint statuses
    failing_since  INTEGER,
    revision       INTEGER NOT NULL,
    created_at     INTEGER NOT NULL,
    updated_at     INTEGER NOT NULL,
    removed_at     INTEGER
) STRICT;
CREATE INDEX endpoints_by_tenant ON endpoints (tenant, id);

-- A secret of an endpoint. Key: its id. Written by changes; goes with its endpoint at the latest.
CREATE TABLE secrets (
    id          BLOB PRIMARY KEY,
    endpoint    INTEGER NOT NULL,            -- endpoints.num
    sealed      BLOB NOT NULL,
    created_at  INTEGER NOT NULL,
    expires_at  INTEGER
) STRICT, WITHOUT ROWID;
CREATE INDEX secrets_by_endpoint ON secrets (endpoint);

-- An event type. Key: tenant and name. Written by changes.
CREATE TABLE event_types (
    tenant  INTEGER NOT NULL,                -- tenants.num
    name    TEXT NOT NULL,
    record  TEXT NOT NULL,                   -- JSON
    PRIMARY KEY (tenant, name)
) STRICT, WITHOUT ROWID;

-- An API key. Key: its id; found by its hash. Written by changes; stays when revoked, goes with its
-- tenant.
CREATE TABLE api_keys (
    id      BLOB PRIMARY KEY,
    tenant  INTEGER,                         -- tenants.num
    hash    BLOB NOT NULL UNIQUE,
    record  TEXT NOT NULL                    -- JSON
) STRICT, WITHOUT ROWID;

-- Who did what. Key: its id. Written with the change it tells of; pruned by age. The tenant is an id,
-- not a num: an entry may tell of one that is not there.
CREATE TABLE audit (
    id      BLOB PRIMARY KEY,
    at      INTEGER NOT NULL,
    tenant  TEXT,
    record  TEXT NOT NULL                    -- JSON
) STRICT, WITHOUT ROWID;
CREATE INDEX audit_by_tenant ON audit (tenant, id);
CREATE INDEX audit_by_time ON audit (at);

-- The answer to a request that may come again. Key: owner, route and key. Written with the work it
-- answers for; pruned when it expires.
CREATE TABLE idempotency (
    owner        TEXT NOT NULL,
    route        TEXT NOT NULL,
    key          TEXT NOT NULL,
    fingerprint  BLOB NOT NULL,
    status       INTEGER NOT NULL,
    body         BLOB NOT NULL,
    tenant       TEXT,
    expires_at   INTEGER NOT NULL,
    PRIMARY KEY (owner, route, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX idempotency_by_expiry ON idempotency (expires_at);

-- The owner's epoch of a partition. Key: the partition, 0 to 255; no row means 0. Written by fences.
CREATE TABLE partitions (
    id     INTEGER PRIMARY KEY,
    epoch  INTEGER NOT NULL
) STRICT;

-- An event. Key: tenant and id; num is the order of acceptance. Written by accepts, never changed;
-- pruned by age when none of its deliveries needs it.
CREATE TABLE events (
    num             INTEGER PRIMARY KEY,
    tenant          INTEGER NOT NULL,        -- tenants.num
    id              TEXT NOT NULL,
    type            TEXT NOT NULL,
    key             BLOB,
    content_type    TEXT NOT NULL,
    schema_version  INTEGER,
    time            INTEGER NOT NULL,
    accepted_at     INTEGER NOT NULL,
    traceparent     TEXT,
    first           BLOB NOT NULL,           -- the id of its first delivery; the others follow it
    fanout          INTEGER NOT NULL,        -- how many there are, without redeliveries
    payload         BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX events_by_id ON events (tenant, id);
CREATE INDEX events_by_tenant ON events (tenant);

-- A lane. Key: its id, never given out twice. Written by accepts; kept when it is empty, because seqs
-- are never given out twice either; goes with its tenant. Narrow: every accept changes some.
CREATE TABLE lanes (
    id        INTEGER PRIMARY KEY AUTOINCREMENT,
    endpoint  INTEGER NOT NULL,              -- endpoints.num
    last_seq  INTEGER NOT NULL
) STRICT;

-- Which lane a key has. Key: endpoint and key; no event has an empty one, so it stands for the
-- endpoint's one lane for everything. Written and deleted with the lane.
CREATE TABLE lane_keys (
    endpoint  INTEGER NOT NULL,              -- endpoints.num
    key       BLOB NOT NULL,
    lane      INTEGER NOT NULL,              -- lanes.id
    PRIMARY KEY (endpoint, key)
) STRICT, WITHOUT ROWID;

-- A delivery. Key: its id, whose time is when it was made. Made by accepts, changed by records; goes
-- with its event. The place in line is (lane, seq); one that has left its lane has `left_seq` instead.
CREATE TABLE deliveries (
    id                BLOB PRIMARY KEY,
    event             INTEGER NOT NULL,      -- events.num
    endpoint          INTEGER NOT NULL,      -- endpoints.num
    lane              INTEGER,               -- lanes.id
    seq               INTEGER,
    left_seq          INTEGER,
    standing          INTEGER NOT NULL,      -- numbers.rs: standings; up to 3 is open
    due               INTEGER,               -- when waiting
    reason            INTEGER,               -- numbers.rs: dead reasons, when dead
    attempts          INTEGER NOT NULL DEFAULT 0,
    round_attempts    INTEGER NOT NULL DEFAULT 0,
    round_started_at  INTEGER,
    last_delay        INTEGER NOT NULL DEFAULT 0,
    replay            INTEGER NOT NULL DEFAULT 0,
    again             INTEGER NOT NULL DEFAULT 0,  -- 1: a redelivery, outside of its event's range
    changed_at        INTEGER NOT NULL,
    brief             BLOB                   -- brief_attempt.rs: its only attempt, when that was all
) STRICT, WITHOUT ROWID;
CREATE INDEX deliveries_by_endpoint ON deliveries (endpoint, id);
-- What is open: lanes by seq, and those without a place by id. The rest of the columns spare a look at
-- the row.
CREATE INDEX deliveries_open ON deliveries (endpoint, lane, seq, id, standing, due)
    WHERE standing <= 3;
CREATE INDEX deliveries_due ON deliveries (endpoint, due) WHERE standing = 2 AND lane IS NULL;
CREATE INDEX deliveries_dead ON deliveries (endpoint, id, standing) WHERE standing IN (3, 4);
CREATE INDEX deliveries_again ON deliveries (event) WHERE again = 1;

-- An attempt, unless it is told of in brief by its delivery. Key: its delivery and number. Written by
-- records, never changed; goes with its event.
CREATE TABLE attempts (
    delivery       BLOB NOT NULL,
    number         INTEGER NOT NULL,
    started_at     INTEGER NOT NULL,
    status         INTEGER,                  -- the response's, if there was one
    retry_after    INTEGER,
    failure        INTEGER,                  -- numbers.rs: failures, if there was no response
    led_to         INTEGER NOT NULL,         -- numbers.rs: standings
    next_at        INTEGER,
    dns_us         INTEGER,
    connect_us     INTEGER,
    tls_us         INTEGER,
    first_byte_us  INTEGER,
    total_us       INTEGER NOT NULL,
    message        TEXT,                     -- why there was no response
    headers        TEXT,                     -- JSON: pairs
    body           BLOB,
    node           BLOB,
    PRIMARY KEY (delivery, number)
) STRICT, WITHOUT ROWID;
