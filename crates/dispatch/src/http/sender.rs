//! The sender: one request in, one exchange out, always within its deadline.

use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ::http::HeaderValue;
use ::http::header::RETRY_AFTER;
use railpost_engine::{AttemptResult, Span};
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsConnector;

use super::attempt_error::AttemptError;
use super::bind::BindAddresses;
use super::dial::{ConnectDeadline, Destination, Dialler, connect_timeout};
use super::exchange::{BodyEnd, Detail, Exchange, Response};
use super::h1::H1;
use super::h2::H2;
use super::headers::{BadHeader, parse_value};
use super::pool::{Connection, Origin, Pool, PoolBounds};
use super::request::{FailedRequest, Request};
use super::route::{Route, RouteConfig};
use super::tls::{BadTls, Handshakes, Roots, TlsSettings};
use crate::guard::{Guard, Resolve, Scheme, SystemResolver, Target};

/// What a sender is made of.
pub struct SenderConfig {
    /// Where requests may go.
    pub guard: Guard,
    /// Who looks names up.
    pub resolver: Arc<dyn Resolve>,
    /// Whose certificates to trust.
    pub roots: Roots,
    /// The `User-Agent` of all requests, unless an endpoint sets its own.
    pub user_agent: String,
    /// How many idle connections to keep.
    pub pool: PoolBounds,
    /// The addresses that connections leave from.
    pub bind: Arc<BindAddresses>,
}

impl Default for SenderConfig {
    fn default() -> Self {
        Self {
            guard: Guard::default(),
            resolver: Arc::new(SystemResolver::default()),
            roots: Roots::default(),
            user_agent: concat!("Railpost/", env!("CARGO_PKG_VERSION")).to_owned(),
            pool: PoolBounds::default(),
            bind: Arc::default(),
        }
    }
}

/// Sends requests. Cheap to clone; clones share connections.
///
/// Needs a tokio runtime with time and I/O from the first request on, and reads no proxy settings
/// from anywhere: a request goes where its target says.
#[derive(Clone)]
pub struct Sender(Arc<Inner>);

struct Inner {
    dialler: Dialler,
    pool: Arc<Pool>,
    handshakes: Handshakes,
    user_agent: HeaderValue,
}

impl Sender {
    /// A sender with these settings.
    pub fn new(config: SenderConfig) -> Result<Self, BadSender> {
        let SenderConfig { guard, resolver, roots, user_agent, pool, bind } = config;
        Ok(Self(Arc::new(Inner {
            dialler: Dialler { guard, resolver, bind },
            pool: Arc::new(Pool::new(pool)),
            handshakes: Handshakes::new(&roots).map_err(BadSender::Tls)?,
            user_agent: parse_value("user-agent", user_agent).map_err(BadSender::UserAgent)?,
        })))
    }

    /// What judges its requests' addresses, and should judge their targets too.
    pub fn guard(&self) -> &Guard {
        &self.0.dialler.guard
    }

    /// Prepares the way to an endpoint: once, and again when the endpoint changes.
    pub fn route(&self, config: &RouteConfig) -> Result<Route, BadTls> {
        let Inner { pool, handshakes, user_agent, .. } = &*self.0;
        let key = pool.key(config);
        let origin = pool.origin(key, || destination(&config.target, &config.tls, handshakes))?;
        Ok(Route::new(config, origin, user_agent))
    }

    /// Sends one request and says what came of it. It ends within the route's total timeout.
    ///
    /// The answer is its status: once the head is there, trouble with the body changes nothing but
    /// [`BodyEnd`]. Redirects are answers like any other. Dropping the future closes its connection.
    pub fn send<'a>(&'a self, request: Request<'a>) -> impl Future<Output = Exchange> + Send + 'a {
        let limit = request.route.timeouts().total();
        let mut attempt = Attempt::new(&self.0, request);
        async move {
            let until = attempt.started + limit;
            // Pinned first: whatever takes it as it is moves all of it.
            let ended = timeout_at(until, pin!(attempt.run())).await;
            let ended = ended.unwrap_or_else(|_| Err(attempt.cut_off(limit)));
            attempt.finish(ended)
        }
    }
}

impl fmt::Debug for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sender")
    }
}

/// Settings that no sender can work with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BadSender {
    /// The authorities to trust.
    Tls(BadTls),
    /// The `User-Agent`.
    UserAgent(BadHeader),
}

impl fmt::Display for BadSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BadSender::Tls(problem) => problem.fmt(f),
            BadSender::UserAgent(problem) => problem.fmt(f),
        }
    }
}

impl std::error::Error for BadSender {}

fn destination(
    target: &Target,
    tls: &TlsSettings,
    handshakes: &Handshakes,
) -> Result<Destination, BadTls> {
    let tls = match target.scheme() {
        Scheme::Http => None,
        Scheme::Https => Some((TlsConnector::from(handshakes.config(tls)?), target.server_name())),
    };
    Ok(Destination { host: target.host().clone(), port: target.port(), tls })
}

