//! Payloads in memory: what was just accepted need not be read back before it is sent.

use std::collections::VecDeque;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use railpost_engine::{Accepted, Timestamp};
use railpost_store::{AcceptBatch, NewDelivery, Parcel, Receipt};
use railpost_wire::DeliveryId;
use rustc_hash::FxHashMap;

use crate::limits::{PAYLOAD_FRESH, READ_AHEAD_SHARE};

/// What a parcel takes beside its payload, roughly: ids, texts and table entries.
const OVERHEAD: usize = 512;

/// Ids of removed payloads that may always stay in `order`: fewer are not worth looking for.
const ORDER_SLACK: usize = 1_024;

/// Payloads by delivery, up to a number of bytes. A payload that does not fit is read from the store when its
/// attempt starts.
///
/// A full cache leaves new payloads out: they are sent after those it has. But a payload that has been here for long
/// belongs to an endpoint that is slow or down, and is evicted.
#[derive(Debug)]
pub(super) struct PayloadCache {
    held: FxHashMap<DeliveryId, Arc<Parcel>>,
    /// In the order they came, and when; an id that is gone from `held` is passed over.
    order: VecDeque<(Timestamp, DeliveryId)>,
    bytes: usize,
    bytes_max: usize,
}

impl PayloadCache {
    pub(super) fn new(bytes_max: usize) -> Self {
        Self { held: FxHashMap::default(), order: VecDeque::new(), bytes: 0, bytes_max }
    }

    pub(super) fn get(&self, id: DeliveryId) -> Option<Arc<Parcel>> {
        self.held.get(&id).cloned()
    }

    pub(super) fn len(&self) -> usize {
        self.held.len()
    }

    pub(super) fn has(&self, id: DeliveryId) -> bool {
        self.held.contains_key(&id)
    }

    /// Keeps a payload that was just accepted, if there is room.
    pub(super) fn put(&mut self, parcel: Arc<Parcel>, now: Timestamp) {
        let bytes = size(&parcel);
        while self.bytes + bytes > self.bytes_max
            && let Some((since, oldest)) = self.order.front().copied()
            && now.since(since) >= PAYLOAD_FRESH
        {
            self.remove(oldest);
        }
        if self.bytes + bytes <= self.bytes_max {
            self.insert(parcel, now);
        }
    }

    /// Keeps a payload that was read ahead of its attempt. These have room of their own: few are read at a
    /// time. If that is full, the oldest payloads of all are evicted.
    pub(super) fn put_ahead(&mut self, parcel: Arc<Parcel>, now: Timestamp) {
        let most = self.bytes_max + self.bytes_max / READ_AHEAD_SHARE;
        let bytes = size(&parcel);
        if bytes > most {
            return;
        }
        while self.bytes + bytes > most
            && let Some((_, oldest)) = self.order.front().copied()
        {
            self.remove(oldest);
        }
        self.insert(parcel, now);
    }

    fn insert(&mut self, parcel: Arc<Parcel>, now: Timestamp) {
        let (id, bytes) = (parcel.delivery, size(&parcel));
        if let Entry::Vacant(entry) = self.held.entry(id) {
            entry.insert(parcel);
            self.order.push_back((now, id));
            self.bytes += bytes;
        }
    }

    /// The delivery is closed: its payload is not needed any more.
    pub(super) fn remove(&mut self, id: DeliveryId) {
        if let Some(parcel) = self.held.remove(&id) {
            self.bytes -= size(&parcel);
        }
        while let Some((_, front)) = self.order.front()
            && !self.held.contains_key(front)
        {
            self.order.pop_front();
        }
        // A payload that stays long keeps the ids behind it in `order`.
        if self.order.len() > 2 * self.held.len() + ORDER_SLACK {
            self.order.retain(|(_, id)| self.held.contains_key(id));
        }
    }
}

/// What a parcel takes, in bytes.
pub(super) fn size(parcel: &Parcel) -> usize {
    parcel.event.bytes() + OVERHEAD
}

