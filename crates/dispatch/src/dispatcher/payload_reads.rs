//! Payloads that have to be read from the store: those that attempts wait for, and, ahead of their turn,
//! those of the deliveries that start next. An attempt that waits takes one of its endpoint's places, so a
//! backlog leaves no faster than its payloads come.

use railpost_engine::Attempt;
use railpost_store::Parcel;
use railpost_wire::{DeliveryId, EndpointId};
use rustc_hash::FxHashMap;

use super::payload_cache::{PayloadCache, size};
use crate::limits::{PAYLOAD_LEN_ASSUMED, PAYLOAD_READ_BYTES, PAYLOADS_PER_READ, READ_AHEAD_MAX};

/// What is being read, and for which endpoints to read ahead.
#[derive(Debug)]
pub(super) struct PayloadReads {
    /// What is being read or about to be, each with the attempt that waits for it.
    under_way: FxHashMap<DeliveryId, Option<Attempt>>,
    /// What is to be read next.
    wanted: Vec<DeliveryId>,
    /// Endpoints whose payloads are in the store and not in memory.
    behind: FxHashMap<EndpointId, EndpointReadAhead>,
    /// Those of them for which it is time to look what starts next.
    due: Vec<EndpointId>,
    /// Bytes to read ahead, for all of them together.
    bytes_max: usize,
    /// What a payload of any endpoint takes, by those that were read of late.
    payload_len: usize,
}

#[derive(Debug)]
struct EndpointReadAhead {
    /// Starts until it is time to look ahead again.
    starts_left: usize,
    /// What a payload takes, by those that were read of late.
    payload_len: usize,
}

impl PayloadReads {
    pub(super) fn new(bytes_max: usize) -> Self {
        Self {
            under_way: FxHashMap::default(),
            wanted: Vec::new(),
            behind: FxHashMap::default(),
            due: Vec::new(),
            bytes_max,
            payload_len: PAYLOAD_LEN_ASSUMED,
        }
    }

    /// An attempt starts that has its payload.
    pub(super) fn started(&mut self, endpoint: EndpointId) {
        let behind = self.behind.get_mut(&endpoint);
        // At none left, it is due already.
        if let Some(behind) = behind.filter(|behind| behind.starts_left > 0) {
            behind.starts_left -= 1;
            if behind.starts_left == 0 {
                self.due.push(endpoint);
            }
        }
    }

    /// An attempt starts that has to wait for its payload. `followers` come after it in its lane, and are
    /// read with it.
    pub(super) fn wait(
        &mut self,
        attempt: Attempt,
        followers: impl Iterator<Item = DeliveryId>,
        cache: &PayloadCache,
    ) {
        if self.under_way.insert(attempt.delivery, Some(attempt)).is_none() {
            self.wanted.push(attempt.delivery);
            let depth = self.depth(attempt.endpoint);
            self.want(followers.take(depth), cache);
        }
        self.behind
            .entry(attempt.endpoint)
            .or_insert(EndpointReadAhead { starts_left: 1, payload_len: PAYLOAD_LEN_ASSUMED });
        self.started(attempt.endpoint);
    }

    /// The endpoints for which it is time to look ahead.
    pub(super) fn take_due(&mut self) -> Vec<EndpointId> {
        std::mem::take(&mut self.due)
    }

    /// Reads ahead what is missing of that which starts next. An endpoint of which nothing is missing is
    /// left alone until it is.
    pub(super) fn look_ahead(
        &mut self,
        endpoint: EndpointId,
        ready: impl Iterator<Item = DeliveryId>,
        cache: &PayloadCache,
    ) {
        let next: Vec<_> = ready.take(self.depth(endpoint)).collect();
        let seen = next.len();
        if self.want(next.into_iter(), cache) == 0 {
            self.behind.remove(&endpoint);
        } else if let Some(behind) = self.behind.get_mut(&endpoint) {
            behind.starts_left = seen.div_ceil(2);
        }
    }

