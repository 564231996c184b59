//! How deliveries come into memory and leave it: hints, loads, windows.

use railpost_wire::{DeliveryId, Seq};

use super::{Alarm, DeliveryKey, EndpointKey, Engine, HeadStage, Lane, Phase, TrackedDelivery};
use crate::limits::{DUE_LOOKAHEAD, LOAD_RETRY};
use crate::{
    Accepted, DeadReason, Delivery, DeliveryState, Effect, IgnoredReason, LaneId, LanePage, Load,
    LoadTicket, LoadedPage, Place, Timestamp, Transition,
};

/// A load under way, or one that failed and will be asked for again.
#[derive(Clone, Copy, Debug)]
pub(super) struct PendingLoad {
    pub(super) endpoint: EndpointKey,
    kind: LoadKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LoadKind {
    Lanes {
        after: Option<LaneId>,
    },
    /// `last` is the highest seq that had been heard of when the load was asked for.
    Lane {
        lane: LaneId,
        last: u64,
    },
    Unkeyed {
        after: Option<DeliveryId>,
        limit: u32,
    },
}

impl Engine {
    pub(super) fn accepted(&mut self, accepted: Vec<Accepted>) {
        for accepted in accepted {
            match (self.served_or_ignore(accepted.endpoint), accepted.place) {
                (None, _) => {}
                (Some(key), Some(place)) => self.hint_in_lane(key, accepted, place),
                (Some(key), None) => self.hint_unkeyed(key, accepted),
            }
        }
    }

    fn hint_in_lane(&mut self, endpoint: EndpointKey, accepted: Accepted, place: Place) {
        let seq = place.seq.get();
        let window = self.lane_window();
        let served = &mut self.endpoints[endpoint];
        let (is_fresh, is_new) = (served.is_fresh(accepted.id), served.seen_lanes.note(place.lane));
        let lane = self.lane_mut(endpoint, place.lane);
        if seq <= lane.known {
            return self.ignore(
                IgnoredReason::DeliveryKnown,
                Some(accepted.endpoint),
                Some(accepted.id),
            );
        }
        lane.note_seq(seq);
        // A lane that was forgotten looks empty, but may have got further than this hint.
        let is_known = is_new || lane.known > 0;
        if is_fresh && is_known && seq == lane.known + 1 && lane.has_room(window) {
            self.append(endpoint, place, &accepted.into());
        }
        self.refill_lane(endpoint, place.lane);
    }

    fn hint_unkeyed(&mut self, endpoint: EndpointKey, accepted: Accepted) {
        let served = &mut self.endpoints[endpoint];
        let is_fresh = served.is_fresh(accepted.id);
        let unkeyed = &mut served.unkeyed;
        if !unkeyed.is_news(accepted.id) {
            return self.ignore(
                IgnoredReason::DeliveryKnown,
                Some(accepted.endpoint),
                Some(accepted.id),
            );
        }
        let is_new = is_fresh && unkeyed.seen.note(accepted.id);
        if is_new && unkeyed.has_room(self.config.unkeyed_window) {
            return self.hold_unkeyed(endpoint, &accepted.into());
        }
        unkeyed.want_scan();
        self.scan_if_room(endpoint);
    }

    /// What the store has open and memory does not know of is looked up.
    pub(super) fn swept(&mut self, swept: Vec<Accepted>) {
        for Accepted { id, endpoint, place, .. } in swept {
            let Some(key) = self.endpoint_keys.get(&endpoint).copied() else { continue };
            match place {
                Some(place) => self.note_lane_seq(key, place),
                None if self.endpoints[key].unkeyed.get(id).is_none() => {
                    self.endpoints[key].unkeyed.want_scan();
                    self.scan_if_room(key);
                }
                None => {}
            }
        }
    }

