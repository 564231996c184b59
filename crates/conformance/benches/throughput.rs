//! How fast a store accepts and records: one endpoint, 10,000 keys, payloads of 512 bytes, each event
//! delivered at its first attempt.
//!
//! `cargo bench -p railpost-conformance --bench throughput -- [memory] [sqlite] [postgres] [backlog] [duplicate] [200 …]`
//! with the stores and group sizes to measure; all of them if none is named.
//! PostgreSQL runs only if `RAILPOST_TEST_POSTGRES` names a server; `backlog` fills a SQLite file with
//! a million open deliveries first; `duplicate` has 600,000 of 50 tenants, and says how long the slowest accept
//! takes when an event comes a second time.

#![allow(missing_docs, clippy::print_stdout, clippy::unwrap_used)]

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use railpost_engine::{
    Accepted, AttemptResult, DeliveryState, Load, LoadedPage, Progress, Span, Timestamp, Transition,
};
use railpost_postgres::PostgresStore;
use railpost_sqlite::SqliteStore;
use railpost_store::{
    AcceptBatch, AttemptDetail, EndpointPrivate, EndpointSettings, Event, MasterKey, MemoryStore,
    NewEndpoint, Receipt, RecordBatch, Setup, Source, Store, SystemSource, TenantSettings, Timing,
    Write,
};
use railpost_wire::{EndpointId, EventId, TenantId};
use tempfile::TempDir;

const KEYS: u64 = 10_000;
const PAYLOAD: [u8; 512] = [b'x'; 512];
const EVENTS: u64 = 200_000;
const BACKLOG: u64 = 1_000_000;
const BACKLOG_KEYS: u64 = 100_000;

fn main() {
    let wanted: Vec<String> =
        std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let groups = |usual: &[usize]| {
        let asked: Vec<usize> = wanted.iter().filter_map(|arg| arg.parse().ok()).collect();
        if asked.is_empty() { usual.to_vec() } else { asked }
    };
    let wants = |name: &str| wanted.is_empty() || wanted.iter().any(|arg| arg == name);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    println!("store        group   events/s   cpu µs/event");
    if wants("memory") {
        for group in groups(&[50, 200]) {
            runtime.block_on(run("memory", Arc::new(MemoryStore::new(setup())), group));
        }
    }
    if wants("sqlite") {
        for group in groups(&[1, 50, 200, 1000]) {
            let dir = TempDir::new().unwrap();
            let store = SqliteStore::open(&dir.path().join("store.db"), setup()).unwrap();
            runtime.block_on(run("sqlite", Arc::new(store), group));
        }
    }
    if let Some(url) = std::env::var("RAILPOST_TEST_POSTGRES").ok().filter(|_| wants("postgres")) {
        for group in groups(&[50, 200, 1000]) {
            runtime.block_on(async { run("postgres", postgres(&url, group).await, group).await });
        }
    }
    if wants("backlog") {
        runtime.block_on(backlog());
    }
    if wants("duplicate") {
        runtime.block_on(duplicate());
    }
}

const TENANTS: u64 = 50;
const EVENTS_PER_TENANT: u64 = 12_000;

/// Many tenants with a backlog each, one event that comes again, and then one of every tenant.
async fn duplicate() {
    let dir = TempDir::new().unwrap();
    let store = SqliteStore::open(&dir.path().join("store.db"), setup()).unwrap();
    let store: Arc<dyn Store> = Arc::new(store);
    let mut producers = Vec::new();
    for number in 0..TENANTS {
        let tenant: TenantId = format!("tenant-{number}").parse().unwrap();
        let producer = Producer::of(store.clone(), tenant, u128::from(number) + 1).await;
        for start in (0..EVENTS_PER_TENANT).step_by(1000) {
            producer.accept(start..start + 1000, KEYS).await;
        }
        producers.push(producer);
    }
    let mut slowest = [Duration::ZERO; 2];
    for (round, slowest) in slowest.iter_mut().enumerate() {
        if round == 1 {
            producers[0].accept(0..1, KEYS).await;
        }
        for producer in &producers {
            let first = EVENTS_PER_TENANT + round as u64;
            let started = Instant::now();
            producer.accept(first..first + 1, KEYS).await;
            *slowest = started.elapsed().max(*slowest);
        }
    }
    println!(
        "duplicate    {} open of {TENANTS} tenants: slowest accept {:.1} ms, after a duplicate {:.1} ms",
        TENANTS * EVENTS_PER_TENANT,
        slowest[0].as_secs_f64() * 1e3,
        slowest[1].as_secs_f64() * 1e3,
    );
}

fn setup() -> Setup {
    Setup { source: Arc::new(SystemSource), master_key: MasterKey::new(&[7; 32]) }
}

