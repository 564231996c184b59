//! Every bound in the store, with its reason.

use railpost_engine::Span;

/// Largest payload, in bytes. Webhook receivers commonly refuse more than a megabyte, and a group
/// commit must not wait for one event.
pub const PAYLOAD_LEN_MAX: usize = 1024 * 1024;

/// Most events that one call may bring: what one group commit should hold.
pub const BATCH_EVENTS_MAX: usize = railpost_wire::limits::BATCH_EVENTS_MAX;

/// Most payload bytes that one call may bring: a batch of full payloads has to come in pieces, so
/// that a group stays in memory.
pub const BATCH_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Most records in one call: what one group commit should hold.
pub const BATCH_RECORDS_MAX: usize = 10_000;

/// Most deliveries asked for in one call for what has to be sent: with the largest payload a
/// thousand of them are a gigabyte, so callers ask for what they are about to send.
pub const PARCELS_MAX: usize = 1_000;

/// Most open deliveries of one tenant, unless the tenant's own limit is lower: past it, a producer
/// hears so instead of filling the disk.
pub const BACKLOG_MAX: u64 = 10_000_000;

/// Longest `id` of a CloudEvent, in bytes: a path of ordinary length.
pub const CLOUDEVENT_ID_LEN_MAX: usize = 256;

/// Longest `source` and `dataschema` of a CloudEvent, in bytes: a URL of ordinary length.
pub const CLOUDEVENT_URI_LEN_MAX: usize = 2_048;

/// Longest `subject` of a CloudEvent beside a partition key, in bytes: a URL of ordinary length.
pub const CLOUDEVENT_SUBJECT_LEN_MAX: usize = 2_048;

/// Most extensions of a CloudEvent: each is a header in binary mode, and receivers commonly take a hundred
/// headers in all.
pub const CLOUDEVENT_EXTENSIONS_MAX: usize = 32;

/// Most bytes of a CloudEvent's extensions, names and values together: half of the 8 KiB that receivers
/// commonly grant all headers.
pub const CLOUDEVENT_EXTENSION_BYTES_MAX: usize = 4_096;

/// Longest traceparent, in bytes: version 00 has 55, and later versions may append.
pub const TRACEPARENT_LEN_MAX: usize = 128;

/// Longest URL of an endpoint, in bytes: what browsers, proxies and servers commonly accept.
pub const URL_LEN_MAX: usize = 2048;

/// Longest name or description that a person gives something, in bytes.
pub const TEXT_LEN_MAX: usize = 1024;

/// Most event-type filters of one endpoint: each is tried for each event.
pub const FILTERS_MAX: usize = 100;

/// Most custom headers of one endpoint; receivers commonly grant 100 headers in all.
pub const HEADERS_MAX: usize = 32;

/// Longest value of a custom header, in bytes: a token fits, and receivers commonly grant 8 KiB for
/// all headers together.
pub const HEADER_VALUE_LEN_MAX: usize = 4096;

/// Longest certificate chain or private key in PEM, in bytes.
pub const PEM_LEN_MAX: usize = 64 * 1024;

/// Most secrets of one endpoint: all that are active sign each attempt.
pub const SECRETS_MAX: usize = 16;

/// Largest JSON Schema, in bytes; all versions of one event type together may have ten of these.
pub const SCHEMA_LEN_MAX: usize = 256 * 1024;

/// Most versions of one event type's schema.
pub const SCHEMA_VERSIONS_MAX: usize = 100;

/// Longest idempotency key, owner or route, in bytes.
pub const IDEMPOTENCY_TEXT_LEN_MAX: usize = 256;

/// Largest stored response, in bytes. The largest that is given answers a full batch of events: of each its ids
/// and as many warnings as are told, at their longest and with every character escaped, some 20 MB in all.
pub const IDEMPOTENCY_BODY_LEN_MAX: usize = 32 * 1024 * 1024;

/// Largest detail of an audit entry, in bytes of JSON.
pub const AUDIT_DETAIL_LEN_MAX: usize = 16 * 1024;

/// Most writes in one change: an endpoint with its secrets, not a migration.
pub const CHANGE_WRITES_MAX: usize = 100;

/// Most replays of one tenant that run or wait for their turn: they run one after the other, so more would
/// only wait longer.
pub const REPLAYS_RUNNING_PER_TENANT_MAX: usize = 10;

/// The same for all tenants together: each tenant's first one competes with what is delivered anyway. It is
/// many times what one tenant may have, so that no single tenant can fill it.
pub const REPLAYS_RUNNING_MAX: usize = 20 * REPLAYS_RUNNING_PER_TENANT_MAX;

/// Deliveries that the preview of a dry run names: what a person looks through.
pub const REPLAY_PREVIEW_MAX: usize = 20;

