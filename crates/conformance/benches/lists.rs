//! What a page of held lanes and of dead letters costs: 10,000 held lanes, each by a dead letter with 10 attempts,
//! payloads of 4 KiB. Once by a look-up for each row, and once by one look-up for the page.
//!
//! `cargo bench -p railpost-conformance --bench lists`; PostgreSQL runs only if `RAILPOST_TEST_POSTGRES` names a server.

#![allow(missing_docs, clippy::print_stdout, clippy::unwrap_used)]

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use railpost_engine::{
    Accepted, AttemptResult, DeadReason, DeliveryStage, DeliveryState, LaneId, Progress, Span,
    Timestamp, Transition,
};
use railpost_postgres::PostgresStore;
use railpost_sqlite::SqliteStore;
use railpost_store::limits::LIST_LIMIT_MAX;
use railpost_store::{
    AcceptBatch, AttemptDetail, DeliveryFilter, DeliveryQuery, EndpointPrivate, EndpointSettings,
    Event, HeldLane, HeldLaneQuery, MasterKey, NewEndpoint, PageRequest, Receipt, RecordBatch,
    Setup, Source, Store, SystemSource, TenantSettings, Timing, Write,
};
use railpost_wire::{DeliveryId, EndpointId, EventId, TenantId};
use tempfile::TempDir;

const LANES: u64 = 10_000;
const ATTEMPTS: u32 = 10;
const PAYLOAD: [u8; 4096] = [b'x'; 4096];
const ROUNDS: u32 = 10;

fn main() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    println!("store     what                                  ms");
    runtime.block_on(async {
        let dir = TempDir::new().unwrap();
        let store = SqliteStore::open(&dir.path().join("store.db"), setup()).unwrap();
        measure("sqlite", Arc::new(store)).await;
        if let Ok(url) = std::env::var("RAILPOST_TEST_POSTGRES") {
            measure("postgres", postgres(&url).await).await;
        }
    });
}

fn setup() -> Setup {
    Setup { source: Arc::new(SystemSource), master_key: MasterKey::new(&[7; 32]) }
}

/// A store in a schema of its own.
async fn postgres(url: &str) -> Arc<dyn Store> {
    let schema = format!("bench_lists_{}", std::process::id());
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    client.batch_execute(&format!("CREATE SCHEMA {schema}")).await.unwrap();
    let join = if url.contains('?') { '&' } else { '?' };
    let address = format!("{url}{join}options=-csearch_path%3D{schema}");
    Arc::new(PostgresStore::connect(&address.as_str().into(), setup()).await.unwrap())
}

fn tenant() -> TenantId {
    "bench".parse().unwrap()
}

async fn measure(name: &str, store: Arc<dyn Store>) {
    fill(&*store).await;
    let last = all_held(&*store).await.last().unwrap().lane;
    timed(name, "500 held lanes, row by row", async || lanes_by_row(&*store).await).await;
    timed(name, "500 held lanes, together", async || lanes_together(&*store).await).await;
    timed(name, "500 dead letters, row by row", async || letters_by_row(&*store).await).await;
    timed(name, "500 dead letters, together", async || letters_together(&*store).await).await;
    timed(name, "the last held lane, by walking", async || walk_to(&*store, last).await).await;
    timed(name, "the last held lane, by its id", async || {
        assert!(store.held_lane(&tenant(), last).await.unwrap().is_some());
    })
    .await;
}

async fn timed(store: &str, what: &str, work: impl AsyncFn()) {
    work().await;
    let started = Instant::now();
    for _ in 0..ROUNDS {
        work().await;
    }
    let millis = started.elapsed().as_secs_f64() * 1e3 / f64::from(ROUNDS);
    println!("{store:<9} {what:<32} {millis:>8.2}");
}

async fn held(store: &dyn Store, page: PageRequest) -> railpost_store::Listing<HeldLane> {
    store.held_lanes(HeldLaneQuery { tenant: tenant(), endpoint: None, page }).await.unwrap()
}

async fn all_held(store: &dyn Store) -> Vec<HeldLane> {
    let (mut all, mut page) = (Vec::new(), PageRequest::first(LIST_LIMIT_MAX));
    loop {
        let listing = held(store, page).await;
        all.extend(listing.items);
        match listing.next {
            Some(next) => page = PageRequest::after(LIST_LIMIT_MAX, next),
            None => return all,
        }
    }
}

async fn walk_to(store: &dyn Store, lane: LaneId) {
    assert!(all_held(store).await.iter().any(|held| held.lane == lane));
}

async fn lanes_by_row(store: &dyn Store) {
    for held in held(store, PageRequest::first(LIST_LIMIT_MAX)).await.items {
        store.delivery(held.held_by).await.unwrap().unwrap();
        last_by_row(store, held.held_by).await;
    }
}

