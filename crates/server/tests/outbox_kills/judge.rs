//! What was written, what arrived, and whether it may be.

use std::collections::{HashMap, HashSet};

use serde::Deserialize;

/// What a delivery carries.
#[derive(Clone, Deserialize)]
pub(crate) struct Delivered {
    pub(crate) id: String,
    pub(crate) key: String,
    pub(crate) n: i64,
    /// How many servers had been killed or stopped when it was written.
    pub(crate) kills: u32,
}

/// What the writers have done.
#[derive(Default)]
pub(crate) struct Written {
    pub(crate) committed: HashSet<String>,
    pub(crate) rolled_back: usize,
}

/// Deliveries, as they came.
#[derive(Default)]
pub(crate) struct Arrivals {
    /// Events whose COMMIT was sent.
    committing: HashSet<String>,
    ids: HashSet<String>,
    /// The number of each key's latest first arrival.
    latest: HashMap<String, i64>,
    pub(crate) duplicates: usize,
    out_of_order: Vec<String>,
    early: Vec<String>,
    /// The most kills that an event told of.
    pub(crate) kills: u32,
}

impl Arrivals {
    /// A writer calls this before it sends COMMIT: from here on the event may arrive.
    pub(crate) fn allow(&mut self, id: &str) {
        self.committing.insert(id.to_owned());
    }

    pub(crate) fn add(&mut self, delivered: Delivered) {
        let Delivered { id, key, n, kills } = delivered;
        self.kills = self.kills.max(kills);
        if !self.ids.insert(id.clone()) {
            self.duplicates += 1;
            return;
        }
        if !self.committing.contains(&id) {
            self.early.push(id.clone());
        }
        let latest = self.latest.entry(key.clone()).or_default();
        if n != *latest + 1 {
            self.out_of_order.push(format!("{id}: number {n} of {key} came after {latest}"));
        }
        *latest = n;
    }

    pub(crate) fn has_any(&self) -> bool {
        !self.ids.is_empty()
    }

    pub(crate) fn has(&self, id: &str) -> bool {
        self.ids.contains(id)
    }

    pub(crate) fn has_all(&self, written: &Written) -> bool {
        written.committed.is_subset(&self.ids)
    }

    /// Everything that may not be.
    pub(crate) fn violations(&self, written: &Written) -> Vec<String> {
        self.violations_but_order(written).into_iter().chain(self.out_of_order.clone()).collect()
    }

    /// The same, but for the order of events with the same key: two servers with stores of their own do not
    /// keep it between them.
    pub(crate) fn violations_but_order(&self, written: &Written) -> Vec<String> {
        let committed = &written.committed;
        let lost = committed.difference(&self.ids).map(|id| format!("{id} never arrived"));
        let false_events = self.ids.difference(committed);
        let false_events = false_events.map(|id| format!("{id} arrived and was rolled back"));
        let early = self.early.iter().filter(|id| committed.contains(*id));
        let early = early.map(|id| format!("{id} arrived before it was committed"));
        lost.chain(false_events).chain(early).collect()
    }
}
