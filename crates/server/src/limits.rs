//! Every bound in the server, with its reason.

use railpost_engine::Span;

/// Bytes of a request's head, and header fields in it: what browsers and proxies send fits many
/// times over.
pub const REQUEST_HEAD_LEN_MAX: usize = 32 * 1024;
/// See [`REQUEST_HEAD_LEN_MAX`]. It is hyper's own bound: told to it, it would make room for as many with every
/// request.
pub const REQUEST_HEADERS_MAX: usize = 100;

/// Bytes of a head of HTTP/2 that are read: a head that is larger than one may be, but fits, is told so in the words
/// of a problem; of a larger one the client hears the status alone.
pub(crate) const HTTP2_HEAD_LEN_MAX: u32 = 4 * REQUEST_HEAD_LEN_MAX as u32;

/// Characters of the token for the metrics: enough to be out of reach of guesses.
pub(crate) const TOKEN_LEN_MIN: usize = 16;
/// See [`TOKEN_LEN_MIN`].
pub(crate) const TOKEN_LEN_MAX: usize = 256;

/// Bytes that are read at once to find out which HTTP a client speaks: most first requests.
pub(crate) const SNIFFED_LEN_MAX: usize = 1024;

/// Bytes of an answer that a client must take within `limits.answer_timeout` to be one that takes it. A byte now
/// and then would keep a connection for days.
pub(crate) const ANSWER_PROGRESS_MIN: usize = 4 * 1024;

/// Bytes of an answer that are handed to HTTP/2 at once: what was handed over counts as taken.
pub(crate) const ANSWER_FRAME_LEN_MAX: usize = 64 * 1024;

/// Bytes of an answer that hyper gives by itself: a status and three short headers.
pub(crate) const BARE_ANSWER_LEN_MAX: usize = 256;

/// How long an idle HTTP/2 connection may take to close once it is told to.
pub(crate) const CLOSE_TIMEOUT: Span = Span::from_secs(2);

/// How many bytes are read and thrown away when a connection is closed, and for how long: a client that is still
/// sending would otherwise not see the answer.
pub(crate) const LINGER_LEN_MAX: u64 = 1024 * 1024;
/// See [`LINGER_LEN_MAX`].
pub(crate) const LINGER_TIMEOUT: Span = Span::from_secs(2);

/// After how long of silence TCP asks whether a client is there, how often it asks, and how often in vain: a live
/// page whose browser is gone without a word is noticed within two minutes.
pub(crate) const PEER_PROBE_AFTER: Span = Span::from_secs(60);
/// See [`PEER_PROBE_AFTER`].
pub(crate) const PEER_PROBE_EVERY: Span = Span::from_secs(15);
/// See [`PEER_PROBE_AFTER`].
pub(crate) const PEER_PROBES_MAX: u32 = 4;

/// Deliveries that a replay does between two saves of its progress: what it may do twice after a crash.
pub const REPLAY_SAVE_EVERY: u32 = 100;

/// Longest that a replay goes on without saving, and so without noticing that it was cancelled.
pub const REPLAY_SAVE_WITHIN: Span = Span::from_secs(1);

/// How long a replay waits before it retries after a failed store, a full backlog or a busy dispatcher.
pub const REPLAY_PAUSE: Span = Span::from_millis(500);

/// How often figures over time are written: a crash loses this much of them.
pub const FIGURES_EVERY: Span = Span::from_secs(10);

/// How often deliveries that passed the objective are counted: alerts hear of them this much later.
pub const JUDGE_EVERY: Span = Span::from_secs(2);

/// How long after it passed the objective a delivery is judged: the record of an acknowledgement in time may take
/// as long to be written.
pub const JUDGE_GRACE: Span = Span::from_secs(3);

/// How long a drain may go on after its attempts were aborted: for the records of those that had ended.
pub const DRAIN_RECORD_GRACE: Span = Span::from_secs(1);

