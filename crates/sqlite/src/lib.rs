//! The store in one SQLite file: nothing to install, one process at a time.
//!
//! One thread writes, in groups; readers have connections of their own. A lock file beside the
//! database keeps a second process out.
//!
//! No SQL and no type of the driver is public. Start with `writer.rs`, where calls become groups, and
//! `session.rs`, what a group works with; `schema/` has the tables.

mod limits;
mod errors;
mod schema;
mod statements;
mod rows;
mod stop;
mod lanes;
mod backlog;
mod cache;
mod accept_log;
mod checkpointer;
mod session;
mod writer;
mod readers;
mod inserts;
mod intake;
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
mod checksum;
mod restore;
#[cfg(test)]
mod faults_test;
#[cfg(test)]
mod model_test;

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use railpost_engine::{Accepted, LaneId, Load, LoadedPage, Timestamp};
use railpost_wire::{ApiKeyId, DeliveryId, EndpointId, EventId, EventType, ReplayId, TenantId};
use rusqlite::Connection;

use accept_log::Unapplied;
use readers::Readers;
use session::OpenFile;
use sources::Leases;
use stop::StopReason;
use writer::{JobSpec, Writer};

use crate::limits::{ACCEPT_LOG_ENTRY_LEN, CROWD_ITEMS};
use railpost_store::backend::check;
use railpost_store::backend::encryption::separate_unreadable;
use railpost_store::backend::figures::by_bucket;
use railpost_store::limits::PARCELS_MAX;
use railpost_store::{
    AcceptBatch, Access, ApiKey, Archive, AttemptDetail, AttemptView, AuditEntry, AuditQuery,
    Change, Counts, DeliveryQuery, DeliveryView, Digest, DueRotation, Durability, Endpoint,
    EndpointSecret, EndpointSettings, Epoch, ErasingTenant, Event, EventDetails, EventHead,
    EventQuery, EventTypeRecord, Figures, FiguresScope, FindQuery, Found, Health, HeldLane,
    HeldLaneQuery, IdempotencyKey, IdempotencyLookup, IdempotencyRecord, Intake, JudgedStep,
    Judging, LastAttempt, LatePage, LateQuery, Ledger, Listing, PageRequest, Parcel, Partition,
    Period, PruneStep, Pruned, Receipt, RecordBatch, Recorded, RedeliverBatch, Registry, Replay,
    Resolution, Result, Setup, StoreError, StoredEvent, Sweep, SweepPage, Tenant, Upkeep,
};

/// A store in a SQLite file.
#[derive(Debug)]
pub struct SqliteStore {
    // In this order they go: the writer closes the file last, which tidies it, and before the lock.
    readers: Readers,
    writer: Writer,
    leases: Leases,
    unapplied: Unapplied,
    setup: Setup,
    path: PathBuf,
    _lock: Lock,
}

impl SqliteStore {
    /// Opens the file, or makes it. Refuses one that another process has, that a later version
    /// wrote, that belongs to another master key, or that is no store.
    pub fn open(path: &Path, setup: Setup) -> Result<Self> {
        let lock = lock(path)?;
        restore::finish(path)?;
        let stop = StopReason::default();
        let file = OpenFile::open(path, setup.clone(), stop.clone())?;
        let unapplied = file.unapplied();
        let writer = Writer::start(file, stop)?;
        let readers = Readers::new(path);
        let leases = Leases::default();
        Ok(Self { writer, unapplied, readers, leases, setup, path: path.to_owned(), _lock: lock })
    }

    /// Has what was accepted moved to its tables, where readers find it.
    async fn apply_log(&self) -> Result<()> {
        if !self.unapplied.any() {
            return Ok(());
        }
        self.writer.write(visible(0), |_| Ok(())).await
    }

