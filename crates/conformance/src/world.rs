//! What the checks stand on: a fresh store with a clock and dice of their own, and short words for
//! what they do over and over.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering as Atomic};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use bytes::Bytes;
use railpost_engine::{
    Accepted, AttemptResult, Delivery, DeliveryState, LanePage, Load, LoadedPage, Policy,
    PolicyFields, Progress, Timestamp, Transition,
};
use railpost_wire::{AuditId, DeliveryId, EndpointId, EventId, Seq, TenantId};
use tempfile::TempDir;

use railpost_store::{
    AcceptBatch, AttemptDetail, AuditEntry, AuditQuery, Change, EndpointPrivate, EndpointSettings,
    Event, LinePlace, MasterKey, NewEndpoint, PageRequest, Period, Receipt, RecordBatch, Recorded,
    Result, Setup, Source, Store, TenantSettings, Timing, Write,
};

/// How a backend lets itself be tested.
#[async_trait]
pub trait Harness: Send + Sync {
    /// An empty store.
    async fn fresh(&self, setup: Setup) -> Arc<dyn Store>;

    /// Another store with all that a backup holds.
    async fn restore(&self, backup: &Path, setup: Setup) -> Result<Arc<dyn Store>>;
}

/// When every check begins.
pub(crate) const START: Timestamp = Timestamp::from_millis(1_700_000_000_000);

/// Further ahead than any check plans.
const FAR: railpost_engine::Span = railpost_engine::Span::from_days(1_000);

/// A clock that stands still until it is set, and dice that fall the same way every time.
#[derive(Debug)]
pub struct ManualSource {
    now: AtomicU64,
    dice: Mutex<u64>,
}

impl ManualSource {
    fn new() -> Self {
        Self { now: AtomicU64::new(START.as_millis()), dice: Mutex::new(1) }
    }

    /// Sets the clock.
    pub fn set(&self, now: Timestamp) {
        self.now.store(now.as_millis(), Atomic::SeqCst);
    }
}

impl Source for ManualSource {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.now.load(Atomic::SeqCst))
    }

    /// SplitMix64: every byte differs from its neighbours, and no two fills are alike.
    fn fill_random(&self, bytes: &mut [u8]) {
        let mut dice = self.dice.lock().expect("no one panics while rolling");
        for byte in bytes {
            *dice = dice.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = *dice;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            *byte = (z >> 56) as u8;
        }
    }
}

/// A fresh store with one tenant, `acme`.
pub struct World {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) source: Arc<ManualSource>,
    pub(crate) tenant: TenantId,
    harness: Arc<dyn Harness>,
    dir: TempDir,
    next: AtomicU64,
}

impl World {
    pub(crate) async fn new(harness: Arc<dyn Harness>) -> Self {
        let source = Arc::new(ManualSource::new());
        let store = harness.fresh(setup(source.clone(), 1)).await;
        let dir = TempDir::new().expect("a place for temporary files");
        let tenant: TenantId = "acme".parse().expect("a tenant id");
        let world = Self { store, source, tenant, harness, dir, next: AtomicU64::new(1) };
        world.add_tenant("acme", TenantSettings::default()).await;
        world
    }

    pub(crate) async fn add_tenant(&self, id: &str, settings: TenantSettings) -> TenantId {
        let id: TenantId = id.parse().expect("a tenant id");
        self.commit(Write::CreateTenant(id.clone(), settings)).await;
        id
    }

    pub(crate) async fn commit(&self, change: impl Into<Change>) {
        self.store.commit(change.into()).await.expect("the change is made");
    }

    /// Erases a tenant to the end.
    pub(crate) async fn erase(&self, tenant: &TenantId) {
        self.commit(Write::EraseTenant(tenant.clone())).await;
        while !self.erase_step(tenant).await {}
    }

    /// One step of erasing a tenant that is marked for it.
    pub(crate) async fn erase_step(&self, tenant: &TenantId) -> bool {
        let ended = self.erased_entry(tenant);
        self.store.erase_tenant(tenant, &ended).await.expect("a step is made")
    }

    /// The entry that tells of the end of erasing a tenant.
    pub(crate) fn erased_entry(&self, tenant: &TenantId) -> AuditEntry {
        AuditEntry {
            id: AuditId::from_u128(self.unique()),
            at: self.source.now(),
            tenant: None,
            actor: "system".to_owned(),
            address: None,
            action: "tenant.erased".to_owned(),
            target: tenant.to_string(),
            detail: serde_json::Value::Null,
        }
    }

