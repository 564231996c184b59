//! Every bound of the receiver, with its reason.

use std::time::Duration;

/// Largest body that is read, in bytes, unless the service says otherwise: what senders commonly allow
/// an event, and little enough that a hundred at once do no harm.
pub const BODY_LEN_MAX: usize = 1024 * 1024;

/// How long event ids are remembered by default. A sender retries for three days; people replay what
/// they find in a dead-letter list after a weekend or a holiday.
pub const RETENTION_DEFAULT: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// What is added to a sender's horizon: clocks differ, and the last attempt may be slow.
pub const RETENTION_MARGIN: Duration = Duration::from_secs(24 * 60 * 60);

/// How many times longer than ids the last seq of a line is remembered: it is what tells an old event
/// from a new one after its id is forgotten, and there is only one per line.
pub const LINE_RETENTION_FACTOR: u32 = 12;

/// Most rows that one step of pruning removes: a few milliseconds' work, so that no lock is held long.
pub const PRUNE_STEP: u32 = 1_000;

/// Most event ids that a memory inbox holds: about 200 MB. Beyond that the oldest are forgotten first.
pub const MEMORY_IDS_MAX: usize = 1_000_000;

/// How long a gap holds its line off by default: a few attempts of the sender. Whatever a network
/// overtook has come by then; what is still missing was acknowledged once, and forgotten here.
pub const GAP_TIMEOUT_DEFAULT: Duration = Duration::from_secs(60);

/// How long an open gap is remembered: as long as a sender tries one delivery, so that it is
/// still known at the last attempt, however far apart attempts are.
pub const OPEN_GAP_RETENTION: Duration = Duration::from_secs(72 * 60 * 60);

/// Most open gaps that a process remembers: about 2 MB. A receiver with more of them has forgotten
/// everything, and they wait together.
pub const OPEN_GAPS_MAX: usize = 10_000;

/// How long a claim in Redis outlives a process that died with it: longer than a sender waits for an
/// answer, so that no live claim is taken away.
pub const CLAIM_LEASE: Duration = Duration::from_secs(60);

/// How long a request waits for a connection of a pool: less than a sender waits for an answer, so that it
/// is told to come again rather than left hanging.
pub const POOL_WAIT_MAX: Duration = Duration::from_secs(5);

/// Most jobs that a queue holds before it answers 429: minutes of work, not days of it.
pub const BACKLOG_MAX: u32 = 10_000;

/// What a full queue asks the sender to wait: long enough to work off a good part of the backlog.
pub const FULL_RETRY_AFTER: Duration = Duration::from_secs(5);

/// Tries of one job before it becomes a dead letter: with the delays below, about twenty minutes.
pub const TRIES_MAX: u32 = 10;

/// The delay after a job's first failed try; it doubles with each further one.
pub const TRY_DELAY_BASE: Duration = Duration::from_secs(1);

/// The longest delay between tries of a job.
pub const TRY_DELAY_MAX: Duration = Duration::from_secs(5 * 60);

/// Most characters of a failed job's error that are kept: enough to see the cause.
pub const ERROR_CHARS_MAX: usize = 500;

/// Most dead letters of a listing: what a person looks at.
pub const DEAD_LISTED_MAX: u32 = 100;

/// Most headers that a delivery keeps beside its body: the content type, and those of a CloudEvent.
pub const HEADERS_KEPT_MAX: usize = 80;

/// Most accepted gaps of a listing, and most that a memory inbox keeps: what a person looks at.
pub const GAPS_LISTED_MAX: u32 = 100;
