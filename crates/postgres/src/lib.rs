//! The store in PostgreSQL: for more than one machine.
//!
//! Calls that come together are one statement, whose arrays a function of the database takes apart:
//! one round trip for a group, however many events it has. Accepts wait for the disk; records have a
//! connection of their own that does not.
//!
//! The driver is tokio-postgres: it speaks the binary protocol, takes arrays as they are, pipelines
//! what several callers ask at once, and brings no pool or query layer that would be in the way.
//!
//! No SQL and no type of the driver is public. Start with `groups.rs`, where calls become groups, and `node.rs`,
//! the connections of a process; `schema/` has the tables and functions.

mod limits;
mod errors;
mod tls;
mod link;
mod lock;
mod groups;
mod schema;
mod rows;
mod tenant_cache;
mod unflushed;
mod node;
mod intake;
mod redeliver;
mod ledger;
mod registry;
mod access;
mod archive;
mod replays;
mod figures;
mod judging;
mod finding;
mod upkeep;
mod key_rotation;
mod sources;
mod alerts;
mod emit_roles;
mod backup;

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use railpost_engine::{Accepted, LaneId, Load, LoadedPage, Timestamp};
use railpost_wire::{ApiKeyId, DeliveryId, EndpointId, EventId, EventType, ReplayId, TenantId};
use tokio::task::AbortHandle;

use errors::Translate;
use groups::Queue;
use link::{Address, Purpose};
use lock::{LockWatch, ServerLock, TakenLock};
use node::Node;

use railpost_store::backend::check;
use railpost_store::backend::figures::by_bucket;
use railpost_store::limits::PARCELS_MAX;
use railpost_store::{
    AcceptBatch, Access, ApiKey, Archive, AttemptView, AuditEntry, AuditQuery, Change, Counts,
    DeliveryQuery, DeliveryView, Digest, DueRotation, Durability, Endpoint, EndpointSecret,
    EndpointSettings, Epoch, ErasingTenant, EventDetails, EventHead, EventQuery, EventTypeRecord,
    Figures, FiguresScope, FindQuery, Found, Health, HeldLane, HeldLaneQuery, IdempotencyKey,
    IdempotencyLookup, Intake, JudgedStep, Judging, LastAttempt, LatePage, LateQuery, Ledger,
    Listing, PageRequest, Parcel, Partition, Period, PruneStep, Pruned, Receipt, RecordBatch,
    Recorded, RedeliverBatch, Registry, Replay, Resolution, Result, Setup, StoredEvent, Sweep,
    SweepPage, Tenant, Upkeep,
};

/// A store in a PostgreSQL database.
#[derive(Debug)]
pub struct PostgresStore {
    node: Arc<Node>,
    accepts: Queue<Arc<AcceptBatch>, Vec<Receipt>>,
    records: Arc<Queue<Arc<RecordBatch>, Recorded>>,
    durable_records: Queue<Arc<RecordBatch>, Recorded>,
    watching: AbortHandle,
}

/// Where a PostgreSQL database is.
#[derive(Clone)]
pub struct PostgresAddress {
    /// `postgres://user:password@host:port/database`. With `?sslmode=require` the connection is
    /// encrypted and the server's certificate verified; without it, it is not encrypted.
    pub url: String,
    /// The certificates to verify by, in PEM; nothing for those that browsers trust.
    pub root_certificates_pem: Option<Vec<u8>>,
}

impl std::fmt::Debug for PostgresAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PostgresAddress(…)")
    }
}

impl From<&str> for PostgresAddress {
    fn from(url: &str) -> Self {
        Self { url: url.to_owned(), root_certificates_pem: None }
    }
}

impl PostgresStore {
    /// Whether the schema holds a store. Changes nothing.
    pub async fn exists(address: &PostgresAddress) -> Result<bool> {
        let address = Address::new(&address.url, address.root_certificates_pem.as_deref())?;
        let (mut client, _) = address.connect(Purpose::LongWork).await?;
        schema::exists(&client.transaction().await.translated()?).await
    }

    /// Connects, takes the store's lock, and brings the schema up to date. Refuses one that another
    /// server has, that a later version made or that belongs to another master key.
    pub async fn connect(address: &PostgresAddress, setup: Setup) -> Result<Self> {
        let address = Address::new(&address.url, address.root_certificates_pem.as_deref())?;
        let taken = TakenLock::take(&address).await?;
        Self::open(address, taken, setup).await
    }