    /// The next payloads to read in one call.
    pub(super) fn next(&mut self) -> Option<Vec<DeliveryId>> {
        let fitting = (PAYLOAD_READ_BYTES / self.payload_len.max(1)).clamp(1, PAYLOADS_PER_READ);
        let count = self.wanted.len().min(fitting);
        Some(self.wanted.drain(..count).collect()).filter(|ids: &Vec<_>| !ids.is_empty())
    }

    /// A payload was read: the attempt that waits for it, if one does.
    pub(super) fn arrived(&mut self, parcel: &Parcel) -> Option<Attempt> {
        self.payload_len = (self.payload_len * 7 + size(parcel)) / 8;
        if let Some(behind) = self.behind.get_mut(&parcel.endpoint) {
            behind.payload_len = (behind.payload_len * 7 + size(parcel)) / 8;
        }
        self.under_way.remove(&parcel.delivery).flatten()
    }

    /// A call is answered: the attempts whose payloads it did not find.
    pub(super) fn missing(&mut self, asked: &[DeliveryId]) -> Vec<Attempt> {
        asked.iter().filter_map(|id| self.under_way.remove(id).flatten()).collect()
    }

    /// How many payloads may be read ahead for an endpoint.
    fn depth(&self, endpoint: EndpointId) -> usize {
        let len =
            self.behind.get(&endpoint).map_or(PAYLOAD_LEN_ASSUMED, |behind| behind.payload_len);
        (self.bytes_max / self.behind.len().max(1) / len.max(1)).min(READ_AHEAD_MAX)
    }

