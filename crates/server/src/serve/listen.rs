//! Taking connections.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use railpost_api::{Api, App, TrustedProxies};
use railpost_dashboard::Dashboard;
use railpost_telemetry::{Level, Value};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio_rustls::TlsAcceptor;

use super::admission::Admission;
use super::connection::Connection;
use super::{StartError, failed, tls};
use crate::config::Config;
use crate::loopback::LoopbackWatch;

/// Where connections come in.
pub(super) struct HttpListener {
    pub(super) address: SocketAddr,
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
}

/// What answers the requests of all connections.
pub(super) struct RequestHandlers {
    pub(super) app: Arc<App>,
    pub(super) api: Api,
    pub(super) dashboard: Router,
    pub(super) trusted_proxies: TrustedProxies,
    pub(super) loopback: Arc<LoopbackWatch>,
    pub(super) admission: Admission,
}

impl RequestHandlers {
    pub(super) fn new(
        app: Arc<App>,
        dashboard: &Dashboard,
        trusted_proxies: TrustedProxies,
        loopback: Arc<LoopbackWatch>,
        admission: Admission,
    ) -> Self {
        let api = Api::new(&app);
        // With its state a router is complete: without, it would put its handlers together again for
        // every request.
        let dashboard = dashboard.router().with_state(());
        Self { app, api, dashboard, trusted_proxies, loopback, admission }
    }
}

impl HttpListener {
    /// Takes the address.
    pub(super) async fn open(config: &Config) -> Result<Self, StartError> {
        let tls = tls::acceptor(config)?;
        let wanted = config.server.listen;
        let listener = TcpListener::bind(wanted).await;
        let listener = listener.map_err(|error| not_bound(wanted, &error))?;
        let address = listener.local_addr().map_err(|error| failed("server.listen", error))?;
        Ok(Self { address, listener, tls })
    }

    /// Takes connections until told to stop, then waits for those that are open.
    pub(super) async fn listen(
        self,
        served: Arc<RequestHandlers>,
        mut stopping: watch::Receiver<bool>,
    ) {
        let places_max = served.app.settings.limits.connections_max;
        let places = Arc::new(Semaphore::new(places_max as usize));
        let stop = stopping.clone();
        loop {
            let taken = tokio::select! {
                taken = self.take(&places) => taken,
                _ = stopping.wait_for(|stop| *stop) => break,
            };
            match taken {
                Ok((stream, peer, place)) => {
                    let connection = Connection {
                        served: served.clone(),
                        peer,
                        stopping: stop.clone(),
                        _place: place,
                    };
                    tokio::spawn(connection.receive(stream, self.tls.clone()));
                }
                // Out of file descriptors, most likely: let some close.
                Err(problem) => {
                    tell_not_taken(&served.app, &problem);
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
        drop(self.listener);
        // Each connection gives its place back when it has ended.
        let _ = places.acquire_many(places_max).await;
    }

    /// The next connection, once there is a place for it.
    async fn take(
        &self,
        places: &Arc<Semaphore>,
    ) -> io::Result<(TcpStream, IpAddr, OwnedSemaphorePermit)> {
        let place = places.clone().acquire_owned().await.map_err(io::Error::other)?;
        let (stream, peer) = self.listener.accept().await?;
        Ok((stream, peer.ip().to_canonical(), place))
    }
}

fn tell_not_taken(app: &App, problem: &io::Error) {
    let fields = [("problem", Value::Display(problem))];
    app.telemetry.log.line(Level::Error, "connections_not_taken", &fields);
}

fn not_bound(address: SocketAddr, error: &io::Error) -> StartError {
    let port = address.port();
    let advice = match error.kind() {
        io::ErrorKind::AddrInUse => format!(
            "another program listens there; is Railpost running already? `ss -ltnp 'sport = :{port}'` \
             says who; or choose another port with --listen {}:{}",
            address.ip(),
            port.saturating_add(1)
        ),
        io::ErrorKind::PermissionDenied => "ports below 1024 are for the administrator".to_owned(),
        io::ErrorKind::AddrNotAvailable => "this machine does not have that address".to_owned(),
        _ => error.to_string(),
    };
    StartError(format!("server.listen: cannot listen on {address}: {advice}"))
}