    pub(crate) fn later(&self, millis: u64) -> Timestamp {
        let now = Timestamp::from_millis(self.source.now().as_millis() + millis);
        self.source.set(now);
        now
    }

    /// A number that nobody else in this world has.
    pub(crate) fn unique(&self) -> u128 {
        u128::from(self.next.fetch_add(1, Atomic::SeqCst))
    }

    /// Somebody did something to `target`, a second later.
    pub(crate) fn audit_entry(&self, target: &str) -> AuditEntry {
        AuditEntry {
            id: AuditId::from_u128(self.unique()),
            at: self.later(1_000),
            tenant: Some(self.tenant.clone()),
            actor: "key_1".into(),
            address: Some([192, 0, 2, 7].into()),
            action: "something.done".into(),
            target: target.into(),
            detail: serde_json::json!({"name": "b\u{0}"}),
        }
    }

    /// The tenant's audit trail, the latest first.
    pub(crate) async fn audit_trail(&self) -> Vec<AuditEntry> {
        let (tenant, page) = (Some(self.tenant.clone()), PageRequest::first(100));
        let query = AuditQuery { tenant, target: None, at: Period::default(), page };
        self.store.audit(query).await.expect("a list").items
    }

    /// An endpoint of the tenant for everything, ordered by key.
    pub(crate) async fn endpoint(&self) -> EndpointId {
        self.endpoint_with(EndpointSettings::all_events("https://example.com/hook")).await
    }

    pub(crate) async fn endpoint_with(&self, settings: EndpointSettings) -> EndpointId {
        let id = EndpointId::from_u128(self.unique());
        let tenant = self.tenant.clone();
        let private = EndpointPrivate::default();
        self.commit(Write::CreateEndpoint(NewEndpoint { id, tenant, settings, private })).await;
        id
    }

    pub(crate) async fn endpoint_with_policy(&self, fields: PolicyFields) -> EndpointId {
        let policy = Policy::new(fields).expect("a valid policy");
        let settings = EndpointSettings::all_events("https://example.com/hook");
        self.endpoint_with(EndpointSettings { policy, ..settings }).await
    }

