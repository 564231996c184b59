//! The SQLite store beside the memory store: both are given the same calls, and must give the same answers.
//!
//! Every seed is a story: groups of calls at once, some of which fail, crashes, restarts, and between them every
//! list and load of the contract. What a store names itself (deliveries, lanes, eras) is translated.
//!
//! It finds, for example, a lane whose row is behind its deliveries. A store that wrote the
//! last seqs of large groups elsewhere, to bring `lanes` up to date later, answered `held_lanes` with an error:
//! one event with a key for four endpoints made four lanes whose rows said 0, and a dead letter that held one of
//! them was listed with a last seq that does not exist. Here four endpoints take every keyed event, dead letters
//! hold their lanes, and `held_lanes` is asked between any two groups.
//!
//! `RAILPOST_MODEL_SEEDS` is how many seeds are tried, `RAILPOST_MODEL_SEED` the only one.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::hash::Hash;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use fastrand::Rng;
use futures_util::future::{BoxFuture, join_all};
use railpost_engine::{
    Accepted, AttemptResult, DeadReason, Delivery, DeliveryState, LaneId, LanePage, Load, Ordering,
    Page, Place, Policy, PolicyFields, Progress, Span, Stage, Timestamp, Transition,
};
use railpost_wire::{DeliveryId, EndpointId, EventId, LineId, Seq, TenantId};
use rustc_hash::FxHashMap;
use tempfile::TempDir;

use super::{SqliteStore, durable};
use crate::limits::UPKEEP_STEP_MAX;
use crate::{
    AcceptBatch, Archive, AttemptDetail, AuditEntry, AuditQuery, Change, Cursor, DeliveryQuery,
    DeliveryView, EndpointPrivate, EndpointSettings, Event, EventQuery, HeldLane, HeldLaneQuery,
    Ledger, LinePlace, Listing, MasterKey, MemoryStore, NewDelivery, NewEndpoint, PageRequest,
    Parcel, PruneStep, Pruned, Receipt, RecordBatch, Recorded, RedeliverBatch, Registry, Result,
    Setup, Skipped, Source, Store, StoreError, Sweep, TenantSettings, Timing, Write,
};

const SEEDS: u64 = 100;
const STEPS: u64 = 60;
const THREADS: usize = 2;
const START: u64 = 1_700_000_000_000;

/// A clock that both stores share, and randomness of each one's own.
#[derive(Debug)]
struct TestSource {
    now: Arc<AtomicU64>,
    random: Mutex<Rng>,
}

impl Source for TestSource {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.now.load(Relaxed))
    }

    fn fill_random(&self, bytes: &mut [u8]) {
        self.random.lock().unwrap().fill(bytes);
    }
}

/// What the SQLite store calls what the memory store calls otherwise.
#[derive(Debug)]
struct Names<T> {
    to_memory: FxHashMap<T, T>,
    to_sqlite: FxHashMap<T, T>,
}

impl<T> Default for Names<T> {
    fn default() -> Self {
        Self { to_memory: FxHashMap::default(), to_sqlite: FxHashMap::default() }
    }
}

impl<T: Copy + Debug + Eq + Hash> Names<T> {
    fn pair(&mut self, sqlite: T, memory: T) {
        let known = *self.to_memory.entry(sqlite).or_insert(memory);
        assert_eq!(known, memory, "{sqlite:?} is one thing");
        let known = *self.to_sqlite.entry(memory).or_insert(sqlite);
        assert_eq!(known, sqlite, "{memory:?} has one name");
    }

    fn memory(&self, sqlite: T) -> T {
        *self.to_memory.get(&sqlite).unwrap_or_else(|| panic!("{sqlite:?} came from nowhere"))
    }

    fn sqlite(&self, memory: T) -> T {
        *self.to_sqlite.get(&memory).unwrap_or(&memory)
    }
}

/// Translates the SQLite store's answers.
#[derive(Debug, Default)]
struct Translator {
    deliveries: Names<DeliveryId>,
    lanes: Names<LaneId>,
    eras: Names<u64>,
}

impl Translator {
    fn learn(&mut self, sqlite: &Accepted, memory: &Accepted) {
        self.deliveries.pair(sqlite.id, memory.id);
        if let (Some(sqlite), Some(memory)) = (sqlite.place, memory.place) {
            self.lanes.pair(sqlite.lane, memory.lane);
        }
    }

    fn place(&self, place: Option<Place>) -> Option<Place> {
        place.map(|Place { lane, seq }| Place { lane: self.lanes.memory(lane), seq })
    }

