//! Every bound in telemetry, with its reason.

use railpost_engine::Span;

/// Bytes of log lines that wait to be written: a second's worth at full speed. Past it lines are counted and
/// left out, for a slow log must not slow deliveries down.
pub const LOG_WAITING_LEN_MAX: usize = 4 * 1024 * 1024;
/// Bytes of log lines from which on they are written without a rest.
pub const LOG_LINES_TOGETHER_MAX: usize = 64 * 1024;
/// How long the log's writer rests after it wrote all there was: when lines come fast it is not woken for
/// each of them, and writes them together.
pub const LOG_PAUSE: std::time::Duration = std::time::Duration::from_millis(10);
/// How long the end of the process waits for its last log lines.
pub const LOG_FLUSH_TIMEOUT: Span = Span::from_secs(2);

/// Statuses that are told apart in a metric: receivers answer with a dozen, a hostile one with all of them.
pub const STATUS_VALUES_MAX: u64 = 100;
/// Largest status that is told apart: HTTP has no more.
pub const STATUS_MAX: u16 = 999;

/// Values of a label that the operator chose, unless the configuration says otherwise: some megabytes of
/// metrics at most.
pub const LABEL_VALUES_MAX_DEFAULT: usize = 1_000;

/// How often continuing trouble is logged.
pub const TROUBLE_LOGGED_EVERY: Span = Span::from_secs(10);

/// Spans that wait for the collector; past it they are counted and left out.
pub const SPANS_WAITING_MAX: usize = 4_096;
/// Spans of one request to the collector: about half a megabyte of JSON.
pub const SPANS_BATCH_MAX: usize = 512;
/// How long spans are gathered before they go.
pub const SPANS_EVERY: Span = Span::from_millis(500);
/// How often a batch is sent that the collector does not take for a passing reason, how long the first wait is, and
/// the longest: each is twice as long as the one before, or what `Retry-After` asks for. The spans of about 8
/// seconds are gathered meanwhile, as far as there is room for them.
pub const SPANS_TRIES_MAX: u32 = 5;
/// See [`SPANS_TRIES_MAX`].
pub const SPANS_RETRY_WAIT: Span = Span::from_millis(500);
/// See [`SPANS_TRIES_MAX`].
pub const SPANS_RETRY_WAIT_MAX: Span = Span::from_secs(10);
/// How long the end of the server waits for the collector.
pub const SPANS_LAST_TIMEOUT: Span = Span::from_secs(2);
