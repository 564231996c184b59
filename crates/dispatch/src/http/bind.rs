//! Addresses of this machine that connections leave from.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicUsize, Ordering};

/// The addresses that connections leave from, in turn. With none, the system chooses.
#[derive(Debug, Default)]
pub struct BindAddresses {
    v4: Vec<IpAddr>,
    v6: Vec<IpAddr>,
    turn: AtomicUsize,
}

/// An address that nothing can be sent from.
#[derive(Debug)]
pub struct BadBindAddress {
    /// Which.
    pub address: IpAddr,
    /// Why.
    pub problem: io::Error,
}

impl fmt::Display for BadBindAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.problem.kind() {
            io::ErrorKind::AddrNotAvailable => {
                write!(f, "this machine does not have the address {}", self.address)
            }
            _ => write!(f, "nothing can be sent from {}: {}", self.address, self.problem),
        }
    }
}

impl std::error::Error for BadBindAddress {}

impl BindAddresses {
    /// These addresses, which this machine must have.
    pub fn new(addresses: &[IpAddr]) -> Result<Self, BadBindAddress> {
        for address in addresses {
            let bound = UdpSocket::bind(SocketAddr::new(*address, 0));
            bound.map_err(|problem| BadBindAddress { address: *address, problem })?;
        }
        let (v4, v6) = addresses.iter().partition(|address| address.is_ipv4());
        Ok(Self { v4, v6, turn: AtomicUsize::default() })
    }

    /// The address for the next connection to `remote`; nothing if the system chooses. An error if there are
    /// addresses of the other family only: the system would send from one that receivers do not expect.
    pub(super) fn next_for(&self, remote: IpAddr) -> io::Result<Option<IpAddr>> {
        let of_family = if remote.is_ipv4() { &self.v4 } else { &self.v6 };
        if !of_family.is_empty() {
            let turn = self.turn.fetch_add(1, Ordering::Relaxed);
            return Ok(Some(of_family[turn % of_family.len()]));
        }
        if self.v4.is_empty() && self.v6.is_empty() {
            return Ok(None);
        }
        let family = if remote.is_ipv4() { "IPv4" } else { "IPv6" };
        let problem = format!("`delivery.bind` has no {family} address to send from");
        Err(io::Error::new(io::ErrorKind::NetworkUnreachable, problem))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn addresses_of_the_receivers_family_take_turns() {
        let bind = BindAddresses::new(&[address("127.0.0.2"), address("127.0.0.3")]).unwrap();
        let next = || bind.next_for(address("127.0.0.1")).unwrap().unwrap().to_string();
        assert_eq!([next(), next(), next()], ["127.0.0.2", "127.0.0.3", "127.0.0.2"]);
        let refused = bind.next_for(address("::1")).unwrap_err();
        assert_eq!(refused.to_string(), "`delivery.bind` has no IPv6 address to send from");
    }

    #[test]
    fn without_addresses_the_system_chooses() {
        let bind = BindAddresses::new(&[]).unwrap();
        assert_eq!(bind.next_for(address("::1")).unwrap(), None);
    }

    #[test]
    fn an_address_of_another_machine_is_refused() {
        let refused = BindAddresses::new(&[address("192.0.2.1")]).unwrap_err();
        assert_eq!(refused.to_string(), "this machine does not have the address 192.0.2.1");
    }
}
