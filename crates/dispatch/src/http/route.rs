//! The way to one endpoint: all that its requests have in common, prepared once.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ::http::header::{HOST, USER_AGENT};
use ::http::{HeaderMap, HeaderValue, Uri};
use railpost_wire::{HeaderNames, TenantId};

use super::headers::{CustomHeaders, RailpostHeaderNames};
use super::pool::Origin;
use super::request::write_field;
use super::tls::TlsSettings;
use crate::guard::Target;
use crate::limits::{CONNECT_TIMEOUT_DEFAULT, TIMEOUT_MAX, TOTAL_TIMEOUT_DEFAULT};

/// What an endpoint's owner chose about how its requests are sent.
#[derive(Clone, Debug)]
pub struct RouteConfig {
    /// Where to.
    pub target: Target,
    /// Whose requests they are; nothing for those of the server itself. Tenants share no connection: a
    /// receiver behind a confused proxy could answer one tenant's request with another's.
    pub tenant: Option<TenantId>,
    /// How long it may take.
    pub timeouts: Timeouts,
    /// What TLS must be like.
    pub tls: TlsSettings,
    /// Static headers of every request.
    pub headers: CustomHeaders,
    /// What Railpost's own headers are called here.
    pub names: HeaderNames,
}

impl RouteConfig {
    /// The way to `target`, with defaults for the rest.
    pub fn new(target: Target) -> Self {
        Self {
            target,
            tenant: None,
            timeouts: Timeouts::default(),
            tls: TlsSettings::default(),
            headers: CustomHeaders::default(),
            names: HeaderNames::default(),
        }
    }
}

/// How long an attempt may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    connect: Duration,
    total: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self { connect: CONNECT_TIMEOUT_DEFAULT, total: TOTAL_TIMEOUT_DEFAULT }
    }
}

impl Timeouts {
    /// So long until a connection is ready for a request, and so long for everything. The total wins
    /// if it is the shorter one.
    pub fn new(connect: Duration, total: Duration) -> Result<Self, BadTimeouts> {
        let fits = |timeout| Duration::ZERO < timeout && timeout <= TIMEOUT_MAX;
        if fits(connect) && fits(total) {
            return Ok(Self { connect, total });
        }
        Err(BadTimeouts { connect, total })
    }

    /// The time for name lookup, TCP connect and TLS handshake together.
    pub fn connect(self) -> Duration {
        self.connect
    }

    /// The time for the whole exchange.
    pub fn total(self) -> Duration {
        self.total
    }
}

/// Timeouts that no attempt can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadTimeouts {
    /// The connect timeout.
    pub connect: Duration,
    /// The total timeout.
    pub total: Duration,
}

impl fmt::Display for BadTimeouts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { connect, total } = self;
        write!(
            f,
            "expected timeouts above zero and up to {TIMEOUT_MAX:?}, got {connect:?} to connect and \
             {total:?} in all"
        )
    }
}

impl std::error::Error for BadTimeouts {}

/// The way to one endpoint. Cheap to clone; make a new one when the endpoint changes.
#[derive(Clone)]
pub struct Route(Arc<Prepared>);

struct Prepared {
    origin: Arc<Origin>,
    uri: Uri,
    template: HeaderMap,
    /// What every request begins with, as HTTP/1 has it.
    head_h1: Vec<u8>,
    names: RailpostHeaderNames,
    timeouts: Timeouts,
}

impl Route {
    pub(super) fn new(config: &RouteConfig, origin: Arc<Origin>, user_agent: &HeaderValue) -> Self {
        let uri = config.target.uri().clone();
        let template = template(&config.headers, user_agent);
        Self(Arc::new(Prepared {
            origin,
            head_h1: head_h1(&uri, &template),
            uri,
            template,
            names: RailpostHeaderNames::new(&config.names),
            timeouts: config.timeouts,
        }))
    }

    /// How long its attempts may take.
    pub fn timeouts(&self) -> Timeouts {
        self.0.timeouts
    }

    pub(super) fn origin(&self) -> &Arc<Origin> {
        &self.0.origin
    }

    pub(super) fn template(&self) -> &HeaderMap {
        &self.0.template
    }

    pub(super) fn names(&self) -> &RailpostHeaderNames {
        &self.0.names
    }

    pub(super) fn uri(&self) -> &Uri {
        &self.0.uri
    }

    /// The first lines of every request, as HTTP/1 has them.
    pub(super) fn head_h1(&self) -> &[u8] {
        &self.0.head_h1
    }
}

impl fmt::Debug for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Route({})", self.0.uri)
    }
}

fn head_h1(uri: &Uri, template: &HeaderMap) -> Vec<u8> {
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let mut head = format!("POST {path} HTTP/1.1\r\n").into_bytes();
    let authority = uri.authority().map_or("", ::http::uri::Authority::as_str);
    write_field(&mut head, &HOST, authority.as_bytes());
    for (name, value) in template {
        write_field(&mut head, name, value.as_bytes());
    }
    head
}

/// The headers of every request: what the endpoint's owner added, and who we are.
fn template(custom: &CustomHeaders, user_agent: &HeaderValue) -> HeaderMap {
    let mut template = HeaderMap::new();
    for (name, value) in custom.iter() {
        template.append(name, value.clone());
    }
    template.entry(USER_AGENT).or_insert_with(|| user_agent.clone());
    template
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_are_above_zero_and_bounded() {
        let ms = Duration::from_millis;
        for (connect, total, ok) in [
            (ms(1), ms(1), true),
            (ms(3_000), ms(10_000), true),
            (ms(3_000), ms(1_000), true),
            (TIMEOUT_MAX, TIMEOUT_MAX, true),
            (ms(0), ms(1_000), false),
            (ms(1_000), ms(0), false),
            (ms(1_000), TIMEOUT_MAX + ms(1), false),
            (TIMEOUT_MAX + ms(1), TIMEOUT_MAX, false),
        ] {
            assert_eq!(Timeouts::new(connect, total).is_ok(), ok, "{connect:?} {total:?}");
        }
    }
}