    /// An event with a new id.
    pub(crate) fn event(&self, key: Option<&str>) -> Event {
        let mut random = [0; 10];
        random[2..].copy_from_slice(&(self.unique() as u64).to_be_bytes());
        Event {
            id: EventId::generate(self.source.now().as_millis(), random),
            event_type: "order.paid".parse().expect("an event type"),
            key: key.map(|key| key.parse().expect("a key")),
            payload: Bytes::from_static(br#"{"paid":true}"#),
            content_type: "application/json".parse().expect("a content type"),
            schema_version: Some(3),
            time: self.source.now(),
            traceparent: None,
            cloudevent: None,
        }
    }

    pub(crate) fn batch(&self, events: Vec<Event>) -> AcceptBatch {
        AcceptBatch { tenant: self.tenant.clone(), events, accepted_by: None, idempotency: None }
    }

    pub(crate) async fn accept(&self, events: Vec<Event>) -> Vec<Accepted> {
        let receipts =
            self.store.accept(self.batch(events).into()).await.expect("they are accepted");
        deliveries(receipts)
    }

    /// Accepts one new event with this key; the deliveries of it.
    pub(crate) async fn publish(&self, key: Option<&str>) -> Vec<Accepted> {
        self.accept(vec![self.event(key)]).await
    }

    /// The same, for a world with one endpoint.
    pub(crate) async fn publish_one(&self, key: Option<&str>) -> Accepted {
        self.publish(key).await[0]
    }

    pub(crate) async fn record(&self, to: impl IntoIterator<Item = Transition>) -> Recorded {
        self.store.record(RecordBatch::of(to).into()).await.expect("it is recorded")
    }

    /// Records that `accepted` is in `state` from now on.
    pub(crate) async fn move_to(&self, accepted: &Accepted, state: DeliveryState) -> Recorded {
        self.record([self.transition(accepted, state)]).await
    }

    pub(crate) fn transition(&self, accepted: &Accepted, state: DeliveryState) -> Transition {
        Transition {
            delivery: accepted.id,
            endpoint: accepted.endpoint,
            place: accepted.place,
            state,
            progress: progress(),
            attempt: None,
            at: self.source.now(),
        }
    }

    pub(crate) async fn delivery(&self, id: DeliveryId) -> Delivery {
        let view = self.store.delivery(id).await.expect("the store answers");
        view.expect("the delivery is known").delivery
    }

    pub(crate) async fn lane(&self, accepted: &Accepted, from: u64, limit: u32) -> LanePage {
        let lane = accepted.place.expect("it has a place").lane;
        let from = Seq::new(from).expect("a seq");
        let load = Load::Lane { endpoint: accepted.endpoint, lane, from, limit };
        match self.store.load(load).await.expect("the store answers") {
            LoadedPage::Lane(page) => page,
            other => panic!("expected one lane; got {other:?}"),
        }
    }

    /// The ids of all open deliveries without a place that are due by `due_by`, by pages of two, and
    /// when the next one is due.
    pub(crate) async fn unkeyed(
        &self,
        endpoint: EndpointId,
        due_by: Timestamp,
    ) -> (Vec<DeliveryId>, Option<Timestamp>) {
        let (mut ids, mut after) = (Vec::new(), None);
        loop {
            let due_beyond = Timestamp::from_millis(due_by.as_millis() + FAR.as_millis());
            let load = Load::Unkeyed { endpoint, after, due_by, due_beyond, limit: 2 };
            match self.store.load(load).await.expect("the store answers") {
                LoadedPage::Unkeyed { deliveries, next, next_due } => {
                    ids.extend(deliveries.iter().map(|delivery| delivery.id));
                    after = next;
                    if next.is_none() {
                        return (ids, next_due);
                    }
                }
                other => panic!("expected deliveries without a place; got {other:?}"),
            }
        }
    }

    /// Where a delivery stands in its line, as the sender and as people see it.
    pub(crate) async fn line(&self, id: DeliveryId) -> LinePlace {
        let mut parcels = self.store.parcels(vec![id]).await.expect("the store answers");
        let parcel = parcels.remove(0).1.expect("it can be read");
        let view = self.store.delivery(id).await.expect("the store answers");
        assert_eq!(parcel.line, view.expect("the delivery is known").line);
        parcel.line.expect("it has a lane")
    }

    /// A path where no file is yet.
    pub(crate) fn new_path(&self) -> PathBuf {
        self.dir.path().join(format!("file-{}", self.unique()))
    }

    /// The same world around another store.
    pub(crate) fn with_store(self, store: Arc<dyn Store>) -> Self {
        Self { store, ..self }
    }

    pub(crate) async fn restore(&self, backup: &Path, key: u8) -> Result<Arc<dyn Store>> {
        self.restore_with(backup, setup(self.source.clone(), key)).await
    }

    pub(crate) async fn restore_with(&self, backup: &Path, setup: Setup) -> Result<Arc<dyn Store>> {
        self.harness.restore(backup, setup).await
    }
}

/// A setup whose master key is made of this byte.
pub(crate) fn setup(source: Arc<ManualSource>, key: u8) -> Setup {
    Setup { source, master_key: MasterKey::new(&[key; 32]) }
}

pub(crate) fn deliveries(receipts: Vec<Receipt>) -> Vec<Accepted> {
    let deliveries = receipts.into_iter().flat_map(|receipt| match receipt {
        Receipt::Accepted { deliveries, .. } => deliveries,
        Receipt::Duplicate { .. } => vec![],
    });
    deliveries.map(|delivery| delivery.accepted).collect()
}

pub(crate) fn ids<'a>(deliveries: impl IntoIterator<Item = &'a Accepted>) -> Vec<DeliveryId> {
    deliveries.into_iter().map(|accepted| accepted.id).collect()
}

pub(crate) fn seq(accepted: &Accepted) -> u64 {
    accepted.place.expect("it has a place").seq.get()
}

/// Retries with every field filled in.
pub(crate) fn progress() -> Progress {
    Progress {
        attempts: 7,
        round_attempts: 2,
        round_started_at: Some(Timestamp::from_millis(1_699_999_999_000)),
        last_delay: railpost_engine::Span::from_secs(4),
        replay: true,
    }
}

/// An attempt that was answered, with every field filled in.
pub(crate) fn detail(number: u32, status: u16) -> AttemptDetail {
    AttemptDetail {
        number,
        started_at: Timestamp::from_millis(START.as_millis() + u64::from(number)),
        result: AttemptResult::Response { status, retry_after: None },
        timing: Timing {
            dns_us: Some(1),
            connect_us: Some(2),
            tls_us: None,
            first_byte_us: Some(4),
            total_us: 5,
        },
        message: Some("connection refused by 192.0.2.7".to_owned()),
        response_headers: vec![("server".to_owned(), "test \"1\"".to_owned())],
        response_body: Bytes::from_static(b"oh \xff no"),
        node: Some(railpost_wire::NodeId::from_u128(9)),
    }
}
