//! The outbound guard: which names, ports and addresses a request may go to.
//!
//! It judges twice. [`Target::parse`] refuses what a URL alone gives away, when a person enters it.
//! [`Guard::check`] judges every address a name resolves to, right before the connection to exactly
//! that address, so a name that changes its mind between the two gains nothing.

mod ranges;
mod loopback;
mod network;
mod ports;
mod target;
mod resolve;

pub use loopback::Loopback;
pub use network::{BadNetwork, NamedNetwork};
pub use resolve::{Lookup, Resolve, SystemResolver};
pub use target::{Host, Scheme, Target, TargetError};

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

/// What an operator may choose about where requests go. The default is the strictest but for
/// `https_only`: signatures protect a payload that travels in the clear, though not from readers.
#[derive(Clone, Debug, Default)]
pub struct GuardConfig {
    /// Networks that requests may go to although they are special.
    pub networks: Vec<NamedNetwork>,
    /// Refuse `http` URLs.
    pub https_only: bool,
}

/// Says where requests may go. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Guard {
    config: Arc<GuardConfig>,
    loopback: Option<Loopback>,
    refuses_public: bool,
}

/// An address that requests may go to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Allowed {
    /// It is a public one.
    Public,
    /// It is special, but lies in an excepted network of this name.
    Exception(Arc<str>),
}

/// An address that the guard refuses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocked {
    /// The address as it was given.
    pub address: IpAddr,
    /// What kind of address it is.
    pub kind: &'static str,
    /// The setting that refuses it, if it is one of its own.
    pub setting: Option<&'static str>,
}

impl fmt::Display for Blocked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.setting {
            Some(setting) => write!(f, "{} ({}, see {setting})", self.address, self.kind),
            None => write!(f, "{} ({})", self.address, self.kind),
        }
    }
}

impl std::error::Error for Blocked {}

impl Guard {
    /// A guard with these exceptions.
    pub fn new(config: GuardConfig) -> Self {
        Self { config: Arc::new(config), loopback: None, refuses_public: false }
    }

    /// The same, with loopback open for as long as `loopback` says.
    #[must_use]
    pub fn with_loopback(self, loopback: Loopback) -> Self {
        Self { loopback: Some(loopback), ..self }
    }

    /// The same guard, which refuses public addresses too: requests go to the excepted networks alone.
    #[must_use]
    pub fn without_public(self) -> Self {
        Self { refuses_public: true, ..self }
    }

    /// Whether there is no address at all that requests may go to.
    pub(crate) fn allows_nothing(&self) -> bool {
        self.refuses_public && !self.allows_local_names()
    }

    /// Whether a request may go to `address`, and by which exception if it needs one.
    pub fn check(&self, address: IpAddr) -> Result<Allowed, Blocked> {
        let kind = match ranges::special_kind(address) {
            Some(kind) => kind,
            None if self.refuses_public => "public",
            None => return Ok(Allowed::Public),
        };
        // A mapped address leaves the machine as the IPv4 address it holds.
        let canonical = address.to_canonical();
        let exception = self.config.networks.iter().find(|network| network.contains(canonical));
        if let Some(network) = exception {
            return Ok(Allowed::Exception(network.shared_name()));
        }
        match self.loopback.as_ref().filter(|_| canonical.is_loopback()) {
            Some(loopback) if loopback.is_open() => Ok(Allowed::Exception(loopback.shared_name())),
            loopback => Err(Blocked { address, kind, setting: loopback.map(Loopback::setting) }),
        }
    }

    fn https_only(&self) -> bool {
        self.config.https_only
    }

    /// Whether a name that can only mean something local may be looked up. It may lead into an
    /// excepted network, if there is one: then its addresses decide.
    fn allows_local_names(&self) -> bool {
        let loopback = self.loopback.as_ref();
        !self.config.networks.is_empty() || loopback.is_some_and(Loopback::is_open)
    }

    /// The setting by which requests to this machine are refused, if there is one.
    fn loopback_setting(&self) -> Option<&'static str> {
        self.loopback.as_ref().map(Loopback::setting)
    }
}
