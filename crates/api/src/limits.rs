//! Every bound in the API, with its reason.

use railpost_engine::Span;
use railpost_store::limits::{PARKED_COMMAND_HEADS_MAX, PARKED_ROWS_MAX};

/// Bytes of a request's body that are taken, unless configured otherwise: what one batch of events may
/// hold, and its JSON around it.
pub const BODY_LEN_MAX_DEFAULT: usize = 20 * 1024 * 1024;

/// Bytes of one line of an event stream: a payload and what is around it.
pub const STREAM_LINE_LEN_MAX: usize = railpost_store::limits::PAYLOAD_LEN_MAX + 16 * 1024;

/// Events of a stream that are accepted in one commit: past a few hundred, nothing is gained.
pub const STREAM_GROUP_MAX: usize = 500;

/// Longest path of a backup within its folder, in bytes; file systems take names of 255.
pub const BACKUP_PATH_LEN_MAX: usize = 255;
/// Longest name of a backup or of a folder around it, in bytes: it fits wherever backups are copied to.
pub const BACKUP_NAME_LEN_MAX: usize = 100;
/// Folders around a backup: a year, a month and a day.
pub const BACKUP_FOLDERS_MAX: usize = 3;
/// Longest path of a file with a new master key, in bytes: what file systems take.
pub const KEY_FILE_LEN_MAX: usize = 4_096;
/// Backups of the series that may be kept: hourly ones of six weeks.
pub const BACKUPS_KEPT_MAX: u32 = 1_000;

/// How long an API key that was looked up is believed without asking the store again. Another node's
/// revocation counts after this at the latest; this node's own at once.
pub const KEY_BELIEVED_FOR: Span = Span::from_secs(5);

/// API keys remembered at once: past it the oldest look-ups are forgotten.
pub const KEYS_REMEMBERED_MAX: usize = 10_000;

/// Unknown API keys that are looked up at once: the store has other work.
pub const KEY_LOOK_UPS_AT_ONCE: usize = 4;

/// Unknown API keys that an address may show a second, and how many at once: a person mistypes a few, a new
/// deployment with an old key shows the same one again and again, which is looked up once.
pub const UNKNOWN_KEYS_PER_SECOND: u32 = 10;
/// See [`UNKNOWN_KEYS_PER_SECOND`].
pub const UNKNOWN_KEYS_BURST: u32 = 100;
/// Unknown API keys that are remembered at once, for [`KEY_BELIEVED_FOR`].
pub const UNKNOWN_KEYS_REMEMBERED_MAX: usize = 10_000;
/// Addresses whose unknown API keys are counted at once.
pub const UNKNOWN_KEY_ADDRESSES_MAX: usize = 10_000;

/// How long readiness is believed: each check is a durable write.
pub const READINESS_BELIEVED_FOR: Span = Span::from_secs(1);

/// How long the number of open alerts is believed: every page of the dashboard shows it.
pub const OPEN_ALERTS_BELIEVED_FOR: Span = Span::from_secs(1);

/// Longest silence: what is silent for longer is a rule to switch off.
pub const SILENCE_MAX: Span = Span::from_days(30);

/// How often at most the last use of an API key is written down: it is for people, to the hour.
pub const KEY_TOUCH_EVERY: Span = Span::from_mins(10);

/// Random bytes of an API key, and shortest text of one that an operator chooses, after its prefix.
pub const API_KEY_RANDOM_LEN: usize = 32;
/// See [`API_KEY_RANDOM_LEN`].
pub const API_KEY_CHOSEN_LEN_MIN: usize = 32;
/// Longest API key, in bytes; a longer one is invalid.
pub const API_KEY_LEN_MAX: usize = 256;

/// Characters of a value that an audit entry tells: what a person reads. Of what is longer it has the
/// beginning, the length and a hash.
pub const AUDIT_VALUE_CHARS_MAX: usize = 200;
/// Bytes of the changes that an audit entry tells; of the rest it has the number. The store takes a third
/// more than this.
pub const AUDIT_CHANGES_LEN_MAX: usize = 12 * 1024;