    /// Reads events or deliveries for people. Of a store that cannot be written to they see what the tables have.
    async fn read_shown<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let _ = self.apply_log().await;
        self.readers.read(work).await
    }

    /// Reads deliveries for those who send them, who must see all that was accepted.
    async fn read_accepted<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.apply_log().await?;
        self.readers.read(work).await
    }

    /// Puts a backup in the place of the store, in a new era: what is open goes out in new lines. The store that
    /// was there is kept beside it, as `….before-restore-` and the time: that file it answers.
    ///
    /// Refuses while another process has the store, and a backup that is damaged, that is no store, that a
    /// later version wrote or that belongs to another master key: then the store stays as it is. A crash
    /// leaves the old store or the new one, and the next start finds it.
    pub fn restore(path: &Path, backup: &Path, setup: &Setup) -> Result<Option<PathBuf>> {
        let _lock = lock(path)?;
        restore::restore(path, backup, setup)
    }
}

/// Keeps other processes out until it is dropped.
#[derive(Debug)]
struct Lock(File);

impl Drop for Lock {
    /// To close the file is not enough: a process that is being started has it too until it runs its own program.
    fn drop(&mut self) {
        let _ = self.0.unlock();
    }
}

fn lock(path: &Path) -> Result<Lock> {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    let name = PathBuf::from(name);
    let file = File::options().create(true).append(true).open(&name).map_err(|error| {
        StoreError::Unavailable(format!("cannot open the lock file {}: {error}", name.display()))
    })?;
    match file.try_lock() {
        Ok(()) => Ok(Lock(file)),
        Err(TryLockError::WouldBlock) => Err(StoreError::Locked(format!(
            "another process has {}: stop it, or give this one a file of its own",
            path.display()
        ))),
        Err(TryLockError::Error(error)) => {
            Err(StoreError::Unavailable(format!("cannot lock {}: {error}", name.display())))
        }
    }
}

/// What is durable before it is answered.
fn durable(items: usize, bytes: usize) -> JobSpec {
    JobSpec { durability: Durability::Durable, items, bytes, loggable: false }
}

/// How many bytes the answer has that is kept for a request that may come again.
fn response_len(record: &Option<Box<IdempotencyRecord>>) -> usize {
    record.as_ref().map_or(0, |record| record.response.body.len())
}

/// What is seen when it is answered: a crash may lose it.
fn visible(items: usize) -> JobSpec {
    JobSpec { durability: Durability::Visible, items, bytes: 0, loggable: false }
}

#[async_trait]
impl Intake for SqliteStore {
    async fn accept(&self, batch: Arc<AcceptBatch>) -> Result<Vec<Receipt>> {
        check::accept(&batch)?;
        let payloads: usize = batch.events.iter().map(Event::bytes).sum();
        let answer = batch.idempotency.as_ref().map_or(0, |record| record.body_len_max);
        let small = payloads < ACCEPT_LOG_ENTRY_LEN && batch.events.len() < CROWD_ITEMS;
        let loggable = small && batch.idempotency.is_none();
        let spec = JobSpec { loggable, ..durable(batch.events.len(), payloads + answer) };
        self.writer.write(spec, move |session| session.accept(&batch)).await
    }

    async fn redeliver(&self, batch: RedeliverBatch) -> Result<Vec<Accepted>> {
        check::redeliver(&batch)?;
        let spec = durable(batch.orders.len(), response_len(&batch.idempotency));
        self.writer.write(spec, move |session| session.redeliver(&batch)).await
    }
}

#[async_trait]
impl Ledger for SqliteStore {
    async fn record(&self, batch: Arc<RecordBatch>) -> Result<Recorded> {
        check::record(&batch)?;
        let details = batch.transitions.iter().filter_map(|(_, detail)| detail.as_deref());
        let bytes = details.map(AttemptDetail::stored_len).sum();
        let items = batch.transitions.len();
        let spec = JobSpec { durability: batch.durability, items, bytes, loggable: false };
        self.writer.write(spec, move |session| session.record(&batch)).await
    }

    async fn load(&self, load: Load) -> Result<LoadedPage> {
        Ok(self.load_all(vec![load]).await?.swap_remove(0))
    }

    /// On one snapshot: a thread that is woken and pages that are found serve all of them.
    async fn load_all(&self, loads: Vec<Load>) -> Result<Vec<LoadedPage>> {
        loads.iter().try_for_each(check::load)?;
        let load_all = move |db: &Connection| {
            loads.iter().map(|load| ledger::load(db, load)).collect::<Result<_>>()
        };
        self.read_accepted(load_all).await
    }

