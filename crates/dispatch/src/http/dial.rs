//! A new connection: look the name up, check every address, connect to one that passed, shake hands.
//!
//! The name is looked up once for each connection, and the socket is opened to exactly the address
//! that was checked. Nothing else in this crate opens a socket.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use railpost_engine::Failure;
use rustls::pki_types::ServerName;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::TlsConnector;

use super::attempt_error::AttemptError;
use super::bind::BindAddresses;
use super::exchange::{Detail, Timing};
use super::stream::Stream;
use super::tls::ALPN_H2;
use crate::guard::{Allowed, Guard, Host, Resolve};
use crate::limits::{
    ADDRESSES_TRIED_MAX, TCP_KEEPALIVE_INTERVAL, TCP_KEEPALIVE_RETRIES, TCP_KEEPALIVE_TIME,
};

/// Where connections of one kind lead.
pub(super) struct Destination {
    pub(super) host: Host,
    pub(super) port: u16,
    /// What to shake hands with; nothing for plain HTTP.
    pub(super) tls: Option<(TlsConnector, ServerName<'static>)>,
}

/// A connection that is ready for HTTP.
pub(super) struct Dialled {
    pub(super) stream: Stream,
    pub(super) peer: Peer,
    pub(super) speaks_h2: bool,
}

/// Who is at the other end.
#[derive(Clone, Debug)]
pub(super) struct Peer {
    pub(super) remote: SocketAddr,
    pub(super) exception: Option<Arc<str>>,
}

impl Peer {
    pub(super) fn note(&self, detail: &mut Detail) {
        detail.remote = Some(self.remote);
        detail.exception.clone_from(&self.exception);
    }
}

/// Makes connections.
pub(super) struct Dialler {
    pub(super) guard: Guard,
    pub(super) resolver: Arc<dyn Resolve>,
    pub(super) bind: Arc<BindAddresses>,
}

/// How long a connection may take, and until when that is.
#[derive(Clone, Copy)]
pub(super) struct ConnectDeadline {
    pub(super) limit: Duration,
    pub(super) until: Instant,
}

impl ConnectDeadline {
    pub(super) fn from_now(limit: Duration) -> Self {
        Self { limit, until: Instant::now() + limit }
    }
}

impl Dialler {
    /// A new connection to `destination`. What is known on the way is noted in `detail`.
    pub(super) async fn dial(
        &self,
        destination: &Destination,
        deadline: ConnectDeadline,
        detail: &mut Detail,
    ) -> Result<Dialled, AttemptError> {
        let found = self.look_up(&destination.host, deadline, &mut detail.timing).await?;
        let peers = self.allowed(&destination.host, destination.port, &found)?;
        let started = Instant::now();
        let (socket, peer) = connect(peers, &self.bind, deadline, detail).await?;
        detail.timing.connect = Some(started.elapsed());
        let stream = shake_hands(socket, destination, deadline, &mut detail.timing).await?;
        let speaks_h2 = matches!(&stream, Stream::Tls(tls)
            if tls.get_ref().1.alpn_protocol() == Some(ALPN_H2));
        Ok(Dialled { stream, peer, speaks_h2 })
    }

    async fn look_up(
        &self,
        host: &Host,
        deadline: ConnectDeadline,
        timing: &mut Timing,
    ) -> Result<Vec<IpAddr>, AttemptError> {
        let name = match host {
            Host::Name(name) => name,
            Host::Address(address) => return Ok(vec![*address]),
        };
        if self.guard.allows_nothing() {
            let message = format!("requests to {name} are refused: no network may be sent to");
            return Err(AttemptError::new(Failure::BlockedAddress, message));
        }
        let dns_error =
            |problem| AttemptError::new(Failure::Dns, format!("look up {name}: {problem}"));
        let started = Instant::now();
        let found = timeout_at(deadline.until, self.resolver.resolve(name)).await;
        timing.dns = Some(started.elapsed());
        match found {
            Err(_) => Err(dns_error(format!("no answer within {:?}", deadline.limit))),
            Ok(Err(error)) => Err(dns_error(error.to_string())),
            Ok(Ok(found)) if found.is_empty() => Err(dns_error("it has no address".into())),
            Ok(Ok(found)) => Ok(found),
        }
    }