    fn line(&self, line: Option<LinePlace>) -> Option<LinePlace> {
        line.map(|place| {
            let (era, lane) = place.line.as_str().split_once('-').unwrap();
            let era = self.eras.memory(u64::from_str_radix(era, 16).unwrap());
            let lane = self.lanes.memory(LaneId(lane.parse().unwrap()));
            LinePlace { line: LineId::of(era, lane.0), ..place }
        })
    }

    fn accepted(&self, accepted: Accepted) -> Accepted {
        let id = self.deliveries.memory(accepted.id);
        Accepted { id, place: self.place(accepted.place), ..accepted }
    }

    fn receipt(&self, receipt: Receipt) -> Receipt {
        let translate = |NewDelivery { accepted, line }| NewDelivery {
            accepted: self.accepted(accepted),
            line: self.line(line),
        };
        match receipt {
            Receipt::Accepted { accepted_at, deliveries } => Receipt::Accepted {
                accepted_at,
                deliveries: deliveries.into_iter().map(translate).collect(),
            },
            duplicate => duplicate,
        }
    }

    fn delivery(&self, delivery: Delivery) -> Delivery {
        let id = self.deliveries.memory(delivery.id);
        Delivery { id, place: self.place(delivery.place), ..delivery }
    }

    fn view(&self, view: DeliveryView) -> DeliveryView {
        let line = self.line(view.line);
        DeliveryView { delivery: self.delivery(view.delivery), line, ..view }
    }

    fn parcel(&self, parcel: Parcel) -> Parcel {
        let delivery = self.deliveries.memory(parcel.delivery);
        Parcel { delivery, line: self.line(parcel.line), ..parcel }
    }

    fn held(&self, held: HeldLane) -> HeldLane {
        let (lane, held_by) = (self.lanes.memory(held.lane), self.deliveries.memory(held.held_by));
        HeldLane { lane, held_by, ..held }
    }

    fn recorded(&self, recorded: Recorded) -> Recorded {
        let skipped = recorded.skipped.into_iter().map(|skipped| Skipped {
            delivery: self.deliveries.memory(skipped.delivery),
            ..skipped
        });
        Recorded { skipped: skipped.collect(), ..recorded }
    }

    fn lane_page(&self, page: LanePage) -> LanePage {
        let lane = self.lanes.memory(page.lane);
        let deliveries = page.deliveries.into_iter().map(|delivery| self.delivery(delivery));
        relevant(LanePage { lane, deliveries: deliveries.collect(), ..page })
    }

    fn page(&self, page: Page) -> Page {
        match page {
            Page::Lanes { lanes, next } => Page::Lanes {
                lanes: lanes.into_iter().map(|page| self.lane_page(page)).collect(),
                next: next.map(|lane| self.lanes.memory(lane)),
            },
            Page::Lane(page) => Page::Lane(self.lane_page(page)),
            Page::Unkeyed { deliveries, next, next_due } => Page::Unkeyed {
                deliveries: deliveries.into_iter().map(|one| self.delivery(one)).collect(),
                next: next.map(|id| self.deliveries.memory(id)),
                next_due,
            },
        }
    }
}

/// Without what is told of deliveries that are closed: a store may forget it when it likes.
fn relevant(mut page: LanePage) -> LanePage {
    let end = page.through.map_or(0, Seq::get) + 1;
    let open: Vec<_> =
        page.deliveries.iter().filter_map(|one| one.place).map(|place| place.seq).collect();
    page.follows.retain(|(seq, _)| open.contains(seq) || seq.get() == end);
    page
}

fn relevant_page(page: Page) -> Page {
    match page {
        Page::Lanes { lanes, next } => {
            Page::Lanes { lanes: lanes.into_iter().map(relevant).collect(), next }
        }
        Page::Lane(page) => Page::Lane(relevant(page)),
        unkeyed => unkeyed,
    }
}

/// One call of a group, in the memory store's names.
#[derive(Clone, Debug)]
enum Call {
    Accept(AcceptBatch),
    Redeliver(RedeliverBatch),
    Record(RecordBatch),
    Commit(Change),
    Prune(PruneStep),
    CloseRemoved(u32),
    BeginEra,
    /// Accepts something and fails then: its group is given up.
    Fail(AcceptBatch),
}

#[derive(Debug, PartialEq)]
enum Answer {
    Accept(Result<Vec<Receipt>>),
    Redeliver(Result<Vec<Accepted>>),
    Record(Result<Recorded>),
    Done(Result<()>),
    Count(Result<u64>),
    Pruned(Result<Pruned>),
}

