//! Lanes with anything open, for people: how many there are, and which wait longest.

use std::collections::{BTreeSet, BinaryHeap};

use railpost_wire::{DeliveryId, EndpointId, TenantId};

use super::{
    DeliveryKey, EndpointKey, Engine, HeadStage, Lane, Phase, ServedEndpoint, Table,
    TrackedDelivery,
};
use crate::limits::LANES_LOOKED_AT_MAX;
use crate::{
    EndpointStatus, LaneCounts, LaneId, LaneState, OpenLane, OpenLanes, Ordering, Timestamp, Wait,
    WaitReason,
};

impl Engine {
    /// A tenant's lanes with anything open, or those of one endpoint of it: counts of all, and at most `limit` of
    /// them, the held ones first, then those whose head waits longest. Of more than
    /// [`LANES_LOOKED_AT_MAX`](crate::limits::LANES_LOOKED_AT_MAX), some are not looked at.
    pub fn open_lanes(
        &self,
        tenant: &TenantId,
        endpoint: Option<EndpointId>,
        limit: usize,
    ) -> OpenLanes {
        let mut found = FoundLanes { limit, ..FoundLanes::default() };
        let tenant = self.schedule.find_tenant(tenant);
        let wanted = |(_, served): &(EndpointKey, &ServedEndpoint)| {
            Some(served.tenant) == tenant && endpoint.is_none_or(|id| id == served.id)
        };
        for (key, served) in self.endpoints.iter().filter(wanted) {
            self.look_at_lanes(key, served, &mut found);
        }
        found.into_open_lanes()
    }

    fn look_at_lanes(&self, key: EndpointKey, served: &ServedEndpoint, found: &mut FoundLanes) {
        let gate = Gate::of(served, self.now);
        let look = |id: LaneId| {
            let lane = served.lanes.get(&id).filter(|lane| !lane.is_idle());
            lane.map(|lane| FoundLane::new(id, lane, &gate, &self.deliveries, self.now))
        };
        let is_loading = |lane: &FoundLane| lane.state == LaneState::Loading;
        let loading = self.loading_lanes(key).filter_map(look).filter(is_loading);
        loading.for_each(|lane| found.add_loading(lane));
        found.counts.add(&served.heads.counts);
        let held = served.heads.held.iter().take(LANES_LOOKED_AT_MAX).copied();
        held.filter_map(look).for_each(|lane| found.add(lane));
        for (id, lane) in &served.lanes {
            if found.looked_at >= LANES_LOOKED_AT_MAX {
                return;
            }
            let head = lane.head().map(|key| self.deliveries[key].counted_as);
            if head.is_some_and(|stage| stage != HeadStage::Held) {
                found.add(FoundLane::new(*id, lane, &gate, &self.deliveries, self.now));
            }
        }
    }

    /// Counts the head of a lane as what it does.
    pub(super) fn count_head(&mut self, key: DeliveryKey) {
        let tracked = &mut self.deliveries[key];
        let Some(place) = tracked.place else { return };
        let stage = tracked.head_stage();
        let before = std::mem::replace(&mut tracked.counted_as, stage);
        self.endpoints[tracked.endpoint].heads.moved(place.lane, before, stage);
    }
}

/// The heads of an endpoint's lanes, counted as they change: there may be too many lanes to count.
#[derive(Debug, Default)]
pub(super) struct Heads {
    counts: LaneCounts,
    held: BTreeSet<LaneId>,
}

impl Heads {
    /// The lanes whose head is a dead letter.
    pub(super) fn held(&self) -> &BTreeSet<LaneId> {
        &self.held
    }

    pub(super) fn moved(&mut self, lane: LaneId, from: HeadStage, to: HeadStage) {
        if from == to {
            return;
        }
        if let Some(count) = self.counts.of(from) {
            *count -= 1;
            self.counts.lanes -= 1;
        }
        if let Some(count) = self.counts.of(to) {
            *count += 1;
            self.counts.lanes += 1;
        }
        match (from, to) {
            (HeadStage::Held, _) => drop(self.held.remove(&lane)),
            (_, HeadStage::Held) => drop(self.held.insert(lane)),
            _ => {}
        }
    }
}

