-- Writes one event to the outbox in the caller's transaction, and returns the event's id.
--
-- The function has the rights of its caller, who needs INSERT on the table. It finds the table by the
-- search path of the session that created it. A strict event waits until no other transaction holds a
-- strict event of the same tenant and key, so their order is the order of their commits.
CREATE OR REPLACE FUNCTION railpost_emit(
  type text,
  payload text,
  key text = NULL,
  id text = NULL,
  tenant text = NULL,
  content_type text = NULL,
  schema_version bigint = NULL,
  "time" timestamptz = NULL,
  traceparent text = NULL,
  strict boolean = false,
  payload_bytes bytea = NULL
) RETURNS text
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $railpost_emit$
#variable_conflict use_variable
DECLARE
  event_id text := COALESCE(id, gen_random_uuid()::text);
BEGIN
  IF strict AND key IS NOT NULL THEN
    PERFORM pg_advisory_xact_lock(hashtextextended(concat(tenant, ' ', key), 0));
  END IF;
  INSERT INTO railpost_outbox
    (id, tenant, type, key, payload, payload_bytes, content_type, schema_version, "time", traceparent)
  VALUES (
    event_id, tenant, type, key, payload, payload_bytes, COALESCE(content_type, 'application/json'),
    schema_version, COALESCE("time", clock_timestamp()), traceparent
  );
  RETURN event_id;
END
$railpost_emit$;