/// How long the process lives on when its store has stopped for good: for answers on their way.
pub const STORE_STOPPED_GRACE: Span = Span::from_millis(200);

/// How soon the closing of what removed endpoints had open, or the erasing of a tenant, is tried again after
/// it failed.
pub const UPKEEP_RETRY: Span = Span::from_secs(5);

/// How often endpoints are looked for whose secrets are due to be rotated: it is a look into an index.
pub const SECRET_ROTATION_EVERY: Span = Span::from_secs(10);
/// Endpoints whose secrets are rotated in one step, and the rest between two: a thousand that are due at once take
/// ten seconds, and deliveries go on meanwhile.
pub const SECRET_ROTATION_STEP: u32 = 50;
/// See [`SECRET_ROTATION_STEP`].
pub const SECRET_ROTATION_STEP_REST: Span = Span::from_millis(500);

/// The rest between two steps of re-encryption: accepts go first.
pub(crate) const REENCRYPT_STEP_REST: Span = Span::from_millis(10);
/// The rest between two passes of re-encryption: answers that were sealed before the rotation began are stored.
pub(crate) const REENCRYPT_PASS_REST: Span = Span::from_secs(1);

/// How long `store.master_key_command` may take: a key management system that is asked over a network.
pub(crate) const MASTER_KEY_COMMAND_TIMEOUT: Span = Span::from_secs(30);

/// Bytes that a log line has of a text of a refused row: ids and types that are valid are shorter.
pub(crate) const LOGGED_FIELD_LEN_MAX: usize = 128;

/// Sections `[[notices]]`: teams and their tools, not receivers of products.
pub(crate) const NOTICE_SECTIONS_MAX: usize = 20;

/// Longest name of a section, in bytes: it stands in answers and log lines.
pub(crate) const NOTICE_NAME_LEN_MAX: usize = 32;

/// Bytes of a file that a section names: a template is the longest.
pub(crate) const NOTICE_VALUE_LEN_MAX: u64 = 64 * 1024;

/// The longest wait between two attempts of a notice: a page that comes ten minutes late is worth little.
pub(crate) const NOTICE_RETRY_DELAY_MAX: Span = Span::from_mins(2);

/// How long a notice is tried: after a day somebody knows.
pub(crate) const NOTICE_TTL: Span = Span::from_hours(24);

// Of alerts.

/// How long after the engine told something alerts are looked at: what happens within a moment is looked at
/// together.
pub const ALERTS_NOTICE_DELAY: Span = Span::from_millis(250);

/// How often what is open and dead is counted for alerts: with a million open deliveries it takes the store some
/// ten milliseconds.
pub const ALERTS_COUNTS_EVERY: Span = Span::from_secs(15);

/// How often figures by the hour, and those of each tenant, are read for alerts.
pub const ALERTS_FIGURES_EVERY: Span = Span::from_mins(1);

/// Most held lanes that the engine lists at a look. What is above is counted.
pub const ALERTS_HELD_LANES_MAX: usize = 10_000;

/// Most endpoints that are asked for their oldest open delivery at a look.
pub const ALERTS_OLDEST_LOOKUPS_MAX: usize = 100;

#[cfg(test)]
mod tests {
    #[test]
    fn the_command_line_sends_and_takes_as_much_as_the_server_does() {
        use railpost_api::limits as api;
        use railpost_cli::limits as cli;
        assert_eq!(cli::INPUT_LEN_MAX, api::BODY_LEN_MAX_DEFAULT as u64);
        assert_eq!(cli::STREAM_LINE_LEN_MAX, api::STREAM_LINE_LEN_MAX);
        assert_eq!(cli::BACKUPS_KEPT_MAX, api::BACKUPS_KEPT_MAX);
        assert_eq!(cli::PAYLOAD_LEN_MAX, railpost_store::limits::PAYLOAD_LEN_MAX);
    }
}
