//! One request, ready to be sent.

use std::fmt;

use ::http::{HeaderMap, HeaderName, HeaderValue, Method};
use bytes::Bytes;
use http_body_util::Full;
use railpost_wire::HeaderValues;

use super::headers::{BadHeader, parse_name, parse_value};
use super::route::Route;
use super::traceparent::TraceParent;
use super::trouble::Trouble;

/// What goes over the wire.
pub(super) type Message = ::http::Request<Full<Bytes>>;

/// A request without an answer.
#[derive(Debug)]
pub(super) struct Failed {
    pub(super) trouble: Trouble,
    /// The message itself, if it is certain that the receiver did not act on it.
    pub(super) untouched: Option<Message>,
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
    pub(super) message: Message,
    pub(super) resend: Resend,
}

impl<'r> Request<'r> {
    /// A request with these headers and bytes. The endpoint's static headers come with the route.
    pub fn new<N: AsRef<str>>(
        route: &'r Route,
        headers: impl IntoIterator<Item = (N, String)>,
        body: Bytes,
    ) -> Result<Self, BadHeader> {
        let mut message = Message::new(Full::new(body));
        *message.method_mut() = Method::POST;
        *message.headers_mut() = with_template(route, headers)?;
        Ok(Self { route, message, resend: Resend::default() })
    }

    /// The same, with the headers of an attempt, by the endpoint's names.
    #[must_use]
    pub fn with_attempt(mut self, values: HeaderValues) -> Self {
        let (places, text) = (values.places(), Bytes::from(values.into_text()));
        for (header, place) in places {
            let value = HeaderValue::from_maybe_shared(text.slice(place)).expect("visible ASCII");
            self.message.headers_mut().insert(self.route.names().get(header), value);
        }
        self
    }

    /// The same, as part of a trace.
    #[must_use]
    pub fn with_traceparent(mut self, parent: TraceParent) -> Self {
        const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
        let value = HeaderValue::try_from(parent.to_string()).expect("hex and hyphens");
        self.message.headers_mut().insert(TRACEPARENT, value);
        self
    }

    /// The same, with another rule for a second try.
    #[must_use]
    pub fn with_resend(mut self, resend: Resend) -> Self {
        self.resend = resend;
        self
    }
}

/// Without its headers and body: those are nobody's business but the receiver's.
impl fmt::Debug for Request<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Request({:?}, {:?})", self.route, self.resend)
    }
}

/// Room for the headers of one attempt, its content type and its trace, so that the map never grows.
const ATTEMPT_HEADERS: usize = 16;

fn with_template<N: AsRef<str>>(
    route: &Route,
    headers: impl IntoIterator<Item = (N, String)>,
) -> Result<HeaderMap, BadHeader> {
    let template = route.template();
    let mut map = HeaderMap::with_capacity(template.len() + ATTEMPT_HEADERS);
    for (name, value) in template {
        map.append(name.clone(), value.clone());
    }
    for (name, value) in headers {
        let name = name.as_ref();
        map.insert(parse_name(name)?, parse_value(name, value)?);
    }
    Ok(map)
}
