//! Exceptions: networks with a name, so that people see which one let an attempt through.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;

use crate::limits::NETWORK_NAME_LEN_MAX;

/// A network that requests may go to although its addresses are special.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedNetwork {
    name: Arc<str>,
    net: IpNet,
}

impl NamedNetwork {
    /// The network `cidr`, such as `10.1.0.0/16` or `fd12::/48`, under a name.
    ///
    /// Host bits must be zero: `10.1.2.3/8` is more likely a mistake than a network.
    pub fn new(name: &str, cidr: &str) -> Result<Self, BadNetwork> {
        let bad = |problem| BadNetwork { name: name.into(), cidr: cidr.into(), problem };
        if !is_name(name) {
            return Err(bad("its name needs 1 to 64 letters, digits, `-`, `_` or `.`"));
        }
        let net = parse(cidr)
            .ok_or_else(|| bad("expected an address and a prefix length, such as `10.1.0.0/16`"))?;
        if net.addr() != net.network() {
            return Err(bad("bits are set to the right of its prefix"));
        }
        if is_mapped(net) {
            return Err(bad("a mapped address is judged as IPv4: name the IPv4 network"));
        }
        Ok(Self { name: name.into(), net })
    }

    /// What people call it.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn shared_name(&self) -> Arc<str> {
        Arc::clone(&self.name)
    }

    /// Whether `address` lies in it. A mapped address must have been unwrapped.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.net.contains(&address)
    }
}

impl fmt::Display for NamedNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name, self.net)
    }
}

/// The address by the standard library's rules: others read `010.0.0.0` as ten, or as eight.
fn parse(cidr: &str) -> Option<IpNet> {
    let (address, prefix_len) = cidr.split_once('/')?;
    IpNet::new(address.parse().ok()?, prefix_len.parse().ok()?).ok()
}

fn is_name(name: &str) -> bool {
    let allowed = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.');
    (1..=NETWORK_NAME_LEN_MAX).contains(&name.len()) && name.bytes().all(allowed)
}

/// Such a network would never match, since mapped addresses are unwrapped before they are compared.
fn is_mapped(net: IpNet) -> bool {
    let IpNet::V6(net) = net else { return false };
    net.prefix_len() >= 96 && net.addr().to_ipv4_mapped().is_some()
}

/// A network that cannot be excepted as it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadNetwork {
    /// The name it was given.
    pub name: String,
    /// How it was written.
    pub cidr: String,
    /// What is wrong with it.
    pub problem: &'static str,
}

impl fmt::Display for BadNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "network `{}` of `{}`: {}", self.name, self.cidr, self.problem)
    }
}

impl std::error::Error for BadNetwork {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_is_refused_unless_it_is_written_exactly() {
        for (name, cidr, ok) in [
            ("office", "10.1.0.0/16", true),
            ("one-host", "192.168.1.7/32", true),
            ("vpn.v6", "fd12:3456::/32", true),
            ("", "10.0.0.0/8", false),
            ("two words", "10.0.0.0/8", false),
            ("office", "10.1.2.3/8", false),
            ("office", "10.1.0.0", false),
            ("office", "10.1.0.0/33", false),
            ("office", "010.1.0.0/16", false),
            ("office", "fd12::1/32", false),
            ("office", "::ffff:10.0.0.0/104", false),
            ("office", "example.com/8", false),
        ] {
            assert_eq!(NamedNetwork::new(name, cidr).is_ok(), ok, "{name:?} {cidr:?}");
        }
    }
}
