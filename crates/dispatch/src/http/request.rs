//! One request, ready to be sent.

use std::fmt;
use std::io::Write;

use ::http::{HeaderMap, HeaderName, HeaderValue, Method};
use bytes::Bytes;
use http_body_util::Full;
use railpost_wire::HeaderValues;

use super::TraceParent;
use super::framing::BadHead;
use super::headers::{BadHeader, parse_name, parse_value};
use super::route::Route;
use super::trouble::Trouble;

/// What goes over the wire with HTTP/2.
pub(super) type Message = ::http::Request<Full<Bytes>>;

/// A request without an answer.
#[derive(Debug)]
pub(super) struct Failed {
    pub(super) trouble: Trouble,
    /// Whether it is certain that the receiver did not act on it.
    pub(super) untouched: bool,
}

impl Failed {
    pub(super) fn bad_head(problem: &BadHead) -> Self {
        Self { trouble: Trouble::bad_head(problem), untouched: false }
    }
}

/// Whether a request may go out a second time within one attempt, on another connection.
///
/// A request of which nothing was written, because its connection turned out to be closed, goes out
/// on another one in either case: it has not been sent yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Resend {
    /// Once, if the receiver says by the protocol that it did not look at it. Never on suspicion.
    #[default]
    IfUntouched,
    /// Never: for deliveries that may arrive once at most.
    Never,
}

/// A POST along a route.
pub struct Request<'r> {
    pub(super) route: &'r Route,
    fields: Vec<(HeaderName, HeaderValue)>,
    attempt: Option<HeaderValues>,
    trace: Option<TraceParent>,
    body: Bytes,
    pub(super) resend: Resend,
}

impl<'r> Request<'r> {
    /// A request with these headers and bytes. The endpoint's static headers come with the route.
    pub fn new<N: AsRef<str>>(
        route: &'r Route,
        headers: impl IntoIterator<Item = (N, String)>,
        body: Bytes,
    ) -> Result<Self, BadHeader> {
        let field = |(name, value): (N, String)| {
            let name = name.as_ref();
            Ok((parse_name(name)?, parse_value(name, value)?))
        };
        let fields = headers.into_iter().map(field).collect::<Result<_, _>>()?;
        Ok(Self { route, fields, attempt: None, trace: None, body, resend: Resend::default() })
    }

    /// The same, with the headers of an attempt, by the endpoint's names.
    ///
    /// # Panics
    ///
    /// If a value could break its line, which none that an attempt makes can.
    #[must_use]
    pub fn with_attempt(self, values: HeaderValues) -> Self {
        let is_visible = |byte: u8| matches!(byte, b' '..=b'~');
        // All bytes are looked at, which is faster than to stop at one.
        let all_are = values.text().bytes().fold(true, |all, byte| all & is_visible(byte));
        assert!(all_are, "the headers of an attempt are visible ASCII");
        Self { attempt: Some(values), ..self }
    }

    /// The same, as part of a trace.
    #[must_use]
    pub fn with_traceparent(self, parent: TraceParent) -> Self {
        Self { trace: Some(parent), ..self }
    }

    /// The same, with another rule for a second try.
    #[must_use]
    pub fn with_resend(self, resend: Resend) -> Self {
        Self { resend, ..self }
    }

    pub(super) fn body(&self) -> &[u8] {
        &self.body
    }

    /// Writes its head as HTTP/1 has it, in place of what is there.
    pub(super) fn write_h1(&self, to: &mut Vec<u8>) {
        to.clear();
        to.extend_from_slice(self.route.head_h1());
        for (name, value) in &self.fields {
            write_field(to, name, value.as_bytes());
        }
        for (header, value) in self.attempt.iter().flat_map(HeaderValues::iter) {
            write_field(to, self.route.names().get(header), value.as_bytes());
        }
        // Writing to a vector cannot fail.
        if let Some(parent) = self.trace {
            let _ = write!(to, "{TRACEPARENT}: {parent}\r\n");
        }
        let _ = write!(to, "content-length: {}\r\n\r\n", self.body.len());
    }

    /// As HTTP/2 has it, where the host is part of the target.
    pub(super) fn to_h2(&self) -> Message {
        let mut message = Message::new(Full::new(self.body.clone()));
        *message.method_mut() = Method::POST;
        *message.uri_mut() = self.route.uri().clone();
        *message.headers_mut() = self.headers();
        message
    }

    fn headers(&self) -> HeaderMap {
        let mut map = self.route.template().clone();
        map.extend(self.fields.iter().map(|(name, value)| (name.clone(), value.clone())));
        for (header, value) in self.attempt.iter().flat_map(HeaderValues::iter) {
            let value = HeaderValue::from_str(value).expect("visible ASCII");
            map.insert(self.route.names().get(header), value);
        }
        if let Some(parent) = self.trace {
            let value = HeaderValue::try_from(parent.to_string()).expect("hex and hyphens");
            map.insert(TRACEPARENT, value);
        }
        map
    }
}

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// Without its headers and body: those are nobody's business but the receiver's.
impl fmt::Debug for Request<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Request({:?}, {:?})", self.route, self.resend)
    }
}

/// A line of a head, as HTTP/1 has it.
pub(super) fn write_field(to: &mut Vec<u8>, name: &HeaderName, value: &[u8]) {
    for part in [name.as_str().as_bytes(), b": ", value, b"\r\n"] {
        to.extend_from_slice(part);
    }
}