/// Most entries of figures in one call: each is two rows to read and write, and all of them hold up
/// a group of accepts by some ten milliseconds.
pub const FIGURES_BATCH_MAX: usize = 1_000;

/// Largest HTTP status that figures are kept by: more have no meaning.
pub const FIGURES_STATUS_MAX: u16 = 999;

/// Most kinds of failure in one entry of figures: there are a dozen.
pub const FIGURES_FAILURES_MAX: usize = 64;

/// Longest name of a kind of failure, in bytes.
pub const FIGURES_FAILURE_LEN_MAX: usize = 64;

/// Most minutes or hours of figures in one answer: all that is kept, and room for what is not pruned
/// yet.
pub const FIGURES_BUCKETS_MAX: usize = 2_000;

/// How long figures by the minute are kept: a chart of a whole day, and an hour until it is pruned.
pub const FIGURES_MINUTES_KEPT: Span = Span::from_hours(25);

/// How long figures by the hour are kept: a month and what came before it, to compare with.
pub const FIGURES_HOURS_KEPT: Span = Span::from_days(40);

/// Largest excerpt of a response's body that is kept with its attempt, in bytes. A longer one is cut.
pub const RESPONSE_BODY_LEN_MAX: usize = 4096;

/// Most bytes of response headers, names and values together, that are kept with their attempt. What
/// passes it is left out.
pub const RESPONSE_HEADERS_LEN_MAX: usize = 4096;

/// Longest words for why an attempt got no answer, in bytes. Longer ones are cut.
pub const ATTEMPT_MESSAGE_LEN_MAX: usize = 1024;

/// Most items of one page of a list.
pub const LIST_LIMIT_MAX: u32 = 500;

/// Most rows that one page of a filtered list may look at. A page that reaches it comes short, with
/// a cursor to go on from: a rare filter costs several calls, never a long one.
pub const LIST_SCAN_MAX: u32 = 20_000;

/// Most lanes or deliveries of one load.
pub const LOAD_LIMIT_MAX: u32 = 10_000;

/// Most deliveries that one sweep lists.
pub const SWEEP_MAX: u32 = 10_000;

/// Most events that one step of pruning or erasing may look at: it holds up a group of accepts by
/// milliseconds.
pub const UPKEEP_STEP_MAX: u32 = 1_000;

/// Most figures of one resolution that one step of pruning deletes. They lie together, so it is
/// quick; a thousand endpoints bring a thousand rows a minute, so it has to be more than a step's.
pub(crate) const FIGURES_PRUNE_MAX: u32 = 5_000;

/// How long a caller waits for its turn with a backend that has stopped answering.
pub const PATIENCE: Span = Span::from_secs(5);

// The SQLite backend's own.

/// Connections for reading. Reads take turns past it; more would compete for the same disk.
pub(crate) const SQLITE_READERS: usize = 4;

/// Page cache of a reader: lists and loads walk, they do not return.
pub(crate) const SQLITE_READER_CACHE_KIB: i64 = 8 * 1024;

/// Bytes of a page in a new file. With 8192 a burst takes 3 % less CPU, and an event at ordinary load writes
/// twice the bytes.
pub(crate) const SQLITE_PAGE_LEN: i64 = 4096;

/// Bytes of an entry of the accept log: one fills a page, so that logging a group writes one page. Entries of
/// all files have this length, whatever their pages have.
pub(crate) const ACCEPT_LOG_ENTRY_LEN: usize = 4_000;

/// Groups in the accept log before it is applied: as many as come between two groups of records at 2,000
/// events/s.
pub(crate) const ACCEPT_LOG_SLOTS: u32 = 256;

/// Page cache of the writer: what every group touches fits many times over. No larger, because SQLite
/// walks all cached pages at the end of a transaction that split one; what is not in it, the
/// operating system has.
pub(crate) const SQLITE_WRITER_CACHE_KIB: i64 = 8 * 1024;

/// Prepared statements kept per connection: there are fewer.
pub(crate) const SQLITE_STATEMENTS_CACHED: usize = 128;

/// Jobs that may wait for the writer. Past it callers wait to be let in.
pub(crate) const QUEUE_MAX: usize = 4096;

/// Most events and records in one group: past it latency grows and nothing is gained.
pub(crate) const GROUP_ITEMS_MAX: usize = 4096;

/// Bytes of payloads and responses from which on a group takes no more jobs: a group is kept in memory,
/// and its last job may bring a whole batch.
pub(crate) const GROUP_BYTES_MAX: usize = BATCH_BYTES_MAX;

/// Jobs in one group from which on the writer has a crowd before it, and expects the next ones to be on
/// their way.
pub(crate) const CROWD_JOBS: usize = 4;

