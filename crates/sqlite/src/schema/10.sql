-- Schema 10: since when an endpoint has its status.

-- `status_since` is null if the status never changed, or before it was written down.
ALTER TABLE endpoints ADD COLUMN status_since INTEGER;
