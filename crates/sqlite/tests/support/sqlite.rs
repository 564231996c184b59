//! A SQLite store with one tenant and one endpoint.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use railpost_engine::Timestamp;
use railpost_sqlite::SqliteStore;
use railpost_store::{
    AcceptBatch, EndpointPrivate, EndpointSettings, Event, Intake, MasterKey, NewDelivery,
    NewEndpoint, Receipt, Registry, Result, Setup, SystemSource, TenantSettings, Write,
};
use railpost_wire::{EndpointId, EventId, TenantId};
use tempfile::TempDir;

pub(crate) const ENDPOINT: EndpointId = EndpointId::from_u128(1);

pub(crate) fn setup(key: u8) -> Setup {
    Setup { source: Arc::new(SystemSource), master_key: MasterKey::new(&[key; 32]) }
}

pub(crate) fn tenant() -> TenantId {
    "acme".parse().unwrap()
}

pub(crate) fn file(dir: &TempDir) -> PathBuf {
    dir.path().join("store.db")
}

pub(crate) async fn new_store(path: &Path) -> SqliteStore {
    let store = SqliteStore::open(path, setup(1)).unwrap();
    let create = Write::CreateTenant(tenant(), TenantSettings::default());
    store.commit(create.into()).await.unwrap();
    add_endpoint(&store, ENDPOINT).await;
    store
}

pub(crate) async fn add_endpoint(store: &SqliteStore, id: EndpointId) {
    let endpoint = NewEndpoint {
        id,
        tenant: tenant(),
        settings: EndpointSettings::all_events("https://example.com"),
        private: EndpointPrivate::default(),
    };
    store.commit(Write::CreateEndpoint(endpoint).into()).await.unwrap();
}

pub(crate) fn id(number: u64) -> EventId {
    EventId::generate(number, [0; 10])
}

/// Accepts event number `number` with the key `k`; its first delivery.
pub(crate) async fn try_accept(store: &SqliteStore, number: u64) -> Result<NewDelivery> {
    let event = Event {
        id: id(number),
        event_type: "a.b".parse().unwrap(),
        key: Some("k".parse().unwrap()),
        payload: Bytes::from_static(b"{}"),
        content_type: "application/json".parse().unwrap(),
        schema_version: None,
        time: Timestamp::from_millis(number),
        traceparent: None,
        cloudevent: None,
    };
    let batch =
        AcceptBatch { tenant: tenant(), events: vec![event], accepted_by: None, idempotency: None };
    match store.accept(batch.into()).await?.remove(0) {
        Receipt::Accepted { mut deliveries, .. } => Ok(deliveries.remove(0)),
        Receipt::Duplicate { .. } => panic!("every number is used once"),
    }
}

/// The same; its seq.
pub(crate) async fn accept(store: &SqliteStore, number: u64) -> u64 {
    try_accept(store, number).await.unwrap().accepted.place.unwrap().seq.get()
}
