INSERT INTO railpost_outbox
  (type, payload, key, id, tenant, content_type, schema_version, time, traceparent)
VALUES (
  ?1,
  ?2,
  ?3,
  COALESCE(?4, lower(hex(randomblob(16)))),
  ?5,
  COALESCE(?6, 'application/json'),
  ?7,
  COALESCE(?8, CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER)),
  ?9
)
RETURNING id
