//! The ends of lanes that the file does not tell of in its usual places: `lanes` has an older last seq,
//! and `places` not all who stand there.
//!
//! The writer alone changes this, right after it committed. So a reader that looks here first, and
//! begins its read then, finds in the file whatever it saw here, or what became of it.

use std::collections::VecDeque;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use railpost_engine::{LaneId, Place};
use railpost_wire::{DeliveryId, EndpointId, Seq};
use rustc_hash::FxHashMap;

/// A delivery that was given a place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stood {
    pub(super) place: Place,
    pub(super) delivery: DeliveryId,
    pub(super) endpoint: EndpointId,
}

/// The end of a lane, as somebody saw it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Seen {
    /// The last seq that was given out.
    pub(super) last: Seq,
    /// Up to here all of its open deliveries that are not settled are listed.
    pub(super) through: Seq,
    /// By ascending seq.
    pub(super) deliveries: Vec<DeliveryId>,
}

/// A lane to be settled, up to a seq.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Settling {
    pub(super) lane: LaneId,
    pub(super) through: Seq,
    /// Those that get their row in `places`, if they are open.
    pub(super) deliveries: Vec<DeliveryId>,
}

/// How much is to be settled.
#[derive(Clone, Copy, Debug)]
pub(super) struct Portion {
    /// So many lanes.
    pub(super) lanes: usize,
    /// And so many deliveries at least.
    pub(super) deliveries: usize,
    /// But not more deliveries than these.
    pub(super) deliveries_max: usize,
}

/// What was given out and committed, but is not settled. Cheap to clone: readers have it too.
#[derive(Clone, Debug, Default)]
pub(super) struct Unsettled(Arc<RwLock<Tails>>);

#[derive(Debug, Default)]
struct Tails {
    lanes: FxHashMap<LaneId, Tail>,
    /// How many deliveries all of them have.
    deliveries: usize,
}

/// The end of a lane.
#[derive(Debug)]
struct Tail {
    endpoint: EndpointId,
    last: Seq,
    /// By ascending seq. Most leave from the front.
    deliveries: VecDeque<(Seq, DeliveryId)>,
}

impl Unsettled {
    fn read(&self) -> RwLockReadGuard<'_, Tails> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The last seq of a lane, if it is not settled. What is in the file now is as new, or newer.
    pub(super) fn last(&self, lane: LaneId) -> Option<Seq> {
        self.read().lanes.get(&lane).map(|tail| tail.last)
    }

    /// Whether somebody who is not settled stands there.
    pub(super) fn stands(&self, place: Place) -> bool {
        let tails = self.read();
        tails.lanes.get(&place.lane).is_some_and(|tail| tail.position(place.seq).is_some())
    }

    /// How many lanes there are, and how many deliveries they have.
    pub(super) fn len(&self) -> (usize, usize) {
        let tails = self.read();
        (tails.lanes.len(), tails.deliveries)
    }

    /// The first `limit` from this seq on.
    pub(super) fn see(&self, lane: LaneId, from: Seq, limit: usize) -> Option<Seen> {
        self.read().lanes.get(&lane).map(|tail| tail.see(from, limit))
    }

    /// An endpoint's first lanes after one that have somebody in them, each with the first of its window.
    pub(super) fn see_lanes(
        &self,
        endpoint: EndpointId,
        after: LaneId,
        limit: usize,
        window: usize,
    ) -> Vec<(LaneId, Seen)> {
        let tails = self.read();
        let wanted = |(lane, tail): &(&LaneId, &Tail)| {
            **lane > after && tail.endpoint == endpoint && !tail.deliveries.is_empty()
        };
        let mut theirs: Vec<_> = tails.lanes.iter().filter(wanted).collect();
        theirs.sort_unstable_by_key(|(lane, _)| **lane);
        theirs.truncate(limit);
        let see = |(lane, tail): (&LaneId, &Tail)| (*lane, tail.see(Seq::FIRST, window));
        theirs.into_iter().map(see).collect()
    }

    /// All lanes, ascending.
    pub(super) fn lanes(&self) -> Vec<LaneId> {
        let mut lanes: Vec<_> = self.read().lanes.keys().copied().collect();
        lanes.sort_unstable();
        lanes
    }

    /// What is to be settled of the next of these lanes, and how many of them that settles.
    pub(super) fn next(&self, lanes: &[LaneId], portion: Portion) -> (Vec<Settling>, usize) {
        let tails = self.read();
        let (mut settling, mut count) = (Vec::new(), 0);
        for (passed, lane) in lanes.iter().enumerate() {
            let enough = settling.len() >= portion.lanes && count >= portion.deliveries;
            let room = portion.deliveries_max.saturating_sub(count);
            if enough || room == 0 {
                return (settling, passed);
            }
            let Some(tail) = tails.lanes.get(lane) else { continue };
            let Seen { through, deliveries, .. } = tail.see(Seq::FIRST, room);
            count += deliveries.len();
            settling.push(Settling { lane: *lane, through, deliveries });
            if through < tail.last {
                return (settling, passed);
            }
        }
        (settling, lanes.len())
    }

    /// A group was committed that gave out these places, settled these lanes, and let those be left.
    pub(super) fn change(
        &self,
        stood: impl IntoIterator<Item = Stood>,
        settled: impl IntoIterator<Item = Settling>,
        left: impl IntoIterator<Item = Place>,
    ) {
        let mut tails = self.0.write().unwrap_or_else(PoisonError::into_inner);
        stood.into_iter().for_each(|stood| tails.stand(stood));
        settled.into_iter().for_each(|settled| tails.settle(settled.lane, settled.through));
        left.into_iter().for_each(|place| tails.leave(place));
    }
}

impl Tails {
    fn stand(&mut self, stood: Stood) {
        let Stood { place: Place { lane, seq }, delivery, endpoint } = stood;
        let new = || Tail { endpoint, last: seq, deliveries: VecDeque::new() };
        let tail = self.lanes.entry(lane).or_insert_with(new);
        tail.last = seq;
        tail.deliveries.push_back((seq, delivery));
        self.deliveries += 1;
    }

    fn settle(&mut self, lane: LaneId, through: Seq) {
        let Some(tail) = self.lanes.get_mut(&lane) else { return };
        let settled = tail.deliveries.partition_point(|(seq, _)| *seq <= through);
        tail.deliveries.drain(..settled);
        self.deliveries -= settled;
        if tail.last <= through {
            self.lanes.remove(&lane);
        }
    }

    fn leave(&mut self, place: Place) {
        let Some(tail) = self.lanes.get_mut(&place.lane) else { return };
        if let Some(position) = tail.position(place.seq) {
            tail.deliveries.remove(position);
            self.deliveries -= 1;
        }
    }
}

impl Tail {
    fn position(&self, seq: Seq) -> Option<usize> {
        if self.deliveries.front().is_some_and(|(first, _)| *first == seq) {
            return Some(0);
        }
        self.deliveries.binary_search_by_key(&seq, |(seq, _)| *seq).ok()
    }

    /// At least one, if there is any.
    fn see(&self, from: Seq, limit: usize) -> Seen {
        let start = self.deliveries.partition_point(|(seq, _)| *seq < from);
        let end = self.deliveries.len().min(start.saturating_add(limit.max(1)));
        let listed = self.deliveries.range(start..end);
        let last_listed = listed.clone().next_back().map(|(seq, _)| *seq);
        let is_cut = end < self.deliveries.len();
        Seen {
            last: self.last,
            through: last_listed.filter(|_| is_cut).unwrap_or(self.last),
            deliveries: listed.map(|(_, delivery)| *delivery).collect(),
        }
    }
}