    async fn parcels(
        &self,
        deliveries: Vec<DeliveryId>,
    ) -> Result<Vec<(DeliveryId, Result<Parcel>)>> {
        check::at_most("deliveries (entries)", deliveries.len(), PARCELS_MAX)?;
        self.read_accepted(move |db| ledger::parcels(db, &deliveries)).await
    }

    async fn sweep(&self, sweep: Sweep) -> Result<SweepPage> {
        check::sweep(&sweep)?;
        self.read_accepted(move |db| ledger::sweep(db, &sweep)).await
    }

    async fn fence(&self, partition: Partition, epoch: Epoch) -> Result<()> {
        check::epoch(epoch)?;
        self.writer.write(durable(1, 0), move |session| session.fence(partition, epoch)).await
    }
}

#[async_trait]
impl Registry for SqliteStore {
    async fn commit(&self, change: Change) -> Result<()> {
        check::change(&change)?;
        let spec = durable(1, response_len(&change.idempotency));
        self.writer.write(spec, move |session| session.commit(&change)).await
    }

    async fn tenant(&self, id: &TenantId) -> Result<Option<Tenant>> {
        let id = id.clone();
        self.readers.read(move |db| registry::tenant(db, &id)).await
    }

    async fn tenants(&self, page: PageRequest) -> Result<Listing<Tenant>> {
        self.readers.read(move |db| registry::tenants(db, &page)).await
    }

    async fn erasing_tenant(&self, id: &TenantId) -> Result<Option<ErasingTenant>> {
        let id = id.clone();
        self.readers.read(move |db| registry::erasing_tenant(db, &id)).await
    }

    async fn erasing_tenants(&self) -> Result<Vec<ErasingTenant>> {
        self.readers.read(registry::erasing_tenants).await
    }

    async fn endpoint(&self, id: EndpointId) -> Result<Option<Endpoint>> {
        let key = self.setup.master_key.clone();
        self.readers.read(move |db| registry::endpoint(db, id, &key)).await
    }

    async fn settings_of(
        &self,
        endpoints: Vec<EndpointId>,
    ) -> Result<Vec<(EndpointId, EndpointSettings)>> {
        check::page_of("endpoints", &endpoints)?;
        self.readers.read(move |db| registry::settings_of(db, &endpoints)).await
    }

    async fn endpoints(
        &self,
        tenant: Option<&TenantId>,
        page: PageRequest,
    ) -> Result<Listing<Endpoint>> {
        let (tenant, key) = (tenant.cloned(), self.setup.master_key.clone());
        self.readers.read(move |db| registry::endpoints(db, tenant.as_ref(), &page, &key)).await
    }

    async fn secrets(&self, endpoint: EndpointId) -> Result<Vec<EndpointSecret>> {
        let key = self.setup.master_key.clone();
        self.readers.read(move |db| registry::secrets(db, endpoint, &key)).await
    }

    /// On one snapshot: a thread that is woken serves all of them.
    async fn secrets_of(
        &self,
        endpoints: &[EndpointId],
    ) -> Result<Vec<Result<Vec<EndpointSecret>>>> {
        let (endpoints, key) = (endpoints.to_vec(), self.setup.master_key.clone());
        let read_all = move |db: &Connection| {
            let all =
                endpoints.iter().map(|id| separate_unreadable(registry::secrets(db, *id, &key)));
            all.collect()
        };
        self.readers.read(read_all).await
    }

    async fn due_rotations(
        &self,
        now: Timestamp,
        after: Option<DueRotation>,
        limit: u32,
    ) -> Result<Vec<DueRotation>> {
        check::due_rotations(limit)?;
        self.readers.read(move |db| registry::due_rotations(db, now, after, limit)).await
    }

    async fn event_type(
        &self,
        tenant: &TenantId,
        name: &EventType,
    ) -> Result<Option<EventTypeRecord>> {
        let (tenant, name) = (tenant.clone(), name.clone());
        self.readers.read(move |db| registry::event_type(db, &tenant, &name)).await
    }

    async fn event_types(
        &self,
        tenant: &TenantId,
        page: PageRequest,
    ) -> Result<Listing<EventTypeRecord>> {
        let tenant = tenant.clone();
        self.readers.read(move |db| registry::event_types(db, &tenant, &page)).await
    }