/// The parcels of events that were just accepted, each with what the engine needs to know of it.
pub(super) fn of_receipts(
    batch: &AcceptBatch,
    receipts: &[Receipt],
) -> Vec<(Accepted, Arc<Parcel>)> {
    let mut parcels = Vec::with_capacity(batch.events.len());
    for (event, receipt) in batch.events.iter().zip(receipts) {
        let Receipt::Accepted { accepted_at, deliveries } = receipt else { continue };
        for NewDelivery { accepted, line } in deliveries {
            let parcel = Parcel {
                delivery: accepted.id,
                endpoint: accepted.endpoint,
                tenant: batch.tenant.clone(),
                line: line.clone(),
                event: event.clone(),
                accepted_at: *accepted_at,
            };
            parcels.push((*accepted, Arc::new(parcel)));
        }
    }
    parcels
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use railpost_engine::Span;
    use railpost_store::Event;
    use railpost_wire::{EndpointId, EventId};

    const NOW: Timestamp = Timestamp::from_millis(1_000_000);

    pub(in crate::dispatcher) fn parcel(number: u128, payload_len: usize) -> Arc<Parcel> {
        Arc::new(Parcel {
            delivery: DeliveryId::from_u128(number),
            endpoint: EndpointId::from_u128(1),
            tenant: "acme".parse().unwrap(),
            line: None,
            event: Event {
                id: EventId::generate(1, [0; 10]),
                event_type: "order.paid".parse().unwrap(),
                key: None,
                payload: vec![b'x'; payload_len].into(),
                content_type: "text/plain".parse().unwrap(),
                schema_version: None,
                time: Timestamp::default(),
                traceparent: None,
                cloudevent: None,
            },
            accepted_at: Timestamp::default(),
        })
    }

    fn held(cache: &PayloadCache, numbers: std::ops::RangeInclusive<u128>) -> Vec<u128> {
        numbers.filter(|number| cache.get(DeliveryId::from_u128(*number)).is_some()).collect()
    }

    #[test]
    fn a_full_cache_leaves_new_payloads_out() {
        let mut cache = PayloadCache::new(3 * (OVERHEAD + 100));
        (1..=5).for_each(|number| cache.put(parcel(number, 100), NOW));
        assert_eq!(held(&cache, 1..=5), [1, 2, 3]);
    }

    #[test]
    fn payloads_that_have_been_there_for_long_are_evicted() {
        let mut cache = PayloadCache::new(3 * (OVERHEAD + 100));
        (1..=2).for_each(|number| cache.put(parcel(number, 100), NOW));
        (3..=4).for_each(|number| cache.put(parcel(number, 100), NOW + Span::from_millis(1)));
        (5..=7).for_each(|number| cache.put(parcel(number, 100), NOW + PAYLOAD_FRESH));
        assert_eq!(held(&cache, 1..=7), [3, 5, 6]);
    }

    #[test]
    fn payloads_that_are_read_ahead_have_room_of_their_own_and_no_more() {
        let mut cache = PayloadCache::new(4 * (OVERHEAD + 100));
        (1..=5).for_each(|number| cache.put(parcel(number, 100), NOW));
        cache.put_ahead(parcel(6, 100), NOW);
        assert_eq!(held(&cache, 1..=6), [1, 2, 3, 4, 6]);
        cache.put_ahead(parcel(7, 100), NOW);
        assert_eq!(held(&cache, 1..=7), [2, 3, 4, 6, 7]);
        cache.put_ahead(parcel(8, 10_000), NOW);
        assert_eq!(held(&cache, 1..=8), [2, 3, 4, 6, 7]);
    }

    #[test]
    fn removing_a_payload_makes_room_at_once() {
        let mut cache = PayloadCache::new(3 * (OVERHEAD + 100));
        (1..=3).for_each(|number| cache.put(parcel(number, 100), NOW));
        cache.remove(DeliveryId::from_u128(2));
        cache.put(parcel(4, 100), NOW);
        assert_eq!(held(&cache, 1..=4), [1, 3, 4]);
        (1..=4).for_each(|number| cache.remove(DeliveryId::from_u128(number)));
        assert_eq!((cache.bytes, cache.order.len()), (0, 0));
    }

    #[test]
    fn a_payload_that_stays_does_not_let_the_order_grow() {
        let mut cache = PayloadCache::new(1 << 20);
        cache.put(parcel(1, 100), NOW);
        for number in 2..=10_000 {
            cache.put(parcel(number, 100), NOW);
            cache.remove(DeliveryId::from_u128(number));
        }
        assert!(cache.order.len() <= ORDER_SLACK + 3, "{}", cache.order.len());
        assert_eq!(held(&cache, 1..=10), [1]);
    }

    #[test]
    fn a_payload_larger_than_the_cache_is_not_kept() {
        let mut cache = PayloadCache::new(1_000);
        cache.put(parcel(1, 10), NOW);
        cache.put(parcel(2, 5_000), NOW);
        assert_eq!(held(&cache, 1..=2), [1]);
    }
}