/// One attempt under way, and what is known of it so far.
///
/// A future is held and moved as a whole, used or not, and there are as many as attempts. So what few
/// attempts need is boxed, and what all need is kept here instead of passed on from future to future, each
/// of which would have room for it.
struct Attempt<'a> {
    sender: &'a Inner,
    request: Request<'a>,
    started: Instant,
    detail: Detail,
    /// The shared connection it waits on.
    waits_on: Option<H2>,
}

impl<'a> Attempt<'a> {
    fn new(sender: &'a Inner, request: Request<'a>) -> Self {
        let (started, detail) = (Instant::now(), Detail::default());
        Self { sender, request, started, detail, waits_on: None }
    }

    async fn run(&mut self) -> Result<(), AttemptError> {
        let Some(connection) = self.check_out(self.started) else {
            return Box::pin(self.run_anew()).await;
        };
        self.detail.reused = true;
        match self.exchange(connection).await {
            Err(FailedRequest { untouched: true, .. }) => {
                self.detail.reused = false;
                self.detail.resent = true;
                Box::pin(self.run_anew()).await
            }
            ended => ended.map_err(|failed| failed.error),
        }
    }

    /// A connection that served before, unless the guard has closed the way by which it came about.
    fn check_out(&self, now: Instant) -> Option<Connection> {
        let connection = self.origin().check_out(now)?;
        let peer = connection.peer();
        let is_open = || self.sender.dialler.guard.check(peer.remote.ip()).is_ok();
        let is_allowed = peer.exception.is_none() || is_open();
        if let Connection::H2(shared) = &connection
            && !is_allowed
        {
            self.origin().retire(shared);
        }
        is_allowed.then_some(connection)
    }

    async fn run_anew(&mut self) -> Result<(), AttemptError> {
        let connection = self.connect().await?;
        self.exchange(connection).await.map_err(|failed| failed.error)
    }

    async fn connect(&mut self) -> Result<Connection, AttemptError> {
        let origin = self.origin();
        let deadline = ConnectDeadline::from_now(self.request.route.timeouts().connect());
        let turn = timeout_at(deadline.until, origin.turn_to_dial()).await;
        let turn = turn.map_err(|_| connect_timeout("no connection", deadline))?;
        // The task that dialled before may have left a connection for all.
        if turn.is_some()
            && let Some(connection) = self.check_out(Instant::now())
        {
            self.detail.reused = true;
            return Ok(connection);
        }
        let dialler = &self.sender.dialler;
        let dialled = dialler.dial(&origin.destination, deadline, &mut self.detail).await?;
        origin.learn(dialled.speaks_h2);
        if !dialled.speaks_h2 {
            return Ok(Connection::H1(H1::new(dialled.stream, dialled.peer)));
        }
        let connection = H2::new(dialled.stream, dialled.peer).await?;
        origin.share(&connection);
        Ok(Connection::H2(connection))
    }

    /// Sends the request and takes its answer in.
    async fn exchange(&mut self, connection: Connection) -> Result<(), FailedRequest> {
        self.sender.pool.keep_swept();
        match connection {
            Connection::H1(mut connection) => {
                let (request, started) = (&self.request, self.started);
                connection.exchange(request, started, &mut self.detail).await?;
                self.origin().check_in(connection);
                Ok(())
            }
            Connection::H2(connection) => Box::pin(self.exchange_h2(connection)).await,
        }
    }

    async fn exchange_h2(&mut self, mut connection: H2) -> Result<(), FailedRequest> {
        self.waits_on = Some(connection.clone());
        let (request, started) = (&self.request, self.started);
        let ended = connection.exchange(request, started, &mut self.detail).await;
        self.waits_on = None;
        if matches!(&ended, Err(FailedRequest { untouched: true, .. })) {
            self.origin().retire(&connection);
        }
        drop(connection);
        self.origin().close_unkept();
        ended
    }

    /// Its time was over. A shared connection on which nothing came may be dead, so that later
    /// attempts must not wait on it too.
    fn cut_off(&mut self, limit: Duration) -> AttemptError {
        match &mut self.detail.response {
            Some(response) if !response.is_success() => {
                response.body.end = BodyEnd::TimedOut;
            }
            Some(_) => {}
            None => {
                if let Some(silent) = self.waits_on.take() {
                    self.origin().retire(&silent);
                }
            }
        }
        AttemptError::total_timeout(limit)
    }

    fn finish(&mut self, ended: Result<(), AttemptError>) -> Exchange {
        self.detail.timing.total = self.started.elapsed();
        let result = match (&self.detail.response, ended) {
            (Some(response), _) => answered(response),
            (None, ended) => {
                let error = ended.err().unwrap_or_else(AttemptError::without_answer);
                self.detail.message = Some(error.message);
                AttemptResult::Failed(error.failure)
            }
        };
        Exchange { result, detail: std::mem::take(&mut self.detail) }
    }

    fn origin(&self) -> &'a Origin {
        self.request.route.origin()
    }
}

fn answered(response: &Response) -> AttemptResult {
    let wait = response.headers.get(RETRY_AFTER).and_then(|value| {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        railpost_wire::retry_after(value.as_bytes(), now.as_secs() as i64)
    });
    let retry_after = wait.map(|wait| Span::from_millis(wait.as_millis() as u64));
    AttemptResult::Response { status: response.status, retry_after }
}
