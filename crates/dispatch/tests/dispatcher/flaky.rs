//! A store with faults on demand: it is down, it loses answers to writes, it cannot read one row, it takes its
//! time, or it is replaced by an older copy of itself.

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use async_trait::async_trait;
use bytes::Bytes;
use railpost_engine::{Accepted, LaneId, Load, LoadedPage, Span, Timestamp};
use railpost_store::*;
use railpost_wire::{
    AlertId, ApiKeyId, DeliveryId, EndpointId, EventId, EventType, ReplayId, SilenceId, TenantId,
};
use tokio::sync::{Notify, RwLock, RwLockWriteGuard};

pub(crate) struct Flaky {
    inner: Mutex<Arc<dyn Store>>,
    faults: Mutex<Faults>,
    /// Accepts wait while a test has it for writing.
    accepting: RwLock<()>,
    accepts_begun: AtomicUsize,
    /// Records wait while a test has it for writing.
    recording: RwLock<()>,
    records_begun: Notify,
    /// Loads wait while a test has it for writing.
    loading: RwLock<()>,
    /// Records that were to survive a crash.
    durable_records: AtomicUsize,
    /// Calls that are passed on wait while a test has it for writing.
    passing: RwLock<()>,
    calls: Mutex<HashMap<&'static str, Calls>>,
}

/// How often something was asked for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Calls {
    pub(crate) begun: usize,
    under_way: usize,
    pub(crate) most_at_once: usize,
}

/// What goes wrong.
#[derive(Default)]
struct Faults {
    down: bool,
    /// Changes of the registry are refused.
    refuses_commits: bool,
    /// How many of the next accepts and changes are carried out without their caller hearing of it.
    answers_to_lose: u32,
    /// The same for records.
    record_answers_to_lose: u32,
    /// How many of the next reads of endpoints fail.
    endpoint_reads_to_fail: u32,
    /// How many of the next records are refused, because another has taken over.
    records_to_fence: u32,
    /// Events whose parcels cannot be read.
    unreadable: Vec<EventId>,
    /// Endpoints whose secrets cannot be read.
    sealed: Vec<EndpointId>,
}

fn unavailable(problem: &str) -> StoreError {
    StoreError::Unavailable(problem.to_owned())
}

/// Counts one down, if there is one left.
fn take(count: &mut u32) -> bool {
    let left = count.checked_sub(1);
    *count = left.unwrap_or_default();
    left.is_some()
}

impl Flaky {
    pub(crate) fn new(inner: Arc<dyn Store>) -> Arc<Self> {
        Arc::new(Self {
            inner: Mutex::new(inner),
            faults: Mutex::default(),
            accepting: RwLock::new(()),
            accepts_begun: AtomicUsize::new(0),
            recording: RwLock::new(()),
            records_begun: Notify::new(),
            loading: RwLock::new(()),
            durable_records: AtomicUsize::new(0),
            passing: RwLock::new(()),
            calls: Mutex::default(),
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

    /// Answers no record until the returned end is dropped.
    pub(crate) async fn hold_records(&self) -> RwLockWriteGuard<'_, ()> {
        self.recording.write().await
    }

    /// Answers no load until the returned end is dropped.
    #[allow(dead_code, reason = "the tests of the server use it")]
    pub(crate) async fn hold_loads(&self) -> RwLockWriteGuard<'_, ()> {
        self.loading.write().await
    }

    /// Waits until it was asked to record something.
    pub(crate) async fn record_begun(&self) {
        self.records_begun.notified().await;
    }

    /// Passes no call on until the returned end is dropped: none of those that [`Self::calls`] counts.
    pub(crate) async fn hold_calls(&self) -> RwLockWriteGuard<'_, ()> {
        self.passing.write().await
    }

    /// How often this function was called, of those that are only passed on.
    pub(crate) fn calls(&self, name: &str) -> Calls {
        self.calls.lock().unwrap().get(name).copied().unwrap_or_default()
    }

    async fn pass<T>(&self, name: &'static str, call: impl Future<Output = T>) -> T {
        let count =
            |change: fn(&mut Calls)| change(self.calls.lock().unwrap().entry(name).or_default());
        count(|calls| {
            calls.begun += 1;
            calls.under_way += 1;
            calls.most_at_once = calls.most_at_once.max(calls.under_way);
        });
        let _turn = self.passing.read().await;
        let answer = call.await;
        count(|calls| calls.under_way -= 1);
        answer
    }

