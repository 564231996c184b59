//! Where an endpoint's requests go: its URL, parsed and judged once.

use std::fmt;
use std::net::IpAddr;

use ::http::Uri;
use rustls::pki_types::ServerName;
use url::Url;

use super::ports::foreign_service;
use super::{Blocked, Guard};
use crate::limits::{HOST_LABEL_LEN_MAX, HOST_LEN_MAX, URL_LEN_MAX};

/// A URL that the guard let through, in the form in which it is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    scheme: Scheme,
    host: Host,
    port: u16,
    uri: Uri,
}

/// How a request travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// In the clear.
    Http,
    /// Under TLS.
    Https,
}

/// Who is asked.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Host {
    /// A name, in lower-case ASCII without a dot at its end.
    Name(Box<str>),
    /// An address.
    Address(IpAddr),
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Host::Name(name) => f.write_str(name),
            Host::Address(IpAddr::V4(address)) => address.fmt(f),
            Host::Address(IpAddr::V6(address)) => write!(f, "[{address}]"),
        }
    }
}

impl Target {
    /// Reads the URL of an endpoint, as a browser would, and refuses what cannot be a receiver.
    ///
    /// Addresses in decimal, octal, hexadecimal, short or percent-encoded form are judged as the
    /// addresses they are. A name that passes here is judged again by its addresses at each
    /// connection.
    pub fn parse(url: &str, guard: &Guard) -> Result<Self, TargetError> {
        check_text(url)?;
        let parsed =
            Url::parse(url).map_err(|problem| TargetError::NotAUrl(problem.to_string()))?;
        if parsed.fragment().is_some() {
            return Err(TargetError::Fragment);
        }
        let scheme = scheme(&parsed, guard)?;
        let host = host(&parsed, guard)?;
        let port = port(&parsed)?;
        let uri = uri(&parsed, scheme, &host)?;
        Ok(Self { scheme, host, port, uri })
    }

    /// How its requests travel.
    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// Who is asked.
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// On which port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The whole URL, normalised.
    pub fn uri(&self) -> &Uri {
        &self.uri
    }

    /// The name that its certificate must carry.
    pub(crate) fn server_name(&self) -> ServerName<'static> {
        server_name(&self.host).expect("checked when the target was parsed")
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.uri.fmt(f)
    }
}

/// What the parser would silently fix is refused here: other software may fix it differently.
fn check_text(url: &str) -> Result<(), TargetError> {
    if url.len() > URL_LEN_MAX {
        return Err(TargetError::TooLong(url.len()));
    }
    if url.chars().any(|c| c.is_control() || c.is_whitespace() || c == '\\') {
        return Err(TargetError::Character);
    }
    let rest = url.split_once("://").map(|(_, rest)| rest).filter(|rest| !rest.starts_with('/'));
    let authority = rest.ok_or(TargetError::Form)?.split(['/', '?', '#']).next();
    match authority {
        Some(authority) if authority.contains('@') => Err(TargetError::UserInfo),
        _ => Ok(()),
    }
}

fn scheme(url: &Url, guard: &Guard) -> Result<Scheme, TargetError> {
    match url.scheme() {
        "https" => Ok(Scheme::Https),
        "http" if guard.https_only() => Err(TargetError::HttpsOnly),
        "http" => Ok(Scheme::Http),
        other => Err(TargetError::Scheme(other.into())),
    }
}

fn host(url: &Url, guard: &Guard) -> Result<Host, TargetError> {
    let host = match url.host() {
        Some(url::Host::Domain(name)) => Host::Name(checked_name(name, guard)?),
        Some(url::Host::Ipv4(address)) => Host::Address(address.into()),
        Some(url::Host::Ipv6(address)) => Host::Address(address.into()),
        None => return Err(TargetError::NoHost),
    };
    if let Host::Address(address) = host {
        guard.check(address).map_err(TargetError::Blocked)?;
    }
    Ok(host)
}

fn checked_name(name: &str, guard: &Guard) -> Result<Box<str>, TargetError> {
    let name = name.strip_suffix('.').unwrap_or(name);
    if !is_host_name(name) || server_name(&Host::Name(name.into())).is_none() {
        return Err(TargetError::HostName(name.into()));
    }
    if is_local_name(name) && !guard.allows_local_names() {
        return Err(match guard.loopback_setting().filter(|_| is_below(name, "localhost")) {
            Some(setting) => TargetError::Loopback { name: name.into(), setting },
            None => TargetError::LocalName(name.into()),
        });
    }
    Ok(name.into())
}

