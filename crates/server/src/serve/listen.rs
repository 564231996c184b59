//! Taking connections, and serving what comes over them.

use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use futures_util::FutureExt;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio_rustls::TlsAcceptor;
use tower_service::Service;

use super::{StartError, duration, failed, tls};
use crate::api::Api;
use crate::app::App;
use crate::config::Config;
use crate::dashboard::{self, Peer};
use crate::limits::{REQUEST_HEAD_LEN_MAX, REQUEST_HEAD_TIMEOUT};
use crate::telemetry::{Level, Value};

/// Where connections come in.
pub(super) struct HttpListener {
    pub(super) address: SocketAddr,
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
}

/// One connection: what serves it, and its place among those that may be open.
struct Visit {
    api: Api,
    dashboard: Router,
    app: Arc<App>,
    peer: Peer,
    watcher: Watcher,
    _place: OwnedSemaphorePermit,
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
        // With its state a router is complete: without, it would put its handlers together anew for
        // every request.
        let dashboard: Router = dashboard::router(&app, api.clone()).with_state(());
        let places = Arc::new(Semaphore::new(app.config.limits.connections_max as usize));
        let connections = GracefulShutdown::new();
        loop {
            let taken = tokio::select! {
                taken = self.take(&places) => taken,
                _ = stopping.wait_for(|stop| *stop) => break,
            };
            match taken {
                Ok((stream, peer, place)) => {
                    let watcher = connections.watcher();
                    let (api, dashboard, app) = (api.clone(), dashboard.clone(), app.clone());
                    let visit = Visit { api, dashboard, app, peer, watcher, _place: place };
                    tokio::spawn(visit.receive(stream, self.tls.clone()));
                }
                // Out of file descriptors, most likely: let some close.
                Err(problem) => {
                    tell_not_taken(&app, &problem);
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
        drop(self.listener);
        connections.shutdown().await;
    }

    /// The next connection, once there is a place for it.
    async fn take(
        &self,
        places: &Arc<Semaphore>,
    ) -> io::Result<(TcpStream, Peer, OwnedSemaphorePermit)> {
        let place = places.clone().acquire_owned().await.map_err(io::Error::other)?;
        let (stream, peer) = self.listener.accept().await?;
        Ok((stream, Peer(peer.ip()), place))
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

impl Visit {
    async fn receive(self, stream: TcpStream, tls: Option<TlsAcceptor>) {
        let open = self.app.telemetry.clone();
        open.metrics.connections_open.fetch_add(1, Ordering::Relaxed);
        let _ = stream.set_nodelay(true);
        match tls {
            None => self.serve(stream).await,
            Some(tls) => {
                let greeting = tls.accept(stream);
                let greeted = tokio::time::timeout(duration(REQUEST_HEAD_TIMEOUT), greeting).await;
                if let Ok(Ok(stream)) = greeted {
                    self.serve(stream).await;
                }
            }
        }
        open.metrics.connections_open.fetch_sub(1, Ordering::Relaxed);
    }

    async fn serve(self, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
        let mut builder = auto::Builder::new(TokioExecutor::new());
        builder
            .http1()
            // Most answers are short: to copy one behind its head is cheaper than to write two pieces.
            .writev(false)
            .timer(TokioTimer::new())
            .header_read_timeout(duration(REQUEST_HEAD_TIMEOUT))
            .max_buf_size(REQUEST_HEAD_LEN_MAX);
        builder.http2().max_header_list_size(REQUEST_HEAD_LEN_MAX as u32);
        let (api, dashboard, peer) = (self.api, self.dashboard, self.peer);
        let asked = Arc::new(AtomicBool::new(false));
        let asking = asked.clone();
        let service =
            hyper::service::service_fn(move |request: http::Request<hyper::body::Incoming>| {
                asking.store(true, Ordering::Relaxed);
                let answer = api.take(request.map(Body::new)).unwrap_or_else(|mut request| {
                    request.extensions_mut().insert(peer);
                    let answer = dashboard.clone().call(*request);
                    Box::pin(answer.map(|answer| answer.unwrap_or_else(|never| match never {})))
                });
                answer.map(Ok::<_, Infallible>)
            });
        let connection = builder.serve_connection(TokioIo::new(stream), service).into_owned();
        // A connection that breaks is its client's affair.
        unless_silent(self.watcher.watch(connection).map(drop), &asked).await;
    }
}

/// Serves a connection to its end, or until nothing was asked for in the time that a head may take. Which HTTP is
/// spoken shows in the first bytes, and until then no timeout of either counts: a client that says
/// nothing, or a letter, would keep its connection for ever.
async fn unless_silent(connection: impl Future<Output = ()>, asked: &AtomicBool) {
    let mut connection = pin!(connection);
    let mut silence = pin!(tokio::time::sleep(duration(REQUEST_HEAD_TIMEOUT)));
    poll_fn(|cx| match connection.as_mut().poll(cx) {
        Poll::Pending if !asked.load(Ordering::Relaxed) => silence.as_mut().poll(cx),
        served => served,
    })
    .await;
}
