//! A backend beside the memory store: both are given the same calls, and must give the same answers.
//!
//! Every seed is a scenario: groups of calls at once, some of which fail, crashes, restarts, and between them every
//! list and load of the contract. What a store names itself (deliveries, lanes, eras) is translated.
//!
//! It finds, for example, a lane whose row is behind its deliveries. A store that wrote the
//! last seqs of large groups elsewhere, to bring `lanes` up to date later, answered `held_lanes` with an error:
//! one event with a key for four endpoints made four lanes whose rows said 0, and a dead letter that held one of
//! them was listed with a last seq that does not exist. Here four endpoints take every keyed event, dead letters
//! hold their lanes, and `held_lanes` is asked between any two groups.
//!
//! `RAILPOST_MODEL_SEEDS` is how many seeds are tried, `RAILPOST_MODEL_SEED` the only one.

mod calls;
mod scenarios;
mod changes;
mod running;
mod reads;
mod registry_reads;
mod translator;

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use fastrand::Rng;
use railpost_engine::{Ordering, Timestamp};
use railpost_wire::{DeliveryId, EndpointId, TenantId};

use calls::Call;
use railpost_store::{
    AcceptBatch, Event, MasterKey, MemoryStore, Setup, Source, Store, Sweep, TenantSettings, Write,
};
use translator::Translator;

const STEPS: u64 = 60;
const THREADS: usize = 2;
const START: u64 = 1_700_000_000_000;

/// The store that is compared with the memory store.
#[async_trait]
pub trait Backend: Send + Sync {
    /// The store.
    fn store(&self) -> &dyn Store;

    /// What it does where the contract leaves it a choice.
    fn choices(&self) -> Choices;

    /// Closes the store and opens it again.
    async fn restart(&mut self, setup: Setup);

    /// Opens what a killed process leaves.
    async fn crash(&mut self, setup: Setup);

    /// Accepts a batch and fails then, so that the group of calls that it is part of is rolled back and
    /// carried out again without it. A backend without such groups does nothing.
    async fn fail(&self, _batch: AcceptBatch) {}
}

/// Where the contract leaves a backend a choice.
#[derive(Clone, Copy, Debug)]
pub struct Choices {
    /// Calls at once are carried out in the order in which they were made. If not, only accepts are made
    /// at once.
    pub keeps_order: bool,
    /// A tenant's open deliveries are counted exactly for every accept. If not, scenarios do not lower
    /// the bound.
    pub exact_backlog: bool,
    /// A refused transition is answered with the stage on record at its turn. If not, with the one on
    /// record after the whole call.
    pub refusals_in_turn: bool,
    /// A redelivery with several reasons to be refused names the one that the memory store names.
    pub first_refusal: bool,
}

/// Compares a backend with the memory store, by `seeds` scenarios unless the environment says otherwise.
/// `open` makes an empty store.
pub fn run(seeds: u64, open: impl AsyncFn(Setup) -> Box<dyn Backend> + Sync) {
    let seeds = chosen_seeds(seeds);
    std::thread::scope(|scope| {
        for part in seeds.chunks(seeds.len().div_ceil(THREADS).max(1)) {
            scope.spawn(|| part.iter().for_each(|seed| run_scenario(*seed, &open)));
        }
    });
}

fn chosen_seeds(default: u64) -> Vec<u64> {
    let number = |name| std::env::var(name).ok().map(|text| text.parse().unwrap());
    match number("RAILPOST_MODEL_SEED") {
        Some(seed) => vec![seed],
        None => (0..number("RAILPOST_MODEL_SEEDS").unwrap_or(default)).collect(),
    }
}

fn run_scenario(seed: u64, open: &impl AsyncFn(Setup) -> Box<dyn Backend>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut model = Model::new(seed, open).await;
        for step in 0..STEPS {
            model.step().await;
            model.check(step).await;
        }
        for kind in 0..reads::KINDS {
            model.check(kind).await;
        }
    });
}

/// A clock that both stores share, and randomness of each one's own.
#[derive(Debug)]
struct ModelSource {
    now: Arc<AtomicU64>,
    random: Mutex<Rng>,
}

impl Source for ModelSource {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.now.load(Relaxed))
    }

    fn fill_random(&self, bytes: &mut [u8]) {
        self.random.lock().unwrap().fill(bytes);
    }
}

/// Both stores, and what the scenario knows of them.
struct Model {
    seed: u64,
    dice: Rng,
    now: Arc<AtomicU64>,
    memory: MemoryStore,
    backend: Box<dyn Backend>,
    translator: Translator,
    tenants: Vec<TenantId>,
    endpoints: Vec<EndpointId>,
    /// Every event that was accepted, with its tenant.
    events: Vec<(TenantId, Event)>,
    made: u64,
    deliveries: Vec<DeliveryId>,
}

impl Model {
    async fn new(seed: u64, open: &impl AsyncFn(Setup) -> Box<dyn Backend>) -> Self {
        let now = Arc::new(AtomicU64::new(START));
        let mut model = Self {
            seed,
            dice: Rng::with_seed(seed),
            memory: MemoryStore::new(setup(&now, seed)),
            backend: open(setup(&now, !seed)).await,
            now,
            translator: Translator::default(),
            tenants: vec![tenant(0), tenant(1)],
            endpoints: vec![],
            events: vec![],
            made: 0,
            deliveries: vec![],
        };
        model.learn_era().await;
        for tenant in model.tenants.clone() {
            let create = Write::CreateTenant(tenant, TenantSettings::default());
            model.run(vec![Call::Commit(create.into())]).await;
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
            let create = model.new_endpoint(tenant, ordering);
            model.run(vec![Call::Commit(create.into())]).await;
        }
        model
    }

    fn backend(&self) -> &dyn Store {
        self.backend.store()
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.now.load(Relaxed))
    }
}

fn tenant(number: usize) -> TenantId {
    format!("tenant-{number}").parse().unwrap()
}

fn setup(now: &Arc<AtomicU64>, seed: u64) -> Setup {
    let random = Mutex::new(Rng::with_seed(seed));
    let source = Arc::new(ModelSource { now: now.clone(), random });
    Setup { source, master_key: MasterKey::new(&[1; 32]) }
}

fn everything() -> Sweep {
    let (after, through) = (DeliveryId::from_u128(0), DeliveryId::from_u128(u128::MAX));
    Sweep { after, through, limit: 1_000 }
}