    /// Looks for everything open.
    pub(super) fn load_backlog(&mut self, endpoint: EndpointKey) {
        let Some(served) = self.endpoints.get_mut(endpoint) else { return };
        served.unkeyed.want_scan();
        if !std::mem::replace(&mut served.lanes_loading, true) {
            self.request_load(endpoint, LoadKind::Lanes { after: None });
        }
        self.scan_if_room(endpoint);
    }

    pub(super) fn loaded(&mut self, ticket: LoadTicket, page: LoadedPage) {
        let Some(load) = self.loads.remove(&ticket.0) else {
            return self.ignore(IgnoredReason::LoadUnknown, None, None);
        };
        match (load.kind, page) {
            (LoadKind::Lanes { .. }, LoadedPage::Lanes { lanes, next }) => {
                self.lanes_loaded(load.endpoint, lanes, next);
            }
            (LoadKind::Lane { lane, last }, LoadedPage::Lane(page)) if page.lane == lane => {
                self.lane_loaded(load.endpoint, last, &page);
            }
            (LoadKind::Unkeyed { .. }, LoadedPage::Unkeyed { deliveries, next, next_due }) => {
                self.unkeyed_loaded(load.endpoint, &deliveries, next, next_due);
            }
            (_, _) => {
                self.ignore(IgnoredReason::PageMismatch, None, None);
                self.retry_load_later(load);
            }
        }
    }

    pub(super) fn load_failed(&mut self, ticket: LoadTicket) {
        match self.loads.remove(&ticket.0) {
            Some(load) => self.retry_load_later(load),
            None => self.ignore(IgnoredReason::LoadUnknown, None, None),
        }
    }

    pub(super) fn load_again(&mut self, ticket: u64) {
        if let Some(load) = self.loads.remove(&ticket) {
            self.request_load(load.endpoint, load.kind);
        }
    }

    /// Lanes of an endpoint of which nothing is in memory and a load is under way.
    pub(super) fn loading_lanes(&self, endpoint: EndpointKey) -> impl Iterator<Item = LaneId> {
        self.loads.values().filter_map(move |load| match load.kind {
            LoadKind::Lane { lane, .. } if load.endpoint == endpoint => Some(lane),
            _ => None,
        })
    }

    /// Keeps a load until it is time to ask for it again.
    fn retry_load_later(&mut self, load: PendingLoad) {
        let ticket = self.register_load(load);
        self.timers.set(self.now + LOAD_RETRY, Alarm::Load(ticket.0));
    }

    fn register_load(&mut self, load: PendingLoad) -> LoadTicket {
        let ticket = LoadTicket(self.next_ticket);
        self.next_ticket += 1;
        self.loads.insert(ticket.0, load);
        ticket
    }

    fn request_load(&mut self, endpoint: EndpointKey, kind: LoadKind) {
        let Some(served) = self.endpoints.get(endpoint) else { return };
        let (id, window) = (served.id, self.lane_window());
        let load = match kind {
            LoadKind::Lanes { after } => {
                Load::Lanes { endpoint: id, after, limit: self.config.lanes_page, window }
            }
            LoadKind::Lane { lane, .. } => {
                let known = served.lanes.get(&lane).map_or(0, |lane| lane.known);
                let from = Seq::new(known + 1).unwrap_or(Seq::FIRST);
                Load::Lane { endpoint: id, lane, from, limit: window }
            }
            LoadKind::Unkeyed { after, limit } => {
                let due_by = self.now + DUE_LOOKAHEAD;
                let due_beyond = self.latest_due(endpoint).max(due_by);
                Load::Unkeyed { endpoint: id, after, due_by, due_beyond, limit }
            }
        };
        let ticket = self.register_load(PendingLoad { endpoint, kind });
        self.counters.loads += 1;
        self.effects.push_back(Effect::Load(ticket, load));
    }

    fn lanes_loaded(&mut self, endpoint: EndpointKey, lanes: Vec<LanePage>, next: Option<LaneId>) {
        for page in lanes {
            let lane = page.lane;
            self.take_lane_page(endpoint, &page);
            self.refill_lane(endpoint, lane);
        }
        match next {
            Some(after) => self.request_load(endpoint, LoadKind::Lanes { after: Some(after) }),
            None => self.endpoints[endpoint].lanes_loading = false,
        }
    }

