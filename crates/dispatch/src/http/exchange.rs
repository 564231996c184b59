//! What came of a request: the engine's part, and the details for people.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ::http::{HeaderMap, Version};
use railpost_engine::AttemptResult;

use crate::limits::{HEADERS_KEPT_LEN_MAX, HEADERS_KEPT_MAX};

/// What came of one request.
#[derive(Clone, Debug)]
pub struct Exchange {
    /// For the engine.
    pub result: AttemptResult,
    /// For people.
    pub detail: Detail,
}

/// What people want to know about an attempt.
#[derive(Clone, Debug, Default)]
pub struct Detail {
    /// Why no answer came, in words.
    pub message: Option<String>,
    /// The answer, from the moment its head was complete.
    pub response: Option<Response>,
    /// Where the time went.
    pub timing: Timing,
    /// The address that was connected to.
    pub remote: Option<SocketAddr>,
    /// The excepted network that allowed this address, if it needed one.
    pub exception: Option<Arc<str>>,
    /// Whether the connection had served before.
    pub reused: bool,
    /// Whether a first connection gave the request back untouched, and a second took it.
    pub resent: bool,
}

/// Where an attempt's time went. What did not happen, or not to the end, took none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timing {
    /// Name lookup.
    pub dns: Option<Duration>,
    /// TCP connect, over all addresses that were tried.
    pub connect: Option<Duration>,
    /// TLS handshake.
    pub tls: Option<Duration>,
    /// From the start of the attempt to the answer's complete head.
    pub first_byte: Option<Duration>,
    /// The whole attempt.
    pub total: Duration,
}

/// An answer.
#[derive(Clone, Debug)]
pub struct Response {
    /// Its status.
    pub status: u16,
    /// The version of HTTP it came in.
    pub version: Version,
    /// Its header fields; none of an acknowledgement. Their size is bounded with the head's; see
    /// [`Response::kept_headers`].
    pub headers: HeaderMap,
    /// What was read of its body.
    pub body: Body,
}

/// What was read of an answer's body.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Body {
    /// Its first bytes.
    pub kept: Vec<u8>,
    /// Why there are no more of them.
    pub end: BodyEnd,
}

/// Why reading a body ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BodyEnd {
    /// It was not wanted: the answer acknowledged the delivery.
    #[default]
    NotRead,
    /// That was all of it.
    Complete,
    /// There was more than is kept.
    TooLarge,
    /// The time for the exchange was over.
    TimedOut,
    /// The connection broke, or what came was no HTTP.
    Broken,
}

impl Body {
    /// Whether there was, or may have been, more of it.
    pub fn truncated(&self) -> bool {
        self.end != BodyEnd::Complete
    }
}

impl Response {
    pub(super) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// Its first header fields, within the bounds of what is stored, and whether any was left out.
    pub fn kept_headers(&self) -> (Vec<(&str, Cow<'_, str>)>, bool) {
        let mut len = 0;
        let fits = |(name, value): &(&str, Cow<'_, str>)| {
            len += name.len() + value.len();
            len <= HEADERS_KEPT_LEN_MAX
        };
        let all = self
            .headers
            .iter()
            .map(|(name, value)| (name.as_str(), String::from_utf8_lossy(value.as_bytes())));
        let kept: Vec<_> = all.take(HEADERS_KEPT_MAX).take_while(fits).collect();
        let cut = kept.len() < self.headers.len();
        (kept, cut)
    }
}
