-- Schema 6: erasing a tenant is a job.

-- Since when a tenant is being erased, and how many rows that has deleted so far. A tenant whose erasing began
-- under an earlier schema has no instant, and is erased to the end like any other.
ALTER TABLE tenants ADD COLUMN erasing_since INTEGER;
ALTER TABLE tenants ADD COLUMN erased INTEGER NOT NULL DEFAULT 0;