    fn lane_loaded(&mut self, endpoint: EndpointKey, last_when_asked: u64, page: &LanePage) {
        self.take_lane_page(endpoint, page);
        let window = self.lane_window();
        let lane = self.lane_mut(endpoint, page.lane);
        lane.loading = false;
        if lane.last == last_when_asked {
            // No hint came since: the store's word on where the lane ends is the newest.
            lane.last = page.last.map_or(0, Seq::get).max(lane.known);
        }
        if lane.known < page.from.get() && lane.wants_load(window) {
            // Nothing was gained since it was asked for: asking again at once would be a busy loop.
            lane.loading = true;
            let kind = LoadKind::Lane { lane: page.lane, last: lane.last };
            self.retry_load_later(PendingLoad { endpoint, kind });
        } else {
            self.refill_lane(endpoint, page.lane);
        }
    }

    /// Takes in what a page has beyond what is known, as far as there is room.
    fn take_lane_page(&mut self, endpoint: EndpointKey, page: &LanePage) {
        self.endpoints[endpoint].seen_lanes.note(page.lane);
        let window = self.lane_window();
        let lane = self.lane_mut(endpoint, page.lane);
        lane.note_seq(page.last.map_or(0, Seq::get));
        if page.from.get() > lane.known + 1 {
            return self.ignore(IgnoredReason::PageMismatch, None, None);
        }
        // Before the deliveries: the page may have more of them than there is room for.
        page.follows.iter().for_each(|(seq, before)| lane.note_follows(seq.get(), *before));
        for delivery in &page.deliveries {
            let Some(place) = self.place_in_page(endpoint, page, delivery) else { continue };
            let lane = self.lane_mut(endpoint, page.lane);
            if place.seq.get() <= lane.known || !delivery.state.is_open() {
                continue;
            }
            if !lane.has_room(window) {
                return;
            }
            self.append(endpoint, place, delivery);
        }
        let through = page.through.map_or(0, Seq::get);
        let lane = self.lane_mut(endpoint, page.lane);
        lane.known = lane.known.max(through);
        lane.note_seq(through);
    }

    /// The delivery's place, if it belongs to this page.
    fn place_in_page(
        &mut self,
        endpoint: EndpointKey,
        page: &LanePage,
        delivery: &Delivery,
    ) -> Option<Place> {
        let through = page.through.map_or(0, Seq::get);
        let place = delivery.place.filter(|place| {
            delivery.endpoint == self.endpoints[endpoint].id
                && place.lane == page.lane
                && place.seq >= page.from
                && place.seq.get() <= through
        });
        if place.is_none() {
            self.ignore(IgnoredReason::LaneMismatch, Some(delivery.endpoint), Some(delivery.id));
        }
        place
    }

    fn append(&mut self, endpoint: EndpointKey, place: Place, delivery: &Delivery) {
        let Some(key) = self.hold(endpoint, Some(place), delivery) else {
            let lane = self.lane_mut(endpoint, place.lane);
            lane.known = place.seq.get();
            lane.skipped(place.seq.get());
            return;
        };
        let lane = self.endpoints[endpoint].lanes.entry(place.lane).or_default();
        lane.append(key, place.seq.get(), &mut self.deliveries);
        if lane.head() == Some(key) {
            self.start_when_due(key);
        }
    }

