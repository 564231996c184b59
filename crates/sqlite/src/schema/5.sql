-- Schema 5: what is open is read from the deliveries themselves, and lanes have lines.
-- `schema.rs` has moved the seqs of `given` to `lanes` before this runs.

-- What is open: lanes by seq, and those without a place by id. The rest of the columns spare a look at
-- the row.
DROP INDEX deliveries_unkeyed;
CREATE INDEX deliveries_open ON deliveries (endpoint, lane, seq, id, standing, due)
    WHERE standing <= 3;
DROP TABLE places;
DROP TABLE given;

-- The time between two moments at which the store may have lost commits. Key: a number that grows; the
-- highest is the current era. One is made with the file, another by each restore; none goes.
CREATE TABLE eras (
    num       INTEGER PRIMARY KEY,
    id        INTEGER NOT NULL,              -- 64 random bits
    began_at  INTEGER NOT NULL
) STRICT;

-- The line that a lane is in: the era in which it began, and how many numbers the lane had given out
-- before. `used_at` is when the lane's last delivery was made. Lanes that stood empty for long are pruned.
ALTER TABLE lanes ADD COLUMN era INTEGER NOT NULL DEFAULT 1;          -- eras.num
ALTER TABLE lanes ADD COLUMN line_before INTEGER NOT NULL DEFAULT 0;
ALTER TABLE lanes ADD COLUMN used_at INTEGER NOT NULL DEFAULT 0;

-- A line that its lane has left. Key: the lane and the last seq of the line. Written by the first accept
-- of the lane in another era; goes with the lane.
CREATE TABLE old_lines (
    lane         INTEGER NOT NULL,           -- lanes.id
    through      INTEGER NOT NULL,
    era          INTEGER NOT NULL,           -- eras.num
    line_before  INTEGER NOT NULL,
    PRIMARY KEY (lane, through)
) STRICT, WITHOUT ROWID;

-- Delivery `seq` of a lane follows `follows` (0: nothing) and not the one before it, because what lies
-- between was closed without being delivered. Key: lane and seq. Written by records; goes when the
-- lane has passed it and is written to again, or with the lane.
CREATE TABLE lane_follows (
    lane     INTEGER NOT NULL,               -- lanes.id
    seq      INTEGER NOT NULL,
    follows  INTEGER NOT NULL,
    PRIMARY KEY (lane, seq)
) STRICT, WITHOUT ROWID;

-- Receivers have applied nothing of the lines that begin here. So the first open delivery of a lane follows
-- nothing, and each of the others follows the open one before it: what lies between was closed.
INSERT INTO lane_follows (lane, seq, follows)
    SELECT lane, seq, before FROM (
        SELECT lane, seq, coalesce(lag(seq) OVER (PARTITION BY lane ORDER BY seq), 0) AS before
        FROM (SELECT lane, seq FROM deliveries WHERE standing <= 3 AND lane IS NOT NULL
              UNION ALL SELECT id, last_seq + 1 FROM lanes WHERE last_seq > 0))
    WHERE before <> seq - 1;

-- A dead letter that has left its lane keeps `left_lane` and `left_seq`. Earlier versions kept the seq alone:
-- the lane is known where the event can have stood in one only.
ALTER TABLE deliveries ADD COLUMN left_lane INTEGER;
UPDATE deliveries SET left_lane = (
        SELECT CASE WHEN count(*) = 1 THEN min(k.lane) END FROM events AS e JOIN lane_keys AS k
        ON k.endpoint = deliveries.endpoint AND (k.key = e.key OR k.key = x'')
        WHERE e.num = deliveries.event)
    WHERE left_seq IS NOT NULL;

-- Endpoints whose open deliveries are to be closed.
CREATE INDEX endpoints_removed ON endpoints (num) WHERE removed_at IS NOT NULL;

-- The id and source of an event that came as a CloudEvent, as JSON. Behind the payload, and empty for
-- most: then reading it touches nothing.
ALTER TABLE events ADD COLUMN cloudevent TEXT;
