INSERT INTO railpost_outbox
  (type, payload, key, id, tenant, content_type, schema_version, "time", traceparent, payload_bytes)
VALUES (
  $1::text,
  $2::text,
  $3::text,
  COALESCE($4::text, gen_random_uuid()::text),
  $5::text,
  COALESCE($6::text, 'application/json'),
  $7::bigint,
  COALESCE(timestamptz 'epoch' + $8::bigint * interval '1 millisecond', clock_timestamp()),
  $9::text,
  $10::bytea
)
RETURNING id
