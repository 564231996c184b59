//! An endpoint's deliveries without a place in line: what of them is in memory, and how the rest is
//! found.
//!
//! The store has all of them; memory holds a window. A *scan* reads the store's open ones page by
//! page, as room allows. Whatever could not be taken in, because there was no room or because it
//! waits for long, is left to a later scan.

use railpost_wire::DeliveryId;
use rustc_hash::{FxHashMap, FxHashSet};

use super::DeliveryKey;
use super::seen_ids::SeenIds;
use crate::Timestamp;

#[derive(Debug, Default)]
pub(super) struct Unkeyed {
    tracked: FxHashMap<DeliveryId, DeliveryKey>,
    /// Deliveries known here: only the store knows whether one of them is still open.
    pub(super) seen: SeenIds<DeliveryId>,
    scan: Scan,
    /// Something was left out since the scan began.
    missed: bool,
    /// What left memory while a page was under way. The page may have been read before that.
    closed_meanwhile: FxHashSet<DeliveryId>,
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
        self.tracked.get(&id).copied()
    }

    pub(super) fn len(&self) -> usize {
        self.tracked.len()
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = DeliveryKey> {
        self.tracked.values().copied()
    }

    /// Whether a delivery from a page or a hint is not in memory, and did not just leave it.
    pub(super) fn is_news(&self, id: DeliveryId) -> bool {
        !self.tracked.contains_key(&id) && !self.closed_meanwhile.contains(&id)
    }

    /// Whether a new delivery may be taken in right away, ahead of what the store still has.
    pub(super) fn has_room(&self, window: u32) -> bool {
        self.tracked.len() < window as usize && !matches!(self.scan, Scan::WantsRoom { .. })
    }

    pub(super) fn insert(&mut self, id: DeliveryId, key: DeliveryKey) {
        self.seen.note(id);
        self.tracked.insert(id, key);
    }

    pub(super) fn remove(&mut self, id: DeliveryId) {
        self.tracked.remove(&id);
        self.note_closed(id);
    }

    /// Remembers that a page under way may have this wrong.
    pub(super) fn note_closed(&mut self, id: DeliveryId) {
        if self.scan == Scan::Asked {
            self.closed_meanwhile.insert(id);
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
        let tracked = u32::try_from(self.tracked.len()).unwrap_or(u32::MAX);
        if tracked > window / 2 {
            return None;
        }
        self.scan = Scan::Asked;
        Some((after, window - tracked))
    }

    /// The page that was asked for is here; `next` is where the following one starts.
    pub(super) fn page_taken(&mut self, next: Option<DeliveryId>) {
        self.closed_meanwhile.clear();
        self.scan = match next {
            Some(after) => Scan::WantsRoom { after: Some(after) },
            None if std::mem::take(&mut self.missed) => Scan::WantsRoom { after: None },
            None => Scan::Done,
        };
    }
}