async fn lanes_together(store: &dyn Store) {
    let listing = held(store, PageRequest::first(LIST_LIMIT_MAX)).await;
    last_together(store, listing.items.iter().map(|held| held.held_by).collect()).await;
}

async fn last_by_row(store: &dyn Store, delivery: DeliveryId) {
    let page = PageRequest::first(LIST_LIMIT_MAX);
    assert_eq!(store.attempts(delivery, page).await.unwrap().items.len(), ATTEMPTS as usize);
}

async fn last_together(store: &dyn Store, deliveries: Vec<DeliveryId>) {
    let wanted = deliveries.len();
    assert_eq!(store.last_attempts(deliveries).await.unwrap().len(), wanted);
}

fn dead() -> DeliveryQuery {
    let all = DeliveryQuery::of(tenant(), PageRequest::first(LIST_LIMIT_MAX));
    let stage = Some(DeliveryStage::Dead);
    DeliveryQuery { filter: DeliveryFilter { stage, ..DeliveryFilter::default() }, ..all }
}

async fn letters_by_row(store: &dyn Store) {
    for view in store.deliveries(dead()).await.unwrap().items {
        last_by_row(store, view.delivery.id).await;
        store.event(&tenant(), &view.event).await.unwrap().unwrap();
    }
}

async fn letters_together(store: &dyn Store) {
    let views = store.deliveries(dead()).await.unwrap().items;
    last_together(store, views.iter().map(|view| view.delivery.id).collect()).await;
}

/// One dead letter at the head of each lane.
async fn fill(store: &dyn Store) {
    let endpoint = NewEndpoint {
        id: EndpointId::from_u128(1),
        tenant: tenant(),
        settings: EndpointSettings::all_events("https://example.com"),
        private: EndpointPrivate::default(),
    };
    let create = Write::CreateTenant(tenant(), TenantSettings::default());
    store.commit(create.into()).await.unwrap();
    store.commit(Write::CreateEndpoint(endpoint).into()).await.unwrap();
    for start in (0..LANES).step_by(500) {
        let events = (start..start + 500).map(event).collect();
        let batch = AcceptBatch { tenant: tenant(), events, accepted_by: None, idempotency: None };
        for receipt in store.accept(batch.into()).await.unwrap() {
            let Receipt::Accepted { deliveries, .. } = receipt else { panic!("{receipt:?}") };
            give_up_on(store, &deliveries[0].accepted).await;
        }
    }
}

fn event(number: u64) -> Event {
    let mut random = [0; 10];
    random[2..].copy_from_slice(&number.to_be_bytes());
    Event {
        id: EventId::generate(SystemSource.now().as_millis(), random),
        event_type: "order.paid".parse().unwrap(),
        key: Some(format!("order-{number}").parse().unwrap()),
        payload: Bytes::from_static(&PAYLOAD),
        content_type: "application/json".parse().unwrap(),
        schema_version: None,
        time: SystemSource.now(),
        traceparent: None,
        cloudevent: None,
    }
}

async fn give_up_on(store: &dyn Store, accepted: &Accepted) {
    let now = SystemSource.now();
    let states = (1..=ATTEMPTS).map(|number| match number {
        ATTEMPTS => DeliveryState::Dead { reason: DeadReason::AttemptsExhausted, holds: true },
        _ => DeliveryState::Waiting { until: now },
    });
    let attempts = states.zip(1..).map(|(state, number)| {
        let transition = transition(accepted, state, number, now);
        (transition, Some(Box::new(attempt(number, now))))
    });
    let batch = RecordBatch { transitions: attempts.collect(), ..RecordBatch::default() };
    store.record(batch.into()).await.unwrap();
}

fn transition(
    accepted: &Accepted,
    state: DeliveryState,
    attempts: u32,
    now: Timestamp,
) -> Transition {
    let progress = Progress {
        attempts,
        round_attempts: attempts,
        round_started_at: Some(now),
        last_delay: Span::ZERO,
        replay: false,
    };
    let Accepted { id, endpoint, place, .. } = *accepted;
    Transition { delivery: id, endpoint, place, state, progress, attempt: None, at: now }
}

/// As a receiver in trouble answers: a few headers, and a page of HTML.
fn attempt(number: u32, now: Timestamp) -> AttemptDetail {
    AttemptDetail {
        number,
        started_at: now,
        result: AttemptResult::Response { status: 503, retry_after: None },
        timing: Timing { total_us: 5_000, ..Timing::default() },
        message: None,
        response_headers: vec![("content-type".into(), "text/html".into())],
        response_body: Bytes::from(vec![b'x'; 1024]),
        node: None,
    }
}