    /// What every backup of a PostgreSQL store begins with.
    pub const BACKUP_MARK: &[u8; 16] = backup::MARK;

    /// Fills an empty schema with what a [`backup`](railpost_store::Upkeep::backup) holds, and connects. A new era
    /// begins, because what was written after the backup is lost: what is open goes out in new lines. All
    /// of it is one transaction.
    pub async fn restore(address: &PostgresAddress, backup: &Path, setup: Setup) -> Result<Self> {
        let address = Address::new(&address.url, address.root_certificates_pem.as_deref())?;
        let mut taken = TakenLock::take(&address).await?;
        backup::restore(&mut taken, backup, &setup).await?;
        Self::open(address, taken, setup).await
    }

    async fn open(address: Address, mut taken: TakenLock, setup: Setup) -> Result<Self> {
        schema::prepare(&mut taken.client, &setup).await?;
        let lock = ServerLock::start(taken, address.clone(), setup.clone()).await?;
        Ok(Self::start(address, setup, lock))
    }

    /// Another node under the same lock: what a test of races between nodes needs.
    #[doc(hidden)]
    pub fn second_node(&self) -> Self {
        let Node { address, setup, lock, .. } = &*self.node;
        Self::start(address.clone(), setup.clone(), lock.clone())
    }

    fn start(address: Address, setup: Setup, lock: Arc<ServerLock>) -> Self {
        let watch = lock.watch();
        let node = Arc::new(Node::new(address, setup, lock));
        let (a, r, d) = (node.clone(), node.clone(), node.clone());
        let accepts = Queue::start(intake::weight, move |calls| {
            let node = a.clone();
            async move { intake::serve(&node, calls).await }
        });
        let records = Arc::new(Queue::start(ledger::weight, move |calls| {
            let node = r.clone();
            async move { ledger::serve_visible(&node, calls).await }
        }));
        let durable_records = Queue::start(ledger::weight, move |calls| {
            let node = d.clone();
            async move { ledger::serve_durable(&node, calls).await }
        });
        let watching = tokio::spawn(watch_lock(watch, records.clone())).abort_handle();
        Self { node, accepts, records, durable_records, watching }
    }

    /// Records that a crash of the server lost are written again before anything open is looked up.
    async fn write_lost_records_again(&self) -> Result<()> {
        if self.node.may_have_lost_records() {
            self.records.call(Arc::default()).await?;
        }
        Ok(())
    }
}

impl Drop for PostgresStore {
    fn drop(&mut self) {
        self.watching.abort();
    }
}

/// Writes again what a crash of the server may have lost, as soon as the lock is taken again: an empty
/// batch is enough, because every batch begins with that.
async fn watch_lock(mut lock: LockWatch, records: Arc<Queue<Arc<RecordBatch>, Recorded>>) {
    while lock.retaken().await.is_some() {
        // If it fails, the next records or loads do it.
        let _ = records.call(Arc::default()).await;
    }
}

#[async_trait]
impl Intake for PostgresStore {
    async fn accept(&self, batch: Arc<AcceptBatch>) -> Result<Vec<Receipt>> {
        check::accept(&batch)?;
        self.accepts.call(batch).await
    }

    async fn redeliver(&self, batch: RedeliverBatch) -> Result<Vec<Accepted>> {
        check::redeliver(&batch)?;
        redeliver::redeliver(&self.node, &batch).await
    }
}

#[async_trait]
impl Ledger for PostgresStore {
    async fn record(&self, batch: Arc<RecordBatch>) -> Result<Recorded> {
        check::record(&batch)?;
        match batch.durability {
            Durability::Visible => self.records.call(batch).await,
            Durability::Durable => self.durable_records.call(batch).await,
        }
    }

    async fn load(&self, load: Load) -> Result<LoadedPage> {
        check::load(&load)?;
        self.write_lost_records_again().await?;
        ledger::load(&self.node, load).await
    }

    async fn parcels(
        &self,
        deliveries: Vec<DeliveryId>,
    ) -> Result<Vec<(DeliveryId, Result<Parcel>)>> {
        check::at_most("deliveries (entries)", deliveries.len(), PARCELS_MAX)?;
        ledger::parcels(&self.node, &deliveries).await
    }

    async fn sweep(&self, sweep: Sweep) -> Result<SweepPage> {
        check::sweep(&sweep)?;
        self.write_lost_records_again().await?;
        ledger::sweep(&self.node, &sweep).await
    }