struct World {
    seed: u64,
    dice: Rng,
    now: Arc<AtomicU64>,
    memory: MemoryStore,
    sqlite: Option<SqliteStore>,
    path: PathBuf,
    dir: TempDir,
    files: u32,
    translator: Translator,
    tenants: Vec<TenantId>,
    endpoints: Vec<EndpointId>,
    /// Every event that was accepted, with its tenant.
    events: Vec<(TenantId, Event)>,
    made: u64,
    deliveries: Vec<DeliveryId>,
}

fn tenant(number: usize) -> TenantId {
    format!("tenant-{number}").parse().unwrap()
}

impl World {
    async fn new(seed: u64) -> Self {
        let dir = TempDir::new().unwrap();
        let now = Arc::new(AtomicU64::new(START));
        let path = dir.path().join("store.db");
        let mut world = Self {
            seed,
            dice: Rng::with_seed(seed),
            memory: MemoryStore::new(setup(&now, seed)),
            sqlite: Some(SqliteStore::open(&path, setup(&now, !seed)).unwrap()),
            now,
            path,
            dir,
            files: 0,
            translator: Translator::default(),
            tenants: vec![tenant(0), tenant(1)],
            endpoints: vec![],
            events: vec![],
            made: 0,
            deliveries: vec![],
        };
        world.learn_era().await;
        for tenant in world.tenants.clone() {
            let create = Write::CreateTenant(tenant, TenantSettings::default());
            world.run(vec![Call::Commit(create.into())]).await;
        }
        for (tenant, ordering) in [
            (0, Ordering::PerKey),
            (0, Ordering::PerKey),
            (0, Ordering::PerKey),
            (0, Ordering::PerKey),
            (0, Ordering::Global),
            (0, Ordering::None),
            (1, Ordering::PerKey),
        ] {
            let create = world.new_endpoint(tenant, ordering);
            world.run(vec![Call::Commit(create.into())]).await;
        }
        world
    }

    fn sqlite(&self) -> &SqliteStore {
        self.sqlite.as_ref().unwrap()
    }

    fn new_endpoint(&mut self, tenant: usize, ordering: Ordering) -> Write {
        self.made += 1;
        let id = EndpointId::from_u128(self.made.into());
        self.endpoints.push(id);
        let (settings, private) = (settings(ordering, "*"), EndpointPrivate::default());
        let tenant = self.tenants[tenant].clone();
        Write::CreateEndpoint(NewEndpoint { id, tenant, settings, private })
    }

    fn pick<T: Clone>(&mut self, of: &[T]) -> Option<T> {
        self.dice.choice(of).cloned()
    }

    fn event(&mut self, tenant: &TenantId) -> Event {
        let known: Vec<_> = self.events.iter().filter(|(whose, _)| whose == tenant).collect();
        if self.dice.u32(..20) == 0
            && let Some((_, known)) = self.dice.choice(known)
        {
            let changed = if self.dice.u32(..4) == 0 { "other" } else { "{}" };
            return Event { payload: Bytes::from(changed), ..known.clone() };
        }
        self.made += 1;
        let keys = ["a", "a", "b", "c"];
        let key = (self.dice.u32(..5) > 0).then(|| keys[self.dice.usize(..4)].parse().unwrap());
        Event {
            id: EventId::generate(self.made, [0; 10]),
            event_type: ["a.b", "a.b", "c.d"][self.dice.usize(..3)].parse().unwrap(),
            key,
            payload: Bytes::from_static(b"{}"),
            content_type: "application/json".parse().unwrap(),
            schema_version: None,
            time: Timestamp::from_millis(self.made),
            traceparent: None,
            cloudevent: None,
        }
    }

    fn batch(&mut self) -> AcceptBatch {
        let tenant = self.tenants[usize::from(self.dice.u32(..5) == 0)].clone();
        let count = self.dice.usize(1..5);
        let events = (0..count).map(|_| self.event(&tenant)).collect();
        AcceptBatch { tenant, events, idempotency: None }
    }

    async fn records(&mut self) -> RecordBatch {
        let mut batch = RecordBatch::default();
        for _ in 0..self.dice.usize(1..8) {
            // Mostly of late: what is old is closed.
            let from =
                self.deliveries.len().saturating_sub(if self.dice.bool() { 12 } else { 200 });
            let Some(id) = self.dice.choice(&self.deliveries[from..]).copied() else { break };
            let Some(view) = self.memory.delivery(id).await.unwrap() else { continue };
            let mut delivery = view.delivery;
            let before = batch.transitions.iter().filter(|(before, _)| before.delivery == id);
            delivery.progress.attempts += before.count() as u32;
            batch.transitions.push(self.transition(delivery));
        }
        batch
    }

