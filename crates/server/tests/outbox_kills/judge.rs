//! What arrived, and whether it may be.

use std::collections::{HashMap, HashSet};

use super::receiver::Delivered;
use super::writers::Written;

/// Deliveries, as they came.
#[derive(Default)]
pub(crate) struct Arrivals {
    ids: HashSet<String>,
    /// The number of each key's latest first arrival.
    latest: HashMap<String, i64>,
    pub(crate) duplicates: usize,
    out_of_order: Vec<String>,
    /// The most kills that an event told of.
    pub(crate) kills: u32,
}

impl Arrivals {
    pub(crate) fn add(&mut self, delivered: Delivered) {
        let Delivered { id, key, n, kills } = delivered;
        self.kills = self.kills.max(kills);
        if !self.ids.insert(id.clone()) {
            self.duplicates += 1;
            return;
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
        let lost = written.committed.difference(&self.ids).map(|id| format!("{id} never arrived"));
        let false_events = self.ids.difference(&written.committed);
        let false_events = false_events.map(|id| format!("{id} arrived and was rolled back"));
        lost.chain(false_events).chain(self.out_of_order.iter().cloned()).collect()
    }
}
