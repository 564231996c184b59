//! Every bound of the relay, with its reason.

use std::time::Duration;

use railpost_engine::Span;

/// Rows that are handed over together, unless the configuration says otherwise: a group commit's worth.
pub const BATCH_DEFAULT: usize = 500;

/// Most rows that are handed over together: what one accept may bring.
pub const BATCH_MAX: usize = railpost_store::limits::BATCH_EVENTS_MAX;

/// How long a source that is polled is left alone: the shortest and the longest, unless the
/// configuration says otherwise. An empty poll takes the source 0.1 ms.
pub const POLL_INTERVAL_DEFAULT: (Span, Span) = (Span::from_millis(5), Span::from_millis(100));

/// The bounds of that interval: below a millisecond a poll follows the other, and past a minute people
/// think that the relay has stopped.
pub const POLL_INTERVAL_MIN: Span = Span::from_millis(1);
/// See [`POLL_INTERVAL_MIN`].
pub const POLL_INTERVAL_MAX: Span = Span::from_mins(1);

/// How long a source that wakes the relay is left alone: what a notification that was lost costs.
pub const NOTIFY_INTERVAL: Duration = Duration::from_secs(1);

/// Longest name of a table, column, slot or publication, in bytes, as PostgreSQL has it.
pub const IDENTIFIER_LEN_MAX: usize = 63;

/// Longest SQL expression in place of a column, in bytes.
pub const EXPRESSION_LEN_MAX: usize = 1_000;

/// Most sources of one server: each has a task and two connections.
pub const SOURCES_MAX: usize = 100;

/// Rows up to which a scan takes what is new without a transaction: more are read through a cursor.
pub(crate) const NEAR_ROWS_MAX: usize = 1_000;

/// Row numbers that are fetched from a cursor at once: a megabyte of them.
pub(crate) const CURSOR_ROWS: usize = 10_000;

/// Most rows of one pass through a table, and how long it may take: its snapshot keeps the source's
/// vacuum from removing dead rows.
pub(crate) const PASS_ROWS_MAX: usize = 100_000;
pub(crate) const PASS_TIME_MAX: Duration = Duration::from_secs(10);

/// How often a scan goes through everything: a row that a person restored from a dump carries the number of a
/// transaction long past.
pub(crate) const FULL_SCAN_EVERY: Duration = Duration::from_mins(10);

/// How long the lease of a source lasts. A reader that vanished costs as much.
pub(crate) const LEASE_LENGTH: Span = Span::from_secs(5);

/// After how long a lease is renewed, and people's commands are noticed: three tries before it ends.
pub(crate) const LEASE_RENEW_AFTER: Duration = Duration::from_millis(1_500);

/// How long before its end a lease counts as lost: the store's clock may run faster than ours.
pub(crate) const LEASE_MARGIN: Duration = Duration::from_millis(500);

/// How long a source in trouble is left alone: the first time and at most.
pub(crate) const BACK_OFF_MIN: Duration = Duration::from_millis(100);
pub(crate) const BACK_OFF_MAX: Duration = Duration::from_secs(15);

/// How long a source that another process reads is left alone at most: what it costs if that one stops.
pub(crate) const STANDBY_RETRY_MAX: Duration = Duration::from_secs(2);

/// How long the session that holds a source's lock may be without a statement before the server ends it, unless
/// polls are further apart: what a process that was stopped costs. Storing a batch takes less.
pub(crate) const READER_IDLE_MAX: Duration = Duration::from_secs(15);

/// How long to wait for a connection to a source.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a statement at a source may run: a scan through millions of dead rows takes seconds.
pub(crate) const STATEMENT_TIMEOUT: Duration = Duration::from_secs(60);

/// How long a statement at a source may wait for a lock.
pub(crate) const LOCK_TIMEOUT: Duration = Duration::from_secs(10);

/// Parked rows that are handed over again together.
pub(crate) const RELEASE_ROWS: u32 = 500;

/// Longest refusal that is kept, in bytes.
pub(crate) const REASON_LEN_MAX: usize = railpost_store::limits::REFUSAL_REASON_LEN_MAX;

/// Longest text field of a row that is too large to be kept, in bytes: longer than any field of an event may be.
pub(crate) const CUT_FIELD_LEN: usize = 4 * 1024;

/// Most bytes of payloads that are handed over together: half of what one accept may bring, because rows are only
/// measured when they are read.
pub(crate) const HAND_OVER_BYTES: usize = railpost_store::limits::BATCH_BYTES_MAX / 2;

/// Rows that are fetched at once when the whole table of a tailed source is read: with the largest
/// payloads 100 MiB.
pub(crate) const TABLE_READ_ROWS: usize = 100;

/// How often the reader of a log looks up from it, to renew its lease.
pub(crate) const TAIL_TICK: Duration = Duration::from_millis(500);

/// How often rows that the log has told of are removed from their table, unless there is a batch of them.
pub(crate) const REMOVE_EVERY: Duration = Duration::from_millis(100);

/// How often a position is noted and confirmed while rows come: what a crash costs in rows that are read
/// twice.
pub(crate) const CONFIRM_EVERY: Duration = Duration::from_secs(1);

/// How often a position is noted and confirmed while no rows come, so that the server can remove its
/// log, and how often the slot is looked at.
pub(crate) const IDLE_CONFIRM_EVERY: Duration = Duration::from_secs(10);

/// How long a new slot waits for transactions that are open already.
pub(crate) const SLOT_WAIT_MAX: Duration = Duration::from_secs(10);

/// When a row is looked for that the log has told of and that is not in its table: the first time and
/// the last, each time four times as long after the one before. A commit that waits for a standby is in
/// the log before it is seen.
pub(crate) const MISSING_WAIT_MIN: Duration = Duration::from_millis(5);
pub(crate) const MISSING_WAIT_MAX: Duration = Duration::from_secs(60);
