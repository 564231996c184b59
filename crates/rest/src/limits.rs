//! Every bound of requests in general, with its reason.

use railpost_engine::Span;

/// Bytes of a body that is not events: an endpoint with certificates, a JSON Schema in all versions.
pub const SMALL_BODY_LEN_MAX: usize = 4 * 1024 * 1024;

/// Bytes of a body that is too large which are read and thrown away, so that the client sees the answer.
pub const DISCARDED_LEN_MAX: usize = 16 * 1024 * 1024;

/// Bytes of an unexpected body that are read and thrown away, so that the connection stays open: what a
/// client sends out of habit, such as `{}`.
pub const UNASKED_LEN_MAX: u64 = 16 * 1024;

/// Longest idempotency key that a client may choose, in bytes.
pub const IDEMPOTENCY_KEY_LEN_MAX: usize = railpost_store::limits::IDEMPOTENCY_TEXT_LEN_MAX;

/// Longest cursor of a list that is looked at, in bytes: the longest that is given out names an event type.
pub const CURSOR_LEN_MAX: usize = 512;

/// Items of a page when the client names no number.
pub const PAGE_LIMIT_DEFAULT: u32 = 50;

/// When a client that must wait for something without a known end should come back.
pub const RETRY_AFTER_DEFAULT: Span = Span::from_secs(1);
