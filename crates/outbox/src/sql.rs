//! The SQL texts of an outbox, for every language and driver. `railpost outbox init --print` shows them.

/// The table and its index, for PostgreSQL 13 and later.
pub const POSTGRES_TABLE: &str = include_str!("sql/postgres_table.sql");

/// The function `railpost_emit`, which writes an event to the table.
pub const POSTGRES_FUNCTION: &str = include_str!("sql/postgres_function.sql");

/// The trigger that wakes Railpost at a commit, on the channel [`NOTIFY_CHANNEL`]. It costs the writers:
/// only for `wake = "notify"`.
pub const POSTGRES_NOTIFY_TRIGGER: &str = include_str!("sql/postgres_notify_trigger.sql");

/// The channel that [`POSTGRES_NOTIFY_TRIGGER`] notifies.
pub const NOTIFY_CHANNEL: &str = "railpost_outbox";

/// Calls `railpost_emit` with `$1` to `$11`: type, payload, key, id, tenant, content type, schema version,
/// milliseconds since 1970, traceparent, payload as bytes, strict. Answers with the event's id.
pub const POSTGRES_EMIT: &str = include_str!("sql/postgres_emit.sql");

/// Inserts a row with `$1` to `$10`, which are those of [`POSTGRES_EMIT`] without `strict`. Answers with the
/// event's id, for which the writer needs SELECT on that column.
pub const POSTGRES_INSERT: &str = include_str!("sql/postgres_insert.sql");

/// The table, for SQLite 3.37 and later.
pub const SQLITE_TABLE: &str = include_str!("sql/sqlite_table.sql");

/// Inserts a row with `?1` to `?9`: type, payload as text or blob, key, id, tenant, content type, schema
/// version, milliseconds since 1970, traceparent. Answers with the event's id.
pub const SQLITE_INSERT: &str = include_str!("sql/sqlite_insert.sql");
