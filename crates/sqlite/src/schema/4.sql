-- Schema 4: who stands in a lane is written down when the lane is settled, like its last seq.

-- A place in a lane that an open delivery has. Key: endpoint, lane and seq. Written when its lane is
-- settled, changed by records; goes when its delivery closes. Open deliveries with a place that are not
-- here were made by groups that still have a row in `given`.
CREATE TABLE places (
    endpoint  INTEGER NOT NULL,              -- endpoints.num
    lane      INTEGER NOT NULL,              -- lanes.id
    seq       INTEGER NOT NULL,
    delivery  BLOB NOT NULL,
    standing  INTEGER NOT NULL,              -- the delivery's: spares a look at its row
    PRIMARY KEY (endpoint, lane, seq)
) STRICT, WITHOUT ROWID;
INSERT INTO places SELECT endpoint, lane, seq, id, standing FROM deliveries INDEXED BY deliveries_open
    WHERE standing <= 3 AND lane IS NOT NULL ORDER BY endpoint, lane, seq;
DROP INDEX deliveries_open;

-- What is open without a place. The rest of the columns spare a look at the row.
CREATE INDEX deliveries_unkeyed ON deliveries (endpoint, id, standing, due)
    WHERE standing <= 3 AND lane IS NULL;

-- The first delivery that the group made. Nothing in rows of schema 3, whose deliveries have their places.
ALTER TABLE given ADD COLUMN first BLOB;