    fn transition(&mut self, delivery: Delivery) -> (Transition, Option<Box<AttemptDetail>>) {
        let now = Timestamp::from_millis(self.now.load(Relaxed));
        let dead = |holds| DeliveryState::Dead { reason: DeadReason::Permanent, holds };
        let until = Timestamp::from_millis(now.as_millis() + self.dice.u64(..500));
        let states = [
            DeliveryState::Delivered,
            DeliveryState::Delivered,
            DeliveryState::Delivered,
            DeliveryState::InFlight,
            DeliveryState::Waiting { until },
            dead(true),
            dead(false),
            DeliveryState::DISCARDED,
            DeliveryState::Pending,
        ];
        let state = states[self.dice.usize(..states.len())];
        let Delivery { id, endpoint, place, progress, .. } = delivery;
        let number = progress.attempts + 1;
        let result = AttemptResult::Response { status: 200, retry_after: None };
        let timing = Timing { total_us: self.dice.u32(..), ..Timing::default() };
        let detail = AttemptDetail {
            number,
            started_at: now,
            result,
            timing,
            message: None,
            response_headers: vec![],
            response_body: Bytes::new(),
            node: None,
        };
        let progress = Progress {
            attempts: number,
            round_attempts: number,
            round_started_at: Some(now),
            last_delay: Span::from_millis(3),
            replay: progress.replay,
        };
        let transition =
            Transition { delivery: id, endpoint, place, state, progress, attempt: None, at: now };
        let attempted = !matches!(state.stage(), Stage::Pending | Stage::InFlight);
        (transition, attempted.then(|| Box::new(detail)))
    }

    fn change(&mut self) -> Change {
        let some = self.dice.usize(..self.endpoints.len());
        let id = self.endpoints[some];
        let ordering = [Ordering::PerKey, Ordering::PerKey, Ordering::Global, Ordering::None];
        let ordering = ordering[self.dice.usize(..4)];
        let write = match self.dice.u32(..10) {
            0 => Write::RemoveEndpoint(id),
            1..4 => {
                let settings = settings(ordering, ["*", "a.*"][self.dice.usize(..2)]);
                let private = EndpointPrivate::default();
                Write::UpdateEndpoint { id, settings, private, revision: None }
            }
            4..6 => {
                let max = self.dice.u64(10..60);
                let backlog_max = (self.dice.u32(..3) == 0).then_some(max);
                let settings = TenantSettings { backlog_max, ..TenantSettings::default() };
                Write::UpdateTenant(self.tenants[0].clone(), settings)
            }
            _ => self.new_endpoint(0, ordering),
        };
        self.made += 1;
        let audit = AuditEntry {
            id: railpost_wire::AuditId::from_u128(self.made.into()),
            at: Timestamp::from_millis(self.now.load(Relaxed)),
            tenant: Some(self.tenants[0].clone()),
            actor: "model".to_owned(),
            action: "change".to_owned(),
            target: id.to_string(),
            detail: serde_json::Value::Null,
        };
        Change { writes: vec![write], audit: Some(audit), idempotency: None }
    }

    fn prune_step(&mut self) -> PruneStep {
        let now = self.now.load(Relaxed);
        let mut before = |most| Timestamp::from_millis(now - self.dice.u64(1..most));
        PruneStep {
            closed_before: before(1_500),
            dead_before: before(1_500),
            lanes_before: before(1_000),
            after: None,
            limit: 1_000,
        }
    }

    async fn call(&mut self) -> Call {
        match self.dice.u32(..40) {
            0 => Call::BeginEra,
            1 => Call::Prune(self.prune_step()),
            // All at once: which ones a step closes first is the store's choice.
            2 => Call::CloseRemoved(UPKEEP_STEP_MAX),
            3..6 => Call::Fail(self.batch()),
            6..9 => Call::Commit(self.change()),
            9..12 => match self.pick(&self.events.clone()) {
                Some((tenant, event)) => {
                    let to = self.pick(&self.endpoints.clone()).unwrap();
                    let orders = vec![(event.id, to)];
                    Call::Redeliver(RedeliverBatch { tenant, orders, idempotency: None })
                }
                None => Call::Accept(self.batch()),
            },
            12..25 => Call::Record(self.records().await),
            _ => Call::Accept(self.batch()),
        }
    }

