//! The process that is killed: accepts events, delivers them, and says what it has acknowledged.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use railpost_dispatch::{
    Dispatcher, DispatcherConfig, Guard, GuardConfig, NamedNetwork, Parts, Sender, SenderConfig,
};
use railpost_engine::Timestamp;
use railpost_store::{
    AcceptBatch, EndpointPrivate, EndpointSettings, Event, MasterKey, NewEndpoint, PostgresStore,
    Setup, SqliteStore, Store, SystemSource, TenantSettings, Write as StoreWrite,
};
use railpost_wire::EndpointId;
use serde_json::json;

/// Keys that events are spread over.
pub(crate) const KEYS: u32 = 40;
/// Producers at work side by side, each with keys of its own.
const PRODUCERS: u32 = 8;
/// Events that a producer hands in at once.
const BATCH: u32 = 5;

/// What the parent tells its child, in the environment.
pub(crate) struct Orders {
    /// Which life of the process this is.
    pub(crate) run: u32,
    pub(crate) store: String,
    pub(crate) receiver: String,
    /// How many events to accept at the most.
    pub(crate) events: u32,
}

impl Orders {
    pub(crate) fn from_environment() -> Option<Self> {
        let get = |name: &str| std::env::var(format!("RAILPOST_CRASH_CHILD_{name}")).ok();
        Some(Self {
            run: get("RUN")?.parse().unwrap(),
            store: get("STORE")?,
            receiver: get("RECEIVER")?,
            events: get("EVENTS")?.parse().unwrap(),
        })
    }

    pub(crate) fn environment(&self) -> [(&'static str, String); 4] {
        [
            ("RAILPOST_CRASH_CHILD_RUN", self.run.to_string()),
            ("RAILPOST_CRASH_CHILD_STORE", self.store.clone()),
            ("RAILPOST_CRASH_CHILD_RECEIVER", self.receiver.clone()),
            ("RAILPOST_CRASH_CHILD_EVENTS", self.events.to_string()),
        ]
    }
}

/// Runs until it is killed, or until its standard input ends.
pub(crate) async fn run(orders: Orders) {
    let store = open(&orders.store).await;
    introduce_endpoints(&*store, &orders.receiver).await;
    let dispatcher = start(store, orders.run).await;
    let orders = Arc::new(orders);
    for producer in 0..PRODUCERS {
        tokio::spawn(produce(dispatcher.clone(), orders.clone(), producer));
    }
    let end_of_input = tokio::task::spawn_blocking(|| std::io::read_to_string(std::io::stdin()));
    end_of_input.await.unwrap().unwrap();
    dispatcher.stop().await;
}

async fn open(url: &str) -> Arc<dyn Store> {
    let setup = Setup { source: Arc::new(SystemSource), master_key: MasterKey::new(&[7; 32]) };
    match url.strip_prefix("sqlite:") {
        Some(path) => Arc::new(SqliteStore::open(Path::new(path), setup).unwrap()),
        None => Arc::new(PostgresStore::connect(&url.into(), setup).await.unwrap()),
    }
}

async fn start(store: Arc<dyn Store>, run: u32) -> Dispatcher {
    let loopback = NamedNetwork::new("test-loopback", "127.0.0.1/32").unwrap();
    let guard = Guard::new(GuardConfig { networks: vec![loopback], https_only: false });
    // The receiver tells one life of this process from another by this.
    let user_agent = format!("crash-test/{run}");
    let config = SenderConfig { guard, user_agent, ..SenderConfig::default() };
    let parts = Parts {
        store,
        sender: Sender::new(config).unwrap(),
        source: Arc::new(SystemSource),
        watch: Arc::new(()),
        thin_url: Arc::new(|_: &railpost_store::Parcel| String::new()),
    };
    Dispatcher::start(parts, &DispatcherConfig::default()).await.unwrap().0
}

/// The first life of the process creates what the later ones find.
async fn introduce_endpoints(store: &dyn Store, receiver: &str) {
    let tenant = StoreWrite::CreateTenant("acme".parse().unwrap(), TenantSettings::default());
    if store.commit(tenant.into()).await.is_err() {
        return;
    }
    let retry = json!({"backoff": {"strategy": "fixed", "delay": "20ms"}});
    for (number, path, guarantee) in [(1, "applied", "at_least_once"), (2, "once", "at_most_once")]
    {
        let mut settings = EndpointSettings::all_events(&format!("{receiver}/{path}"));
        let policy = json!({"guarantee": guarantee, "retry": retry, "breaker": null});
        settings.policy = serde_json::from_value(policy).unwrap();
        let id = EndpointId::from_u128(number);
        let tenant = "acme".parse().unwrap();
        let private = EndpointPrivate::default();
        let endpoint = NewEndpoint { id, tenant, settings, private };
        store.commit(StoreWrite::CreateEndpoint(endpoint).into()).await.unwrap();
    }
}

/// Accepts events one batch after the other, and prints the ids of each batch once it is
/// acknowledged.
async fn produce(dispatcher: Dispatcher, orders: Arc<Orders>, producer: u32) {
    let mine = orders.events / PRODUCERS;
    for first in (0..mine).step_by(BATCH as usize) {
        let numbers = first..(first + BATCH).min(mine);
        let events: Vec<Event> = numbers.map(|number| event(&orders, producer, number)).collect();
        let ids: String = events.iter().map(|event| format!("{}\n", event.id)).collect();
        let tenant = "acme".parse().unwrap();
        let batch = AcceptBatch { tenant, events, idempotency: None };
        dispatcher.accept(batch).await.unwrap();
        let mut output = std::io::stdout().lock();
        output.write_all(ids.as_bytes()).and_then(|()| output.flush()).unwrap();
    }
}

/// An id names the life, the producer and the number, so that it is never used twice.
fn event(orders: &Orders, producer: u32, number: u32) -> Event {
    let key = (number * PRODUCERS + producer) % KEYS;
    let id = format!("{}-{producer}-{number}", orders.run);
    Event {
        id: id.parse().unwrap(),
        event_type: "order.updated".parse().unwrap(),
        key: Some(format!("key-{key}").parse().unwrap()),
        payload: id.into(),
        content_type: "text/plain".parse().unwrap(),
        schema_version: None,
        time: Timestamp::from_millis(1_700_000_000_000),
        traceparent: None,
    }
}