    /// How many of its records were to survive a crash.
    pub(crate) fn durable_records(&self) -> usize {
        self.durable_records.load(Ordering::SeqCst)
    }

    pub(crate) fn set_down(&self, down: bool) {
        self.faults().down = down;
    }

    pub(crate) fn refuse_commits(&self, refuse: bool) {
        self.faults().refuses_commits = refuse;
    }

    pub(crate) fn lose_answers(&self, count: u32) {
        self.faults().answers_to_lose = count;
    }

    pub(crate) fn lose_record_answers(&self, count: u32) {
        self.faults().record_answers_to_lose = count;
    }

    pub(crate) fn fail_endpoint_reads(&self, count: u32) {
        self.faults().endpoint_reads_to_fail = count;
    }

    pub(crate) fn fence_records(&self, count: u32) {
        self.faults().records_to_fence = count;
    }

    pub(crate) fn make_unreadable(&self, event: &str) {
        self.faults().unreadable.push(event.parse().unwrap());
    }

    pub(crate) fn seal(&self, endpoint: EndpointId) {
        self.faults().sealed.push(endpoint);
    }

    /// Has the calls go to another store from here on.
    pub(crate) fn replace(&self, inner: Arc<dyn Store>) {
        *self.inner.lock().unwrap() = inner;
    }

    fn faults(&self) -> MutexGuard<'_, Faults> {
        self.faults.lock().unwrap()
    }

    /// The store, unless it is down.
    fn up(&self) -> Result<Arc<dyn Store>> {
        match self.faults().down {
            true => Err(unavailable("it was switched off")),
            false => Ok(self.inner.lock().unwrap().clone()),
        }
    }

    /// What an accept or a change answered, unless that gets lost.
    fn answer<T>(&self, written: Result<T>) -> Result<T> {
        match take(&mut self.faults().answers_to_lose) {
            true => Err(unavailable("the answer got lost")),
            false => written,
        }
    }
}

#[async_trait]
impl Ledger for Flaky {
    async fn record(&self, batch: Arc<RecordBatch>) -> Result<Recorded> {
        let inner = self.up()?;
        if take(&mut self.faults().records_to_fence) {
            return Err(StoreError::Fenced { partition: Partition(0) });
        }
        let is_durable = batch.durability == Durability::Durable;
        self.durable_records.fetch_add(is_durable.into(), Ordering::SeqCst);
        let recorded = inner.record(batch).await;
        self.records_begun.notify_one();
        let _turn = self.recording.read().await;
        match take(&mut self.faults().record_answers_to_lose) {
            true => Err(unavailable("the answer got lost")),
            false => recorded,
        }
    }

    async fn load(&self, load: Load) -> Result<LoadedPage> {
        let _turn = self.loading.read().await;
        self.up()?.load(load).await
    }

    async fn parcels(
        &self,
        deliveries: Vec<DeliveryId>,
    ) -> Result<Vec<(DeliveryId, Result<Parcel>)>> {
        let mut parcels = self.up()?.parcels(deliveries).await?;
        let unreadable = &self.faults().unreadable;
        for (_, parcel) in &mut parcels {
            if parcel.as_ref().is_ok_and(|parcel| unreadable.contains(&parcel.event.id)) {
                *parcel = Err(StoreError::Corrupt("its payload does not read back".to_owned()));
            }
        }
        Ok(parcels)
    }

    async fn sweep(&self, sweep: Sweep) -> Result<SweepPage> {
        self.up()?.sweep(sweep).await
    }

    async fn fence(&self, partition: Partition, epoch: Epoch) -> Result<()> {
        self.up()?.fence(partition, epoch).await
    }
}

/// Passes calls on, while the store is up.
macro_rules! passes_on {
    ($role:ident { $(fn $name:ident($($arg:ident: $type:ty),*) -> $answer:ty;)* }) => {
        #[async_trait]
        impl $role for Flaky {
            $(async fn $name(&self, $($arg: $type),*) -> Result<$answer> {
                let inner = self.up()?;
                self.pass(stringify!($name), inner.$name($($arg),*)).await
            })*
        }
    };
}