    async fn fence(&self, partition: Partition, epoch: Epoch) -> Result<()> {
        check::epoch(epoch)?;
        ledger::fence(&self.node, partition, epoch).await
    }
}

#[async_trait]
impl Registry for PostgresStore {
    async fn commit(&self, change: Change) -> Result<()> {
        check::change(&change)?;
        registry::commit(&self.node, &change).await
    }

    async fn tenant(&self, id: &TenantId) -> Result<Option<Tenant>> {
        registry::tenant(&self.node, id).await
    }

    async fn tenants(&self, page: PageRequest) -> Result<Listing<Tenant>> {
        registry::tenants(&self.node, &page).await
    }

    async fn erasing_tenant(&self, id: &TenantId) -> Result<Option<ErasingTenant>> {
        registry::erasing_tenant(&self.node, id).await
    }

    async fn erasing_tenants(&self) -> Result<Vec<ErasingTenant>> {
        registry::erasing_tenants(&self.node).await
    }

    async fn endpoint(&self, id: EndpointId) -> Result<Option<Endpoint>> {
        registry::endpoint(&self.node, id).await
    }

    async fn settings_of(
        &self,
        endpoints: Vec<EndpointId>,
    ) -> Result<Vec<(EndpointId, EndpointSettings)>> {
        check::page_of("endpoints", &endpoints)?;
        registry::settings_of(&self.node, &endpoints).await
    }

    async fn endpoints(
        &self,
        tenant: Option<&TenantId>,
        page: PageRequest,
    ) -> Result<Listing<Endpoint>> {
        registry::endpoints(&self.node, tenant, &page).await
    }

    async fn secrets(&self, endpoint: EndpointId) -> Result<Vec<EndpointSecret>> {
        registry::secrets(&self.node, endpoint).await
    }

    async fn secrets_of(
        &self,
        endpoints: &[EndpointId],
    ) -> Result<Vec<Result<Vec<EndpointSecret>>>> {
        registry::secrets_of(&self.node, endpoints).await
    }

    async fn due_rotations(
        &self,
        now: Timestamp,
        after: Option<DueRotation>,
        limit: u32,
    ) -> Result<Vec<DueRotation>> {
        check::due_rotations(limit)?;
        registry::due_rotations(&self.node, now, after, limit).await
    }

    async fn event_type(
        &self,
        tenant: &TenantId,
        name: &EventType,
    ) -> Result<Option<EventTypeRecord>> {
        registry::event_type(&self.node, tenant, name).await
    }

    async fn event_types(
        &self,
        tenant: &TenantId,
        page: PageRequest,
    ) -> Result<Listing<EventTypeRecord>> {
        registry::event_types(&self.node, tenant, &page).await
    }

    async fn replay(&self, id: ReplayId) -> Result<Option<Replay>> {
        replays::replay(&self.node, id).await
    }

    async fn replays(&self, tenant: &TenantId, page: PageRequest) -> Result<Listing<Replay>> {
        replays::replays(&self.node, tenant, &page).await
    }

    async fn running_replays(&self) -> Result<Vec<Replay>> {
        replays::running_replays(&self.node).await
    }
}

#[async_trait]
impl Access for PostgresStore {
    async fn api_key(&self, id: ApiKeyId) -> Result<Option<ApiKey>> {
        access::api_key(&self.node, id).await
    }

    async fn api_key_by_hash(&self, hash: &Digest) -> Result<Option<ApiKey>> {
        access::api_key_by_hash(&self.node, hash).await
    }

    async fn api_keys(
        &self,
        tenant: Option<&TenantId>,
        page: PageRequest,
    ) -> Result<Listing<ApiKey>> {
        access::api_keys(&self.node, tenant, &page).await
    }

    async fn audit(&self, query: AuditQuery) -> Result<Listing<AuditEntry>> {
        access::audit(&self.node, &query).await
    }

    async fn audit_about(
        &self,
        tenant: &TenantId,
        targets: Vec<String>,
        since: Timestamp,
        limit: u32,
    ) -> Result<Vec<AuditEntry>> {
        check::page_of("targets", &targets)?;
        access::audit_about(&self.node, tenant, targets, since, limit).await
    }

    async fn lookup_idempotency(
        &self,
        key: &IdempotencyKey,
        fingerprint: &Digest,
    ) -> Result<IdempotencyLookup> {
        access::lookup_idempotency(&self.node, key, fingerprint).await
    }
}

