//! What could start at an endpoint if its gates were open.
//!
//! Lanes take turns: who becomes ready stands behind all who are. Where many are, they come forward a
//! round at a time, and within a round the oldest delivery is first. What is sent one after the other was
//! then accepted one after the other, and lies together wherever it is written.

use std::collections::VecDeque;

use super::held::Held;
use super::{DeliveryKey, Table};
use crate::limits::{ROUND_MAX, ROUND_NEXT_MIN};

/// A key of something gone is passed over.
#[derive(Debug, Default)]
pub(super) struct Ready {
    /// Who starts next, in this order.
    line: VecDeque<DeliveryKey>,
    /// Who comes after the line, in the order of coming. Empty unless the line is long.
    crowd: VecDeque<DeliveryKey>,
}

impl Ready {
    pub(super) fn push(&mut self, key: DeliveryKey) {
        match self.crowd.is_empty() && self.line.len() < ROUND_NEXT_MIN {
            true => self.line.push_back(key),
            false => self.crowd.push_back(key),
        }
    }

    pub(super) fn pop(&mut self, deliveries: &Table<DeliveryKey, Held>) -> Option<DeliveryKey> {
        let first = self.line.pop_front();
        while self.line.len() < ROUND_NEXT_MIN && !self.crowd.is_empty() {
            self.begin_round(deliveries);
        }
        first
    }

    /// Who starts next. Passes over what is gone.
    pub(super) fn first(&mut self, deliveries: &Table<DeliveryKey, Held>) -> Option<DeliveryKey> {
        while let Some(first) = self.line.front() {
            if deliveries.get(*first).is_some() {
                return Some(*first);
            }
            self.pop(deliveries);
        }
        None
    }

    pub(super) fn is_empty(&self) -> bool {
        self.line.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.line.len() + self.crowd.len()
    }

    /// All of it, in the order of starting as far as the line goes.
    pub(super) fn keys(&self) -> impl Iterator<Item = DeliveryKey> {
        self.line.iter().chain(&self.crowd).copied()
    }

    fn begin_round(&mut self, deliveries: &Table<DeliveryKey, Held>) {
        let coming = self.crowd.drain(..ROUND_MAX.min(self.crowd.len()));
        let mut round: Vec<_> =
            coming.filter_map(|key| Some((deliveries.get(key)?.id, key))).collect();
        round.sort_unstable();
        self.line.extend(round.into_iter().map(|(_, key)| key));
    }
}

#[cfg(test)]
mod tests {
    use railpost_wire::DeliveryId;
    use slotmap::Key;

    use super::*;
    use crate::Progress;
    use crate::engine::{EndpointKey, Phase};

    type Deliveries = Table<DeliveryKey, Held>;

    fn add(deliveries: &mut Deliveries, ready: &mut Ready, id: u128) -> DeliveryKey {
        let key = deliveries.insert(Held {
            id: DeliveryId::from_u128(id),
            endpoint: EndpointKey::from(slotmap::DefaultKey::null()),
            place: None,
            next: None,
            progress: Progress::default(),
            phase: Phase::Pending,
            queued: true,
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

    const FEW: u128 = ROUND_NEXT_MIN as u128;
    const ROUND: u128 = ROUND_MAX as u128;

    #[test]
    fn a_few_start_in_the_order_of_coming() {
        let (mut deliveries, mut ready) = Default::default();
        let ids = || (1..=FEW).rev();
        add_all(&mut deliveries, &mut ready, ids());
        assert!(start(&deliveries, &mut ready, usize::MAX).into_iter().eq(ids()));
        assert!(ready.is_empty());
    }

    #[test]
    fn of_many_the_oldest_of_a_round_starts_first() {
        let (mut deliveries, mut ready) = Default::default();
        let (few, many) = (|| (1..=FEW).rev(), || (FEW + 1..=FEW + 500).rev());
        add_all(&mut deliveries, &mut ready, few().chain(many()));
        assert_eq!(ready.len(), ROUND_NEXT_MIN + 500);
        let expected: Vec<_> = few().chain(FEW + 1..=FEW + 500).collect();
        assert_eq!(start(&deliveries, &mut ready, usize::MAX), expected);
    }

    /// However old it is: lanes take turns.
    #[test]
    fn who_comes_later_does_not_slip_into_a_round_that_has_begun() {
        let (mut deliveries, mut ready) = Default::default();
        add_all(&mut deliveries, &mut ready, 100..101 + FEW);
        start(&deliveries, &mut ready, 1);
        add(&mut deliveries, &mut ready, 1);
        let started = start(&deliveries, &mut ready, usize::MAX);
        assert_eq!(started.last(), Some(&1));
    }

    #[test]
    fn a_round_is_bounded() {
        let (mut deliveries, mut ready) = Default::default();
        let first = (1..=FEW).chain(FEW + ROUND + 1..=FEW + 2 * ROUND);
        add_all(&mut deliveries, &mut ready, first.chain(FEW + 1..=FEW + ROUND));
        start(&deliveries, &mut ready, ROUND_NEXT_MIN);
        let round: Vec<_> = (FEW + ROUND + 1..=FEW + 2 * ROUND).collect();
        assert_eq!(start(&deliveries, &mut ready, ROUND_MAX), round);
        assert_eq!(start(&deliveries, &mut ready, usize::MAX).len(), ROUND_MAX);
    }

    #[test]
    fn what_is_gone_is_passed_over_be_it_a_whole_round() {
        let (mut deliveries, mut ready) = Default::default();
        let keys = add_all(&mut deliveries, &mut ready, 1..=FEW + ROUND + 2);
        for key in &keys[1..keys.len() - 1] {
            deliveries.remove(*key);
        }
        assert_eq!(start(&deliveries, &mut ready, usize::MAX), [1, FEW + ROUND + 2]);
        assert!(ready.is_empty());
        let keys = add_all(&mut deliveries, &mut ready, 1..=3);
        for key in keys {
            deliveries.remove(key);
        }
        assert_eq!(ready.first(&deliveries), None);
    }

    #[test]
    fn what_is_shown_ahead_is_what_starts_as_far_as_the_line_goes() {
        let (mut deliveries, mut ready) = Default::default();
        add_all(&mut deliveries, &mut ready, (1..=FEW + 5_000).rev());
        for started in [0, 100, ROUND_NEXT_MIN, 3_000] {
            start(&deliveries, &mut ready, started);
            let shown: Vec<_> = ready.keys().take(ROUND_NEXT_MIN - 1).collect();
            let mut again = Ready { line: ready.line.clone(), crowd: ready.crowd.clone() };
            let starts = std::iter::from_fn(|| again.pop(&deliveries)).take(shown.len());
            assert!(starts.eq(shown.iter().copied()), "after {started}");
        }
    }
}
