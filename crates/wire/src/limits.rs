//! Every bound of the wire, with its reason. Both sides must know them, so they are public.

use std::time::Duration;

/// Longest tenant id or producer-chosen event id, in bytes: room for a UUID with a prefix, and short
/// enough for a header, a log line and an index key.
pub const ID_LEN_MAX: usize = 64;

/// Longest event type, in bytes: reverse-DNS names with a few segments fit well.
pub const EVENT_TYPE_LEN_MAX: usize = 128;

/// Longest ordering key, in bytes of UTF-8. Three times as long when percent-encoded in a header,
/// which still leaves room within the 8 KiB that receivers commonly grant all headers together.
pub const KEY_LEN_MAX: usize = 256;

/// Largest payload, in bytes. Webhook receivers commonly refuse more than a megabyte, and a group
/// commit must not wait for one event.
pub const PAYLOAD_LEN_MAX: usize = 1024 * 1024;

/// Longest traceparent, in bytes: version 00 has 55, and later versions may append.
pub const TRACEPARENT_LEN_MAX: usize = 128;

/// Longest id of a line, in bytes: two 64-bit numbers in any notation, and short enough for an index key.
pub const LINE_ID_LEN_MAX: usize = 64;

/// Largest seq: what a signed 64-bit column holds.
pub const SEQ_MAX: u64 = i64::MAX as u64;

/// How many characters of a refused value an error shows: enough to recognise it in a log, too few
/// to flood one.
pub const SHOWN_CHARS_MAX: usize = 48;

/// Longest content type, in bytes: a type, a subtype and a few parameters.
pub const CONTENT_TYPE_LEN_MAX: usize = 256;

/// Longest name that an endpoint may give a header, in bytes: longer ones are mistakes.
pub const HEADER_NAME_LEN_MAX: usize = 64;

/// Fewest bytes of a shared secret, as Standard Webhooks has it: 192 bits.
pub const SECRET_LEN_MIN: usize = 24;

/// Most bytes of a shared secret, as Standard Webhooks has it: one block of SHA-256.
pub const SECRET_LEN_MAX: usize = 64;

/// Most entries of a signature header. A rotation needs two or three; each costs a receiver time
/// before it knows who is asking.
pub const SIGNATURES_MAX: usize = 32;

/// How far a timestamp may be off, to either side: room for skewed clocks and slow networks, and
/// short enough that a captured request is soon worthless.
pub const TOLERANCE_DEFAULT: Duration = Duration::from_secs(5 * 60);

/// Longest wait a `Retry-After` can ask for: beyond any retry policy, and far from what would
/// overflow when added to a clock.
pub const RETRY_AFTER_MAX: Duration = Duration::from_secs(366 * 24 * 60 * 60);

/// Longest name of a CloudEvents extension attribute, in bytes. The standard recommends 20 at most.
pub const ATTRIBUTE_NAME_LEN_MAX: usize = 64;

/// Longest value of a CloudEvents attribute, in bytes: a long URL fits, and a header can carry it.
pub const ATTRIBUTE_LEN_MAX: usize = 2048;

/// Most extension attributes of a CloudEvent: what servers commonly accept as headers.
pub const EXTENSIONS_MAX: usize = 64;

/// Most events of a CloudEvents batch: what one group commit should hold.
pub const BATCH_EVENTS_MAX: usize = 1000;

/// Longest summary of a notice, in characters: what PagerDuty takes.
pub const SUMMARY_CHARS_MAX: usize = 1024;

/// Longest `dedup_key`, in characters: what PagerDuty takes.
pub const DEDUP_KEY_CHARS_MAX: usize = 255;

/// Longest `routing_key`, in bytes. PagerDuty's have 32; those of services that speak its format may be longer.
pub const ROUTING_KEY_LEN_MAX: usize = 128;

/// Largest request that PagerDuty takes, in bytes.
pub const PAGERDUTY_LEN_MAX: usize = 512 * 1024;

/// Most bytes of a notice's details, as JSON: well below what PagerDuty takes in all.
pub const NOTICE_DETAILS_LEN_MAX: usize = 256 * 1024;

/// Longest text of a Slack section, in characters.
pub const SLACK_SECTION_CHARS_MAX: usize = 3000;

/// Largest message that a Teams workflow takes, in bytes.
pub const TEAMS_LEN_MAX: usize = 28 * 1024;

/// Longest fact of a notice, such as the URL of its endpoint, in characters: a line or two on a screen.
pub const NOTICE_FACT_CHARS_MAX: usize = 256;

/// Most links of a notice. Slack takes 25 buttons, Teams shows six.
pub const NOTICE_LINKS_MAX: usize = 4;

/// Longest URL of a notice's link, in bytes. Slack takes 3,000.
pub const NOTICE_LINK_LEN_MAX: usize = 1024;

/// Longest text of a notice's link, in characters: what a Slack button takes.
pub const NOTICE_LINK_TEXT_CHARS_MAX: usize = 75;

/// Longest template, in bytes: a mail in HTML fits.
pub const TEMPLATE_LEN_MAX: usize = 16 * 1024;

/// Most places of a template that are filled.
pub const TEMPLATE_PLACES_MAX: usize = 64;

/// Longest value in a template's place, in characters, so that the body stays within about a megabyte.
pub const TEMPLATE_VALUE_CHARS_MAX: usize = 4096;
