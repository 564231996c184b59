//! A store with one tenant and one endpoint, and what tests do with it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use railpost_engine::{Accepted, DeliveryState, Progress, Timestamp, Transition};
use railpost_postgres::{PostgresAddress, PostgresStore};
use railpost_store::{
    AcceptBatch, EndpointPrivate, EndpointSettings, Event, Intake, MasterKey, NewDelivery,
    NewEndpoint, Receipt, RecordBatch, Registry, Result, Setup, SystemSource, TenantSettings,
    Write,
};
use railpost_wire::{EndpointId, EventId, TenantId};
use tokio::time::timeout;
use tokio_postgres::{Client, NoTls};

pub(crate) fn setup(key: u8) -> Setup {
    Setup { source: Arc::new(SystemSource), master_key: MasterKey::new(&[key; 32]) }
}

pub(crate) fn tenant() -> TenantId {
    "acme".parse().unwrap()
}

pub(crate) async fn connect(address: &PostgresAddress) -> PostgresStore {
    PostgresStore::connect(address, setup(1)).await.unwrap()
}

/// A connection that knows nothing of stores.
pub(crate) async fn client(address: &PostgresAddress) -> Client {
    let (client, connection) = tokio_postgres::connect(&address.url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

pub(crate) async fn add_tenant(store: &PostgresStore, id: &TenantId) {
    let create = Write::CreateTenant(id.clone(), TenantSettings::default());
    store.commit(create.into()).await.unwrap();
}

pub(crate) async fn add_endpoint(store: &PostgresStore, number: u128) {
    add_endpoint_of(store, tenant(), number).await;
}

pub(crate) async fn add_endpoint_of(store: &PostgresStore, tenant: TenantId, number: u128) {
    let endpoint = NewEndpoint {
        id: EndpointId::from_u128(number),
        tenant,
        settings: EndpointSettings::all_events("https://example.com"),
        private: EndpointPrivate::default(),
    };
    store.commit(Write::CreateEndpoint(endpoint).into()).await.unwrap();
}

/// A store with one tenant and one endpoint.
pub(crate) async fn new_store(address: &PostgresAddress) -> PostgresStore {
    let store = connect(address).await;
    add_tenant(&store, &tenant()).await;
    add_endpoint(&store, 1).await;
    store
}

pub(crate) fn event(number: u64) -> Event {
    Event {
        id: EventId::generate(number, [0; 10]),
        event_type: "a.b".parse().unwrap(),
        key: Some("k".parse().unwrap()),
        payload: Bytes::from_static(b"{}"),
        content_type: "application/json".parse().unwrap(),
        schema_version: None,
        time: Timestamp::from_millis(number),
        traceparent: None,
        cloudevent: None,
    }
}

pub(crate) async fn accept(store: &PostgresStore, number: u64) -> Result<Receipt> {
    accept_of(store, tenant(), number).await
}

pub(crate) async fn accept_of(
    store: &PostgresStore,
    tenant: TenantId,
    number: u64,
) -> Result<Receipt> {
    let batch =
        AcceptBatch { tenant, events: vec![event(number)], accepted_by: None, idempotency: None };
    Ok(store.accept(batch.into()).await?.remove(0))
}

pub(crate) fn made(receipt: Receipt) -> Vec<NewDelivery> {
    match receipt {
        Receipt::Accepted { deliveries, .. } => deliveries,
        Receipt::Duplicate { .. } => vec![],
    }
}

pub(crate) fn deliveries(receipt: Receipt) -> Vec<Accepted> {
    made(receipt).into_iter().map(|delivery| delivery.accepted).collect()
}

pub(crate) fn delivered(accepted: &Accepted) -> RecordBatch {
    RecordBatch::of([Transition {
        delivery: accepted.id,
        endpoint: accepted.endpoint,
        place: accepted.place,
        state: DeliveryState::Delivered,
        progress: Progress::default(),
        attempt: None,
        at: Timestamp::from_millis(1),
    }])
}

/// Asks until it is answered: what comes back by itself needs no more than that.
pub(crate) async fn until_ok<T>(mut ask: impl AsyncFnMut() -> Result<T>) -> T {
    let asking = async {
        loop {
            match ask().await {
                Ok(answer) => return answer,
                Err(error) => assert!(error.is_temporary(), "{error}"),
            }
            tokio::task::yield_now().await;
        }
    };
    timeout(Duration::from_secs(30), asking).await.expect("it comes back by itself")
}
