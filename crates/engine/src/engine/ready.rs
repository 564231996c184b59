//! The deliveries that are ready to start at an endpoint.
//!
//! Lanes take turns: a delivery that becomes ready stands behind all that are. Where many are, they come forward in
//! batches, and within a batch the oldest delivery is first. What is sent one after the other was
//! then accepted one after the other, and lies together wherever it is written.

use std::collections::VecDeque;

use super::tracked_delivery::TrackedDelivery;
use super::{DeliveryKey, Table};
use crate::limits::{READY_BATCH_MAX, READY_QUEUE_MIN};

/// A key of something gone is passed over.
#[derive(Debug, Default)]
pub(super) struct Ready {
    /// What starts next, in this order.
    queue: VecDeque<DeliveryKey>,
    /// What comes after the queue, in the order of coming. Empty unless the queue is long.
    backlog: VecDeque<DeliveryKey>,
}

impl Ready {
    pub(super) fn push(&mut self, key: DeliveryKey) {
        match self.backlog.is_empty() && self.queue.len() < READY_QUEUE_MIN {
            true => self.queue.push_back(key),
            false => self.backlog.push_back(key),
        }
    }

    pub(super) fn pop(
        &mut self,
        deliveries: &Table<DeliveryKey, TrackedDelivery>,
    ) -> Option<DeliveryKey> {
        let first = self.queue.pop_front();
        while self.queue.len() < READY_QUEUE_MIN && !self.backlog.is_empty() {
            self.take_batch(deliveries);
        }
        first
    }

    /// The delivery that starts next. Passes over keys of deliveries that are gone.
    pub(super) fn first(
        &mut self,
        deliveries: &Table<DeliveryKey, TrackedDelivery>,
    ) -> Option<DeliveryKey> {
        while let Some(first) = self.queue.front() {
            if deliveries.get(*first).is_some() {
                return Some(*first);
            }
            self.pop(deliveries);
        }
        None
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.queue.len() + self.backlog.len()
    }

    /// All of it, in the order of starting as far as the queue goes.
    pub(super) fn keys(&self) -> impl Iterator<Item = DeliveryKey> {
        self.queue.iter().chain(&self.backlog).copied()
    }

    fn take_batch(&mut self, deliveries: &Table<DeliveryKey, TrackedDelivery>) {
        let coming = self.backlog.drain(..READY_BATCH_MAX.min(self.backlog.len()));
        let mut batch: Vec<_> =
            coming.filter_map(|key| Some((deliveries.get(key)?.id, key))).collect();
        batch.sort_unstable();
        self.queue.extend(batch.into_iter().map(|(_, key)| key));
    }
}

#[cfg(test)]
mod tests {
    use railpost_wire::DeliveryId;
    use slotmap::Key;

    use super::*;
    use crate::Progress;
    use crate::engine::{EndpointKey, Phase};

    type Deliveries = Table<DeliveryKey, TrackedDelivery>;

    fn add(deliveries: &mut Deliveries, ready: &mut Ready, id: u128) -> DeliveryKey {
        let key = deliveries.insert(TrackedDelivery {
            id: DeliveryId::from_u128(id),
            endpoint: EndpointKey::from(slotmap::DefaultKey::null()),
            place: None,
            next: None,
            progress: Progress::default(),
            phase: Phase::Pending,
            queued: true,
            counted_as: Default::default(),
        });
        ready.push(key);
        key
    }

    fn add_all(
        deliveries: &mut Deliveries,
        ready: &mut Ready,
        ids: impl Iterator<Item = u128>,
    ) -> Vec<DeliveryKey> {
        ids.map(|id| add(deliveries, ready, id)).collect()
    }

    /// Starts so many, and says by their ids in which order.
    fn start(deliveries: &Deliveries, ready: &mut Ready, count: usize) -> Vec<u128> {
        let next = |_| {
            let first = ready.first(deliveries)?;
            assert_eq!(ready.pop(deliveries), Some(first));
            Some(u128::from_be_bytes(deliveries[first].id.to_bytes()))
        };
        (0..count).map_while(next).collect()
    }

