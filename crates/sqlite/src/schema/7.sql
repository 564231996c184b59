-- Schema 7: sources that events are relayed from.

-- What is kept of a source. Key: its name. Written by the first reader; goes when the source is dropped.
CREATE TABLE sources (
    name            TEXT PRIMARY KEY,
    system          TEXT,                       -- the database that `position` belongs to
    position        INTEGER,                    -- how far it was read: a place in a log, or a row's number
    parked_version  INTEGER NOT NULL DEFAULT 0, -- counts people's commands
    parked_rows     INTEGER NOT NULL DEFAULT 0,
    parked_bytes    INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;

-- A row of a source that was refused, or that waits behind one. Key: a number that grows. Written before
-- the row is deleted at its source; goes when it was handed over or a person dropped it, or with its
-- tenant.
CREATE TABLE parked (
    num        INTEGER PRIMARY KEY AUTOINCREMENT,
    source     TEXT NOT NULL,                   -- sources.name
    hold       BLOB,                            -- what its tenant and key digest to; none: it waits alone
    released   INTEGER NOT NULL DEFAULT 0,      -- it is to be handed over again
    tenant     TEXT,                            -- as the row has it
    parked_at  INTEGER NOT NULL,
    bytes      INTEGER NOT NULL,
    digest     BLOB NOT NULL,                   -- of all that the row holds: a row that is read again is parked once
    refusal    TEXT,                            -- JSON; none: it waits behind another one
    fields     TEXT NOT NULL,                   -- JSON
    payload    BLOB
) STRICT;
CREATE INDEX parked_by_source ON parked (source, num);
CREATE UNIQUE INDEX parked_by_digest ON parked (source, digest);
CREATE INDEX parked_by_hold ON parked (source, hold, num) WHERE hold IS NOT NULL;
CREATE INDEX parked_released ON parked (source, num) WHERE released;
CREATE INDEX parked_by_tenant ON parked (tenant);
