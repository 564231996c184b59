//! Every bound in the engine, with its reason.

use crate::{Span, Timestamp};

/// Longest wait between two attempts. Beyond a month the reason for the event is forgotten.
pub const RETRY_DELAY_MAX: Span = Span::from_days(30);

/// Longest time to keep trying one delivery: long enough for a season-end freeze.
pub const TTL_MAX: Span = Span::from_days(90);

/// Most attempts for one delivery: a retry a minute for a week.
pub const ATTEMPTS_MAX: u32 = 10_000;

/// Most entries in an explicit retry schedule; a person has to read it.
pub const SCHEDULE_LEN_MAX: usize = 100;

/// Most statuses an endpoint may reclassify: there are no more (100 to 599).
pub const OVERRIDES_MAX: usize = 500;

/// A `Retry-After` of zero would make a busy loop of a polite refusal.
pub const RETRY_AFTER_MIN: Span = Span::from_secs(1);

/// Most attempts under way at one endpoint.
pub const ENDPOINT_IN_FLIGHT_MAX: u32 = 10_000;

/// Most attempts under way in one engine: a socket each.
pub const ENGINE_IN_FLIGHT_MAX: u32 = 100_000;

/// Most tokens a rate limit may grant per period, and most it may save up. With [`RATE_PERIOD_MAX`]
/// it keeps a bucket's level far inside 64 bits.
pub const RATE_COUNT_MAX: u32 = 1_000_000;

/// Longest period of a rate limit.
pub const RATE_PERIOD_MAX: Span = Span::from_days(1);

/// The breaker's memory is one machine word: an outcome a bit.
pub const BREAKER_WINDOW_MAX: u32 = 64;

/// Longest the breaker stays open between two probes.
pub const BREAKER_OPEN_MAX: Span = Span::from_days(1);

/// Most lanes that may fail for good before their endpoint is quarantined.
pub const QUARANTINE_AFTER_MAX: u32 = 1_000;

/// Longest an endpoint may fail before it is disabled.
pub const DISABLE_AFTER_MAX: Span = Span::from_days(90);

/// How long failures must last before "failing since" is worth writing down: a single failure
/// between two successes should cost no write.
pub const FAILING_RECORD_AFTER: Span = Span::from_mins(1);

/// How long after a rotation 401 and 403 are retried: time enough to hand a new secret to a receiver.
pub const ROTATION_LENIENCY: Span = Span::from_hours(1);

/// Deliveries a lane asks for at once.
pub const LANE_WINDOW_MAX: u32 = 1_000;

/// Open lanes that one question looks at to find those that wait longest: as many as take some 10 milliseconds, in
/// which nothing is sent. Their counts are kept and need no look.
pub const LANES_LOOKED_AT_MAX: usize = 50_000;

/// Deliveries that come forward in one batch, the oldest first: enough that those of a few thousand lanes which
/// were accepted together start together, and sorted within a millisecond.
pub const READY_BATCH_MAX: usize = 16_384;

/// Deliveries whose order of starting is fixed: with fewer than these, the next batch comes forward. As many as are
/// worth fetching ahead of their turn.
pub const READY_QUEUE_MIN: usize = 1_024;

/// Unkeyed deliveries that are due within this time are loaded ahead, so that they start on time.
pub const DUE_LOOKAHEAD: Span = Span::from_secs(10);

/// How long to wait before asking again when a load failed or brought nothing new.
pub const LOAD_RETRY: Span = Span::from_secs(1);

/// Lanes, and unkeyed deliveries, of one endpoint that are remembered by id to tell a new hint from a
/// repeated one: more than group commits of many producers shuffle.
pub const SEEN_IDS_MAX: usize = 256;

/// The latest instant the engine believes: the end of the year 9999. A clock beyond it is broken, and
/// from here every wait still ends later than it began.
pub const TIME_MAX: Timestamp = Timestamp::from_millis(253_402_300_799_999);