    const FEW: u128 = READY_QUEUE_MIN as u128;
    const BATCH: u128 = READY_BATCH_MAX as u128;

    #[test]
    fn a_few_start_in_the_order_of_coming() {
        let (mut deliveries, mut ready) = Default::default();
        let ids = || (1..=FEW).rev();
        add_all(&mut deliveries, &mut ready, ids());
        assert!(start(&deliveries, &mut ready, usize::MAX).into_iter().eq(ids()));
        assert!(ready.is_empty());
    }

    #[test]
    fn of_many_the_oldest_of_a_batch_starts_first() {
        let (mut deliveries, mut ready) = Default::default();
        let (few, many) = (|| (1..=FEW).rev(), || (FEW + 1..=FEW + 500).rev());
        add_all(&mut deliveries, &mut ready, few().chain(many()));
        assert_eq!(ready.len(), READY_QUEUE_MIN + 500);
        let expected: Vec<_> = few().chain(FEW + 1..=FEW + 500).collect();
        assert_eq!(start(&deliveries, &mut ready, usize::MAX), expected);
    }

    /// However old it is: lanes take turns.
    #[test]
    fn a_delivery_that_comes_later_does_not_slip_into_a_batch_that_has_begun() {
        let (mut deliveries, mut ready) = Default::default();
        add_all(&mut deliveries, &mut ready, 100..101 + FEW);
        start(&deliveries, &mut ready, 1);
        add(&mut deliveries, &mut ready, 1);
        let started = start(&deliveries, &mut ready, usize::MAX);
        assert_eq!(started.last(), Some(&1));
    }

    #[test]
    fn a_batch_is_bounded() {
        let (mut deliveries, mut ready) = Default::default();
        let first = (1..=FEW).chain(FEW + BATCH + 1..=FEW + 2 * BATCH);
        add_all(&mut deliveries, &mut ready, first.chain(FEW + 1..=FEW + BATCH));
        start(&deliveries, &mut ready, READY_QUEUE_MIN);
        let batch: Vec<_> = (FEW + BATCH + 1..=FEW + 2 * BATCH).collect();
        assert_eq!(start(&deliveries, &mut ready, READY_BATCH_MAX), batch);
        assert_eq!(start(&deliveries, &mut ready, usize::MAX).len(), READY_BATCH_MAX);
    }

    #[test]
    fn keys_of_deliveries_that_are_gone_are_passed_over_even_a_whole_batch() {
        let (mut deliveries, mut ready) = Default::default();
        let keys = add_all(&mut deliveries, &mut ready, 1..=FEW + BATCH + 2);
        for key in &keys[1..keys.len() - 1] {
            deliveries.remove(*key);
        }
        assert_eq!(start(&deliveries, &mut ready, usize::MAX), [1, FEW + BATCH + 2]);
        assert!(ready.is_empty());
        let keys = add_all(&mut deliveries, &mut ready, 1..=3);
        for key in keys {
            deliveries.remove(key);
        }
        assert_eq!(ready.first(&deliveries), None);
    }

    #[test]
    fn what_is_shown_ahead_is_what_starts_as_far_as_the_queue_goes() {
        let (mut deliveries, mut ready) = Default::default();
        add_all(&mut deliveries, &mut ready, (1..=FEW + 5_000).rev());
        for started in [0, 100, READY_QUEUE_MIN, 3_000] {
            start(&deliveries, &mut ready, started);
            let shown: Vec<_> = ready.keys().take(READY_QUEUE_MIN - 1).collect();
            let mut again = Ready { queue: ready.queue.clone(), backlog: ready.backlog.clone() };
            let starts = std::iter::from_fn(|| again.pop(&deliveries)).take(shown.len());
            assert!(starts.eq(shown.iter().copied()), "after {started}");
        }
    }
}
