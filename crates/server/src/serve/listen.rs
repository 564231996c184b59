//! Taking connections.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio_rustls::TlsAcceptor;

use super::connection::Connection;
use super::{StartError, failed, tls};
use crate::api::Api;
use crate::app::App;
use crate::config::Config;
use crate::dashboard;
use crate::telemetry::{Level, Value};

/// Where connections come in.
pub(super) struct HttpListener {
    pub(super) address: SocketAddr,
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
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
    pub(super) async fn listen(self, app: Arc<App>, mut stopping: watch::Receiver<bool>) {
        let api = Api::new(&app);
        // A router with its state is complete; without, it would build its handlers again for every
        // request.
        let dashboard: Router = dashboard::router(&app, api.clone()).with_state(());
        let places_max = app.config.limits.connections_max;
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
                        api: api.clone(),
                        dashboard: dashboard.clone(),
                        app: app.clone(),
                        peer,
                        stopping: stop.clone(),
                        _place: place,
                    };
                    tokio::spawn(connection.receive(stream, self.tls.clone()));
                }
                // Out of file descriptors, most likely: let some close.
                Err(problem) => {
                    tell_not_taken(&app, &problem);
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
    let fields = [("problem", Value::Shown(problem))];
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