    /// Makes the calls at once on the SQLite store, and one after the other on the memory store.
    async fn run(&mut self, calls: Vec<Call>) {
        let here = calls.iter().map(|call| self.on_sqlite(call.clone()));
        let here = join_all(here.collect::<Vec<_>>()).await;
        for (call, sqlite) in calls.into_iter().zip(here) {
            let memory = self.on_memory(call.clone()).await;
            self.learn(&call, &sqlite, &memory);
            if matches!(call, Call::BeginEra) {
                self.learn_era().await;
            }
            let seed = self.seed;
            assert_eq!(self.translate(sqlite), memory, "seed {seed}: {call:?}");
        }
    }

    fn on_sqlite(&self, call: Call) -> BoxFuture<'_, Answer> {
        let store = self.sqlite();
        Box::pin(async move {
            match call {
                Call::Record(mut batch) => {
                    for (transition, _) in &mut batch.transitions {
                        transition.delivery =
                            self.translator.deliveries.sqlite(transition.delivery);
                        if let Some(place) = &mut transition.place {
                            place.lane = self.translator.lanes.sqlite(place.lane);
                        }
                    }
                    Answer::Record(store.record(batch.into()).await)
                }
                Call::Fail(batch) => {
                    let batch = Arc::new(batch);
                    let failed = store.writer.write(durable(1, 0), move |session| {
                        let _ = session.accept(&batch)?;
                        Err(failure())
                    });
                    // What is refused does not fail the group.
                    let failed: Result<()> = failed.await;
                    assert!(failed.is_err());
                    Answer::Done(Err(failure()))
                }
                other => on_any(store, other).await,
            }
        })
    }

    async fn on_memory(&self, call: Call) -> Answer {
        match call {
            Call::Fail(_) => Answer::Done(Err(failure())),
            other => on_any(&self.memory, other).await,
        }
    }

    fn learn(&mut self, call: &Call, sqlite: &Answer, memory: &Answer) {
        let Self { translator, deliveries, events, .. } = self;
        let mut learn = |sqlite: &Accepted, memory: &Accepted| {
            translator.learn(sqlite, memory);
            deliveries.push(memory.id);
        };
        match (call, sqlite, memory) {
            (Call::Accept(batch), Answer::Accept(Ok(sqlite)), Answer::Accept(Ok(memory))) => {
                for ((sqlite, memory), event) in sqlite.iter().zip(memory).zip(&batch.events) {
                    let Receipt::Accepted { deliveries: sqlite, .. } = sqlite else { continue };
                    let Receipt::Accepted { deliveries: memory, .. } = memory else { continue };
                    events.push((batch.tenant.clone(), event.clone()));
                    for (sqlite, memory) in sqlite.iter().zip(memory) {
                        learn(&sqlite.accepted, &memory.accepted);
                    }
                }
            }
            (_, Answer::Redeliver(Ok(sqlite)), Answer::Redeliver(Ok(memory))) => {
                sqlite.iter().zip(memory).for_each(|(sqlite, memory)| learn(sqlite, memory));
            }
            _ => {}
        }
    }

    async fn learn_era(&mut self) {
        let sweep = Sweep { limit: 1, ..everything() };
        let (sqlite, memory) = (self.sqlite().sweep(sweep).await, self.memory.sweep(sweep).await);
        self.translator.eras.pair(sqlite.unwrap().era, memory.unwrap().era);
    }

    fn translate(&self, answer: Answer) -> Answer {
        let names = &self.translator;
        match answer {
            Answer::Accept(Ok(receipts)) => {
                Answer::Accept(Ok(receipts.into_iter().map(|one| names.receipt(one)).collect()))
            }
            Answer::Redeliver(Ok(all)) => {
                Answer::Redeliver(Ok(all.into_iter().map(|one| names.accepted(one)).collect()))
            }
            Answer::Record(Ok(recorded)) => Answer::Record(Ok(names.recorded(recorded))),
            other => other,
        }
    }

    /// Closes the file, and opens it again.
    async fn restart(&mut self) {
        self.sqlite = None;
        self.open();
    }

    /// What a killed process leaves, opened by the next.
    fn crash(&mut self) {
        self.files += 1;
        let copy = self.dir.path().join(format!("copy-{}.db", self.files));
        for suffix in ["", "-wal"] {
            let name = |path: &PathBuf| PathBuf::from(format!("{}{suffix}", path.display()));
            std::fs::copy(name(&self.path), name(&copy)).unwrap();
        }
        self.sqlite = None;
        self.path = copy;
        self.open();
    }

    fn open(&mut self) {
        let seed = self.dice.u64(..);
        self.sqlite = Some(SqliteStore::open(&self.path, setup(&self.now, seed)).unwrap());
    }

    /// Erases the second tenant, and makes it again.
    async fn erase(&mut self) {
        for store in [&self.memory as &dyn Store, self.sqlite() as &dyn Store] {
            while !store.erase_tenant(&self.tenants[1]).await.unwrap() {}
        }
        let create = Write::CreateTenant(self.tenants[1].clone(), TenantSettings::default());
        let endpoint = self.new_endpoint(1, Ordering::PerKey);
        self.events.retain(|(tenant, _)| *tenant != self.tenants[1]);
        self.run(vec![Call::Commit(create.into()), Call::Commit(endpoint.into())]).await;
    }

    async fn step(&mut self) {
        self.now.fetch_add(self.dice.u64(1..40), Relaxed);
        match self.dice.u32(..30) {
            0 => self.restart().await,
            1 => self.crash(),
            2 => self.erase().await,
            _ => {
                let mut calls = Vec::new();
                for _ in 0..self.dice.usize(1..5) {
                    calls.push(self.call().await);
                }
                // What a record is about and which era it is, is looked up before and after a group.
                let (mut records, mut eras) = (0, 0);
                calls.retain(|call| {
                    records += u32::from(matches!(call, Call::Record(_)));
                    eras += u32::from(matches!(call, Call::BeginEra));
                    match call {
                        Call::Record(_) => records <= 1,
                        Call::BeginEra => eras <= 1,
                        _ => true,
                    }
                });
                self.run(calls).await;
            }
        }
    }
}

