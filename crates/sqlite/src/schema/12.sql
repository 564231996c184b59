-- Schema 12: rotations of the master key and of endpoints' secrets.

-- While the master key is rotated, `new_key_check` opens under the new key. `old_link_key` is what links of
-- before the last rotation are checked with, sealed under the master key.
ALTER TABLE store ADD COLUMN new_key_check BLOB;
ALTER TABLE store ADD COLUMN old_link_key BLOB;

-- When the newest secret of the endpoint is as old as it may become; null if it may become older than that.
-- Written by changes of the endpoint's settings and secrets.
ALTER TABLE endpoints ADD COLUMN rotate_at INTEGER;
CREATE INDEX endpoints_by_rotation ON endpoints (rotate_at, id) WHERE rotate_at IS NOT NULL;