impl LaneCounts {
    fn of(&mut self, stage: HeadStage) -> Option<&mut u64> {
        match stage {
            HeadStage::NotHead => None,
            HeadStage::Ready => Some(&mut self.ready),
            HeadStage::BackingOff => Some(&mut self.backing_off),
            HeadStage::InFlight => Some(&mut self.in_flight),
            HeadStage::Held => Some(&mut self.held),
        }
    }

    fn add(&mut self, other: &LaneCounts) {
        let LaneCounts { lanes, held, in_flight, backing_off, ready } = other;
        self.lanes += lanes;
        self.held += held;
        self.in_flight += in_flight;
        self.backing_off += backing_off;
        self.ready += ready;
    }
}

/// What the lanes of an endpoint have in common.
struct Gate<'a> {
    served: &'a ServedEndpoint,
    is_off: bool,
    wait: Option<Wait>,
}

impl<'a> Gate<'a> {
    fn of(served: &'a ServedEndpoint, now: Timestamp) -> Self {
        let is_off = served.status != EndpointStatus::Active || served.blocked;
        Self { served, is_off, wait: served.wait(now) }
    }

    /// The state of a lane whose head may go at `due`, as far as the lane is concerned.
    fn state(&self, due: Timestamp, now: Timestamp) -> (LaneState, Option<Timestamp>) {
        match self.wait {
            _ if self.is_off => (LaneState::EndpointOff, None),
            Some(Wait { until: Some(until), .. }) if due > now && until < due => {
                (LaneState::BackingOff, Some(due))
            }
            Some(Wait { reason: WaitReason::RetryAfter, until }) => {
                (LaneState::WaitingForRetryAfter, until)
            }
            Some(Wait { until, .. }) => (LaneState::WaitingForBreaker, until),
            None if due > now => (LaneState::BackingOff, Some(due)),
            None => (LaneState::WaitingForLimit, None),
        }
    }
}

/// A lane with anything open. In the order in which people are shown them.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct FoundLane {
    /// The held ones are first, lanes without a head in memory last.
    rank: u8,
    /// Ids sort by time: the head that was made first waits longest.
    head: Option<DeliveryId>,
    lane: LaneId,
    endpoint: EndpointId,
    state: LaneState,
    until: Option<Timestamp>,
    open: u64,
    by_key: bool,
}

impl FoundLane {
    fn new(
        id: LaneId,
        lane: &Lane,
        gate: &Gate<'_>,
        deliveries: &Table<DeliveryKey, TrackedDelivery>,
        now: Timestamp,
    ) -> Self {
        let head = lane.head().map(|key| &deliveries[key]);
        let (state, until) = match head.map(|head| head.phase) {
            None => (LaneState::Loading, None),
            Some(Phase::InFlight(_)) => (LaneState::InFlight, None),
            Some(Phase::Dead(_)) => (LaneState::Held, None),
            Some(Phase::Pending) => gate.state(now, now),
            Some(Phase::Waiting { until }) => gate.state(until.max(now), now),
        };
        let rank = match state {
            LaneState::Held => 0,
            LaneState::Loading => 2,
            _ => 1,
        };
        Self {
            rank,
            head: head.map(|head| head.id),
            lane: id,
            endpoint: gate.served.id,
            state,
            until,
            open: lane.open(),
            by_key: gate.served.policy.ordering == Ordering::PerKey,
        }
    }
}

/// The lanes found so far: counts of all, and the first of them.
#[derive(Default)]
struct FoundLanes {
    limit: usize,
    looked_at: usize,
    counts: LaneCounts,
    /// The last one of them on top.
    first: BinaryHeap<FoundLane>,
}

impl FoundLanes {
    fn add_loading(&mut self, lane: FoundLane) {
        self.counts.lanes += 1;
        self.add(lane);
    }

    fn add(&mut self, lane: FoundLane) {
        self.looked_at += 1;
        if self.first.len() < self.limit {
            self.first.push(lane);
        } else if let Some(mut last) = self.first.peek_mut()
            && lane < *last
        {
            *last = lane;
        }
    }

    fn into_open_lanes(self) -> OpenLanes {
        let shown = |found: FoundLane| OpenLane {
            lane: found.lane,
            endpoint: found.endpoint,
            state: found.state,
            until: found.until,
            head: found.head,
            open: found.open,
            by_key: found.by_key,
        };
        let first = self.first.into_sorted_vec().into_iter().map(shown).collect();
        OpenLanes { counts: self.counts, first }
    }
}