fn failure() -> StoreError {
    StoreError::Unavailable("as the model has it".to_owned())
}

fn setup(now: &Arc<AtomicU64>, seed: u64) -> Setup {
    let random = Mutex::new(Rng::with_seed(seed));
    let source = Arc::new(TestSource { now: now.clone(), random });
    Setup { source, master_key: MasterKey::new(&[1; 32]) }
}

fn settings(ordering: Ordering, filter: &str) -> EndpointSettings {
    let policy = Policy::new(PolicyFields { ordering, ..PolicyFields::default() }).unwrap();
    let filters = vec![filter.parse().unwrap()];
    let all = EndpointSettings::all_events("https://example.com");
    EndpointSettings { policy, filters, ..all }
}

fn everything() -> Sweep {
    let (after, through) = (DeliveryId::from_u128(0), DeliveryId::from_u128(u128::MAX));
    Sweep { after, through, limit: 1_000 }
}

async fn on_any(store: &dyn Store, call: Call) -> Answer {
    match call {
        Call::Accept(batch) => Answer::Accept(store.accept(batch.into()).await),
        Call::Redeliver(batch) => Answer::Redeliver(store.redeliver(batch).await),
        Call::Record(batch) => Answer::Record(store.record(batch.into()).await),
        Call::Commit(change) => Answer::Done(store.commit(change).await),
        Call::CloseRemoved(limit) => Answer::Count(store.close_removed(limit).await),
        Call::BeginEra => Answer::Done(store.begin_era().await),
        Call::Prune(step) => {
            let pruned = store.prune(step).await;
            Answer::Pruned(pruned.map(|pruned| Pruned { next: None, ..pruned }))
        }
        Call::Fail(_) => unreachable!("each store fails in its own way"),
    }
}

/// What is compared. Lists are compared page by page, each store with its own cursors.
impl World {
    /// Every page of a list of both stores, in the memory store's names.
    async fn same_list<'w, T: Debug + PartialEq>(
        &'w self,
        what: impl Debug,
        limit: u32,
        list: impl Fn(&'w dyn Store, PageRequest) -> BoxFuture<'w, Result<Listing<T>>>,
        translate: impl Fn(T) -> T,
    ) {
        let mut after: (Option<Cursor>, Option<Cursor>) = (None, None);
        loop {
            let page = |after: Option<Cursor>| PageRequest { limit, after };
            let memory = list(&self.memory, page(after.0)).await;
            let sqlite = list(self.sqlite(), page(after.1)).await;
            let (memory, sqlite) = match (memory, sqlite) {
                (Ok(memory), Ok(sqlite)) => (memory, sqlite),
                (memory, sqlite) => panic!("seed {}: {what:?}: {memory:?} {sqlite:?}", self.seed),
            };
            let items: Vec<T> = sqlite.items.into_iter().map(&translate).collect();
            for (index, (sqlite, memory)) in items.iter().zip(&memory.items).enumerate() {
                assert_eq!(sqlite, memory, "seed {}: {what:?} {index}", self.seed);
            }
            assert_eq!(items.len(), memory.items.len(), "seed {}: {what:?}", self.seed);
            assert_eq!(sqlite.next.is_some(), memory.next.is_some(), "{what:?}");
            if memory.next.is_none() {
                return;
            }
            after = (memory.next, sqlite.next);
        }
    }

