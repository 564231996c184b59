//! An endpoint's deliveries without a place in line: what of them is in memory, and how the rest is
//! found.
//!
//! The store has all of them; memory holds a window. A *scan* reads the store's open ones page by
//! page, as room allows. Whatever could not be taken in, because there was no room or because it
//! waits for long, is left to a later scan.

use railpost_wire::DeliveryId;
use rustc_hash::{FxHashMap, FxHashSet};

use super::DeliveryKey;
use super::heard::Heard;
use crate::Timestamp;

#[derive(Debug, Default)]
pub(super) struct Unkeyed {
    held: FxHashMap<DeliveryId, DeliveryKey>,
    /// Deliveries heard of: of one that was, only the store knows whether it is still open.
    pub(super) heard: Heard<DeliveryId>,
    scan: Scan,
    /// Something was left out since the scan began.
    missed: bool,
    /// What left memory while a page was under way. The page may have been read before that.
    settled: FxHashSet<DeliveryId>,
    /// The earliest alarm set for what was set aside.
    pub(super) due_at: Option<Timestamp>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Scan {
    /// All that is due is in memory.
    #[default]
    Done,
    /// A page has been asked for.
    Asked,
    /// The next page is due as soon as there is room.
    WantsRoom { after: Option<DeliveryId> },
}

impl Unkeyed {
    pub(super) fn get(&self, id: DeliveryId) -> Option<DeliveryKey> {
        self.held.get(&id).copied()
    }

    pub(super) fn len(&self) -> usize {
        self.held.len()
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = DeliveryKey> {
        self.held.values().copied()
    }

    /// Whether a delivery from a page or a hint is not in memory, and did not just leave it.
    pub(super) fn is_news(&self, id: DeliveryId) -> bool {
        !self.held.contains_key(&id) && !self.settled.contains(&id)
    }

    /// Whether a new delivery may be taken in right away, ahead of what the store still has.
    pub(super) fn has_room(&self, window: u32) -> bool {
        self.held.len() < window as usize && !matches!(self.scan, Scan::WantsRoom { .. })
    }

    pub(super) fn insert(&mut self, id: DeliveryId, key: DeliveryKey) {
        self.heard.note(id);
        self.held.insert(id, key);
    }

    pub(super) fn remove(&mut self, id: DeliveryId) {
        self.held.remove(&id);
        self.settle(id);
    }

    /// Remembers that a page under way may have this wrong.
    pub(super) fn settle(&mut self, id: DeliveryId) {
        if self.scan == Scan::Asked {
            self.settled.insert(id);
        }
    }

    /// There is something in the store that is not in memory: a scan has to find it.
    pub(super) fn want_scan(&mut self) {
        match self.scan {
            Scan::Done => self.scan = Scan::WantsRoom { after: None },
            Scan::Asked | Scan::WantsRoom { .. } => self.missed = true,
        }
    }

    /// The page to ask for now, if one is wanted and there is room: after which id, and how many.
    pub(super) fn next_page(&mut self, window: u32) -> Option<(Option<DeliveryId>, u32)> {
        let Scan::WantsRoom { after } = self.scan else { return None };
        let held = u32::try_from(self.held.len()).unwrap_or(u32::MAX);
        if held > window / 2 {
            return None;
        }
        self.scan = Scan::Asked;
        Some((after, window - held))
    }

    /// The page that was asked for is here; `next` is where the following one starts.
    pub(super) fn page_taken(&mut self, next: Option<DeliveryId>) {
        self.settled.clear();
        self.scan = match next {
            Some(after) => Scan::WantsRoom { after: Some(after) },
            None if std::mem::take(&mut self.missed) => Scan::WantsRoom { after: None },
            None => Scan::Done,
        };
    }
}
