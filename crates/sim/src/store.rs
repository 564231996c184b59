//! The sender's store: what is written is visible at once, durable a little later, and forgotten if a
//! crash comes in between. An old copy can be put in its place.
//!
//! Its rules for lanes and lines are those of the stores' conformance suite.

mod lanes;
mod loads;

use std::collections::{BTreeMap, BTreeSet};

use railpost_engine::{
    Accepted, Delivery, DeliveryState, Endpoint, EndpointRecord, LaneChoice, LaneId, Place,
    RateLimit, Timestamp, Transition,
};
use railpost_wire::{DeliveryId, EndpointId, Seq, TenantId};

use lanes::LaneRow;

/// The number of an event; its id is made of it.
pub(crate) type EventNo = u64;

/// What a lane of an endpoint is for: a key, or everything.
pub(crate) type LaneKey = Option<String>;

#[derive(Clone, Default)]
pub(crate) struct Store {
    tenants: BTreeMap<TenantId, Option<RateLimit>>,
    endpoints: BTreeMap<EndpointId, Endpoint>,
    events: BTreeMap<EventNo, Event>,
    rows: BTreeMap<DeliveryId, Row>,
    lanes: BTreeMap<LaneId, LaneRow>,
    lane_ids: BTreeMap<(EndpointId, LaneKey), LaneId>,
    last_lane: u64,
    /// The id of the era: it changes when commits may have been lost.
    era: u64,
    open: BTreeMap<(EndpointId, Option<LaneId>), OpenDeliveries>,
    /// What to put back if a crash comes before the next flush, in order of writing.
    undo: Vec<Undo>,
}

#[derive(Clone, Debug)]
pub(crate) struct Event {
    pub(crate) tenant: TenantId,
    pub(crate) key: Option<String>,
}

#[derive(Clone, Copy)]
pub(crate) struct Row {
    pub(crate) delivery: Delivery,
    pub(crate) event: EventNo,
    /// The place it has or had.
    accepted_place: Option<Place>,
}

/// The open deliveries of a lane by seq, or those of an endpoint without a lane by id.
type OpenDeliveries = BTreeSet<(Option<Seq>, DeliveryId)>;

#[derive(Clone)]
enum Undo {
    Delivery(Delivery),
    Endpoint(Endpoint),
    Follows(LaneId, BTreeMap<u64, u64>),
}

impl Store {
    pub(crate) fn put_tenant(&mut self, id: TenantId, rate_limit: Option<RateLimit>) {
        self.tenants.insert(id, rate_limit);
    }

    pub(crate) fn tenants(&self) -> &BTreeMap<TenantId, Option<RateLimit>> {
        &self.tenants
    }

    /// Writes down what a person decided about an endpoint: durable at once.
    pub(crate) fn put_endpoint(&mut self, endpoint: Endpoint) {
        self.undo.retain(|undo| !matches!(undo, Undo::Endpoint(old) if old.id == endpoint.id));
        self.endpoints.insert(endpoint.id, endpoint);
    }

    /// An endpoint and all its deliveries are erased.
    pub(crate) fn remove_endpoint(&mut self, id: EndpointId) {
        self.endpoints.remove(&id);
        self.rows.retain(|_, row| row.delivery.endpoint != id);
        self.open.retain(|(endpoint, _), _| *endpoint != id);
        self.lane_ids.retain(|(endpoint, _), _| *endpoint != id);
        self.lanes.retain(|_, lane| lane.endpoint != id);
        self.undo.retain(|undo| match undo {
            Undo::Delivery(old) => old.endpoint != id,
            Undo::Endpoint(old) => old.id != id,
            Undo::Follows(lane, _) => self.lanes.contains_key(lane),
        });
    }

    pub(crate) fn endpoints(&self) -> &BTreeMap<EndpointId, Endpoint> {
        &self.endpoints
    }

    /// Whose an event is and its key; nothing if it was never accepted here.
    pub(crate) fn events(&self) -> &BTreeMap<EventNo, Event> {
        &self.events
    }

    pub(crate) fn rows(&self) -> &BTreeMap<DeliveryId, Row> {
        &self.rows
    }

    pub(crate) fn delivery(&self, id: DeliveryId) -> Option<&Delivery> {
        self.rows.get(&id).map(|row| &row.delivery)
    }

    /// The open deliveries of a lane in order, or those of an endpoint that stand in no lane.
    pub(crate) fn open(
        &self,
        endpoint: EndpointId,
        lane: Option<LaneId>,
    ) -> impl Iterator<Item = &Delivery> {
        let open = self.open.get(&(endpoint, lane)).into_iter().flatten();
        open.map(|(_, id)| &self.rows[id].delivery)
    }

    /// The lanes of an endpoint that had something open, by ascending id.
    pub(crate) fn lanes(&self, endpoint: EndpointId) -> impl Iterator<Item = LaneId> {
        let all = (endpoint, Some(LaneId(0)))..=(endpoint, Some(LaneId(u64::MAX)));
        self.open.range(all).filter_map(|((_, lane), _)| *lane)
    }

