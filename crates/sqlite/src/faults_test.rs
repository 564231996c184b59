//! What the disk can do to a store, tried on its writer.

use std::sync::Arc;

use bytes::Bytes;
use railpost_engine::{Accepted, DeliveryState, Progress, Timestamp, Transition};
use railpost_wire::{EndpointId, EventId, TenantId};
use tempfile::TempDir;

use super::errors::Translate;
use super::{SqliteStore, durable};
use railpost_store::{
    AcceptBatch, Archive, EndpointPrivate, EndpointSettings, Event, EventQuery, Intake, Ledger,
    MasterKey, NewEndpoint, PageRequest, Receipt, RecordBatch, Registry, Result, Setup, StoreError,
    SystemSource, TenantSettings, Upkeep, Write,
};

struct World {
    store: SqliteStore,
    tenant: TenantId,
    _dir: TempDir,
}

impl World {
    async fn new() -> Self {
        let dir = TempDir::new().unwrap();
        let setup = Setup { source: Arc::new(SystemSource), master_key: MasterKey::new(&[1; 32]) };
        let store = SqliteStore::open(&dir.path().join("store.db"), setup).unwrap();
        let tenant: TenantId = "acme".parse().unwrap();
        let create = Write::CreateTenant(tenant.clone(), TenantSettings::default());
        store.commit(create.into()).await.unwrap();
        let endpoint = NewEndpoint {
            id: EndpointId::from_u128(1),
            tenant: tenant.clone(),
            settings: EndpointSettings::all_events("https://example.com"),
            private: EndpointPrivate::default(),
        };
        store.commit(Write::CreateEndpoint(endpoint).into()).await.unwrap();
        Self { store, tenant, _dir: dir }
    }

    /// Tells the writer's connection something, outside of any group.
    async fn pragma(&self, pragma: &'static str) {
        let done = self.store.writer.write(durable(1, 0), move |session| {
            // A pragma that a group holds up takes effect with the next one.
            session.db.execute_batch(pragma).translated()?;
            Ok(())
        });
        done.await.unwrap();
    }

    async fn accept(&self, number: u64, len: usize) -> Result<Accepted> {
        let event = Event {
            id: EventId::generate(number, [0; 10]),
            event_type: "a.b".parse().unwrap(),
            key: Some("k".parse().unwrap()),
            payload: Bytes::from(vec![b'x'; len]),
            content_type: "text/plain".parse().unwrap(),
            schema_version: None,
            time: Timestamp::from_millis(number),
            traceparent: None,
            cloudevent: None,
        };
        let tenant = self.tenant.clone();
        let batch =
            AcceptBatch { tenant, events: vec![event], accepted_by: None, idempotency: None };
        match self.store.accept(batch.into()).await?.remove(0) {
            Receipt::Accepted { deliveries, .. } => Ok(deliveries[0].accepted),
            Receipt::Duplicate { .. } => panic!("every number is used once"),
        }
    }

    async fn events(&self) -> usize {
        let query = EventQuery::of(self.tenant.clone(), PageRequest::first(500));
        self.store.events(query).await.unwrap().items.len()
    }
}

#[tokio::test]
async fn a_full_disk_refuses_accepts_and_loses_none_and_goes_on_when_there_is_room() {
    let world = World::new().await;
    let first = world.accept(0, 10).await.unwrap();
    world.pragma("PRAGMA max_page_count = 60").await;
    let mut accepted = 1;
    let refused = loop {
        match world.accept(accepted, 20_000).await {
            Ok(delivery) => {
                accepted += 1;
                assert_eq!(delivery.place.unwrap().seq.get(), accepted);
            }
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, StoreError::Full(_)), "{refused}");
    assert!(refused.is_temporary());
    assert_eq!(world.events().await as u64, accepted);

    let delivered = Transition {
        delivery: first.id,
        endpoint: first.endpoint,
        place: first.place,
        state: DeliveryState::Delivered,
        progress: Progress::default(),
        attempt: None,
        at: Timestamp::from_millis(1),
    };
    let recorded = world.store.record(RecordBatch::of([delivered]).into()).await.unwrap();
    assert_eq!(recorded.applied, 1, "what needs no room is still recorded");

    world.pragma("PRAGMA max_page_count = 10000").await;
    let next = world.accept(10_000, 20_000).await.unwrap();
    assert_eq!(
        next.place.unwrap().seq.get(),
        accepted + 1,
        "no seq was lost with what was refused"
    );
}

#[tokio::test]
async fn one_call_without_room_does_not_take_its_group_with_it() {
    let world = World::new().await;
    world.pragma("PRAGMA max_page_count = 80").await;
    let (small, large, other) =
        tokio::join!(world.accept(1, 10), world.accept(2, 1_000_000), world.accept(3, 10));
    assert!(matches!(large, Err(StoreError::Full(_))), "{large:?}");
    let mut seqs = [small, other].map(|accepted| accepted.unwrap().place.unwrap().seq.get());
    seqs.sort_unstable();
    assert_eq!(seqs, [1, 2]);
}

#[tokio::test]
async fn a_file_that_may_not_be_written_refuses_accepts_and_can_still_be_read() {
    let world = World::new().await;
    world.accept(1, 10).await.unwrap();
    world.pragma("PRAGMA query_only = ON").await;
    let refused = world.accept(2, 10).await;
    assert!(matches!(refused, Err(StoreError::ReadOnly(_))), "{refused:?}");
    assert!(matches!(world.store.check().await, Err(StoreError::ReadOnly(_))));
    assert_eq!(world.events().await, 1);
}