#[async_trait]
impl Intake for Flaky {
    async fn accept(&self, batch: Arc<AcceptBatch>) -> Result<Vec<Receipt>> {
        let inner = self.up()?;
        self.accepts_begun.fetch_add(1, Ordering::SeqCst);
        let _turn = self.accepting.read().await;
        let accepted = inner.accept(batch).await;
        self.answer(accepted)
    }

    async fn redeliver(&self, batch: RedeliverBatch) -> Result<Vec<Accepted>> {
        let accepted = self.up()?.redeliver(batch).await;
        self.answer(accepted)
    }
}

#[async_trait]
impl Registry for Flaky {
    async fn commit(&self, change: Change) -> Result<()> {
        let inner = self.up()?;
        if self.faults().refuses_commits {
            return Err(unavailable("it takes no changes"));
        }
        let committed = inner.commit(change).await;
        self.answer(committed)
    }

    async fn tenant(&self, id: &TenantId) -> Result<Option<Tenant>> {
        self.up()?.tenant(id).await
    }

    async fn tenants(&self, page: PageRequest) -> Result<Listing<Tenant>> {
        self.up()?.tenants(page).await
    }

    async fn erasing_tenant(&self, id: &TenantId) -> Result<Option<ErasingTenant>> {
        self.up()?.erasing_tenant(id).await
    }

    async fn erasing_tenants(&self) -> Result<Vec<ErasingTenant>> {
        self.up()?.erasing_tenants().await
    }

    async fn endpoint(&self, id: EndpointId) -> Result<Option<Endpoint>> {
        let inner = self.up()?;
        if take(&mut self.faults().endpoint_reads_to_fail) {
            return Err(unavailable("it cannot be read"));
        }
        inner.endpoint(id).await
    }

    async fn settings_of(
        &self,
        endpoints: Vec<EndpointId>,
    ) -> Result<Vec<(EndpointId, EndpointSettings)>> {
        self.up()?.settings_of(endpoints).await
    }

    async fn endpoints(
        &self,
        tenant: Option<&TenantId>,
        page: PageRequest,
    ) -> Result<Listing<Endpoint>> {
        self.up()?.endpoints(tenant, page).await
    }

    async fn secrets(&self, endpoint: EndpointId) -> Result<Vec<EndpointSecret>> {
        let inner = self.up()?;
        if self.faults().sealed.contains(&endpoint) {
            return Err(StoreError::Corrupt("a secret does not open".to_owned()));
        }
        inner.secrets(endpoint).await
    }

    async fn due_rotations(
        &self,
        now: Timestamp,
        after: Option<DueRotation>,
        limit: u32,
    ) -> Result<Vec<DueRotation>> {
        self.up()?.due_rotations(now, after, limit).await
    }

    async fn event_type(
        &self,
        tenant: &TenantId,
        name: &EventType,
    ) -> Result<Option<EventTypeRecord>> {
        self.up()?.event_type(tenant, name).await
    }

    async fn event_types(
        &self,
        tenant: &TenantId,
        page: PageRequest,
    ) -> Result<Listing<EventTypeRecord>> {
        self.up()?.event_types(tenant, page).await
    }

    async fn replay(&self, id: ReplayId) -> Result<Option<Replay>> {
        self.up()?.replay(id).await
    }

    async fn replays(&self, tenant: &TenantId, page: PageRequest) -> Result<Listing<Replay>> {
        self.up()?.replays(tenant, page).await
    }

    async fn running_replays(&self) -> Result<Vec<Replay>> {
        self.up()?.running_replays().await
    }
}

passes_on!(Access {
    fn api_key(id: ApiKeyId) -> Option<ApiKey>;
    fn api_key_by_hash(hash: &Digest) -> Option<ApiKey>;
    fn api_keys(tenant: Option<&TenantId>, page: PageRequest) -> Listing<ApiKey>;
    fn audit(query: AuditQuery) -> Listing<AuditEntry>;
    fn audit_about(tenant: &TenantId, targets: Vec<String>, since: Timestamp, limit: u32) -> Vec<AuditEntry>;
    fn lookup_idempotency(key: &IdempotencyKey, fingerprint: &Digest) -> IdempotencyLookup;
});

