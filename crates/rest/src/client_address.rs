//! The address of the client, also behind proxies.
//!
//! Any client can send a header, so `Forwarded` and `X-Forwarded-For` count only from a proxy that the operator
//! trusts, and only as far as trusted proxies wrote them: lists of addresses are read from the right.

use std::net::{IpAddr, SocketAddr};

use http::{HeaderMap, HeaderName, header};
use railpost_dispatch::{BadNetwork, NamedNetwork};

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_REAL_IP: HeaderName = HeaderName::from_static("x-real-ip");

/// The address of the client that a request comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClientAddress(pub IpAddr);

/// The proxies that are believed when they say for whom they ask.
#[derive(Clone, Debug, Default)]
pub struct TrustedProxies(Vec<NamedNetwork>);

impl TrustedProxies {
    /// Proxies in these networks.
    pub fn new(networks: &[String]) -> Result<Self, BadNetwork> {
        let network = |text: &String| NamedNetwork::new("trusted_proxies", text);
        Ok(Self(networks.iter().map(network).collect::<Result<_, _>>()?))
    }

    /// The client of a request from `peer` with these headers. If both headers name one and they differ, one of them
    /// was written by the client itself, and nobody knows which: then it is the peer.
    pub fn client(&self, peer: IpAddr, headers: &HeaderMap) -> ClientAddress {
        if !self.trusts(peer) {
            return ClientAddress(peer);
        }
        let forwarded = self.nearest(peer, list(headers, &header::FORWARDED), in_forwarded);
        let listed = self.nearest(peer, list(headers, &X_FORWARDED_FOR), address);
        ClientAddress(match (forwarded, listed) {
            (Some(one), Some(other)) if one != other => peer,
            (one, other) => one.or(other).unwrap_or(peer),
        })
    }

    fn trusts(&self, address: IpAddr) -> bool {
        self.0.iter().any(|network| network.contains(address))
    }

    /// The last address of a list that is no trusted proxy. Past what cannot be read, nothing is believed.
    fn nearest(
        &self,
        peer: IpAddr,
        list: Vec<&str>,
        address: impl Fn(&str) -> Option<IpAddr>,
    ) -> Option<IpAddr> {
        let mut nearest = (!list.is_empty()).then_some(peer)?;
        for entry in list.into_iter().rev() {
            let Some(found) = address(entry) else { break };
            nearest = found;
            if !self.trusts(found) {
                break;
            }
        }
        Some(nearest)
    }
}

/// Whether a request says that it came through a proxy.
pub fn is_proxied(headers: &HeaderMap) -> bool {
    [header::FORWARDED, X_FORWARDED_FOR, X_REAL_IP, header::VIA]
        .iter()
        .any(|name| headers.contains_key(name))
}

/// The entries of a header that is a list. A line that is no text is an entry that cannot be read.
fn list<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Vec<&'a str> {
    let lines = headers.get_all(name).into_iter().map(|line| line.to_str().unwrap_or_default());
    lines.flat_map(|line| line.split(',')).map(str::trim).collect()
}

/// The address in an element of `Forwarded`, such as `for="[2001:db8::1]:4711";proto=https`.
fn in_forwarded(element: &str) -> Option<IpAddr> {
    let mut pairs = element.split(';').filter_map(|pair| pair.split_once('='));
    let (_, node) = pairs.find(|(name, _)| name.trim().eq_ignore_ascii_case("for"))?;
    address(node.trim().trim_matches('"'))
}

/// An address, with or without a port.
fn address(text: &str) -> Option<IpAddr> {
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    let found = bare.parse().ok();
    let found = found.or_else(|| text.parse().ok().map(|address: SocketAddr| address.ip()));
    found.map(|address| address.to_canonical())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    /// The client of a request from `peer`, where 10.0.0.0/8 and fd00::/8 are trusted.
    fn client(peer: &str, lines: &[(&'static str, &str)]) -> String {
        let networks = ["10.0.0.0/8".to_owned(), "fd00::/8".to_owned()];
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(*name, value.parse().unwrap());
        }
        let proxies = TrustedProxies::new(&networks).unwrap();
        proxies.client(peer.parse().unwrap(), &headers).0.to_string()
    }

    #[test]
    fn a_header_counts_from_a_trusted_proxy_and_as_far_as_trusted_proxies_wrote_it() {
        let (xff, forwarded) = ("x-forwarded-for", "forwarded");
        for (peer, lines, expected) in [
            ("192.0.2.1", &[(xff, "198.51.100.7")][..], "192.0.2.1"),
            ("192.0.2.1", &[(forwarded, "for=198.51.100.7")], "192.0.2.1"),
            ("10.0.0.1", &[], "10.0.0.1"),
            ("10.0.0.1", &[(xff, "198.51.100.7")], "198.51.100.7"),
            ("10.0.0.1", &[(xff, "1.1.1.1, 198.51.100.7, 10.2.0.1")], "198.51.100.7"),
            ("10.0.0.1", &[(xff, "1.1.1.1"), (xff, "198.51.100.7")], "198.51.100.7"),
            ("10.0.0.1", &[(xff, "10.3.0.1, 10.2.0.1")], "10.3.0.1"),
            ("10.0.0.1", &[(xff, "1.1.1.1, unknown")], "10.0.0.1"),
            ("10.0.0.1", &[(xff, "1.1.1.1, nonsense, 10.2.0.1")], "10.2.0.1"),
            ("10.0.0.1", &[(xff, "")], "10.0.0.1"),
            ("10.0.0.1", &[(xff, "198.51.100.7:4711")], "198.51.100.7"),
            ("10.0.0.1", &[(xff, "::ffff:198.51.100.7")], "198.51.100.7"),
            ("fd00::1", &[(xff, "2001:db8::7")], "2001:db8::7"),
            ("fd00::1", &[(xff, "[2001:db8::7]:80")], "2001:db8::7"),
            (
                "10.0.0.1",
                &[(forwarded, "for=198.51.100.7;proto=https;by=10.0.0.1")],
                "198.51.100.7",
            ),
            ("10.0.0.1", &[(forwarded, "For=\"[2001:db8::7]:4711\"")], "2001:db8::7"),
            (
                "10.0.0.1",
                &[(forwarded, "for=1.1.1.1, for=198.51.100.7, for=10.2.0.1")],
                "198.51.100.7",
            ),
            ("10.0.0.1", &[(forwarded, "for=_hidden")], "10.0.0.1"),
            ("10.0.0.1", &[(forwarded, "proto=https")], "10.0.0.1"),
            ("10.0.0.1", &[(forwarded, "for=198.51.100.7"), (xff, "198.51.100.7")], "198.51.100.7"),
            // One of them is the client's own.
            ("10.0.0.1", &[(forwarded, "for=1.1.1.1"), (xff, "198.51.100.7")], "10.0.0.1"),
        ] {
            assert_eq!(client(peer, lines), expected, "{peer} {lines:?}");
        }
    }

    #[test]
    fn each_header_of_a_proxy_shows_one() {
        for name in ["forwarded", "x-forwarded-for", "x-real-ip", "via"] {
            let mut headers = HeaderMap::new();
            assert!(!is_proxied(&headers));
            headers.insert(name, "x".parse().unwrap());
            assert!(is_proxied(&headers), "{name}");
        }
    }
}
