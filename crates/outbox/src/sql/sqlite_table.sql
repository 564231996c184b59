-- An application's outbox, for SQLite 3.37 and later.
--
-- SQLite has one writer at a time, so the order of seq is the order of commits. AUTOINCREMENT keeps a
-- number from being used twice. Railpost only reads the file and remembers how far it has read. The
-- CHECKs hold Railpost's own bounds. length() of a text stops at a NUL, so a text without NUL and without
-- characters beyond ASCII is one whose length is that of its bytes.
CREATE TABLE railpost_outbox (
  seq INTEGER PRIMARY KEY AUTOINCREMENT,
  id TEXT NOT NULL DEFAULT (lower(hex(randomblob(16))))
    CONSTRAINT id_of_1_to_64_letters_digits_underscores_colons_or_hyphens
      CHECK (
        length(id) BETWEEN 1 AND 64
        AND length(CAST(id AS BLOB)) = length(id)
        AND id NOT GLOB '*[^A-Za-z0-9_:-]*'
      ),
  tenant TEXT
    CONSTRAINT tenant_of_1_to_64_lowercase_letters_digits_underscores_hyphens
      CHECK (
        length(tenant) BETWEEN 1 AND 64
        AND length(CAST(tenant AS BLOB)) = length(tenant)
        AND tenant GLOB '[a-z0-9]*'
        AND tenant NOT GLOB '*[^a-z0-9_-]*'
      ),
  type TEXT NOT NULL
    CONSTRAINT type_of_1_to_128_characters_such_as_order_paid
      CHECK (
        length(type) BETWEEN 1 AND 128
        AND length(CAST(type AS BLOB)) = length(type)
        AND type NOT GLOB '*[^A-Za-z0-9_.-]*'
        AND '.' || type || '.' NOT GLOB '*..*'
      ),
  key TEXT
    CONSTRAINT key_of_1_to_256_bytes CHECK (length(CAST(key AS BLOB)) BETWEEN 1 AND 256),
  payload ANY NOT NULL
    CONSTRAINT payload_of_at_most_1048576_bytes_as_text_or_blob
      CHECK (typeof(payload) IN ('text', 'blob') AND length(CAST(payload AS BLOB)) <= 1048576),
  content_type TEXT NOT NULL DEFAULT 'application/json'
    CONSTRAINT content_type_of_at_most_256_characters_such_as_text_plain
      CHECK (
        length(content_type) <= 256
        AND length(CAST(content_type AS BLOB)) = length(content_type)
        AND content_type NOT GLOB '*[^ -~]*'
        AND rtrim(substr(content_type, 1, instr(content_type || ';', ';') - 1)) GLOB '?*/?*'
        AND rtrim(substr(content_type, 1, instr(content_type || ';', ';') - 1)) NOT GLOB '*/*/*'
        AND rtrim(substr(content_type, 1, instr(content_type || ';', ';') - 1))
          NOT GLOB '*[^!#$%&''*+.^_`|~0-9A-Za-z/-]*'
      ),
  schema_version INTEGER
    CONSTRAINT schema_version_from_0_to_4294967295 CHECK (schema_version BETWEEN 0 AND 4294967295),
  time INTEGER NOT NULL DEFAULT (CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER))
    CONSTRAINT time_in_milliseconds_from_1970_to_9999 CHECK (time BETWEEN 0 AND 253402300799999),
  traceparent TEXT
    CONSTRAINT traceparent_of_w3c_trace_context
      CHECK (
        length(traceparent) BETWEEN 55 AND 128
        AND length(CAST(traceparent AS BLOB)) = length(traceparent)
        AND traceparent NOT GLOB '*[^ -~]*'
        AND substr(traceparent, 1, 2) NOT GLOB '*[^0-9a-f]*'
        AND substr(traceparent, 1, 2) <> 'ff'
        AND substr(traceparent, 3, 1) || substr(traceparent, 36, 1) || substr(traceparent, 53, 1) = '---'
        AND substr(traceparent, 4, 32) NOT GLOB '*[^0-9a-f]*'
        AND substr(traceparent, 4, 32) GLOB '*[^0]*'
        AND substr(traceparent, 37, 16) NOT GLOB '*[^0-9a-f]*'
        AND substr(traceparent, 37, 16) GLOB '*[^0]*'
        AND substr(traceparent, 54, 2) NOT GLOB '*[^0-9a-f]*'
        AND substr(traceparent, 56, 1) IN ('', '-')
        AND (substr(traceparent, 1, 2) <> '00' OR length(traceparent) = 55)
      )
) STRICT;