    pub(crate) fn add_event(&mut self, number: EventNo, event: Event) {
        self.events.insert(number, event);
    }

    /// The lane that an event goes through to an endpoint, if it does.
    pub(crate) fn lane_key(&self, endpoint: EndpointId, event: EventNo) -> Option<LaneKey> {
        let key = self.events[&event].key.as_deref();
        match self.endpoints[&endpoint].policy.ordering.lane_for(key) {
            LaneChoice::NoLane => None,
            LaneChoice::OfKey(key) => Some(Some(key.to_owned())),
            LaneChoice::OfEndpoint => Some(None),
        }
    }

    /// Commits an event's delivery to one endpoint: durable when this returns.
    pub(crate) fn accept(
        &mut self,
        id: DeliveryId,
        endpoint: EndpointId,
        event: EventNo,
        replay: bool,
        now: Timestamp,
    ) -> Accepted {
        let lane = self.lane_key(endpoint, event);
        let place = lane.map(|key| self.next_place(endpoint, key, now));
        let accepted = Accepted { id, endpoint, place, replay };
        self.rows.insert(id, Row { delivery: accepted.into(), event, accepted_place: place });
        self.put(accepted.into());
        accepted
    }

    /// Whether a transition is legal for the state on record.
    pub(crate) fn takes(&self, transition: &Transition) -> bool {
        let old = self.delivery(transition.delivery).map(|delivery| delivery.state.stage());
        old.is_some_and(|old| old.may_be_recorded_as(transition.state.stage()))
    }

    /// Writes a transition that it [takes](Self::takes).
    pub(crate) fn record(&mut self, transition: &Transition) {
        let old = self.rows[&transition.delivery].delivery;
        self.undo.push(Undo::Delivery(old));
        let Transition { state, mut progress, .. } = *transition;
        // A person may have decided about an old row; what was counted since stays counted.
        progress.attempts = progress.attempts.max(old.progress.attempts);
        if let Some(place) = old.place.filter(|_| state.is_skipped()) {
            self.skipped(place);
        }
        let left = matches!(state, DeliveryState::Dead { holds: false, .. });
        let place = old.place.filter(|_| !left);
        self.put(Delivery { place, state, progress, ..old });
    }

    fn put(&mut self, new: Delivery) {
        let row = self.rows.get_mut(&new.id).expect("rows are not deleted one by one");
        let old = std::mem::replace(&mut row.delivery, new);
        let (lane, member) = stands(&old);
        self.open.entry(lane).or_default().remove(&member);
        if new.state.is_open() {
            let (lane, member) = stands(&new);
            self.open.entry(lane).or_default().insert(member);
        }
    }

    pub(crate) fn record_endpoint(&mut self, record: &EndpointRecord) {
        let endpoint = self.endpoints.get_mut(&record.endpoint);
        let Some(endpoint) = endpoint.filter(|endpoint| endpoint.status == record.was) else {
            return;
        };
        self.undo.push(Undo::Endpoint(endpoint.clone()));
        endpoint.status = record.status;
        endpoint.failing_since = record.failing_since;
    }

    /// Whether a crash would leave everything as it is.
    pub(crate) fn is_durable(&self) -> bool {
        self.undo.is_empty()
    }

    /// What a crash would leave of a delivery's state.
    pub(crate) fn durable_state(&self, id: DeliveryId) -> Option<DeliveryState> {
        let before = self.undo.iter().find_map(|undo| match undo {
            Undo::Delivery(old) if old.id == id => Some(old.state),
            _ => None,
        });
        before.or(self.delivery(id).map(|delivery| delivery.state))
    }

    /// Makes everything written so far durable.
    pub(crate) fn flush(&mut self) {
        self.undo.clear();
    }

    /// Forgets what was not durable.
    pub(crate) fn crash(&mut self) {
        while let Some(undo) = self.undo.pop() {
            match undo {
                Undo::Delivery(old) => self.put(old),
                Undo::Endpoint(old) => drop(self.endpoints.insert(old.id, old)),
                Undo::Follows(lane, old) => self.put_follows(lane, old),
            }
        }
    }

    /// A copy of what is durable.
    pub(crate) fn copy(&self) -> Self {
        let mut copy = self.clone();
        copy.crash();
        copy
    }

    /// From here on each lane begins a new line with its next delivery.
    pub(crate) fn begin_era(&mut self, id: u64) {
        self.era = id;
    }
}

/// The lane that a delivery stands in while it is open, and where.
fn stands(delivery: &Delivery) -> ((EndpointId, Option<LaneId>), (Option<Seq>, DeliveryId)) {
    let (lane, seq) =
        (delivery.place.map(|place| place.lane), delivery.place.map(|place| place.seq));
    ((delivery.endpoint, lane), (seq, delivery.id))
}