    async fn same_registry(&self, limit: u32) {
        self.same_list("tenants", limit, |store, page| store.tenants(page), |one| one).await;
        self.same_list("endpoints", limit, |store, page| store.endpoints(None, page), |one| one)
            .await;
        for id in &self.endpoints {
            let (sqlite, memory) =
                (self.sqlite().endpoint(*id).await, self.memory.endpoint(*id).await);
            assert_eq!(sqlite, memory, "seed {}", self.seed);
        }
        let query = |page| AuditQuery { tenant: None, target: None, at: Default::default(), page };
        self.same_list("audit", limit, |store, page| store.audit(query(page)), |one| one).await;
    }

    async fn same_events(&self, limit: u32) {
        for tenant in &self.tenants {
            let query = |page| EventQuery::of(tenant.clone(), page);
            self.same_list("events", limit, |store, page| store.events(query(page)), |one| one)
                .await;
        }
        for (tenant, event) in self.events.iter().rev().take(8) {
            let sqlite = self.sqlite().event(tenant, &event.id).await;
            assert_eq!(sqlite, self.memory.event(tenant, &event.id).await);
            let views = self.sqlite().deliveries_of(tenant, &event.id).await.unwrap();
            let views: Vec<_> = views.into_iter().map(|one| self.translator.view(one)).collect();
            let memory = self.memory.deliveries_of(tenant, &event.id).await.unwrap();
            assert_eq!(views, memory, "seed {}", self.seed);
        }
    }

    /// A few endpoints. Removed ones too: those that were made last are asked for more often.
    fn some_endpoints(&mut self) -> Vec<EndpointId> {
        let len = self.endpoints.len();
        let from = if self.dice.bool() { 0 } else { len.saturating_sub(4) };
        (0..3).map(|_| self.endpoints[self.dice.usize(from..len)]).collect()
    }

    async fn same_deliveries(&mut self, limit: u32, stage: Option<Stage>) {
        let some = self.some_endpoints().into_iter().map(Some).chain([None]);
        for (endpoint, tenant) in some.flat_map(|id| self.tenants.iter().map(move |t| (id, t))) {
            let query = |page| {
                let all = DeliveryQuery::of(tenant.clone(), page);
                DeliveryQuery { endpoint, stage, ..all }
            };
            let what = (endpoint, tenant, stage);
            let translate = |view| self.translator.view(view);
            self.same_list(what, limit, |store, page| store.deliveries(query(page)), translate)
                .await;
        }
    }

    async fn same_held_lanes(&self, limit: u32) {
        for tenant in &self.tenants {
            let query = |page| HeldLaneQuery { tenant: tenant.clone(), endpoint: None, page };
            let translate = |held| self.translator.held(held);
            self.same_list("held", limit, |store, page| store.held_lanes(query(page)), translate)
                .await;
        }
    }

    async fn same_counts(&self) {
        for id in &self.endpoints {
            let memory = self.memory.counts(*id).await;
            assert_eq!(self.sqlite().counts(*id).await, memory, "seed {}: {id}", self.seed);
        }
        for tenant in self.tenants.iter().map(Some).chain([None]) {
            let memory = self.memory.totals(tenant).await;
            assert_eq!(self.sqlite().totals(tenant).await, memory, "seed {}", self.seed);
        }
    }