    /// Makes room in memory for a delivery as the store has it. An at-most-once delivery that was
    /// recorded as sent is not held: what came of it is unknown, and it may not be sent again.
    fn hold(
        &mut self,
        endpoint: EndpointKey,
        place: Option<Place>,
        delivery: &Delivery,
    ) -> Option<DeliveryKey> {
        let phase = match delivery.state {
            DeliveryState::Pending => Phase::Pending,
            DeliveryState::Waiting { until } => {
                Phase::Waiting { until: self.plausible_due(endpoint, until) }
            }
            DeliveryState::Dead { reason, .. } => Phase::Dead(reason),
            DeliveryState::InFlight => {
                self.counters.dead += 1;
                let reason = DeadReason::OutcomeUnknown;
                self.record_unheld(delivery, DeliveryState::Dead { reason, holds: false });
                return None;
            }
            DeliveryState::Delivered | DeliveryState::Discarded { .. } => return None,
        };
        let Delivery { id, mut progress, .. } = *delivery;
        progress.round_started_at = progress.round_started_at.map(|at| at.min(self.now));
        let tracked = TrackedDelivery {
            id,
            endpoint,
            place,
            next: None,
            progress,
            phase,
            queued: false,
            counted_as: HeadStage::NotHead,
        };
        Some(self.deliveries.insert(tracked))
    }

    /// The latest instant that a retry of this endpoint can be planned for.
    fn latest_due(&self, endpoint: EndpointKey) -> Timestamp {
        self.now + self.endpoints[endpoint].policy.retry.max_delay
    }

    /// An instant as it was stored. One further ahead than the policy plans was written by a clock that
    /// was wrong, or under another policy: it is due now.
    fn plausible_due(&self, endpoint: EndpointKey, until: Timestamp) -> Timestamp {
        if until > self.latest_due(endpoint) { self.now } else { until }
    }

    /// Writes down a new state for a delivery that is not in memory. The store checks the edge.
    pub(super) fn record_unheld(&mut self, delivery: &Delivery, state: DeliveryState) {
        self.effects.push_back(Effect::Record(Transition {
            delivery: delivery.id,
            endpoint: delivery.endpoint,
            place: delivery.place,
            state,
            progress: delivery.progress,
            attempt: None,
            at: self.now,
        }));
    }

    /// Lets a delivery leave memory; its lane moves on.
    pub(super) fn forget(&mut self, key: DeliveryKey) {
        let tracked = &self.deliveries[key];
        let (endpoint, place, next, id) =
            (tracked.endpoint, tracked.place, tracked.next, tracked.id);
        match place {
            Some(place) => {
                let lane = self.endpoints[endpoint].lanes.entry(place.lane).or_default();
                let was_head = lane.head() == Some(key);
                lane.unlink(key, next, &mut self.deliveries);
                if let Some(tracked) = self.deliveries.remove(key) {
                    let heads = &mut self.endpoints[endpoint].heads;
                    heads.moved(place.lane, tracked.counted_as, HeadStage::NotHead);
                }
                if let Some(next) = next.filter(|_| was_head) {
                    self.start_when_due(next);
                }
                self.refill_lane(endpoint, place.lane);
            }
            None => {
                self.deliveries.remove(key);
                self.endpoints[endpoint].unkeyed.remove(id);
                self.scan_if_room(endpoint);
            }
        }
    }

    /// There is something in a lane that memory does not have.
    pub(super) fn note_lane_seq(&mut self, endpoint: EndpointKey, place: Place) {
        self.lane_mut(endpoint, place.lane).note_seq(place.seq.get());
        self.refill_lane(endpoint, place.lane);
    }

    fn lane_mut(&mut self, endpoint: EndpointKey, id: LaneId) -> &mut Lane {
        self.endpoints[endpoint].lanes.entry(id).or_default()
    }

    /// Asks for more of a lane that runs low, or notes that it has nothing open.
    pub(super) fn refill_lane(&mut self, endpoint: EndpointKey, id: LaneId) {
        let window = self.lane_window();
        let lane = self.lane_mut(endpoint, id);
        if lane.wants_load(window) {
            lane.loading = true;
            let kind = LoadKind::Lane { lane: id, last: lane.last };
            self.request_load(endpoint, kind);
        } else if lane.is_idle() && !lane.listed_idle {
            lane.listed_idle = true;
            self.idle_lanes.push_back((endpoint, id));
            self.forget_idle_lanes();
        }
    }