/// How often a command is given again to a delivery whose lane is being loaded, and the first pause in
/// between; each pause is twice as long as the one before, half a second in all. A load takes
/// milliseconds: what takes longer is in trouble, and the client hears so.
pub const COMMAND_RETRIES_MAX: u32 = 8;
/// See [`COMMAND_RETRIES_MAX`].
pub const COMMAND_RETRY_DELAY: Span = Span::from_millis(2);

/// Entries of an event's story: what a person reads, and what an answer holds.
pub const STORY_ENTRIES_MAX: usize = 1_000;
/// Attempts that a story tells, each with its headers and the beginning of its answer.
pub const STORY_ATTEMPTS_MAX: u32 = 300;
/// Deliveries that a story tells of: each is a few look-ups.
pub const STORY_DELIVERIES_MAX: usize = 100;
/// Audit entries about each delivery and endpoint that a story tells.
pub const STORY_AUDIT_MAX: u32 = 50;
/// Replays that a story looks at: a tenant's latest.
pub const STORY_REPLAYS_MAX: u32 = 100;
/// Endpoints of which a story tells why the event did not go there.
pub const STORY_UNMATCHED_MAX: usize = 100;

/// Attempts of an endpoint that are shown, and most that are: each may be a look-up.
pub const ATTEMPTS_SHOWN_DEFAULT: u32 = 20;
/// See [`ATTEMPTS_SHOWN_DEFAULT`].
pub const ATTEMPTS_SHOWN_MAX: u32 = 100;

/// Endpoints to which nothing is sent that a replay names.
pub const REPLAY_WAITS_MAX: usize = 10;

/// Endpoints in need of attention that an overview names: what a person can look at.
pub const ATTENTION_MAX: usize = 100;

/// Fastest rate of a replay, in deliveries a second: past it, no rate is a rate.
pub const REPLAY_RATE_MAX: u32 = 1_000_000;

/// Attempts of a planned schedule that are shown, and most that are: a policy may have this many.
pub const PLANNED_ATTEMPTS_DEFAULT: usize = 20;
/// See [`PLANNED_ATTEMPTS_DEFAULT`].
pub const PLANNED_ATTEMPTS_MAX: usize = 1_000;

/// How long old secrets still sign after a rotation, unless the client says: long enough for a
/// deployment on the receiver's side.
pub const SECRET_OVERLAP_DEFAULT: Span = Span::from_hours(24);
/// Longest overlap: what signs for longer was not exchanged.
pub const SECRET_OVERLAP_MAX: Span = Span::from_days(30);

/// Event types that a tenant may describe: all of those of a tenant that publishes are in memory.
pub const EVENT_TYPES_PER_TENANT_MAX: usize = 1_000;

/// Bytes of all schemas of a tenant: those that are used are in memory, compiled, which takes a few times as
/// much.
pub const SCHEMAS_PER_TENANT_LEN_MAX: usize = 16 * 1024 * 1024;

/// Bytes of one warning in a receipt. Names out of the payload stand in it, and they may be long.
pub const WARNING_LEN_MAX: usize = 256;

/// How long what metrics say of the store is believed: counting it again for every reader costs.
pub const METRICS_SAMPLE_BELIEVED_FOR: Span = Span::from_secs(5);

/// Commands of the store by which all parked rows are retried: they reach as many rows as can be parked. Without a
/// bound, rows that are refused again meanwhile keep the request going for ever.
pub(crate) const RETRY_ALL_ROUNDS_MAX: u64 = PARKED_ROWS_MAX / PARKED_COMMAND_HEADS_MAX as u64;

/// Incidents that a report lists: as many as one page of a list has.
pub(crate) const REPORT_INCIDENTS_MAX: u32 = 200;

/// Endpoints or tenants that a report lists.
pub(crate) const REPORT_PARTS_MAX: usize = 1_000;
