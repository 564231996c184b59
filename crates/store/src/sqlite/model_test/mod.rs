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

mod reads;
mod translator;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use fastrand::Rng;
use futures_util::future::{BoxFuture, join_all};
use railpost_engine::{
    Accepted, AttemptResult, DeadReason, Delivery, DeliveryState, Ordering, Policy, PolicyFields,
    Progress, Span, Stage, Timestamp, Transition,
};
use railpost_wire::{DeliveryId, EndpointId, EventId, TenantId};
use tempfile::TempDir;

use super::{SqliteStore, durable};
use crate::limits::UPKEEP_STEP_MAX;
use crate::{
    AcceptBatch, Archive, AttemptDetail, AuditEntry, Change, EndpointPrivate, EndpointSettings,
    Event, Ledger, MasterKey, MemoryStore, NewEndpoint, PruneStep, Pruned, Receipt, RecordBatch,
    Recorded, RedeliverBatch, Result, Setup, Source, Store, StoreError, Sweep, TenantSettings,
    Timing, Write,
};
use translator::Translator;

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
    fn restart(&mut self) {
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
            0 => self.restart(),
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
