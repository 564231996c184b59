//! The sink: where deliveries arrive. One process with a port per endpoint; it acknowledges at once,
//! checks order and signatures, counts duplicates and measures. On order it hangs, or is down.

pub(crate) mod ledger;

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::HeaderMap;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use railpost_wire::{Header, HeaderNames, Secret, Verifier};
use serde::{Deserialize, Serialize};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

use crate::clock::now_us;
use crate::limits::VERIFY_EVERY;
use crate::parent_channel::ParentChannel;
use crate::payload::{Payload, digits};
use ledger::{Arrival, ArrivalFigures, Ledger};

/// What the parent may ask.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub(crate) enum SinkCommand {
    /// Set the figures back; answered when done.
    Reset,
    /// How many deliveries need not be waited for at each endpoint: fresh ones and refused ones.
    Counts,
    /// The figures of each endpoint.
    Report,
    /// When each fresh delivery of an endpoint came, since this was asked last.
    Times { endpoint: usize },
    /// Let an endpoint wait so long before it acknowledges.
    Hang { endpoint: usize, millis: u64 },
    /// Verify an endpoint's deliveries with its secret.
    Verify { endpoint: usize, secret: String },
    /// Close every connection and refuse new ones.
    Down,
    /// Listen again, on the same ports.
    Up,
}

/// Where the endpoints are.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SinkReady {
    pub(crate) ports: Vec<u16>,
}

struct Endpoint {
    port: u16,
    hang_ms: AtomicU64,
    names: HeaderNames,
    verifier: Mutex<Option<Verifier>>,
    ledger: Mutex<Ledger>,
}

/// Runs the sink until its parent is gone.
pub(crate) async fn run(endpoints: usize) -> Result<(), String> {
    let mut sink = Sink::open(endpoints).await?;
    let ports = sink.endpoints.iter().map(|endpoint| endpoint.port).collect();
    let mut commands = ParentChannel::begin(&SinkReady { ports })?;
    while let Some(command) = commands.next().await? {
        let answer = sink.execute(command).await?;
        commands.answer(&answer)?;
    }
    Ok(())
}

struct Sink {
    endpoints: Vec<Arc<Endpoint>>,
    listeners: Vec<JoinHandle<()>>,
}

impl Sink {
    async fn open(count: usize) -> Result<Self, String> {
        let mut sink = Self { endpoints: Vec::new(), listeners: Vec::new() };
        for _ in 0..count {
            let (listener, port) = listen(0).await?;
            let endpoint = Arc::new(Endpoint::new(port));
            sink.listeners.push(tokio::spawn(accept(listener, endpoint.clone())));
            sink.endpoints.push(endpoint);
        }
        Ok(sink)
    }

    async fn execute(&mut self, command: SinkCommand) -> Result<serde_json::Value, String> {
        match command {
            SinkCommand::Reset => {
                self.endpoints.iter().for_each(|endpoint| endpoint.ledger().reset());
            }
            SinkCommand::Counts => {
                return json(self.each(|figures| figures.fresh + figures.refused));
            }
            SinkCommand::Report => return json(self.each(ArrivalFigures::clone)),
            SinkCommand::Times { endpoint } => {
                return json(self.endpoint(endpoint)?.ledger().take_times());
            }
            SinkCommand::Hang { endpoint, millis } => {
                self.endpoint(endpoint)?.hang_ms.store(millis, Ordering::Relaxed);
            }
            SinkCommand::Verify { endpoint, secret } => self.endpoint(endpoint)?.trust(&secret)?,
            SinkCommand::Down => self.down().await,
            SinkCommand::Up => self.up().await?,
        }
        Ok(serde_json::Value::Null)
    }

    fn each<T>(&self, read: impl Fn(&ArrivalFigures) -> T) -> Vec<T> {
        self.endpoints.iter().map(|endpoint| read(&endpoint.ledger().figures)).collect()
    }

    fn endpoint(&self, number: usize) -> Result<&Endpoint, String> {
        let endpoint = self.endpoints.get(number).map(|endpoint| &**endpoint);
        endpoint.ok_or_else(|| format!("endpoint {number} is none of {}", self.endpoints.len()))
    }

