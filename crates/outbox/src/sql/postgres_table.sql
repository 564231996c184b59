-- An application's outbox, for PostgreSQL 13 and later.
--
-- Railpost reads rows in the order of seq, which the database draws at the INSERT, and deletes what it
-- has stored. xid tells where a scan may begin. The CHECKs hold Railpost's own bounds, so that an event
-- which Railpost would refuse is refused in the transaction that writes it.
CREATE TABLE railpost_outbox (
  seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
  id text NOT NULL DEFAULT gen_random_uuid()::text
    CONSTRAINT id_of_1_to_64_letters_digits_underscores_colons_or_hyphens
      CHECK (id ~ '^[A-Za-z0-9_:-]{1,64}$'),
  tenant text
    CONSTRAINT tenant_of_1_to_64_lowercase_letters_digits_underscores_hyphens
      CHECK (tenant ~ '^[a-z0-9][a-z0-9_-]{0,63}$'),
  type text NOT NULL
    CONSTRAINT type_of_1_to_128_characters_such_as_order_paid
      CHECK (octet_length(type) <= 128 AND type ~ '^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$'),
  key text
    CONSTRAINT key_of_1_to_256_bytes CHECK (octet_length(key) BETWEEN 1 AND 256),
  payload text
    CONSTRAINT payload_of_at_most_1048576_bytes CHECK (octet_length(payload) <= 1048576),
  payload_bytes bytea
    CONSTRAINT payload_bytes_of_at_most_1048576_bytes CHECK (octet_length(payload_bytes) <= 1048576),
  content_type text NOT NULL DEFAULT 'application/json'
    CONSTRAINT content_type_of_at_most_256_characters_such_as_text_plain
      CHECK (
        octet_length(content_type) <= 256
        AND content_type ~ '^[!#$%&''*+.^_`|~0-9A-Za-z-]+/[!#$%&''*+.^_`|~0-9A-Za-z-]+ *(;[ -~]*)?$'
      ),
  schema_version bigint
    CONSTRAINT schema_version_from_0_to_4294967295 CHECK (schema_version BETWEEN 0 AND 4294967295),
  "time" timestamptz NOT NULL DEFAULT clock_timestamp()
    CONSTRAINT time_from_1970_to_9999
      CHECK ("time" >= '1970-01-01T00:00:00Z' AND "time" < '10000-01-01T00:00:00Z'),
  traceparent text
    CONSTRAINT traceparent_of_w3c_trace_context
      CHECK (
        octet_length(traceparent) <= 128
        AND traceparent ~ '^[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-[ -~]*)?$'
        AND traceparent !~ '^ff'
        AND (traceparent !~ '^00' OR octet_length(traceparent) = 55)
      ),
  CONSTRAINT payload_or_payload_bytes CHECK (num_nonnulls(payload, payload_bytes) = 1)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);

CREATE INDEX railpost_outbox_xid ON railpost_outbox (xid);
