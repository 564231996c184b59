//! The socket to the server, plain or with TLS, and messages over it.

use std::net::IpAddr;
use std::path::Path;

use bytes::BytesMut;
use postgres_protocol::message::frontend;
use rustls::pki_types::ServerName;
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio_postgres::config::Host;
use tokio_rustls::TlsConnector;

use crate::backend::{self, Backend};
use crate::limits::{ANSWER_LEN_MAX, READ_LEN, TCP_USER_TIMEOUT};
use crate::{Error, ErrorKind, Target, tls};

/// What bytes go through.
pub(crate) trait Socket: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Socket for S {}

/// A connection to a server, before the startup message.
pub(crate) struct Transport {
    pub(crate) socket: Box<dyn Socket>,
    /// What was read and not looked at yet.
    pub(crate) input: BytesMut,
    /// Whether nobody on the way can read along.
    pub(crate) is_private: bool,
    /// What SCRAM can bind to, if TLS offers it.
    pub(crate) channel_binding: Option<Vec<u8>>,
}

/// One of the servers that a URL names.
#[derive(Clone, Debug)]
pub(crate) struct ServerAddress {
    host: Option<Host>,
    ip: Option<IpAddr>,
    port: u16,
}

impl ServerAddress {
    /// All servers of a target, in the order of the URL.
    pub(crate) fn all(target: &Target) -> Vec<Self> {
        let (hosts, ips) = (target.config.get_hosts(), target.config.get_hostaddrs());
        let ports = target.config.get_ports();
        let port = |index: usize| match ports {
            [] => 5432,
            [port] => *port,
            ports => ports.get(index).copied().unwrap_or(5432),
        };
        let address = |index: usize| Self {
            host: hosts.get(index).cloned(),
            ip: ips.get(index).copied(),
            port: port(index),
        };
        (0..hosts.len().max(ips.len())).map(address).collect()
    }
}

impl std::fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (&self.host, &self.ip) {
            (Some(Host::Tcp(name)), _) => write!(f, "{name}:{}", self.port),
            (Some(Host::Unix(folder)), _) => write!(f, "{}:{}", folder.display(), self.port),
            (None, Some(ip)) => write!(f, "{ip}:{}", self.port),
            (None, None) => f.write_str("nowhere"),
        }
    }
}

impl Transport {
    pub(crate) async fn connect(address: &ServerAddress, target: &Target) -> Result<Self, Error> {
        if let (Some(Host::Unix(folder)), None) = (&address.host, &address.ip) {
            return Ok(Self::private(Box::new(unix(folder, address).await?), None));
        }
        let tcp = tcp(address).await?;
        let Some(config) = &target.tls else {
            return Ok(Self { is_private: false, ..Self::private(Box::new(tcp), None) });
        };
        let tcp = request_tls(tcp).await?;
        let name = match (&address.host, &address.ip) {
            (Some(Host::Tcp(name)), _) => name.clone(),
            (_, ip) => ip.map(|ip| ip.to_string()).unwrap_or_default(),
        };
        let name = ServerName::try_from(name)
            .map_err(|error| Error::new(ErrorKind::Invalid, format!("invalid host: {error}")))?;
        let connected = TlsConnector::from(config.clone()).connect(name, tcp).await;
        let socket = connected
            .map_err(|error| Error::new(ErrorKind::Tls, format!("no TLS to {address}: {error}")))?;
        let certificates = socket.get_ref().1.peer_certificates().unwrap_or_default();
        let channel_binding = certificates.first().and_then(|first| tls::server_end_point(first));
        Ok(Self::private(Box::new(socket), channel_binding))
    }

    fn private(socket: Box<dyn Socket>, channel_binding: Option<Vec<u8>>) -> Self {
        Self { socket, input: BytesMut::with_capacity(READ_LEN), is_private: true, channel_binding }
    }

    /// Sends whole messages.
    pub(crate) async fn send(&mut self, messages: &[u8]) -> Result<(), Error> {
        let sent = async {
            self.socket.write_all(messages).await?;
            self.socket.flush().await
        };
        sent.await.map_err(|error| Error::disconnected(&error))
    }

    /// The server's next message, of those that are no part of a stream.
    pub(crate) async fn receive(&mut self) -> Result<Backend, Error> {
        loop {
            if let Some(message) = backend::take(&mut self.input, ANSWER_LEN_MAX)? {
                return Ok(message);
            }
            self.input.reserve(READ_LEN);
            match self.socket.read_buf(&mut self.input).await {
                Ok(0) => return Err(closed()),
                Ok(_) => {}
                Err(error) => return Err(Error::disconnected(&error)),
            }
        }
    }
}

pub(crate) fn closed() -> Error {
    Error::new(ErrorKind::Disconnected, "the server closed the connection")
}

async fn unix(folder: &Path, address: &ServerAddress) -> Result<UnixStream, Error> {
    let path = folder.join(format!(".s.PGSQL.{}", address.port));
    UnixStream::connect(path).await.map_err(|error| unreachable(address, &error))
}

async fn tcp(address: &ServerAddress) -> Result<TcpStream, Error> {
    let connected = match (&address.ip, &address.host) {
        (Some(ip), _) => TcpStream::connect((*ip, address.port)).await,
        (None, Some(Host::Tcp(name))) => TcpStream::connect((name.as_str(), address.port)).await,
        (None, _) => Err(std::io::ErrorKind::AddrNotAvailable.into()),
    };
    let tcp = connected.map_err(|error| unreachable(address, &error))?;
    let set = tcp
        .set_nodelay(true)
        .and_then(|()| SockRef::from(&tcp).set_tcp_user_timeout(Some(TCP_USER_TIMEOUT)));
    set.map_err(|error| unreachable(address, &error))?;
    Ok(tcp)
}

fn unreachable(address: &ServerAddress, error: &std::io::Error) -> Error {
    Error::new(ErrorKind::Unreachable, format!("no connection to {address}: {error}"))
}

/// Asks for TLS. One byte of the answer is read and no more: what follows is TLS's.
async fn request_tls(mut tcp: TcpStream) -> Result<TcpStream, Error> {
    let mut request = BytesMut::new();
    frontend::ssl_request(&mut request);
    let answer = async {
        tcp.write_all(&request).await?;
        tcp.read_u8().await
    };
    match answer.await {
        Ok(b'S') => Ok(tcp),
        Ok(b'N') => Err(Error::new(ErrorKind::Tls, "the server has no TLS")),
        Ok(_) => Err(Error::new(
            ErrorKind::Protocol,
            "the answer to the request for TLS is neither yes nor no",
        )),
        Err(error) => Err(Error::disconnected(&error)),
    }
}
