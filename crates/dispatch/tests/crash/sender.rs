//! The sender: accepts events, delivers them, and says what it has acknowledged.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use railpost_dispatch::{
    Dispatcher, DispatcherConfig, Guard, GuardConfig, NamedNetwork, Parts, Sender, SenderConfig,
};
use railpost_engine::Timestamp;
use railpost_postgres::PostgresStore;
use railpost_sqlite::SqliteStore;
use railpost_store::{
    AcceptBatch, Change, EndpointPrivate, EndpointSettings, Event, MasterKey, NewEndpoint,
    NewSecret, SecretValue, Setup, Store, SystemSource, TenantSettings, Write as StoreWrite,
};
use railpost_wire::{EndpointId, Secret, SecretId, TenantId};
use serde_json::json;

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::task::JoinSet;

use crate::child_config::SenderChildConfig;

/// Keys that events are spread over. Each is one producer's.
const KEYS: u32 = 48;
/// Producers at work side by side, each with keys of its own. Every other event has none.
const PRODUCERS: u32 = 16;
/// Events that a producer hands in at once.
const BATCH: u32 = 5;
/// How long a producer waits before it hands a batch in again.
const RETRY_AFTER: Duration = Duration::from_millis(5);

/// Runs until it is killed. The first line of its standard input ends its producers, the end of it the
/// process.
pub(crate) async fn run(config: SenderChildConfig) {
    let store = open(&config.store).await;
    introduce_endpoints(&*store, config.receiver).await;
    let dispatcher = start(store).await;
    let config = Arc::new(config);
    let mut producers = JoinSet::new();
    for producer in 0..PRODUCERS {
        producers.spawn(produce(dispatcher.clone(), config.clone(), producer));
    }
    let mut input = BufReader::new(tokio::io::stdin()).lines();
    let _enough = input.next_line().await.unwrap();
    producers.shutdown().await;
    say("enough\n");
    while input.next_line().await.unwrap().is_some() {}
    dispatcher.stop(Duration::MAX).await;
}

async fn open(url: &str) -> Arc<dyn Store> {
    let setup = Setup { source: Arc::new(SystemSource), master_key: MasterKey::new(&[7; 32]) };
    match url.strip_prefix("sqlite:") {
        Some(path) => Arc::new(SqliteStore::open(Path::new(path), setup).unwrap()),
        None => Arc::new(PostgresStore::connect(&url.into(), setup).await.unwrap()),
    }
}

async fn start(store: Arc<dyn Store>) -> Dispatcher {
    let loopback = NamedNetwork::new("test-loopback", "127.0.0.1/32").unwrap();
    let guard = Guard::new(GuardConfig { networks: vec![loopback], https_only: false });
    let config = SenderConfig { guard, ..SenderConfig::default() };
    let parts = Parts {
        store,
        sender: Sender::new(config).unwrap(),
        source: Arc::new(SystemSource),
        observer: Arc::new(()),
        thin_url: Arc::new(|_: &railpost_store::Parcel| String::new()),
    };
    Dispatcher::start(parts, &DispatcherConfig::default()).await.unwrap().0
}

/// The first life of the process creates what the later ones find.
async fn introduce_endpoints(store: &dyn Store, receiver: u16) {
    let tenant = StoreWrite::CreateTenant(tenant(), TenantSettings::default());
    if store.commit(tenant.into()).await.is_err() {
        return;
    }
    let retry = json!({"backoff": {"strategy": "fixed", "delay": "20ms"}, "max_attempts": 10_000});
    for (number, path, guarantee) in
        [(1, "applied", "effectively_once"), (2, "once", "at_most_once")]
    {
        let mut settings =
            EndpointSettings::all_events(&format!("http://127.0.0.1:{receiver}/{path}"));
        let policy = json!({"guarantee": guarantee, "retry": retry, "breaker": null});
        settings.policy = serde_json::from_value(policy).unwrap();
        let (id, private) = (EndpointId::from_u128(number), EndpointPrivate::default());
        let endpoint = NewEndpoint { id, tenant: self::tenant(), settings, private };
        let value = SecretValue::Shared(secret());
        let secret =
            NewSecret { id: SecretId::from_u128(number), endpoint: id, value, expires_at: None };
        let writes = vec![StoreWrite::CreateEndpoint(endpoint), StoreWrite::CreateSecret(secret)];
        store.commit(Change { writes, ..Change::default() }).await.unwrap();
    }
}

fn tenant() -> TenantId {
    "acme".parse().unwrap()
}

pub(crate) fn secret() -> Secret {
    Secret::generate(&[9; 32])
}

/// Accepts events one batch after the other, and prints the ids of each batch once it is acknowledged. One
/// that got no answer is handed in again with the same ids.
async fn produce(dispatcher: Dispatcher, config: Arc<SenderChildConfig>, producer: u32) {
    let mine = config.events / PRODUCERS;
    for first in (0..mine).step_by(BATCH as usize) {
        let numbers = first..(first + BATCH).min(mine);
        let events: Vec<Event> = numbers.map(|number| event(&config, producer, number)).collect();
        let ids: String = events.iter().map(|event| format!("{}\n", event.id)).collect();
        let batch = || AcceptBatch {
            tenant: tenant(),
            events: events.clone(),
            accepted_by: None,
            idempotency: None,
        };
        while dispatcher.accept(batch()).await.is_err() {
            tokio::time::sleep(RETRY_AFTER).await;
        }
        say(&ids);
    }
}

fn say(text: &str) {
    let mut output = std::io::stdout().lock();
    output.write_all(text.as_bytes()).and_then(|()| output.flush()).unwrap();
}

/// An id names the life, the producer and the number, so that it is never used twice and tells the order.
fn event(config: &SenderChildConfig, producer: u32, number: u32) -> Event {
    let key = (number * PRODUCERS + producer) % KEYS;
    let id = format!("{}-{producer}-{number}", config.run);
    Event {
        id: id.parse().unwrap(),
        event_type: "order.updated".parse().unwrap(),
        key: number.is_multiple_of(2).then(|| format!("key-{key}").parse().unwrap()),
        payload: id.into(),
        content_type: "text/plain".parse().unwrap(),
        schema_version: None,
        time: Timestamp::from_millis(1_700_000_000_000),
        traceparent: None,
        cloudevent: None,
    }
}