/// A store in a schema of its own.
async fn postgres(url: &str, group: usize) -> Arc<dyn Store> {
    let schema = format!("bench_{}_{group}", std::process::id());
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    client.batch_execute(&format!("CREATE SCHEMA {schema}")).await.unwrap();
    let join = if url.contains('?') { '&' } else { '?' };
    let address = format!("{url}{join}options=-csearch_path%3D{schema}");
    Arc::new(PostgresStore::connect(&address.as_str().into(), setup()).await.unwrap())
}

async fn run(name: &str, store: Arc<dyn Store>, group: usize) {
    let producer = Producer::new(store).await;
    let events = if group == 1 { 2_000 } else { EVENTS };
    // Warm: lanes exist, caches are filled.
    producer.publish(0..KEYS, KEYS, group).await;
    let report = producer.publish(KEYS..KEYS + events, KEYS, group).await;
    report.print(name, group);
}

/// A file with a large backlog: how long until the first attempt could start, how much memory it
/// takes, and how fast it still accepts what goes to the same keys.
async fn backlog() {
    let dir = TempDir::new().unwrap();
    let (path, empty) = (dir.path().join("store.db"), dir.path().join("empty.db"));
    fill(&path).await;
    let (started, before) = (Instant::now(), resident_mib());
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(&path, setup()).unwrap());
    let (first, all, lanes) = load_all(&*store, started).await;
    println!(
        "backlog      {BACKLOG} open in {lanes} lanes: first attempt after {} ms, all lanes after {} ms",
        first.as_millis(),
        all.as_millis()
    );
    let started = Instant::now();
    let totals = store.totals(None).await.unwrap();
    println!("backlog      {} counted in {} ms", totals.open(), started.elapsed().as_millis());
    drop(store);
    for (what, recorded) in [("accept", false), ("accept+record", true)] {
        let without = rate(&empty, what, recorded).await;
        let with = rate(&path, what, recorded).await;
        let resident = resident_mib();
        println!("backlog      {what}: {:.2} of an empty file's", with / without);
        println!("backlog      resident {resident} MiB ({before} before)");
    }
}

async fn fill(path: &Path) {
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(path, setup()).unwrap());
    let producer = Producer::new(store).await;
    for start in (0..BACKLOG).step_by(1000) {
        producer.accept(start..start + 1000, BACKLOG_KEYS).await;
    }
}

/// What a dispatcher does at start: the endpoints, their lanes page by page, the first payload.
async fn load_all(store: &dyn Store, started: Instant) -> (Duration, Duration, usize) {
    let page = railpost_store::PageRequest::first(100);
    let endpoint = store.endpoints(None, page).await.unwrap().items[0].id;
    let (mut after, mut lanes, mut first) = (None, 0, None);
    loop {
        let load = Load::Lanes { endpoint, after, limit: 500, window: 4 };
        let LoadedPage::Lanes { lanes: found, next } = store.load(load).await.unwrap() else {
            panic!()
        };
        lanes += found.len();
        if first.is_none() {
            let parcels = store.parcels(vec![found[0].deliveries[0].id]).await.unwrap();
            assert_eq!(parcels.len(), 1);
            first = Some(started.elapsed());
        }
        after = next;
        if after.is_none() {
            return (first.unwrap(), started.elapsed(), lanes);
        }
    }
}

/// Events per second into the file, whatever it holds.
async fn rate(path: &Path, what: &str, recorded: bool) -> f64 {
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(path, setup()).unwrap());
    let producer = Producer::new(store).await;
    let from = SystemSource.now().as_millis();
    // Every lane exists.
    producer.publish(from..from + BACKLOG_KEYS, BACKLOG_KEYS, 1000).await;
    let from = from + BACKLOG_KEYS;
    let report = if recorded {
        producer.publish(from..from + EVENTS, BACKLOG_KEYS, 200).await
    } else {
        producer.accept_all(from..from + EVENTS, BACKLOG_KEYS, 200).await
    };
    report.print(what, 200);
    report.rate()
}

/// Publishes events and records their delivery, one group behind.
struct Producer {
    store: Arc<dyn Store>,
    tenant: TenantId,
}

impl Producer {
    async fn new(store: Arc<dyn Store>) -> Self {
        Self::of(store, "bench".parse().unwrap(), 1).await
    }

    /// With an endpoint of this number.
    async fn of(store: Arc<dyn Store>, tenant: TenantId, endpoint: u128) -> Self {
        if store.tenant(&tenant).await.unwrap().is_none() {
            let new = NewEndpoint {
                id: EndpointId::from_u128(endpoint),
                tenant: tenant.clone(),
                settings: EndpointSettings::all_events("https://example.com"),
                private: EndpointPrivate::default(),
            };
            let create = Write::CreateTenant(tenant.clone(), TenantSettings::default());
            store.commit(create.into()).await.unwrap();
            store.commit(Write::CreateEndpoint(new).into()).await.unwrap();
        }
        Self { store, tenant }
    }