    /// Those of the addresses that requests may go to, in the order in which to try them.
    fn allowed(&self, host: &Host, port: u16, found: &[IpAddr]) -> Result<Vec<Peer>, AttemptError> {
        let mut peers = Vec::new();
        let mut blocked = None;
        for address in alternating(found) {
            let remote = SocketAddr::new(address, port);
            match self.guard.check(address) {
                Ok(Allowed::Public) => peers.push(Peer { remote, exception: None }),
                Ok(Allowed::Exception(name)) => peers.push(Peer { remote, exception: Some(name) }),
                Err(refused) => blocked = Some(refused),
            }
        }
        match blocked {
            Some(blocked) if peers.is_empty() => {
                let message = format!("requests to {host} at {blocked} are refused");
                Err(AttemptError::new(Failure::BlockedAddress, message))
            }
            _ => Ok(peers),
        }
    }
}

/// The addresses with both families taking turns, so that one broken family costs one share of the
/// deadline and not all of it.
fn alternating(found: &[IpAddr]) -> Vec<IpAddr> {
    let first_is_v6 = found.first().is_some_and(IpAddr::is_ipv6);
    let (mut first, mut second) = (Vec::new(), Vec::new());
    for address in found {
        let family = if address.is_ipv6() == first_is_v6 { &mut first } else { &mut second };
        family.push((family.len(), *address));
    }
    first.append(&mut second);
    first.sort_by_key(|(turn, _)| *turn);
    first.into_iter().map(|(_, address)| address).collect()
}

async fn connect(
    peers: Vec<Peer>,
    bind: &BindAddresses,
    deadline: ConnectDeadline,
    detail: &mut Detail,
) -> Result<(TcpStream, Peer), AttemptError> {
    let mut error = AttemptError::new(Failure::Dns, "there is no address to connect to");
    let mut left = peers.len().min(ADDRESSES_TRIED_MAX) as u32;
    for peer in peers.into_iter().take(ADDRESSES_TRIED_MAX) {
        peer.note(detail);
        let share = deadline.until.saturating_duration_since(Instant::now()) / left;
        left -= 1;
        error = match timeout(share, connect_to(peer.remote, bind)).await {
            Ok(Ok(socket)) => return Ok((socket, peer)),
            Ok(Err(error)) => AttemptError::connect(&error),
            Err(_) => connect_timeout("no connection", deadline),
        };
        error.message = format!("connect to {}: {}", peer.remote, error.message);
    }
    Err(error)
}

async fn connect_to(remote: SocketAddr, bind: &BindAddresses) -> io::Result<TcpStream> {
    let socket = match remote {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    if let Some(address) = bind.next_for(remote.ip())? {
        socket.bind(SocketAddr::new(address, 0))?;
    }
    let socket = socket.connect(remote).await?;
    socket.set_nodelay(true)?;
    let keepalive = TcpKeepalive::new()
        .with_time(TCP_KEEPALIVE_TIME)
        .with_interval(TCP_KEEPALIVE_INTERVAL)
        .with_retries(TCP_KEEPALIVE_RETRIES);
    SockRef::from(&socket).set_tcp_keepalive(&keepalive)?;
    Ok(socket)
}

async fn shake_hands(
    socket: TcpStream,
    destination: &Destination,
    deadline: ConnectDeadline,
    timing: &mut Timing,
) -> Result<Stream, AttemptError> {
    let Some((connector, name)) = &destination.tls else { return Ok(Stream::Plain(socket)) };
    let started = Instant::now();
    let shaken = timeout_at(deadline.until, connector.connect(name.clone(), socket)).await;
    timing.tls = Some(started.elapsed());
    match shaken {
        Ok(Ok(stream)) => Ok(Stream::Tls(Box::new(stream))),
        Ok(Err(error)) => Err(AttemptError::handshake(&error)),
        Err(_) => Err(connect_timeout("the TLS handshake did not end", deadline)),
    }
}

pub(super) fn connect_timeout(what: &str, deadline: ConnectDeadline) -> AttemptError {
    AttemptError::new(Failure::ConnectTimeout, format!("{what} within {:?}", deadline.limit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_socket_does_not_wait_for_more_to_send_and_asks_whether_its_peer_is_there() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let socket =
            connect_to(listener.local_addr().unwrap(), &BindAddresses::default()).await.unwrap();
        assert!(socket.nodelay().unwrap());
        let socket = SockRef::from(&socket);
        assert!(socket.keepalive().unwrap());
        assert_eq!(socket.tcp_keepalive_time().unwrap(), TCP_KEEPALIVE_TIME);
        assert_eq!(socket.tcp_keepalive_interval().unwrap(), TCP_KEEPALIVE_INTERVAL);
        assert_eq!(socket.tcp_keepalive_retries().unwrap(), TCP_KEEPALIVE_RETRIES);
    }

    #[test]
    fn address_families_take_turns_beginning_with_the_resolvers_first() {
        for (found, tried) in [
            (vec!["::1", "::2", "1.1.1.1"], vec!["::1", "1.1.1.1", "::2"]),
            (vec!["1.1.1.1", "::1", "::2", "::3"], vec!["1.1.1.1", "::1", "::2", "::3"]),
            (vec!["1.1.1.1", "2.2.2.2"], vec!["1.1.1.1", "2.2.2.2"]),
            (vec![], vec![]),
        ] {
            let parse = |texts: Vec<&str>| -> Vec<IpAddr> {
                texts.into_iter().map(|text| text.parse().unwrap()).collect()
            };
            assert_eq!(alternating(&parse(found)), parse(tried));
        }
    }
}
