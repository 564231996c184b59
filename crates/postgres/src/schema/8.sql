-- Schema 8: since when an endpoint has its status.

-- `status_since` is null if the status never changed, or before it was written down.
ALTER TABLE endpoints ADD COLUMN status_since bigint;

-- Changes and records both write the status, with the instant in `updated_at`.
CREATE FUNCTION note_endpoint_status() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.status_since := NEW.updated_at;
    RETURN NEW;
END
$$;

CREATE TRIGGER endpoints_status BEFORE UPDATE ON endpoints
    FOR EACH ROW WHEN (OLD.status <> NEW.status) EXECUTE FUNCTION note_endpoint_status();
