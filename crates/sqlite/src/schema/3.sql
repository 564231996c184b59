-- Schema 3: seqs are written down by the group that gave them out, and moved to their lanes later.

-- The seqs that one group gave out. Key: a number that grows. Written by accepts; goes when all of them
-- are in `lanes`. A lane's last seq is the highest of its own row and of all rows here.
CREATE TABLE given (
    num     INTEGER PRIMARY KEY,
    places  BLOB NOT NULL                    -- packed_figures.rs: lanes, each with its last seq
) STRICT;
