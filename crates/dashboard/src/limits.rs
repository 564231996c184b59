//! Every bound in the dashboard, with its reason.

use railpost_engine::Span;

/// How long a dashboard session lasts without a request: a working day's pause.
pub const SESSION_IDLE_MAX: Span = Span::from_hours(8);
/// How long a dashboard session lasts at all.
pub const SESSION_AGE_MAX: Span = Span::from_days(7);
/// Dashboard sessions at once: past it the one that was idle longest ends.
pub const SESSIONS_MAX: usize = 10_000;

/// How long a sign-in link opens the dashboard: long enough to click on it.
pub const SIGN_IN_LINK_TTL: Span = Span::from_mins(15);
/// Sign-in links that are open at once.
pub const SIGN_IN_LINKS_MAX: usize = 100;
/// Sign-ins that may fail from one address with keys that begin alike, within [`SIGN_IN_WINDOW`]: a person mistypes a
/// few times.
pub const SIGN_IN_FAILURES_MAX: u32 = 10;
/// See [`SIGN_IN_FAILURES_MAX`].
pub const SIGN_IN_WINDOW: Span = Span::from_mins(5);
/// Addresses whose failed sign-ins the audit trail tells of together.
pub const SIGN_IN_ADDRESSES_MAX: usize = 10_000;
/// Addresses and beginnings of keys whose failed sign-ins are remembered at once.
pub const SIGN_IN_FAILURES_REMEMBERED_MAX: usize = 10_000;
/// Characters by which keys that begin alike are told: `rp_` and 8 more. They are 48 of a key's 256 random bits.
pub const SIGN_IN_PREFIX_LEN: usize = 11;

/// Bytes of a dashboard form: an endpoint with its filters many times over.
pub const FORM_LEN_MAX: usize = 256 * 1024;

/// Audit entries of failed sign-ins within [`SIGN_IN_WINDOW`], from all addresses: guessing keys does
/// not fill the trail. Failures without an entry are counted in the next one.
pub const SIGN_IN_FAILURE_ENTRIES_MAX: u32 = 20;

/// Rows of a dashboard table's page.
pub const TABLE_ROWS_MAX: u32 = 50;
/// Open lanes that the live page shows: what one scrolls through.
pub const LANES_SHOWN_MAX: u32 = 50;
/// Held lanes of which the live page has the cause: what one page of the API holds.
pub const HELD_LANES_MAX: u32 = 500;
/// Lanes without anything open that the live page shows below them.
pub const FINISHED_LANES_SHOWN_MAX: usize = 12;
/// Deliveries of one lane that the live page draws; of the rest it says how many there are.
pub const LANE_DELIVERIES_SHOWN_MAX: usize = 8;
/// Newest deliveries that the live page of lanes looks at, for what landed.
pub const LIVE_DELIVERIES_MAX: u32 = 200;
/// Attempts of an endpoint that its page shows.
pub const LATEST_ATTEMPTS_MAX: u32 = 10;
/// Attempts of a delivery that its page shows.
pub const DELIVERY_ATTEMPTS_MAX: u32 = 100;
/// Open alerts that a page shows: what one page of the API holds.
pub const OPEN_ALERTS_SHOWN_MAX: u32 = 500;
/// How soon a live part is drawn again after a change: people see it as immediate.
pub const LIVE_EVERY_MIN: Span = Span::from_millis(400);
/// How seldom a live part that does not change is drawn: people wait that long without a thought.
pub const LIVE_EVERY_MAX: Span = Span::from_secs(2);
/// How often a stream that is silent says that it is there. The script takes 40 s of silence for a lost contact.
pub const LIVE_ALIVE_EVERY: Span = Span::from_secs(15);
/// Live pages at once: each costs a few look-ups per drawing. Hidden pages are not live.
pub const LIVE_PAGES_MAX: usize = 128;
/// Tenants among which an admin may choose.
pub const TENANTS_SHOWN_MAX: u32 = 500;