    async fn replay(&self, id: ReplayId) -> Result<Option<Replay>> {
        self.readers.read(move |db| replays::replay(db, id)).await
    }

    async fn replays(&self, tenant: &TenantId, page: PageRequest) -> Result<Listing<Replay>> {
        let tenant = tenant.clone();
        self.readers.read(move |db| replays::replays(db, &tenant, &page)).await
    }

    async fn running_replays(&self) -> Result<Vec<Replay>> {
        self.readers.read(replays::running_replays).await
    }
}

#[async_trait]
impl Access for SqliteStore {
    async fn api_key(&self, id: ApiKeyId) -> Result<Option<ApiKey>> {
        self.readers.read(move |db| access::api_key(db, id)).await
    }

    async fn api_key_by_hash(&self, hash: &Digest) -> Result<Option<ApiKey>> {
        let hash = *hash;
        self.readers.read(move |db| access::api_key_by_hash(db, &hash)).await
    }

    async fn api_keys(
        &self,
        tenant: Option<&TenantId>,
        page: PageRequest,
    ) -> Result<Listing<ApiKey>> {
        let tenant = tenant.cloned();
        self.readers.read(move |db| access::api_keys(db, tenant.as_ref(), &page)).await
    }

    async fn audit(&self, query: AuditQuery) -> Result<Listing<AuditEntry>> {
        self.readers.read(move |db| access::audit(db, &query)).await
    }

    async fn audit_about(
        &self,
        tenant: &TenantId,
        targets: Vec<String>,
        since: Timestamp,
        limit: u32,
    ) -> Result<Vec<AuditEntry>> {
        check::page_of("targets", &targets)?;
        let tenant = tenant.clone();
        self.readers.read(move |db| access::audit_about(db, &tenant, targets, since, limit)).await
    }

    async fn lookup_idempotency(
        &self,
        key: &IdempotencyKey,
        fingerprint: &Digest,
    ) -> Result<IdempotencyLookup> {
        let (key, fingerprint, now) = (key.clone(), *fingerprint, self.setup.source.now());
        self.readers.read(move |db| access::lookup_idempotency(db, &key, &fingerprint, now)).await
    }
}

#[async_trait]
impl Archive for SqliteStore {
    async fn event(&self, tenant: &TenantId, id: &EventId) -> Result<Option<StoredEvent>> {
        let (tenant, id) = (tenant.clone(), id.clone());
        self.read_shown(move |db| archive::event(db, &tenant, &id)).await
    }

    async fn events(&self, query: EventQuery) -> Result<Listing<EventHead>> {
        self.read_shown(move |db| archive::events(db, &query)).await
    }

    async fn delivery(&self, id: DeliveryId) -> Result<Option<DeliveryView>> {
        self.read_shown(move |db| archive::delivery(db, id)).await
    }

    async fn deliveries(&self, query: DeliveryQuery) -> Result<Listing<DeliveryView>> {
        self.read_shown(move |db| archive::deliveries(db, &query)).await
    }

    async fn deliveries_of(&self, tenant: &TenantId, event: &EventId) -> Result<Vec<DeliveryView>> {
        let (tenant, event) = (tenant.clone(), event.clone());
        self.read_shown(move |db| archive::deliveries_of(db, &tenant, &event)).await
    }

    async fn event_details(
        &self,
        tenant: &TenantId,
        events: Vec<EventId>,
    ) -> Result<Vec<(EventId, EventDetails)>> {
        check::page_of("events", &events)?;
        let tenant = tenant.clone();
        self.read_shown(move |db| archive::event_details(db, &tenant, events)).await
    }

    async fn attempts(
        &self,
        delivery: DeliveryId,
        page: PageRequest,
    ) -> Result<Listing<AttemptView>> {
        self.read_shown(move |db| archive::attempts(db, delivery, &page)).await
    }

    async fn last_attempts(
        &self,
        deliveries: Vec<DeliveryId>,
    ) -> Result<Vec<(DeliveryId, LastAttempt)>> {
        check::page_of("deliveries", &deliveries)?;
        self.read_shown(move |db| archive::last_attempts(db, &deliveries)).await
    }

