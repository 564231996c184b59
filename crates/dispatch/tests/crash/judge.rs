//! What the receiver has seen, and whether that may be.

use std::collections::{HashMap, HashSet};

/// One request that reached the receiver.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub(crate) event: String,
    pub(crate) key: String,
    pub(crate) seq: u64,
    /// Which life of the sender sent it.
    pub(crate) run: u32,
}

/// A receiver's memory: deduplicates by event id, and checks the order of what it applies.
#[derive(Debug, Default)]
pub(crate) struct Judge {
    /// Events applied, and the latest life that sent each.
    applied: HashMap<String, u32>,
    /// The seq that each key has got to.
    seqs: HashMap<String, u64>,
    /// Events that reached the at-most-once endpoint.
    once: HashSet<String>,
    pub(crate) duplicates: u64,
    violations: Vec<String>,
}

impl Judge {
    /// An arrival that is about to be acknowledged.
    pub(crate) fn apply(&mut self, arrival: Arrival) {
        let Arrival { event, key, seq, run } = arrival;
        if let Some(before) = self.applied.insert(event.clone(), run) {
            self.duplicates += 1;
            if before == run {
                self.accuse(format!("{event} came twice in life {run}, which no crash explains"));
            }
            return;
        }
        let last = self.seqs.insert(key.clone(), seq).unwrap_or(0);
        if seq != last + 1 {
            self.accuse(format!("{key}: seq {seq} was applied after {last}"));
        }
    }

    /// An arrival at the at-most-once endpoint.
    pub(crate) fn apply_once(&mut self, arrival: Arrival) {
        let Arrival { event, .. } = arrival;
        if !self.once.insert(event.clone()) {
            self.accuse(format!("{event} was sent twice, at most once allowed"));
        }
    }

    pub(crate) fn delivered(&self) -> usize {
        self.applied.len()
    }

    pub(crate) fn delivered_once(&self) -> usize {
        self.once.len()
    }

    pub(crate) fn violations(&self) -> &[String] {
        &self.violations
    }

    pub(crate) fn missing<'a>(&self, acknowledged: &'a [String]) -> Vec<&'a String> {
        acknowledged.iter().filter(|event| !self.applied.contains_key(*event)).collect()
    }

    fn accuse(&mut self, violation: String) {
        self.violations.push(violation);
    }
}
