//! Every bound of the PostgreSQL store, each with its reason. Those of all stores are in
//! [`railpost_store::limits`].

use railpost_engine::Span;

/// Connections for reading; each carries several statements at once.
pub(crate) const POSTGRES_READERS: usize = 3;

/// Rows of a list that are fetched at once when most of them may not be wanted.
pub(crate) const LIST_SCAN_CHUNK: u32 = 1_000;

/// How long to wait for a connection before the server counts as gone.
pub(crate) const CONNECT_TIMEOUT: Span = Span::from_secs(2);

/// How long a statement may run, or wait for a lock, or a transaction may wait for its client: a little
/// less than a caller waits, so that a statement without a caller ends by itself.
pub(crate) const STATEMENT_TIMEOUT: Span = Span::from_millis(4_500);

/// After how long a connection that says nothing is asked whether it is there, how long each answer is
/// waited for, and how often it is asked: a machine that vanished is noticed within 15 seconds, and its
/// lock is free then.
pub(crate) const KEEPALIVE_IDLE: Span = Span::from_secs(5);
pub(crate) const KEEPALIVE_INTERVAL: Span = Span::from_secs(2);
pub(crate) const KEEPALIVE_RETRIES: u32 = 5;

/// How long a starting server waits for the lock of one that is just stopping.
pub(crate) const LOCK_TIMEOUT: Span = Span::from_secs(1);

/// Records that are answered and may not be on disk yet: they are kept, to be written again if the
/// server crashes. When there are so many or they are so old, the next ones wait for the disk.
pub(crate) const UNFLUSHED_CALLS_MAX: usize = 4_096;
pub(crate) const UNFLUSHED_BYTES_MAX: usize = 8 * 1024 * 1024;
pub(crate) const UNFLUSHED_AGE_MAX: Span = Span::from_secs(5);

/// How long a server that could not be reached is left alone: callers hear so at once meanwhile.
pub(crate) const RECONNECT_AFTER: Span = Span::from_millis(200);

/// How often a group is tried when another node's group got in its way.
pub(crate) const COLLISIONS_MAX: usize = 10;

/// After how long a tenant's open deliveries are counted again: other nodes change them too.
pub(crate) const BACKLOG_RECOUNT: Span = Span::from_secs(30);

/// How long a count is good enough to refuse by.
pub(crate) const BACKLOG_REFUSE_WITHIN: Span = Span::from_secs(1);