    /// Listeners own their connections, so ending the one closes the others.
    async fn down(&mut self) {
        for listener in self.listeners.drain(..) {
            listener.abort();
            let _ = listener.await;
        }
    }

    async fn up(&mut self) -> Result<(), String> {
        for endpoint in &self.endpoints {
            let (listener, _) = listen(endpoint.port).await?;
            self.listeners.push(tokio::spawn(accept(listener, endpoint.clone())));
        }
        Ok(())
    }
}

impl Endpoint {
    fn new(port: u16) -> Self {
        Self {
            port,
            hang_ms: AtomicU64::new(0),
            names: HeaderNames::default(),
            verifier: Mutex::new(None),
            ledger: Mutex::new(Ledger::default()),
        }
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn trust(&self, secret: &str) -> Result<(), String> {
        let secret: Secret = secret.parse().map_err(|error| format!("secret: {error}"))?;
        let mut verifier = self.verifier.lock().unwrap_or_else(PoisonError::into_inner);
        *verifier = Some(Verifier::new(vec![secret], Vec::new()).standard_only());
        Ok(())
    }

    fn receive(&self, headers: &HeaderMap, body: &[u8]) {
        let at_us = now_us();
        let arrival = Payload::read(body)
            .filter(|payload| self.is_authentic(payload, headers, body, at_us))
            .map(|payload| Arrival { payload, lane: self.lane(headers), at_us });
        let mut ledger = self.ledger();
        match arrival {
            Some(arrival) => ledger.add(&arrival),
            None => ledger.figures.refused += 1,
        }
    }

    /// Without a secret everything is; with one, a sample is verified.
    fn is_authentic(&self, payload: &Payload, headers: &HeaderMap, body: &[u8], now: u64) -> bool {
        if !payload.number.is_multiple_of(VERIFY_EVERY) {
            return true;
        }
        let verifier = self.verifier.lock().unwrap_or_else(PoisonError::into_inner);
        let header = |name: &str| headers.get(name).map(hyper::header::HeaderValue::as_bytes);
        let verify = |verifier: &Verifier| {
            verifier.verify(header, body, (now / 1_000_000).cast_signed()).is_ok()
        };
        verifier.as_ref().is_none_or(verify)
    }

    /// The key's number and the seq, from `X-Key: k17` and `X-Seq: 3`.
    fn lane(&self, headers: &HeaderMap) -> Option<(u32, u64)> {
        let value = |header| Some(headers.get(self.names.name(header))?.as_bytes());
        let (key, _) = digits(value(Header::XKey)?.strip_prefix(b"k")?)?;
        let (seq, _) = digits(value(Header::XSeq)?)?;
        Some((u32::try_from(key).ok()?, seq))
    }
}

async fn listen(port: u16) -> Result<(TcpListener, u16), String> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let problem = |error| format!("{address} cannot be listened on: {error}");
    let listener = TcpListener::bind(address).await.map_err(problem)?;
    let port = listener.local_addr().map_err(problem)?.port();
    Ok((listener, port))
}

async fn accept(listener: TcpListener, endpoint: Arc<Endpoint>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            Ok((stream, _)) = listener.accept() => {
                connections.spawn(serve(stream, endpoint.clone()));
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn serve(stream: TcpStream, endpoint: Arc<Endpoint>) {
    let _ = stream.set_nodelay(true);
    let service = service_fn(|request| answer(request, &endpoint));
    let connection = hyper::server::conn::http1::Builder::new();
    // A connection that breaks is the sender's to notice.
    let _ = connection.serve_connection(TokioIo::new(stream), service).await;
}

async fn answer(
    request: Request<Incoming>,
    endpoint: &Endpoint,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    if let Ok(body) = body.collect().await {
        let hang_ms = endpoint.hang_ms.load(Ordering::Relaxed);
        if hang_ms > 0 {
            tokio::time::sleep(Duration::from_millis(hang_ms)).await;
        }
        endpoint.receive(&head.headers, &body.to_bytes());
    }
    Ok(Response::new(Full::default()))
}

fn json(value: impl Serialize) -> Result<serde_json::Value, String> {
    serde_json::to_value(value).map_err(|error| error.to_string())
}
