-- Schema 8: what a small group accepts is written as one page, and moved to its tables later.

-- The accept log. Key: the slot. An entry is one group of accepts (accept_log.rs); its length never changes, so
-- that it is written over in place. Slots are used from 0 on, again and again; none goes.
CREATE TABLE accept_log (
    slot   INTEGER PRIMARY KEY,
    entry  BLOB NOT NULL
) STRICT;

-- Entries of this generation are not in their tables yet. Those of other generations are.
ALTER TABLE store ADD COLUMN accept_log_generation INTEGER NOT NULL DEFAULT 1;