    async fn find(&self, query: FindQuery) -> Result<Vec<Found>> {
        self.read_shown(move |db| finding::find(db, &query)).await
    }

    async fn held_lanes(&self, query: HeldLaneQuery) -> Result<Listing<HeldLane>> {
        self.read_shown(move |db| archive::held_lanes(db, &query)).await
    }

    async fn held_lane(&self, tenant: &TenantId, lane: LaneId) -> Result<Option<HeldLane>> {
        let tenant = tenant.clone();
        self.read_shown(move |db| archive::held_lane(db, &tenant, lane)).await
    }

    async fn counts(&self, endpoint: EndpointId) -> Result<Counts> {
        self.read_shown(move |db| archive::counts(db, endpoint)).await
    }

    async fn totals(&self, tenant: Option<&TenantId>) -> Result<Counts> {
        let tenant = tenant.cloned();
        self.read_shown(move |db| archive::totals(db, tenant.as_ref())).await
    }

    async fn figures(
        &self,
        scope: &FiguresScope,
        resolution: Resolution,
        period: Period,
    ) -> Result<Vec<(Timestamp, Figures)>> {
        let scope = scope.clone();
        self.readers.read(move |db| figures::figures(db, &scope, resolution, period)).await
    }
}

#[async_trait]
impl Judging for SqliteStore {
    async fn judged_before(&self) -> Result<Option<DeliveryId>> {
        self.readers.read(judging::judged_before).await
    }

    async fn late_deliveries(&self, query: LateQuery) -> Result<LatePage> {
        self.read_accepted(move |db| judging::late_deliveries(db, &query)).await
    }

    async fn add_judged(&self, step: JudgedStep) -> Result<bool> {
        check::figures(&step.figures)?;
        let JudgedStep { was, judged_before, figures } = step;
        let (spec, sums) = (visible(figures.len()), by_bucket(figures));
        self.writer.write(spec, move |session| session.add_judged(was, judged_before, &sums)).await
    }
}

#[async_trait]
impl Upkeep for SqliteStore {
    async fn prune(&self, step: PruneStep) -> Result<Pruned> {
        check::prune(&step)?;
        // What a crash brings back is pruned again.
        let spec = visible(step.limit as usize);
        self.writer.write(spec, move |session| session.prune(&step)).await
    }

    async fn erase_tenant(&self, tenant: &TenantId, ended: &AuditEntry) -> Result<bool> {
        check::audit(ended)?;
        let (tenant, ended) = (tenant.clone(), ended.clone());
        let spec = durable(1, 0);
        self.writer.write(spec, move |session| session.erase_tenant(&tenant, &ended)).await
    }

    async fn close_removed(&self, limit: u32) -> Result<u64> {
        check::step(limit)?;
        // What a crash opens again is closed again.
        let spec = visible(limit as usize);
        self.writer.write(spec, move |session| session.close_removed(limit)).await
    }

    async fn begin_era(&self) -> Result<()> {
        self.writer.write(durable(1, 0), upkeep::begin_era).await
    }

    async fn verify(&self) -> Result<()> {
        self.readers.read_on_new_connection(upkeep::verify).await
    }

    async fn backup(&self, to: &Path) -> Result<()> {
        let to = to.to_owned();
        self.readers.read_without_transaction(move |db| upkeep::backup(db, &to)).await
    }

    async fn add_figures(&self, batch: Vec<(FiguresScope, Timestamp, Figures)>) -> Result<()> {
        check::figures(&batch)?;
        let spec = visible(batch.len());
        let sums = by_bucket(batch);
        self.writer.write(spec, move |session| session.add_figures(&sums)).await
    }

    async fn check(&self) -> Result<Health> {
        self.writer.write(durable(1, 0), session::check_writable).await?;
        let size = std::fs::metadata(&self.path).map(|data| data.len());
        let size_bytes = size.map_err(|error| {
            StoreError::Unavailable(format!("cannot see {}: {error}", self.path.display()))
        })?;
        Ok(Health { backend: "sqlite", schema: schema::SCHEMA, size_bytes })
    }
}
