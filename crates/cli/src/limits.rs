//! Every bound in the command line, with its reason.

use railpost_engine::Span;

/// Bytes of an event's payload that a server takes.
pub const PAYLOAD_LEN_MAX: usize = 1024 * 1024;

/// Bytes of one line of an event stream: a payload and what is around it.
pub const STREAM_LINE_LEN_MAX: usize = PAYLOAD_LEN_MAX + 16 * 1024;

/// How long a sender may take to send a request's head to `railpost listen`.
pub const LISTEN_HEAD_TIMEOUT: Span = Span::from_secs(10);
/// How long a retry of a parked row waits to hear what became of it. A source that is read takes it within
/// milliseconds.
pub const PARKED_RETRY_WAIT: Span = Span::from_secs(5);
/// Tries of a request to which no connection comes about.
pub const REQUEST_TRIES_MAX: u32 = 3;
/// The wait before the second try; each further wait is twice as long.
pub const REQUEST_RETRY_DELAY: Span = Span::from_millis(100);
/// How long the command line waits for an answer: a backup of a large store takes its time.
pub const REQUEST_TIMEOUT: Span = Span::from_mins(10);
/// The shortest time between two backups of `railpost backup --every`: their names are times.
pub const BACKUP_EVERY_MIN: Span = Span::from_secs(1);
/// Most backups that `railpost backup --keep` keeps: as many as a server does.
pub const BACKUPS_KEPT_MAX: u32 = 1_000;
/// How soon `railpost backup --every` tries again after a backup failed: a server that restarts is back by then.
pub const BACKUP_RETRY_DELAY: Span = Span::from_mins(1);
/// Bytes of an answer that the command line takes: a page of the largest items.
pub const ANSWER_LEN_MAX: u64 = 256 * 1024 * 1024;
/// Bytes that the command line reads from a file or stdin at once: what a request may hold.
pub const INPUT_LEN_MAX: u64 = 20 * 1024 * 1024;
/// Characters from which on a server finds an id by its beginning.
pub const FIND_ID_LEN_MIN: usize = 6;
/// Most things of one kind that a server finds: with as many there may be more.
pub const FIND_RESULTS_MAX: usize = 20;
/// Events that `railpost send` puts into one request.
pub const SEND_BATCH_LEN: usize = 500;
/// Bytes of a delivery's body that `railpost listen` takes: more than any event has.
pub const LISTEN_BODY_LEN_MAX: usize = 2 * PAYLOAD_LEN_MAX;
/// Events, and lanes, that `railpost listen` remembers: past it the oldest are forgotten.
pub const LISTEN_REMEMBERED_MAX: usize = 100_000;
/// Characters of a receiver's answer that are shown below an attempt: enough for an error message.
pub const ANSWER_EXCERPT_CHARS: usize = 600;
