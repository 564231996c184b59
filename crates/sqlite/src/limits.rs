//! Every bound of the SQLite store, each with its reason. Those of all stores are in
//! [`railpost_store::limits`].

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
pub(crate) const PROBLEMS_LISTED_MAX: usize = 10;
