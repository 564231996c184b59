//! Counters: what became of the requests, for metrics of the application's own.

use crate::inbox::Verdict;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts what became of requests. Clones count together.
#[derive(Debug, Clone, Default)]
pub struct Counters(Arc<Cells>);

#[derive(Debug, Default)]
struct Cells {
    fresh: AtomicU64,
    duplicate: AtomicU64,
    stale: AtomicU64,
    gap: AtomicU64,
    busy: AtomicU64,
    rejected: AtomicU64,
    full: AtomicU64,
    trouble: AtomicU64,
}

/// The counts at one moment, since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Events that were applied or queued.
    pub fresh: u64,
    /// Events that had been applied before.
    pub duplicate: u64,
    /// Events that came too late.
    pub stale: u64,
    /// Events that came too early, held off or accepted.
    pub gap: u64,
    /// Events that came while they, or others of their line, were being applied.
    pub busy: u64,
    /// Requests that were not believed.
    pub rejected: u64,
    /// Events that found the queue full.
    pub full: u64,
    /// Events that the store or the effect failed on.
    pub trouble: u64,
}

impl Counters {
    /// Counts a verdict.
    pub fn count(&self, verdict: Verdict) {
        let cell = match verdict {
            Verdict::Fresh => &self.0.fresh,
            Verdict::Duplicate => &self.0.duplicate,
            Verdict::Stale { .. } => &self.0.stale,
            Verdict::Gap { .. } => &self.0.gap,
            Verdict::Busy => &self.0.busy,
        };
        add_one(cell);
    }

    /// Counts a request that was not believed.
    pub fn count_rejected(&self) {
        add_one(&self.0.rejected);
    }

    /// Counts an event that found the queue full.
    pub fn count_full(&self) {
        add_one(&self.0.full);
    }

    /// Counts an event that the store or the effect failed on.
    pub fn count_trouble(&self) {
        add_one(&self.0.trouble);
    }

    /// The counts so far.
    pub fn counts(&self) -> Counts {
        let Cells { fresh, duplicate, stale, gap, busy, rejected, full, trouble } = &*self.0;
        let get = |cell: &AtomicU64| cell.load(Ordering::Relaxed);
        Counts {
            fresh: get(fresh),
            duplicate: get(duplicate),
            stale: get(stale),
            gap: get(gap),
            busy: get(busy),
            rejected: get(rejected),
            full: get(full),
            trouble: get(trouble),
        }
    }
}

fn add_one(cell: &AtomicU64) {
    cell.fetch_add(1, Ordering::Relaxed);
}
