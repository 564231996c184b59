//! A store that can be out of order: everything it is asked then fails, and one way or another the
//! answer to a write can get lost. Or it takes its time to accept.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

use async_trait::async_trait;
use railpost_engine::{Accepted, Load, Page, Timestamp};
use railpost_store::*;
use railpost_wire::{ApiKeyId, DeliveryId, EndpointId, EventId, EventType, ReplayId, TenantId};
use tokio::sync::{RwLock, RwLockWriteGuard};

pub(crate) struct Flaky {
    inner: Arc<dyn Store>,
    down: AtomicBool,
    /// How many of the next records are written without their caller hearing of it.
    answers_to_lose: AtomicU32,
    /// Whoever accepts waits while somebody has it for writing.
    accepting: RwLock<()>,
    accepts_begun: AtomicUsize,
}

impl Flaky {
    pub(crate) fn new(inner: Arc<dyn Store>) -> Arc<Self> {
        Arc::new(Self {
            inner,
            down: AtomicBool::new(false),
            answers_to_lose: AtomicU32::new(0),
            accepting: RwLock::new(()),
            accepts_begun: AtomicUsize::new(0),
        })
    }

    /// Accepts nothing until the returned end is dropped.
    pub(crate) async fn hold_accepts(&self) -> RwLockWriteGuard<'_, ()> {
        self.accepting.write().await
    }

    /// How many accepts it was asked for since this was last called.
    pub(crate) fn accepts_begun(&self) -> usize {
        self.accepts_begun.swap(0, Ordering::SeqCst)
    }

    pub(crate) fn set_down(&self, down: bool) {
        self.down.store(down, Ordering::SeqCst);
    }

    pub(crate) fn lose_answers(&self, count: u32) {
        self.answers_to_lose.store(count, Ordering::SeqCst);
    }

    fn up(&self) -> Result<()> {
        match self.down.load(Ordering::SeqCst) {
            true => Err(StoreError::Unavailable("it was switched off".into())),
            false => Ok(()),
        }
    }

    fn loses_answer(&self) -> bool {
        let lose = |left: u32| left.checked_sub(1);
        self.answers_to_lose.fetch_update(Ordering::SeqCst, Ordering::SeqCst, lose).is_ok()
    }
}

#[async_trait]
impl Ledger for Flaky {
    async fn record(&self, batch: Arc<RecordBatch>) -> Result<Recorded> {
        self.up()?;
        let recorded = self.inner.record(batch).await?;
        match self.loses_answer() {
            true => Err(StoreError::Unavailable("the answer got lost".into())),
            false => Ok(recorded),
        }
    }

    async fn load(&self, load: Load) -> Result<Page> {
        self.up()?;
        self.inner.load(load).await
    }

    async fn parcels(&self, deliveries: Vec<DeliveryId>) -> Result<Vec<Parcel>> {
        self.up()?;
        self.inner.parcels(deliveries).await
    }

    async fn fence(&self, partition: Partition, epoch: Epoch) -> Result<()> {
        self.up()?;
        self.inner.fence(partition, epoch).await
    }
}

/// Passes calls on, while the store is up.
macro_rules! passes_on {
    ($role:ident { $(fn $name:ident($($arg:ident: $type:ty),*) -> $answer:ty;)* }) => {
        #[async_trait]
        impl $role for Flaky {
            $(async fn $name(&self, $($arg: $type),*) -> Result<$answer> {
                self.up()?;
                self.inner.$name($($arg),*).await
            })*
        }
    };
}

#[async_trait]
impl Intake for Flaky {
    async fn accept(&self, batch: Arc<AcceptBatch>) -> Result<Vec<Receipt>> {
        self.up()?;
        self.accepts_begun.fetch_add(1, Ordering::SeqCst);
        let _turn = self.accepting.read().await;
        self.inner.accept(batch).await
    }

    async fn redeliver(&self, batch: RedeliverBatch) -> Result<Vec<Accepted>> {
        self.up()?;
        self.inner.redeliver(batch).await
    }
}

passes_on!(Registry {
    fn commit(change: Change) -> ();
    fn tenant(id: &TenantId) -> Option<Tenant>;
    fn tenants(page: PageRequest) -> Listing<Tenant>;
    fn endpoint(id: EndpointId) -> Option<Endpoint>;
    fn endpoints(tenant: Option<&TenantId>, page: PageRequest) -> Listing<Endpoint>;
    fn secrets(endpoint: EndpointId) -> Vec<EndpointSecret>;
    fn event_type(tenant: &TenantId, name: &EventType) -> Option<EventTypeRecord>;
    fn event_types(tenant: &TenantId, page: PageRequest) -> Listing<EventTypeRecord>;
    fn replay(id: ReplayId) -> Option<Replay>;
    fn replays(tenant: &TenantId, page: PageRequest) -> Listing<Replay>;
    fn running_replays() -> Vec<Replay>;
});

passes_on!(Access {
    fn api_key(id: ApiKeyId) -> Option<ApiKey>;
    fn api_key_by_hash(hash: &Digest) -> Option<ApiKey>;
    fn api_keys(tenant: Option<&TenantId>, page: PageRequest) -> Listing<ApiKey>;
    fn audit(query: AuditQuery) -> Listing<AuditEntry>;
    fn recall(key: &IdempotencyKey, fingerprint: &Digest) -> Recall;
});

passes_on!(Archive {
    fn event(tenant: &TenantId, id: &EventId) -> Option<StoredEvent>;
    fn events(query: EventQuery) -> Listing<EventHead>;
    fn delivery(id: DeliveryId) -> Option<DeliveryView>;
    fn deliveries(query: DeliveryQuery) -> Listing<DeliveryView>;
    fn deliveries_of(tenant: &TenantId, event: &EventId) -> Vec<DeliveryView>;
    fn attempts(delivery: DeliveryId, page: PageRequest) -> Listing<AttemptView>;
    fn held_lanes(query: HeldLaneQuery) -> Listing<HeldLane>;
    fn counts(endpoint: EndpointId) -> Counts;
    fn totals(tenant: Option<&TenantId>) -> Counts;
    fn figures(scope: &FiguresScope, resolution: Resolution, period: Period) -> Vec<(Timestamp, Figures)>;
});

passes_on!(Upkeep {
    fn prune(step: PruneStep) -> Pruned;
    fn erase_tenant(tenant: &TenantId) -> bool;
    fn backup(to: &Path) -> ();
    fn add_figures(batch: Vec<(FiguresScope, Timestamp, Figures)>) -> ();
    fn check() -> Health;
});
