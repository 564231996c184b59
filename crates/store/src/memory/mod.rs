//! The store in memory: for tests, and for servers that need nothing after a restart.
//!
//! It is no mock: the same contract, the same suite. All of it lies behind one lock, and a call is
//! one visit.

mod state;
mod intake;
mod ledger;
mod registry;
mod access;
mod archive;
mod figures;
mod judging;
mod finding;
mod upkeep;
mod key_rotation;
mod sources;
mod alerts;

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use state::State;

use crate::backend::leases::SourceLeases;
use crate::{Result, Setup};

/// A store that lives as long as its process.
#[derive(Debug)]
pub struct MemoryStore {
    state: Mutex<State>,
    leases: Mutex<SourceLeases>,
    setup: Setup,
}

impl MemoryStore {
    /// An empty one.
    pub fn new(setup: Setup) -> Self {
        let mut state = State::default();
        state.begin_era(&*setup.source);
        Self { state: Mutex::new(state), leases: Mutex::default(), setup }
    }

    /// One with all that a [`backup`](crate::Upkeep::backup) of a memory store holds, in a new era: what is
    /// open goes out in new lines.
    pub fn restore(backup: &Path, setup: Setup) -> Result<Self> {
        let mut state = upkeep::read_backup(backup, &setup.master_key)?;
        state.begin_era(&*setup.source);
        state.move_open_lanes();
        Ok(Self { state: Mutex::new(state), leases: Mutex::default(), setup })
    }

    /// Every visit checks before it writes, so a visitor that panicked left no half-made change.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