    fn forget_idle_lanes(&mut self) {
        while self.idle_lanes.len() > self.config.idle_lanes_max {
            let Some((endpoint, id)) = self.idle_lanes.pop_front() else { return };
            let Some(served) = self.endpoints.get_mut(endpoint) else { continue };
            if served.lanes_loading {
                // A page under way may have been read before this lane's last delivery closed.
                self.idle_lanes.push_back((endpoint, id));
                return;
            }
            let Some(lane) = served.lanes.get_mut(&id) else { continue };
            lane.listed_idle = false;
            if lane.is_idle() {
                served.lanes.remove(&id);
            }
        }
    }

    fn lane_window(&self) -> u32 {
        if self.deliveries.len() < self.config.deliveries_max { self.config.lane_window } else { 1 }
    }

    fn unkeyed_loaded(
        &mut self,
        endpoint: EndpointKey,
        deliveries: &[Delivery],
        next: Option<DeliveryId>,
        next_due: Option<Timestamp>,
    ) {
        for delivery in deliveries {
            let served = &self.endpoints[endpoint];
            if delivery.endpoint != served.id || delivery.place.is_some() {
                let reason = IgnoredReason::LaneMismatch;
                self.ignore(reason, Some(delivery.endpoint), Some(delivery.id));
            } else if served.unkeyed.is_news(delivery.id) && delivery.state.is_open() {
                self.hold_unkeyed(endpoint, delivery);
            }
        }
        self.endpoints[endpoint].unkeyed.page_taken(next);
        if let Some(due) = next_due {
            self.scan_when_due(endpoint, due);
        }
        self.scan_if_room(endpoint);
    }

    fn hold_unkeyed(&mut self, endpoint: EndpointKey, delivery: &Delivery) {
        if let Some(key) = self.hold(endpoint, None, delivery) {
            self.endpoints[endpoint].unkeyed.insert(delivery.id, key);
            self.start_when_due(key);
        }
    }

    pub(super) fn scan_if_room(&mut self, endpoint: EndpointKey) {
        let window = self.config.unkeyed_window;
        if let Some((after, limit)) = self.endpoints[endpoint].unkeyed.next_page(window) {
            self.request_load(endpoint, LoadKind::Unkeyed { after, limit });
        }
    }

    /// What waits for long gives its room to what does not, once half of the room is taken.
    pub(super) fn should_set_aside(&self, key: DeliveryKey, until: Timestamp) -> bool {
        let unkeyed = &self.endpoints[self.deliveries[key].endpoint].unkeyed;
        until > self.now + DUE_LOOKAHEAD && unkeyed.len() > self.config.unkeyed_window as usize / 2
    }

    pub(super) fn set_aside(&mut self, key: DeliveryKey, until: Timestamp) {
        let endpoint = self.deliveries[key].endpoint;
        self.scan_when_due(endpoint, until);
        self.forget(key);
    }

    /// Sees to it that a scan comes before `due`, early enough to have it in memory by then.
    fn scan_when_due(&mut self, endpoint: EndpointKey, due: Timestamp) {
        let early =
            Timestamp::from_millis(due.as_millis().saturating_sub(DUE_LOOKAHEAD.as_millis()));
        let at = early.max(self.now + LOAD_RETRY);
        let unkeyed = &mut self.endpoints[endpoint].unkeyed;
        if unkeyed.due_at.is_none_or(|earlier| at < earlier) {
            unkeyed.due_at = Some(at);
            self.timers.set(at, Alarm::Unkeyed(endpoint));
        }
    }

    pub(super) fn unkeyed_due(&mut self, endpoint: EndpointKey) {
        let Some(served) = self.endpoints.get_mut(endpoint) else { return };
        if served.unkeyed.due_at.take_if(|at| *at <= self.now).is_some() {
            served.unkeyed.want_scan();
            self.scan_if_room(endpoint);
        }
    }
}
