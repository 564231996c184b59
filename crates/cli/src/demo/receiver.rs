//! Receivers on loopback that misbehave in named ways, and deduplicate by the event's id.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::DemoError;

/// Arrivals that are remembered: far more than a scene looks at.
const ARRIVALS_MAX: usize = 500;

/// How a receiver misbehaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Behaviour {
    /// Takes everything.
    Steady,
    /// Refuses the first two attempts of each event with 503.
    Flaky,
    /// Does the work, but its answer to the first attempt is lost.
    Forgetful,
    /// Answers after a second.
    Slow,
    /// Refuses everything with 503 for this long.
    Down(Duration),
    /// Answers 422 for one key, until it is fixed.
    Poisoned(&'static str),
    /// Takes a few requests a second and refuses the rest with 429 and Retry-After.
    RateLimiting,
}

/// One request that came, and what it was answered.
#[derive(Clone, Debug)]
pub(super) struct DemoRequest {
    pub(super) event: String,
    pub(super) key: String,
    pub(super) seq: u64,
    pub(super) attempt: u32,
    pub(super) status: u16,
    /// Whether the event had been applied before: it was ignored.
    pub(super) is_duplicate: bool,
    /// What it came with.
    pub(super) headers: Vec<(String, String)>,
}

/// A receiver that runs until it is dropped.
#[derive(Debug)]
pub(super) struct Receiver {
    pub(super) url: String,
    state: Arc<ReceiverState>,
    _serving: JoinSet<()>,
}

#[derive(Debug)]
struct ReceiverState {
    behaviour: Behaviour,
    outage_began: Mutex<Instant>,
    fixed: AtomicBool,
    bucket: Mutex<(Instant, u32)>,
    applied: Mutex<BTreeSet<String>>,
    requests: watch::Sender<Vec<DemoRequest>>,
}

/// Requests that the rate-limiting receiver takes per second.
const TAKEN_PER_SECOND: u32 = 3;

impl Receiver {
    pub(super) async fn start(name: &str, behaviour: Behaviour) -> Result<Self, DemoError> {
        let failed = |error| DemoError::new("a receiver did not start", error);
        let listener = TcpListener::bind("127.0.0.1:0").await.map_err(failed)?;
        let url = format!("http://{}/{name}", listener.local_addr().map_err(failed)?);
        let state = Arc::new(ReceiverState {
            behaviour,
            outage_began: Mutex::new(Instant::now()),
            fixed: AtomicBool::new(false),
            bucket: Mutex::new((Instant::now(), 0)),
            applied: Mutex::default(),
            requests: watch::Sender::default(),
        });
        let mut serving = JoinSet::new();
        serving.spawn(listen(listener, state.clone()));
        Ok(Self { url, state, _serving: serving })
    }

    /// What has come, once it is as wanted.
    pub(super) async fn wait(&self, wanted: impl Fn(&[DemoRequest]) -> bool) -> Vec<DemoRequest> {
        let mut requests = self.state.requests.subscribe();
        let found = requests.wait_for(|requests| wanted(requests)).await;
        found.map(|requests| requests.clone()).unwrap_or_default()
    }

    /// Lets the time that the receiver is down begin.
    pub(super) fn begin_outage(&self) {
        let began = &self.state.outage_began;
        *began.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// Fixes the receiver's permanent failure, or breaks it again.
    pub(super) fn set_fixed(&self, fixed: bool) {
        self.state.fixed.store(fixed, Ordering::Relaxed);
    }
}

async fn listen(listener: TcpListener, state: Arc<ReceiverState>) {
    let mut connections = JoinSet::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let state = state.clone();
        connections.spawn(async move {
            let service = hyper::service::service_fn(move |request| answer(state.clone(), request));
            let builder = auto::Builder::new(TokioExecutor::new());
            // A connection that breaks is its client's affair.
            let _ = builder.serve_connection(TokioIo::new(stream), service).await;
        });
        while connections.try_join_next().is_some() {}
    }
}

async fn answer(
    state: Arc<ReceiverState>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let received = demo_request(request.headers());
    // The body is read and thrown away: only its headers matter here.
    let _ = request.into_body().collect().await;
    if state.behaviour == Behaviour::Slow {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let (status, text) = state.judge(&received);
    state.note(DemoRequest { status: status.as_u16(), ..received });
    let mut response = Response::new(Full::new(Bytes::from_static(text.as_bytes())));
    *response.status_mut() = status;
    if status == StatusCode::TOO_MANY_REQUESTS {
        response.headers_mut().insert(http::header::RETRY_AFTER, 1.into());
    }
    Ok(response)
}

fn demo_request(headers: &HeaderMap) -> DemoRequest {
    let text = |name: &str| {
        let value = headers.get(name).and_then(|value| value.to_str().ok());
        value.unwrap_or_default().to_owned()
    };
    DemoRequest {
        event: text("webhook-id"),
        key: text("x-key"),
        seq: text("x-seq").parse().unwrap_or_default(),
        attempt: text("x-attempt").parse().unwrap_or(1),
        status: 0,
        is_duplicate: false,
        headers: headers.keys().map(|name| (name.to_string(), text(name.as_str()))).collect(),
    }
}

impl ReceiverState {
    fn judge(&self, received: &DemoRequest) -> (StatusCode, &'static str) {
        let fixed = self.fixed.load(Ordering::Relaxed);
        match self.behaviour {
            Behaviour::Flaky if received.attempt <= 2 => {
                (StatusCode::SERVICE_UNAVAILABLE, "not now")
            }
            Behaviour::Forgetful if received.attempt == 1 => {
                self.apply(received);
                (StatusCode::BAD_GATEWAY, "the work is done, the answer got lost")
            }
            Behaviour::Down(how_long) if self.down_since().elapsed() < how_long => {
                (StatusCode::SERVICE_UNAVAILABLE, "down")
            }
            Behaviour::Poisoned(key) if received.key == key && !fixed => {
                (StatusCode::UNPROCESSABLE_ENTITY, "this cannot be processed")
            }
            Behaviour::RateLimiting if !self.takes() => (StatusCode::TOO_MANY_REQUESTS, "slower"),
            _ => (StatusCode::OK, "thank you"),
        }
    }

    fn down_since(&self) -> Instant {
        *self.outage_began.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn takes(&self) -> bool {
        let mut bucket = self.bucket.lock().unwrap_or_else(PoisonError::into_inner);
        if bucket.0.elapsed() >= Duration::from_secs(1) {
            *bucket = (Instant::now(), 0);
        }
        bucket.1 += 1;
        bucket.1 <= TAKEN_PER_SECOND
    }

    /// Applies an event once; says whether it had been applied before.
    fn apply(&self, received: &DemoRequest) -> bool {
        let mut applied = self.applied.lock().unwrap_or_else(PoisonError::into_inner);
        while applied.len() > ARRIVALS_MAX {
            applied.pop_first();
        }
        !applied.insert(received.event.clone())
    }

    fn note(&self, mut received: DemoRequest) {
        if received.status == 200 {
            received.is_duplicate = self.apply(&received);
        }
        self.requests.send_modify(|requests| {
            if requests.len() >= ARRIVALS_MAX {
                requests.remove(0);
            }
            requests.push(received);
        });
    }
}
