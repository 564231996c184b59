//! Which addresses are special, and what they are: the table behind the guard.
//!
//! An IPv6 address that stands for an IPv4 one is judged as that one, wherever it would end up.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{Ipv4Net, Ipv6Net};

/// What kind of special address this is, or nothing if it is a public one.
pub(super) fn special_kind(address: IpAddr) -> Option<&'static str> {
    match address {
        IpAddr::V4(v4) => special_v4(v4),
        IpAddr::V6(v6) => special_v6(v6),
    }
}

fn special_v4(address: Ipv4Addr) -> Option<&'static str> {
    V4.iter().find(|(net, _)| net.contains(&address)).map(|(_, kind)| *kind)
}

fn special_v6(address: Ipv6Addr) -> Option<&'static str> {
    if let Some(embedded) = embedded_v4(address) {
        return special_v4(embedded);
    }
    let listed = V6.iter().find(|(net, _)| net.contains(&address)).map(|(_, kind)| *kind);
    listed.or_else(|| (!GLOBAL_UNICAST.contains(&address)).then_some("not global unicast"))
}

/// The IPv4 address that a mapped, translated (NAT64) or tunnelled (6to4) address leads to.
fn embedded_v4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let bits = address.to_bits();
    if MAPPED.contains(&address) || NAT64.contains(&address) {
        return Some(Ipv4Addr::from_bits(bits as u32));
    }
    SIX_TO_FOUR.contains(&address).then(|| Ipv4Addr::from_bits((bits >> 80) as u32))
}

const MAPPED: Ipv6Net = v6([0, 0, 0, 0, 0, 0xffff, 0, 0], 96);
const NAT64: Ipv6Net = v6([0x64, 0xff9b, 0, 0, 0, 0, 0, 0], 96);
const SIX_TO_FOUR: Ipv6Net = v6([0x2002, 0, 0, 0, 0, 0, 0, 0], 16);

/// All that is handed out for public use. What lies outside is reserved, whatever it becomes.
const GLOBAL_UNICAST: Ipv6Net = v6([0x2000, 0, 0, 0, 0, 0, 0, 0], 3);

/// The first match names the address, so a part stands before its whole.
const V4: [(Ipv4Net, &str); 20] = [
    (v4([0, 0, 0, 0], 8), "this network"),
    (v4([10, 0, 0, 0], 8), "private"),
    (v4([100, 64, 0, 0], 10), "shared by carrier-grade NAT"),
    (v4([127, 0, 0, 0], 8), "loopback"),
    (v4([168, 63, 129, 16], 32), "cloud platform service"),
    (v4([169, 254, 169, 254], 32), "cloud metadata"),
    (v4([169, 254, 0, 0], 16), "link-local"),
    (v4([172, 16, 0, 0], 12), "private"),
    (v4([192, 0, 0, 0], 24), "protocol assignments"),
    (v4([192, 0, 2, 0], 24), "documentation"),
    (v4([192, 31, 196, 0], 24), "AS112 sink"),
    (v4([192, 52, 193, 0], 24), "multicast tunnelling"),
    (v4([192, 88, 99, 0], 24), "6to4 relay"),
    (v4([192, 168, 0, 0], 16), "private"),
    (v4([192, 175, 48, 0], 24), "AS112 sink"),
    (v4([198, 18, 0, 0], 15), "benchmarking"),
    (v4([198, 51, 100, 0], 24), "documentation"),
    (v4([203, 0, 113, 0], 24), "documentation"),
    (v4([224, 0, 0, 0], 4), "multicast"),
    // With the limited broadcast address at its end.
    (v4([240, 0, 0, 0], 4), "reserved"),
];

/// As for IPv4. Most of it lies outside [`GLOBAL_UNICAST`] and stands here for its name.
const V6: [(Ipv6Net, &str); 19] = [
    (v6([0, 0, 0, 0, 0, 0, 0, 0], 128), "unspecified"),
    (v6([0, 0, 0, 0, 0, 0, 0, 1], 128), "loopback"),
    (v6([0, 0, 0, 0, 0, 0, 0, 0], 96), "IPv4-compatible"),
    (v6([0, 0, 0, 0, 0xffff, 0, 0, 0], 96), "IPv4-translated"),
    (v6([0x64, 0xff9b, 1, 0, 0, 0, 0, 0], 48), "local NAT64"),
    (v6([0x100, 0, 0, 0, 0, 0, 0, 0], 64), "discard"),
    (v6([0x100, 0, 0, 1, 0, 0, 0, 0], 64), "dummy prefix"),
    (v6([0x2001, 0, 0, 0, 0, 0, 0, 0], 32), "Teredo"),
    (v6([0x2001, 2, 0, 0, 0, 0, 0, 0], 48), "benchmarking"),
    (v6([0x2001, 0x10, 0, 0, 0, 0, 0, 0], 28), "ORCHID"),
    (v6([0x2001, 0x20, 0, 0, 0, 0, 0, 0], 28), "ORCHID"),
    (v6([0x2001, 0, 0, 0, 0, 0, 0, 0], 23), "protocol assignments"),
    (v6([0x2001, 0xdb8, 0, 0, 0, 0, 0, 0], 32), "documentation"),
    (v6([0x3fff, 0, 0, 0, 0, 0, 0, 0], 20), "documentation"),
    (v6([0x5f00, 0, 0, 0, 0, 0, 0, 0], 16), "segment routing"),
    (v6([0xfc00, 0, 0, 0, 0, 0, 0, 0], 7), "unique local"),
    (v6([0xfe80, 0, 0, 0, 0, 0, 0, 0], 10), "link-local"),
    (v6([0xfec0, 0, 0, 0, 0, 0, 0, 0], 10), "site-local"),
    (v6([0xff00, 0, 0, 0, 0, 0, 0, 0], 8), "multicast"),
];

const fn v4(octets: [u8; 4], prefix_len: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::from_octets(octets), prefix_len)
}

const fn v6(segments: [u16; 8], prefix_len: u8) -> Ipv6Net {
    Ipv6Net::new_assert(Ipv6Addr::from_segments(segments), prefix_len)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first and last address of every range is refused; the neighbours outside are not, unless
    /// another range begins there.
    #[test]
    fn every_range_is_refused_from_its_first_to_its_last_address() {
        for (net, kind) in V4 {
            for address in [net.network(), net.broadcast()] {
                assert!(special_v4(address).is_some(), "{address} in {net} {kind}");
            }
        }
        for (net, kind) in V6 {
            for address in [net.network(), net.broadcast()] {
                assert!(special_v6(address).is_some(), "{address} in {net} {kind}");
            }
        }
    }

    #[test]
    fn the_neighbours_of_a_range_are_public() {
        for address in [
            "1.0.0.0",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "126.255.255.255",
            "128.0.0.0",
            "168.63.129.15",
            "168.63.129.17",
            "169.253.255.255",
            "169.255.0.0",
            "172.15.255.255",
            "172.32.0.0",
            "192.0.1.0",
            "192.0.3.0",
            "192.167.255.255",
            "192.169.0.0",
            "198.17.255.255",
            "198.20.0.0",
            "223.255.255.255",
            "2001:200::",
            "2001:db7:ffff:ffff:ffff:ffff:ffff:ffff",
            "2001:db9::",
            "2003::",
            "3ffe:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
            "3fff:1000::",
            "::ffff:1.0.0.1",
            "64:ff9b::1.0.0.1",
            "2002:100:1::",
        ] {
            assert_eq!(special_kind(address.parse().unwrap()), None, "{address}");
        }
    }
}