fn is_host_name(name: &str) -> bool {
    let allowed = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_');
    let is_label =
        |label: &str| (1..=HOST_LABEL_LEN_MAX).contains(&label.len()) && label.bytes().all(allowed);
    name.len() <= HOST_LEN_MAX && name.split('.').all(is_label)
}

/// Names that mean something only on this machine or inside its network. No public service has one.
fn is_local_name(name: &str) -> bool {
    const LOCAL: [&str; 8] =
        ["localhost", "localdomain", "local", "internal", "intranet", "lan", "home.arpa", "corp"];
    !name.contains('.') || LOCAL.into_iter().any(|suffix| is_below(name, suffix))
}

fn is_below(name: &str, suffix: &str) -> bool {
    name.strip_suffix(suffix).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

fn port(url: &Url) -> Result<u16, TargetError> {
    let port = url.port_or_known_default().ok_or(TargetError::NoHost)?;
    match foreign_service(port) {
        Some(service) => Err(TargetError::Port { port, service }),
        None => Ok(port),
    }
}

fn uri(url: &Url, scheme: Scheme, host: &Host) -> Result<Uri, TargetError> {
    let scheme = if scheme == Scheme::Https { "https" } else { "http" };
    let authority = match url.port() {
        Some(port) => format!("{host}:{port}"),
        None => host.to_string(),
    };
    let query = url.query().map(|query| format!("?{query}")).unwrap_or_default();
    let uri = format!("{scheme}://{authority}{}{query}", url.path());
    uri.parse()
        .map_err(|problem: ::http::uri::InvalidUri| TargetError::NotAUrl(problem.to_string()))
}

fn server_name(host: &Host) -> Option<ServerName<'static>> {
    match host {
        Host::Name(name) => ServerName::try_from(name.to_string()).ok(),
        Host::Address(address) => Some(ServerName::from(*address)),
    }
}

/// A URL that no endpoint can have.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TargetError {
    /// It has this many bytes.
    TooLong(usize),
    /// It holds whitespace, a control character or a backslash.
    Character,
    /// It is not written as `scheme://host`.
    Form,
    /// It does not parse.
    NotAUrl(String),
    /// Its scheme is another one.
    Scheme(String),
    /// It is plain HTTP, which this installation refuses.
    HttpsOnly,
    /// It holds a user name or password.
    UserInfo,
    /// It has a fragment, which no request carries.
    Fragment,
    /// It names no host.
    NoHost,
    /// Its host is no name that DNS could carry.
    HostName(String),
    /// Its host means something only on the local machine or network.
    LocalName(String),
    /// Its host means this machine, to which nothing is sent.
    Loopback {
        /// The name.
        name: String,
        /// Where an operator chooses.
        setting: &'static str,
    },
    /// Its host is an address that the guard refuses.
    Blocked(Blocked),
    /// Its port belongs to another service.
    Port {
        /// The port.
        port: u16,
        /// What listens there.
        service: &'static str,
    },
}

impl fmt::Display for TargetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong(len) => {
                write!(f, "the url has {len} bytes, {URL_LEN_MAX} are allowed")
            }
            Self::Character => {
                f.write_str("the url holds whitespace, a control character or a backslash")
            }
            Self::Form => f.write_str("expected a url such as `https://example.com/hooks`"),
            Self::NotAUrl(problem) => write!(f, "not a url: {problem}"),
            Self::Scheme(scheme) => write!(f, "expected `https` or `http`, got `{scheme}`"),
            Self::HttpsOnly => f.write_str("plain http is turned off here: use https"),
            Self::UserInfo => f.write_str(
                "the url holds a user name or password: set an authorization header instead",
            ),
            Self::Fragment => f.write_str("the url has a fragment, which no request carries"),
            Self::NoHost => f.write_str("the url names no host"),
            Self::HostName(name) => write!(f, "`{name}` is no host name"),
            Self::LocalName(name) => {
                write!(f, "`{name}` is a local name, and no local network is excepted")
            }
            Self::Loopback { name, setting } => {
                write!(f, "`{name}` is this machine, to which nothing is sent: see {setting}")
            }
            Self::Blocked(blocked) => write!(f, "requests to {blocked} are refused"),
            Self::Port { port, service } => write!(f, "port {port} belongs to {service}"),
        }
    }
}

impl std::error::Error for TargetError {}