    async fn publish(&self, events: std::ops::Range<u64>, keys: u64, group: usize) -> Report {
        let (started, cpu) = (Instant::now(), cpu_time());
        let count = events.end - events.start;
        let mut last = Vec::new();
        for start in events.clone().step_by(group) {
            let range = start..(start + group as u64).min(events.end);
            let (accepted, ()) = tokio::join!(self.accept(range, keys), self.record(last));
            last = accepted;
        }
        self.record(last).await;
        Report { count, wall: started.elapsed(), cpu: cpu_time() - cpu }
    }

    async fn accept_all(&self, events: std::ops::Range<u64>, keys: u64, group: usize) -> Report {
        let (started, cpu) = (Instant::now(), cpu_time());
        let count = events.end - events.start;
        for start in events.clone().step_by(group) {
            self.accept(start..(start + group as u64).min(events.end), keys).await;
        }
        Report { count, wall: started.elapsed(), cpu: cpu_time() - cpu }
    }

    async fn accept(&self, events: std::ops::Range<u64>, keys: u64) -> Vec<Accepted> {
        let now = SystemSource.now();
        let events = events.map(|number| event(number, keys, now)).collect();
        let batch = AcceptBatch {
            tenant: self.tenant.clone(),
            events,
            accepted_by: None,
            idempotency: None,
        };
        let receipts = self.store.accept(batch.into()).await.unwrap();
        let deliveries = receipts.into_iter().flat_map(|receipt| match receipt {
            Receipt::Accepted { deliveries, .. } => {
                deliveries.into_iter().map(|delivery| delivery.accepted).collect::<Vec<_>>()
            }
            Receipt::Duplicate { .. } => vec![],
        });
        deliveries.collect()
    }

    async fn record(&self, delivered: Vec<Accepted>) {
        let now = SystemSource.now();
        let transitions = delivered.iter().map(|accepted| transition(accepted, now)).collect();
        let batch = RecordBatch { transitions, ..RecordBatch::default() };
        let recorded = self.store.record(batch.into()).await.unwrap();
        assert_eq!(recorded.applied, delivered.len());
    }
}

fn event(number: u64, keys: u64, now: Timestamp) -> Event {
    // As random as ids need to be here, and nearly free: the store is measured, not the dice.
    let dice = (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut random = [0; 10];
    random[..8].copy_from_slice(&(dice ^ (dice >> 29)).to_be_bytes());
    random[8..].copy_from_slice(&(number as u16).to_be_bytes());
    // A stride that visits every key in turn, not one after its neighbour.
    let key = number.wrapping_mul(7_919) % keys;
    Event {
        id: EventId::generate(now.as_millis(), random),
        event_type: "order.paid".parse().unwrap(),
        key: Some(format!("order-{key}").parse().unwrap()),
        payload: Bytes::from_static(&PAYLOAD),
        content_type: "application/json".parse().unwrap(),
        schema_version: None,
        time: now,
        traceparent: None,
        cloudevent: None,
    }
}

fn transition(accepted: &Accepted, now: Timestamp) -> (Transition, Option<Box<AttemptDetail>>) {
    let progress = Progress {
        attempts: 1,
        round_attempts: 1,
        round_started_at: Some(now),
        last_delay: Span::ZERO,
        replay: false,
    };
    let transition = Transition {
        delivery: accepted.id,
        endpoint: accepted.endpoint,
        place: accepted.place,
        state: DeliveryState::Delivered,
        progress,
        attempt: None,
        at: now,
    };
    let timing = Timing { first_byte_us: Some(4_000), total_us: 5_000, ..Timing::default() };
    let detail = AttemptDetail {
        number: 1,
        started_at: now,
        result: AttemptResult::Response { status: 200, retry_after: None },
        timing,
        message: None,
        response_headers: vec![],
        response_body: Bytes::new(),
        node: None,
    };
    (transition, Some(detail.into()))
}

struct Report {
    count: u64,
    wall: Duration,
    cpu: Duration,
}

impl Report {
    fn rate(&self) -> f64 {
        self.count as f64 / self.wall.as_secs_f64()
    }

    fn print(&self, name: &str, group: usize) {
        let cpu = self.cpu.as_secs_f64() * 1e6 / self.count as f64;
        println!("{name:<12} {group:>5} {:>10.0} {cpu:>14.1}", self.rate());
    }
}

/// What this process has used of its processors, all threads together.
fn cpu_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let after_name = stat.rsplit_once(')').unwrap().1;
    let ticks = after_name.split_whitespace().skip(11).take(2).map(|n| n.parse::<u64>().unwrap());
    Duration::from_millis(ticks.sum::<u64>() * 10)
}

fn resident_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1024
}
