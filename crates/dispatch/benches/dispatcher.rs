//! Events from accept to acknowledgement, on SQLite and on memory: producers, dispatcher and receiver
//! in one process on loopback. `cargo bench -p railpost-dispatch --bench dispatcher` prints the figures
//! of `docs/internals/performance.md`.
#![allow(clippy::print_stdout, reason = "a benchmark prints its figures")]
#![allow(clippy::unwrap_used, reason = "a benchmark that cannot go on should say where")]

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use railpost_dispatch::{
    Dispatcher, DispatcherConfig, Guard, GuardConfig, NamedNetwork, Parts, Sender, SenderConfig,
};
use railpost_engine::Timestamp;
use railpost_sqlite::SqliteStore;
use railpost_store::{
    AcceptBatch, EndpointPrivate, EndpointSettings, Event, MasterKey, MemoryStore, NewEndpoint,
    NewSecret, SecretValue, Setup, Store, SystemSource, TenantSettings, Write,
};
use railpost_wire::{EndpointId, EventId, Secret, SecretId};
use tokio::net::TcpListener;
use tokio::sync::Notify;

const EVENTS: usize = 40_000;
const KEYS: usize = 10_000;
const PRODUCERS: usize = 64;

#[tokio::main]
async fn main() {
    println!("{EVENTS} events of 512 bytes, {KEYS} keys, {PRODUCERS} producers, one endpoint");
    let folder = tempfile::tempdir().unwrap();
    for batch in [1, 100] {
        let memory: Arc<dyn Store> = Arc::new(MemoryStore::new(setup()));
        run("memory", memory, batch).await;
        let path = folder.path().join(format!("bench-{batch}.db"));
        let sqlite: Arc<dyn Store> = Arc::new(SqliteStore::open(&path, setup()).unwrap());
        run("sqlite", sqlite, batch).await;
    }
}

fn setup() -> Setup {
    Setup { source: Arc::new(SystemSource), master_key: MasterKey::new(&[7; 32]) }
}

/// Counts what arrives, and rings when all has.
#[derive(Default)]
struct Sink {
    arrived: AtomicUsize,
    all: Notify,
}

async fn run(name: &str, store: Arc<dyn Store>, batch: usize) {
    let (sink, url) = listen().await;
    introduce(&*store, &url).await;
    let dispatcher = start(store).await;
    let (begun, cpu) = (Instant::now(), cpu_micros());
    for producer in 0..PRODUCERS {
        tokio::spawn(produce(dispatcher.clone(), producer, batch));
    }
    sink.all.notified().await;
    let (seconds, cpu) = (begun.elapsed().as_secs_f64(), cpu_micros() - cpu);
    let loads = dispatcher.counters().await.unwrap().loads;
    dispatcher.stop(Duration::MAX).await;
    println!(
        "{name:>8}, batches of {batch:>3}: {:>6.0} delivered/s, {:>5.1} µs CPU an event (producers \
         and receiver included), {loads} loads",
        EVENTS as f64 / seconds,
        cpu as f64 / EVENTS as f64,
    );
}

async fn produce(dispatcher: Dispatcher, producer: usize, batch: usize) {
    let mine: Vec<usize> = (producer..EVENTS).step_by(PRODUCERS).collect();
    for numbers in mine.chunks(batch) {
        let events = numbers.iter().map(|number| event(*number)).collect();
        let tenant = "acme".parse().unwrap();
        let batch = AcceptBatch { tenant, events, accepted_by: None, idempotency: None };
        dispatcher.accept(batch).await.unwrap();
    }
}

fn event(number: usize) -> Event {
    let mut random = [0; 10];
    random[2..].copy_from_slice(&(number as u64).to_be_bytes());
    Event {
        id: EventId::generate(1_700_000_000_000, random),
        event_type: "order.updated".parse().unwrap(),
        key: Some(format!("order-{}", number % KEYS).parse().unwrap()),
        payload: Bytes::from(vec![b'x'; 512]),
        content_type: "application/json".parse().unwrap(),
        schema_version: None,
        time: Timestamp::from_millis(1_700_000_000_000),
        traceparent: None,
        cloudevent: None,
    }
}

async fn introduce(store: &dyn Store, url: &str) {
    let tenant = "acme".parse().unwrap();
    let id = EndpointId::from_u128(1);
    let settings = EndpointSettings::all_events(url);
    let private = EndpointPrivate::default();
    let value = SecretValue::Shared(Secret::generate(&[9; 32]));
    for write in [
        Write::CreateTenant("acme".parse().unwrap(), TenantSettings::default()),
        Write::CreateEndpoint(NewEndpoint { id, tenant, settings, private }),
        Write::CreateSecret(NewSecret {
            id: SecretId::from_u128(1),
            endpoint: id,
            value,
            expires_at: None,
        }),
    ] {
        store.commit(write.into()).await.unwrap();
    }
}

async fn start(store: Arc<dyn Store>) -> Dispatcher {
    let loopback = NamedNetwork::new("bench-loopback", "127.0.0.1/32").unwrap();
    let guard = Guard::new(GuardConfig { networks: vec![loopback], https_only: false });
    let parts = Parts {
        store,
        sender: Sender::new(SenderConfig { guard, ..SenderConfig::default() }).unwrap(),
        source: Arc::new(SystemSource),
        observer: Arc::new(()),
        thin_url: Arc::new(|_: &railpost_store::Parcel| String::new()),
    };
    Dispatcher::start(parts, &DispatcherConfig::default()).await.unwrap().0
}

async fn listen() -> (Arc<Sink>, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let sink = Arc::new(Sink::default());
    let state = sink.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let state = state.clone();
            let service = service_fn(move |request| answer(request, state.clone()));
            let connection = hyper::server::conn::http1::Builder::new();
            tokio::spawn(connection.serve_connection(TokioIo::new(stream), service));
        }
    });
    (sink, url)
}

async fn answer(
    request: hyper::Request<Incoming>,
    sink: Arc<Sink>,
) -> Result<hyper::Response<Full<Bytes>>, Infallible> {
    let _ = request.into_body().collect().await;
    if sink.arrived.fetch_add(1, Ordering::SeqCst) + 1 == EVENTS {
        sink.all.notify_one();
    }
    Ok(hyper::Response::new(Full::default()))
}

/// CPU time of this process so far, in microseconds: user and system, of all threads.
fn cpu_micros() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let (_, fields) = stat.rsplit_once(')').unwrap();
    let ticks =
        |index: usize| fields.split_whitespace().nth(index).unwrap().parse::<u64>().unwrap();
    // In ticks of 10 ms, as Linux reports them to programs.
    (ticks(11) + ticks(12)) * 10_000
}
