SELECT railpost_emit(
  type => $1::text,
  payload => $2::text,
  key => $3::text,
  id => $4::text,
  tenant => $5::text,
  content_type => $6::text,
  schema_version => $7::bigint,
  "time" => timestamptz 'epoch' + $8::bigint * interval '1 millisecond',
  traceparent => $9::text,
  payload_bytes => $10::bytea,
  strict => $11::boolean
)