    /// Asks for those that are neither here nor on their way. Says how many that were.
    fn want(&mut self, ids: impl Iterator<Item = DeliveryId>, cache: &PayloadCache) -> usize {
        let before = self.wanted.len();
        for id in ids {
            if !cache.has(id) && !self.under_way.contains_key(&id) {
                self.under_way.insert(id, None);
                self.wanted.push(id);
            }
        }
        self.wanted.len() - before
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use railpost_engine::{Config, Effect, Endpoint, Engine, Input, LoadedPage, Policy, Timestamp};

    use super::super::payload_cache::tests::parcel;
    use super::*;

    const ROOM: usize = 1 << 20;

    fn id(number: u128) -> DeliveryId {
        DeliveryId::from_u128(number)
    }

    fn ids(numbers: impl Iterator<Item = u128>) -> Vec<DeliveryId> {
        numbers.map(id).collect()
    }

    /// Attempts as an engine starts them, for the deliveries 1 to `count`.
    fn attempts(count: u128) -> Vec<Attempt> {
        let mut engine = Engine::new(Config::default(), 1);
        let endpoint = Endpoint {
            id: EndpointId::from_u128(1),
            tenant: "acme".parse().unwrap(),
            policy: Policy::default(),
            status: railpost_engine::EndpointStatus::Active,
            status_since: None,
            failing_since: None,
            rotation: None,
        };
        let now = Timestamp::from_millis(1);
        engine.handle(now, Input::EndpointAppeared(endpoint));
        let mut started = Vec::new();
        while let Some(effect) = engine.poll_effect() {
            match effect {
                Effect::Load(ticket, railpost_engine::Load::Unkeyed { endpoint, .. }) => {
                    let deliveries = (1..=count).map(|number| {
                        railpost_engine::Accepted {
                            id: id(number),
                            endpoint,
                            place: None,
                            replay: false,
                        }
                        .into()
                    });
                    let deliveries = deliveries.collect();
                    let page = LoadedPage::Unkeyed { deliveries, next: None, next_due: None };
                    engine.handle(now, Input::Loaded { ticket, page });
                }
                Effect::Start(attempt) => started.push(attempt),
                _ => {}
            }
        }
        started
    }

    #[test]
    fn what_starts_next_is_read_with_what_is_waited_for() {
        let (mut reads, cache) = (PayloadReads::new(ROOM), PayloadCache::new(ROOM));
        let attempt = attempts(1)[0];
        reads.wait(attempt, [id(2), id(3)].into_iter(), &cache);
        assert_eq!(reads.take_due(), [attempt.endpoint]);
        reads.look_ahead(attempt.endpoint, ids(2..=6).into_iter(), &cache);
        assert_eq!(reads.next().unwrap(), ids(1..=6));
        assert_eq!(reads.next(), None);
    }

    #[test]
    fn an_attempt_that_starts_while_its_parcel_is_read_gets_it() {
        let (mut reads, cache) = (PayloadReads::new(ROOM), PayloadCache::new(ROOM));
        let attempts = attempts(2);
        reads.wait(attempts[0], [id(2)].into_iter(), &cache);
        assert_eq!(reads.next().unwrap(), ids(1..=2));
        reads.wait(attempts[1], std::iter::empty(), &cache);
        assert_eq!(reads.next(), None, "it is on its way");
        assert_eq!(reads.arrived(&parcel(2, 10)), Some(attempts[1]));
        assert_eq!(reads.missing(&ids(1..=2)), [attempts[0]]);
        assert_eq!(reads.arrived(&parcel(1, 10)), None, "nobody waits any more");
    }

    #[test]
    fn half_of_what_was_read_ahead_is_left_at_the_next_look() {
        let (mut reads, mut cache) = (PayloadReads::new(ROOM), PayloadCache::new(ROOM));
        let attempt = attempts(1)[0];
        reads.wait(attempt, std::iter::empty(), &cache);
        reads.take_due();
        reads.look_ahead(attempt.endpoint, ids(2..=11).into_iter(), &cache);
        let looks: Vec<_> = (0..5)
            .map(|_| {
                reads.started(attempt.endpoint);
                reads.take_due().len()
            })
            .collect();
        assert_eq!(looks, [0, 0, 0, 0, 1]);
        (2..=11).for_each(|number| cache.put_ahead(parcel(number, 10), Timestamp::default()));
        reads.look_ahead(attempt.endpoint, ids(7..=11).into_iter(), &cache);
        reads.started(attempt.endpoint);
        assert_eq!(reads.take_due(), [], "all that comes next is here");
    }

    #[test]
    fn many_starts_at_once_make_one_look() {
        let (mut reads, cache) = (PayloadReads::new(ROOM), PayloadCache::new(ROOM));
        let attempts = attempts(3);
        attempts.iter().for_each(|attempt| reads.wait(*attempt, std::iter::empty(), &cache));
        (0..3).for_each(|_| reads.started(attempts[0].endpoint));
        assert_eq!(reads.take_due(), [attempts[0].endpoint]);
    }

    #[test]
    fn the_larger_parcels_are_the_fewer_are_read_ahead() {
        for (payload_len, expected) in [(0, READ_AHEAD_MAX), (15_000, 67), (1 << 20, 1)] {
            let (mut reads, cache) = (PayloadReads::new(ROOM), PayloadCache::new(ROOM));
            let attempt = attempts(1)[0];
            reads.wait(attempt, std::iter::empty(), &cache);
            for _ in 0..100 {
                reads.arrived(&parcel(1, payload_len));
            }
            reads.look_ahead(attempt.endpoint, ids(2..=5_000).into_iter(), &cache);
            let read = std::iter::from_fn(|| reads.next()).flatten().count() - 1;
            assert!(read.abs_diff(expected) <= 1, "{payload_len}: {read}");
        }
    }

    #[test]
    fn without_room_nothing_is_read_ahead() {
        let (mut reads, cache) = (PayloadReads::new(0), PayloadCache::new(0));
        let attempt = attempts(1)[0];
        reads.wait(attempt, [id(2)].into_iter(), &cache);
        reads.look_ahead(attempt.endpoint, ids(2..=6).into_iter(), &cache);
        assert_eq!(reads.next().unwrap(), [id(1)]);
    }
}