#[async_trait]
impl Archive for PostgresStore {
    async fn event(&self, tenant: &TenantId, id: &EventId) -> Result<Option<StoredEvent>> {
        archive::event(&self.node, tenant, id).await
    }

    async fn events(&self, query: EventQuery) -> Result<Listing<EventHead>> {
        archive::events(&self.node, &query).await
    }

    async fn delivery(&self, id: DeliveryId) -> Result<Option<DeliveryView>> {
        archive::delivery(&self.node, id).await
    }

    async fn deliveries(&self, query: DeliveryQuery) -> Result<Listing<DeliveryView>> {
        archive::deliveries(&self.node, &query).await
    }

    async fn deliveries_of(&self, tenant: &TenantId, event: &EventId) -> Result<Vec<DeliveryView>> {
        archive::deliveries_of(&self.node, tenant, event).await
    }

    async fn event_details(
        &self,
        tenant: &TenantId,
        events: Vec<EventId>,
    ) -> Result<Vec<(EventId, EventDetails)>> {
        check::page_of("events", &events)?;
        archive::event_details(&self.node, tenant, &events).await
    }

    async fn attempts(
        &self,
        delivery: DeliveryId,
        page: PageRequest,
    ) -> Result<Listing<AttemptView>> {
        archive::attempts(&self.node, delivery, &page).await
    }

    async fn last_attempts(
        &self,
        deliveries: Vec<DeliveryId>,
    ) -> Result<Vec<(DeliveryId, LastAttempt)>> {
        check::page_of("deliveries", &deliveries)?;
        archive::last_attempts(&self.node, &deliveries).await
    }

    async fn find(&self, query: FindQuery) -> Result<Vec<Found>> {
        finding::find(&self.node, &query).await
    }

    async fn held_lanes(&self, query: HeldLaneQuery) -> Result<Listing<HeldLane>> {
        archive::held_lanes(&self.node, &query).await
    }

    async fn held_lane(&self, tenant: &TenantId, lane: LaneId) -> Result<Option<HeldLane>> {
        archive::held_lane(&self.node, tenant, lane).await
    }

    async fn counts(&self, endpoint: EndpointId) -> Result<Counts> {
        archive::counts(&self.node, endpoint).await
    }

    async fn totals(&self, tenant: Option<&TenantId>) -> Result<Counts> {
        archive::totals(&self.node, tenant).await
    }

    async fn figures(
        &self,
        scope: &FiguresScope,
        resolution: Resolution,
        period: Period,
    ) -> Result<Vec<(Timestamp, Figures)>> {
        figures::figures(&self.node, scope, resolution, period).await
    }
}

#[async_trait]
impl Judging for PostgresStore {
    async fn judged_before(&self) -> Result<Option<DeliveryId>> {
        judging::judged_before(&self.node).await
    }

    async fn late_deliveries(&self, query: LateQuery) -> Result<LatePage> {
        judging::late_deliveries(&self.node, &query).await
    }

    async fn add_judged(&self, step: JudgedStep) -> Result<bool> {
        check::figures(&step.figures)?;
        judging::add_judged(&self.node, step).await
    }
}

#[async_trait]
impl Upkeep for PostgresStore {
    async fn prune(&self, step: PruneStep) -> Result<Pruned> {
        check::prune(&step)?;
        upkeep::prune(&self.node, &step).await
    }

    async fn erase_tenant(&self, tenant: &TenantId, ended: &AuditEntry) -> Result<bool> {
        check::audit(ended)?;
        upkeep::erase_tenant(&self.node, tenant, ended).await
    }

    async fn close_removed(&self, limit: u32) -> Result<u64> {
        check::step(limit)?;
        upkeep::close_removed(&self.node, limit).await
    }

    async fn begin_era(&self) -> Result<()> {
        upkeep::begin_era(&self.node).await
    }

    async fn verify(&self) -> Result<()> {
        upkeep::verify(&self.node).await
    }

    async fn backup(&self, to: &Path) -> Result<()> {
        backup::backup(&self.node, to).await
    }

    async fn add_figures(&self, batch: Vec<(FiguresScope, Timestamp, Figures)>) -> Result<()> {
        check::figures(&batch)?;
        figures::add_figures(&self.node, &by_bucket(batch)).await
    }

    async fn check(&self) -> Result<Health> {
        upkeep::check(&self.node).await
    }
}