    async fn same_loads(&mut self, limit: u32) {
        let now = Timestamp::from_millis(self.now.load(Relaxed));
        let due_beyond = Timestamp::from_millis(now.as_millis() + 200);
        let mut loads = Vec::new();
        for endpoint in self.some_endpoints() {
            loads.push(Load::Lanes { endpoint, after: None, limit, window: limit });
            loads.push(Load::Unkeyed { endpoint, after: None, due_by: now, due_beyond, limit });
            let lanes = Load::Lanes { endpoint, after: None, limit: 9, window: 1 };
            let Page::Lanes { lanes, .. } = self.memory.load(lanes).await.unwrap() else {
                panic!()
            };
            for LanePage { lane, deliveries, .. } in lanes {
                let from = deliveries[0].place.unwrap().seq;
                loads.push(Load::Lane { endpoint, lane, from, limit });
                loads.push(Load::Lane { endpoint, lane, from: Seq::FIRST, limit });
            }
        }
        let named = loads.iter().map(|load| match *load {
            Load::Lane { endpoint, lane, from, limit } => {
                Load::Lane { endpoint, lane: self.translator.lanes.sqlite(lane), from, limit }
            }
            other => other,
        });
        let sqlite = self.sqlite().load_all(named.collect()).await.unwrap();
        let memory = self.memory.load_all(loads.clone()).await.unwrap();
        for ((sqlite, memory), load) in sqlite.into_iter().zip(memory).zip(loads) {
            let sqlite = self.translator.page(sqlite);
            assert_eq!(sqlite, relevant_page(memory), "seed {}: {load:?}", self.seed);
        }
    }

    async fn same_sweeps(&self, limit: u32) {
        let (mut memory, mut sqlite) = (everything(), everything());
        loop {
            (memory.limit, sqlite.limit) = (limit, limit);
            let here = self.sqlite().sweep(sqlite).await.unwrap();
            let there = self.memory.sweep(memory).await.unwrap();
            let open: Vec<_> =
                here.deliveries.into_iter().map(|one| self.translator.accepted(one)).collect();
            assert_eq!(open, there.deliveries, "seed {}", self.seed);
            assert_eq!(self.translator.eras.memory(here.era), there.era);
            match (here.next, there.next) {
                (Some(here), Some(there)) => (sqlite.after, memory.after) = (here, there),
                (None, None) => return,
                other => panic!("seed {}: {other:?}", self.seed),
            }
        }
    }

    async fn same_parcels(&self) {
        let ids: Vec<_> = self.deliveries.iter().rev().take(30).copied().collect();
        let named = ids.iter().map(|id| self.translator.deliveries.sqlite(*id)).collect();
        let sqlite = self.sqlite().parcels(named).await.unwrap();
        let sqlite: BTreeMap<_, _> = sqlite
            .into_iter()
            .map(|(id, parcel)| {
                let parcel = self.translator.parcel(parcel.unwrap());
                (self.translator.deliveries.memory(id), parcel)
            })
            .collect();
        let memory = self.memory.parcels(ids.clone()).await.unwrap();
        let memory = memory.into_iter().map(|(id, parcel)| (id, parcel.unwrap())).collect();
        assert_eq!(sqlite, memory, "seed {}", self.seed);
        for id in ids.into_iter().take(6) {
            let named = self.translator.deliveries.sqlite(id);
            let page = PageRequest::first(99);
            let memory = self.memory.attempts(id, page.clone()).await;
            assert_eq!(self.sqlite().attempts(named, page).await, memory, "seed {}", self.seed);
        }
    }

    /// One kind of read after another, so that all are done between any few groups.
    async fn check(&mut self, kind: u64) {
        let limit = [2, 9, 40, 99][self.dice.usize(..4)];
        let stages = [None, Some(Stage::Dead), Some(Stage::Pending), Some(Stage::Discarded)];
        self.same_held_lanes(limit).await;
        self.same_loads(limit).await;
        match kind % 6 {
            0 => self.same_registry(limit).await,
            1 => self.same_events(limit).await,
            2 => {
                let stage = stages[self.dice.usize(..4)];
                self.same_deliveries(limit, stage).await;
            }
            3 => self.same_counts().await,
            4 => self.same_sweeps(limit).await,
            _ => self.same_parcels().await,
        }
    }
}

fn seeds() -> Vec<u64> {
    let number = |name| std::env::var(name).ok().map(|text| text.parse().unwrap());
    match number("RAILPOST_MODEL_SEED") {
        Some(seed) => vec![seed],
        None => (0..number("RAILPOST_MODEL_SEEDS").unwrap_or(SEEDS)).collect(),
    }
}

fn tell(seed: u64) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut world = World::new(seed).await;
        for step in 0..STEPS {
            world.step().await;
            world.check(step).await;
        }
        for kind in 0..6 {
            world.check(kind).await;
        }
    });
}

#[test]
fn the_sqlite_store_answers_as_the_memory_store_does() {
    let seeds = seeds();
    std::thread::scope(|scope| {
        for part in seeds.chunks(seeds.len().div_ceil(THREADS)) {
            scope.spawn(|| part.iter().copied().for_each(tell));
        }
    });
}