/// How long the writer naps for the rest of a crowd, and how often at most: all of it a fraction of what
/// a commit takes, and every job that comes meanwhile saves its pages a second writing.
pub(crate) const CROWD_NAP: std::time::Duration = std::time::Duration::from_micros(50);
pub(crate) const CROWD_NAPS: u32 = 2;

/// Events and records in one group from which on waiting for more gains little. Few enough that of the producers
/// some wait for this commit and some for the next: if all wait for the same, a processor has nothing to do
/// while the disk is.
pub(crate) const CROWD_ITEMS: usize = 32;

/// Groups that look events up before they insert them, after one was found to have been accepted before:
/// where a producer sends things again there are more of them, and each costs its group a second try.
pub(crate) const LOOKUP_GROUPS: u32 = 64;

/// Rows that one statement adds: as many as most groups bring, so that the rest of a group takes a few runs.
pub(crate) const INSERT_ROWS: [usize; 4] = [64, 16, 4, 1];

/// Bytes of the write-ahead log before it is copied into the file, at full load. Pages that change with
/// every group are then copied once for many changes.
pub(crate) const SQLITE_LOG_LEN_FULL: u32 = 128 * 1024 * 1024;

/// The same for a log that takes longer than [`SQLITE_LOG_AGE_MIN`] to grow to it. Each sync of a log that
/// grows writes the file system's journal too, which is more than an accept has; one that begins again
/// every few seconds has stopped growing soon after the start.
pub(crate) const SQLITE_LOG_LEN_ORDINARY: u32 = 8 * 1024 * 1024;

/// How old a log has to be to count as one of ordinary load.
pub(crate) const SQLITE_LOG_AGE_MIN: std::time::Duration = std::time::Duration::from_secs(1);

/// The part of a full write-ahead log that is left for the writer to copy: an eighth. The rest is copied
/// ahead, by a thread of its own.
pub(crate) const SQLITE_CHECKPOINT_LEFT_SHARE: u32 = 8;

/// Lanes whose last seq the writer remembers, in each of two generations.
pub(crate) const LANES_CACHED: usize = 100_000;

/// Lane ids that the writer takes at once: a count that is written once in so many new lanes.
pub(crate) const LANE_IDS_TAKEN: u64 = 1_024;

/// Lanes that one step of pruning looks at: two reads for each.
pub(crate) const LANES_PRUNED_MAX: usize = 1_000;

/// Problems that a check of the whole file names: a few tell where to look.
pub(crate) const PROBLEMS_TOLD_MAX: usize = 10;

// The PostgreSQL backend's own.

/// Connections for reading; each carries several statements at once.
pub(crate) const POSTGRES_READERS: usize = 3;

/// Rows of a list that are fetched at once when most of them may not be wanted.
pub(crate) const LIST_SCAN_CHUNK: u32 = 1_000;

/// How long to wait for a connection before the server counts as gone.
pub(crate) const CONNECT_PATIENCE: Span = Span::from_secs(2);

/// How long a statement may run, or wait for a lock, or a transaction may wait for its client: a little
/// less than a caller waits, so that what nobody waits for ends by itself.
pub(crate) const STATEMENT_PATIENCE: Span = Span::from_millis(4_500);

/// After how long a connection that says nothing is asked whether it is there, how long each answer is
/// waited for, and how often it is asked: a machine that vanished is noticed within 15 seconds, and its
/// lock is free then.
pub(crate) const KEEPALIVE_IDLE: Span = Span::from_secs(5);
pub(crate) const KEEPALIVE_INTERVAL: Span = Span::from_secs(2);
pub(crate) const KEEPALIVE_RETRIES: u32 = 5;

/// How long a starting server waits for the lock of one that is just stopping.
pub(crate) const LOCK_PATIENCE: Span = Span::from_secs(1);

/// Records that are answered and may not be on disk yet: they are kept, to be written again if the
/// server crashes. When there are so many or they are so old, the next ones wait for the disk.
pub(crate) const UNFLUSHED_CALLS_MAX: usize = 4_096;
pub(crate) const UNFLUSHED_BYTES_MAX: usize = 8 * 1024 * 1024;
pub(crate) const UNFLUSHED_AGE_MAX: Span = Span::from_secs(5);

/// How long a server that could not be reached is left alone: callers hear so at once meanwhile.
pub(crate) const RECONNECT_AFTER: Span = Span::from_millis(200);

/// How often a group is tried when another node's group got in its way.
pub(crate) const COLLISIONS_MAX: usize = 10;

/// After how long a tenant's open deliveries are counted anew: other nodes change them too.
pub(crate) const BACKLOG_RECOUNT: Span = Span::from_secs(30);

/// How long a count is good enough to refuse by.
pub(crate) const BACKLOG_REFUSE_WITHIN: Span = Span::from_secs(1);

/// Random bytes that a thread fetches at once: enough for a few dozen ids, few enough to be near.
pub(crate) const RANDOM_AHEAD: usize = 512;
