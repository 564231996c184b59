//! A seeded world around the real engine and the real inbox: crashes, lost answers, restored databases,
//! clocks that step, slow receivers, meddling people.
//!
//! Everything that happens is drawn from the seed, so a run can be repeated to the byte. Faults
//! strike for a few simulated hours; then they stop, and everything must finish. A small reference
//! model, which knows nothing of the engine, judges every step. Receivers read the headers that the
//! wire carries and judge them with the inbox of `railpost-receiver`; at the end their databases are
//! asked what was applied.
//!
//! Start with [`run`]; then `world` for the loop, `scenario` for what a seed stands for, `model` for the
//! sender's promises and `applied` for those that take a receiver. No part of the product depends on
//! this crate.

mod limits;

mod seeded_rng;
mod clock;
mod scenario;
mod store;
mod network;
mod receiver;
mod database;
mod volatile_inbox;
mod planted_defect;
mod fact;
mod ledger;
mod containment;
mod model;
mod health;
mod applied;
mod judges;
mod trace;
mod tally;
mod world;
mod campaign;

pub use campaign::{Summary, run_all};
pub use planted_defect::PlantedDefect;
pub use tally::Tally;

/// What to run a seed with.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// A defect to plant.
    pub plant: PlantedDefect,
    /// Whether to write down what happens.
    pub trace: bool,
}

/// What became of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Which seed.
    pub seed: u64,
    /// The promise that was broken, if one was.
    pub breach: Option<Violation>,
    /// How often each thing happened.
    pub tally: Tally,
    /// What happened, a line each; empty unless asked for.
    pub trace: String,
}

/// A promise that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The promise.
    pub promise: &'static str,
    /// When, and the last thing that happened.
    pub after: String,
}

/// Runs the world of a seed to its end, or until a promise is broken.
pub fn run(seed: u64, options: Options) -> Report {
    world::World::new(seed, options).run(seed)
}