passes_on!(Archive {
    fn event(tenant: &TenantId, id: &EventId) -> Option<StoredEvent>;
    fn events(query: EventQuery) -> Listing<EventHead>;
    fn delivery(id: DeliveryId) -> Option<DeliveryView>;
    fn deliveries(query: DeliveryQuery) -> Listing<DeliveryView>;
    fn deliveries_of(tenant: &TenantId, event: &EventId) -> Vec<DeliveryView>;
    fn event_details(tenant: &TenantId, events: Vec<EventId>) -> Vec<(EventId, EventDetails)>;
    fn attempts(delivery: DeliveryId, page: PageRequest) -> Listing<AttemptView>;
    fn last_attempts(deliveries: Vec<DeliveryId>) -> Vec<(DeliveryId, LastAttempt)>;
    fn find(query: FindQuery) -> Vec<Found>;
    fn held_lanes(query: HeldLaneQuery) -> Listing<HeldLane>;
    fn held_lane(tenant: &TenantId, lane: LaneId) -> Option<HeldLane>;
    fn counts(endpoint: EndpointId) -> Counts;
    fn totals(tenant: Option<&TenantId>) -> Counts;
    fn figures(scope: &FiguresScope, resolution: Resolution, period: Period) -> Vec<(Timestamp, Figures)>;
});

passes_on!(Upkeep {
    fn prune(step: PruneStep) -> Pruned;
    fn erase_tenant(tenant: &TenantId, ended: &AuditEntry) -> bool;
    fn close_removed(limit: u32) -> u64;
    fn begin_era() -> ();
    fn verify() -> ();
    fn backup(to: &Path) -> ();
    fn add_figures(batch: Vec<(FiguresScope, Timestamp, Figures)>) -> ();
    fn check() -> Health;
});

passes_on!(KeyRotation {
    fn begin_key_rotation(new: &MasterKey) -> ();
    fn reencrypt(from: SealedRows, limit: u32) -> Reencrypted;
    fn end_key_rotation(links_until: Timestamp, ended: &AuditEntry) -> ();
});

passes_on!(Judging {
    fn judged_before() -> Option<DeliveryId>;
    fn late_deliveries(query: LateQuery) -> LatePage;
    fn add_judged(step: JudgedStep) -> bool;
});

passes_on!(Sources {
    fn lease_source(source: &SourceName, holder: &str, length: Span) -> SourceLease;
    fn release_source(source: &SourceName, epoch: Epoch) -> ();
    fn source_position(source: &SourceName) -> Option<SourcePosition>;
    fn save_source_position(source: &SourceName, epoch: Epoch, position: SourcePosition) -> ();
    fn park(batch: ParkBatch) -> ParkOutcome;
    fn parked_holds(source: &SourceName) -> ParkedHolds;
    fn parked_rows(query: ParkedQuery) -> Listing<ParkedRow>;
    fn parked_row(source: &SourceName, number: u64) -> Option<ParkedRow>;
    fn parked_payload(source: &SourceName, number: u64) -> Option<Bytes>;
    fn command_parked(command: ParkedCommand) -> u64;
    fn released_rows(source: &SourceName, limit: u32) -> Vec<ReleasedRow>;
    fn end_release(step: ReleaseStep) -> ();
    fn forget_source(source: &SourceName) -> ();
    fn known_sources() -> Vec<SourceName>;
    fn grant_emit(role: &str, tenant: &TenantId, audit: Option<AuditEntry>) -> ();
    fn revoke_emit(role: &str, audit: Option<AuditEntry>) -> ();
    fn emit_grants() -> Vec<(String, TenantId)>;
});

passes_on!(Alerts {
    fn open_alerts() -> Vec<Alert>;
    fn save_alerts(alerts: Vec<Alert>) -> ();
    fn alert(id: AlertId) -> Option<Alert>;
    fn alerts(query: AlertQuery) -> Listing<Alert>;
    fn silences() -> Vec<Silence>;
    fn save_silence(silence: Silence, audit: AuditEntry) -> ();
    fn end_silence(id: SilenceId, at: Timestamp, audit: AuditEntry) -> Silence;
});
