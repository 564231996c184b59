//! One lane in memory: its head, a short window behind it, and what it knows of the rest.

use std::collections::BTreeMap;

use super::{DeliveryKey, Table, TrackedDelivery};

/// A FIFO of deliveries, linked through [`TrackedDelivery::next`]. A lane with nothing open is a few words that
/// remember how far it got.
#[derive(Clone, Debug, Default)]
pub(super) struct Lane {
    head: Option<DeliveryKey>,
    tail: Option<DeliveryKey>,
    len: u32,
    /// Every seq up to here is closed or in the window.
    pub(super) known: u64,
    /// The highest seq heard of. Above `known`, there is more to load.
    pub(super) last: u64,
    /// Whether a load is under way.
    pub(super) loading: bool,
    /// Whether the engine's list of idle lanes has it.
    pub(super) listed_idle: bool,
    /// What was passed over. Boxed, because few lanes have any.
    follows: Option<Box<Follows>>,
}

/// By seq: which one it follows, where that is not the one before.
#[derive(Clone, Debug, Default)]
struct Follows(BTreeMap<u64, u64>);

impl Lane {
    pub(super) fn head(&self) -> Option<DeliveryKey> {
        self.head
    }

    pub(super) fn is_idle(&self) -> bool {
        self.head.is_none() && !self.loading && self.last <= self.known
    }

    /// How many deliveries it has from its head on, as far as is known. Those beyond the window may be closed.
    pub(super) fn open(&self) -> u64 {
        u64::from(self.len) + self.last.saturating_sub(self.known)
    }

    pub(super) fn has_room(&self, window: u32) -> bool {
        self.len < window
    }

    /// Whether it should ask for more: half of the window is free, and there is more.
    pub(super) fn wants_load(&self, window: u32) -> bool {
        !self.loading && self.last > self.known && self.len <= window / 2
    }

    pub(super) fn note_seq(&mut self, seq: u64) {
        self.last = self.last.max(seq);
    }

    /// Notes that `seq` follows `before` and not the one before it. Of two notes the one that passes over
    /// more is the newer one.
    pub(super) fn note_follows(&mut self, seq: u64, before: u64) {
        if before + 1 < seq {
            let noted = self.follows.get_or_insert_default().0.entry(seq).or_insert(before);
            *noted = before.min(*noted);
        }
    }

    /// Notes that `seq` was closed without being delivered.
    pub(super) fn skipped(&mut self, seq: u64) {
        self.note_follows(seq + 1, seq - 1);
    }

    /// Notes that `seq` was delivered: what lies before it is of no use any more.
    pub(super) fn delivered(&mut self, seq: u64) {
        if let Some(follows) = &mut self.follows {
            follows.0.retain(|other, _| *other > seq);
            self.follows.take_if(|follows| follows.0.is_empty());
        }
    }

    /// Which one `seq` follows, if that is not the one before it.
    pub(super) fn follows(&self, seq: u64) -> Option<u64> {
        let Follows(follows) = self.follows.as_deref()?;
        let mut before = seq - 1;
        while let Some(earlier) = follows.get(&(before + 1)) {
            before = *earlier;
        }
        (before + 1 < seq).then_some(before)
    }

    /// Puts a delivery at the end.
    pub(super) fn append(
        &mut self,
        key: DeliveryKey,
        seq: u64,
        deliveries: &mut Table<DeliveryKey, TrackedDelivery>,
    ) {
        debug_assert!(seq > self.known, "a lane only grows forward");
        match self.tail {
            Some(tail) => deliveries[tail].next = Some(key),
            None => self.head = Some(key),
        }
        self.tail = Some(key);
        self.len += 1;
        self.known = seq;
        self.note_seq(seq);
    }

    /// Takes a delivery out, wherever it stands. `next` is what stood behind it.
    pub(super) fn unlink(
        &mut self,
        key: DeliveryKey,
        next: Option<DeliveryKey>,
        deliveries: &mut Table<DeliveryKey, TrackedDelivery>,
    ) {
        let before = self.keys(deliveries).take_while(|other| *other != key).last();
        match before {
            Some(before) => deliveries[before].next = next,
            None => self.head = next,
        }
        if self.tail == Some(key) {
            self.tail = before;
        }
        self.len -= 1;
    }

    /// The deliveries in the window, in order.
    pub(super) fn keys<'a>(
        &self,
        deliveries: &'a Table<DeliveryKey, TrackedDelivery>,
    ) -> impl Iterator<Item = DeliveryKey> + 'a {
        std::iter::successors(self.head, |key| deliveries[*key].next)
    }
}
