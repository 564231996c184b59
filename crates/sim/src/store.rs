//! The store: what is written is visible at once, durable a little later, and forgotten if a crash
//! comes in between.

use std::collections::{BTreeMap, BTreeSet};

use railpost_engine::{
    Accepted, Delivery, DeliveryState, Endpoint, EndpointRecord, LaneChoice, LaneId, LanePage,
    Load, Page, Place, RateLimit, Timestamp, Transition,
};
use railpost_wire::{DeliveryId, EndpointId, Seq, TenantId};

/// The number of an event; stands in for its id.
pub(crate) type EventNo = u64;

#[derive(Default)]
pub(crate) struct Store {
    tenants: BTreeMap<TenantId, Option<RateLimit>>,
    endpoints: BTreeMap<EndpointId, Endpoint>,
    rows: BTreeMap<DeliveryId, Row>,
    lanes: BTreeMap<(EndpointId, Option<String>), Place>,
    lines: BTreeMap<(EndpointId, Option<LaneId>), Line>,
    /// What to put back if a crash comes before the next flush, in order of writing.
    undo: Vec<Undo>,
}

#[derive(Clone, Copy)]
pub(crate) struct Row {
    pub(crate) delivery: Delivery,
    pub(crate) event: EventNo,
}

/// The open deliveries of a lane by seq, or those of an endpoint without a lane by id.
type Line = BTreeSet<(Option<Seq>, DeliveryId)>;

enum Undo {
    Delivery(Delivery),
    Endpoint(Endpoint),
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
        self.lines.retain(|(endpoint, _), _| *endpoint != id);
        self.undo.retain(|undo| match undo {
            Undo::Delivery(old) => old.endpoint != id,
            Undo::Endpoint(old) => old.id != id,
        });
    }

    pub(crate) fn endpoints(&self) -> &BTreeMap<EndpointId, Endpoint> {
        &self.endpoints
    }

    pub(crate) fn rows(&self) -> &BTreeMap<DeliveryId, Row> {
        &self.rows
    }

    pub(crate) fn delivery(&self, id: DeliveryId) -> Option<&Delivery> {
        self.rows.get(&id).map(|row| &row.delivery)
    }

    /// The open deliveries that stand in one line: those of a lane in order, or those of an endpoint
    /// that stand in no lane.
    pub(crate) fn line(
        &self,
        endpoint: EndpointId,
        lane: Option<LaneId>,
    ) -> impl Iterator<Item = &Delivery> {
        let line = self.lines.get(&(endpoint, lane)).into_iter().flatten();
        line.map(|(_, id)| &self.rows[id].delivery)
    }

    /// The lanes of an endpoint, by ascending id.
    pub(crate) fn lanes(&self, endpoint: EndpointId) -> impl Iterator<Item = LaneId> {
        let all = (endpoint, Some(LaneId(0)))..=(endpoint, Some(LaneId(u64::MAX)));
        self.lines.range(all).filter_map(|((_, lane), _)| *lane)
    }

    /// Commits an event's delivery to one endpoint: durable when this returns.
    pub(crate) fn accept(
        &mut self,
        id: DeliveryId,
        endpoint: EndpointId,
        key: Option<&str>,
        event: EventNo,
    ) -> Accepted {
        let place = match self.endpoints[&endpoint].policy.ordering.lane_for(key) {
            LaneChoice::NoLane => None,
            LaneChoice::OfKey(key) => Some(self.next_place(endpoint, Some(key.to_owned()))),
            LaneChoice::OfEndpoint => Some(self.next_place(endpoint, None)),
        };
        let accepted = Accepted { id, endpoint, place };
        self.rows.insert(id, Row { delivery: accepted.into(), event });
        self.put(accepted.into());
        accepted
    }

    fn next_place(&mut self, endpoint: EndpointId, key: Option<String>) -> Place {
        let lane = LaneId(self.lanes.len() as u64 + 1);
        let last = self.lanes.entry((endpoint, key));
        let next = |last: &mut Place| last.seq = last.seq.next();
        *last.and_modify(next).or_insert(Place { lane, seq: Seq::FIRST })
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
        let left = matches!(state, DeliveryState::Dead { holds: false, .. });
        let place = old.place.filter(|_| !left);
        self.put(Delivery { place, state, progress, ..old });
    }

    fn put(&mut self, new: Delivery) {
        let row = self.rows.get_mut(&new.id).expect("rows are not deleted one by one");
        let old = std::mem::replace(&mut row.delivery, new);
        let (line, member) = stands(&old);
        self.lines.entry(line).or_default().remove(&member);
        if new.state.is_open() {
            let (line, member) = stands(&new);
            self.lines.entry(line).or_default().insert(member);
        }
    }

    pub(crate) fn record_endpoint(&mut self, record: &EndpointRecord) {
        let Some(endpoint) = self.endpoints.get_mut(&record.endpoint) else { return };
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
            }
        }
    }

    pub(crate) fn load(&self, load: &Load) -> Page {
        match *load {
            Load::Lanes { endpoint, after, limit, window } => {
                self.load_lanes(endpoint, after, limit as usize, window as usize)
            }
            Load::Lane { endpoint, lane, from, limit } => {
                Page::Lane(self.lane_page(endpoint, lane, from, limit as usize))
            }
            Load::Unkeyed { endpoint, after, due_by, limit } => {
                self.load_unkeyed(endpoint, after, due_by, limit as usize)
            }
        }
    }

    fn load_lanes(
        &self,
        endpoint: EndpointId,
        after: Option<LaneId>,
        limit: usize,
        window: usize,
    ) -> Page {
        let lanes = self.lanes(endpoint).filter(|id| Some(*id) > after);
        let pages = lanes.map(|id| self.lane_page(endpoint, id, Seq::FIRST, window));
        let open = pages.filter(|page| !page.deliveries.is_empty());
        let (lanes, more) = first(open, limit);
        let next = lanes.last().filter(|_| more).map(|page| page.lane);
        Page::Lanes { lanes, next }
    }

    fn lane_page(&self, endpoint: EndpointId, lane: LaneId, from: Seq, limit: usize) -> LanePage {
        let last = self.lanes.values().find(|last| last.lane == lane).map(|last| last.seq);
        let seq = |delivery: &Delivery| delivery.place.expect("it stands in a lane").seq;
        let open =
            self.line(endpoint, Some(lane)).copied().filter(|delivery| seq(delivery) >= from);
        let (deliveries, more) = first(open, limit);
        let listed = deliveries.last().map(seq).filter(|_| more);
        let through = listed.or(last.filter(|last| *last >= from));
        LanePage { lane, from, through, last, deliveries }
    }

    fn load_unkeyed(
        &self,
        endpoint: EndpointId,
        after: Option<DeliveryId>,
        due_by: Timestamp,
        limit: usize,
    ) -> Page {
        let later = |delivery: &Delivery| waits_until(delivery).filter(|until| *until > due_by);
        let open = || self.line(endpoint, None).copied();
        let due = open().filter(|delivery| later(delivery).is_none() && Some(delivery.id) > after);
        let (deliveries, more) = first(due, limit);
        let next = deliveries.last().filter(|_| more).map(|delivery| delivery.id);
        let next_due = open().filter_map(|delivery| later(&delivery)).min();
        Page::Unkeyed { deliveries, next, next_due }
    }
}

/// The line that a delivery stands in while it is open, and where.
fn stands(delivery: &Delivery) -> ((EndpointId, Option<LaneId>), (Option<Seq>, DeliveryId)) {
    let (lane, seq) =
        (delivery.place.map(|place| place.lane), delivery.place.map(|place| place.seq));
    ((delivery.endpoint, lane), (seq, delivery.id))
}

/// The first `limit`, and whether there are more.
fn first<T>(all: impl Iterator<Item = T>, limit: usize) -> (Vec<T>, bool) {
    let mut all: Vec<T> = all.take(limit + 1).collect();
    let more = all.len() > limit;
    all.truncate(limit);
    (all, more)
}

fn waits_until(delivery: &Delivery) -> Option<Timestamp> {
    match delivery.state {
        DeliveryState::Waiting { until } => Some(until),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use railpost_engine::{EndpointStatus, Policy, Progress};

    const ENDPOINT: EndpointId = EndpointId::from_u128(1);

    fn delivery(number: u128) -> DeliveryId {
        DeliveryId::from_u128(number)
    }

    /// A store with one endpoint and a lane of three.
    fn store() -> Store {
        let tenant = "tenant-1".parse().unwrap();
        let (policy, status) = (Policy::default(), EndpointStatus::Active);
        let mut store = Store::default();
        let endpoint = Endpoint { id: ENDPOINT, tenant, policy, status, failing_since: None };
        store.put_endpoint(endpoint);
        (1..=3).for_each(|number| {
            store.accept(delivery(number), ENDPOINT, Some("key"), number as EventNo);
        });
        store
    }

    fn record(store: &mut Store, number: u128, state: DeliveryState) {
        let (id, progress, at) = (delivery(number), Progress::default(), Timestamp::default());
        let place = store.rows[&id].delivery.place;
        let (endpoint, attempt) = (ENDPOINT, None);
        store.record(&Transition { delivery: id, endpoint, place, state, progress, attempt, at });
    }

    fn listed(store: &Store) -> Vec<u64> {
        let seqs = store.line(ENDPOINT, Some(LaneId(1)));
        seqs.map(|delivery| delivery.place.unwrap().seq.get()).collect()
    }

    #[test]
    fn what_is_written_is_visible_at_once_and_durable_after_a_flush() {
        let mut store = store();
        record(&mut store, 1, DeliveryState::Delivered);
        assert_eq!(listed(&store), [2, 3]);
        assert_eq!(store.durable_state(delivery(1)), Some(DeliveryState::Pending));
        store.flush();
        record(&mut store, 2, DeliveryState::Delivered);
        store.crash();
        assert_eq!(listed(&store), [2, 3]);
        assert_eq!(store.durable_state(delivery(1)), Some(DeliveryState::Delivered));
    }

    #[test]
    fn a_page_of_a_lane_ends_where_its_limit_or_the_lane_does() {
        let mut store = store();
        record(&mut store, 2, DeliveryState::Discarded);
        for (from, limit, seqs, through) in [
            (1, 1, vec![1], Some(1)),
            (1, 2, vec![1, 3], Some(3)),
            (2, 9, vec![3], Some(3)),
            (4, 9, vec![], None),
        ] {
            let page = store.lane_page(ENDPOINT, LaneId(1), Seq::new(from).unwrap(), limit);
            let found: Vec<u64> =
                page.deliveries.iter().map(|it| it.place.unwrap().seq.get()).collect();
            assert_eq!(
                (found, page.through.map(Seq::get)),
                (seqs, through),
                "from {from}, {limit}"
            );
        }
    }

    #[test]
    fn a_dead_letter_that_leaves_its_lane_is_found_outside_of_it_once_replayed() {
        let mut store = store();
        let reason = railpost_engine::DeadReason::Permanent;
        record(&mut store, 1, DeliveryState::Dead { reason, holds: false });
        assert_eq!((listed(&store), store.line(ENDPOINT, None).count()), (vec![2, 3], 0));
        record(&mut store, 1, DeliveryState::Pending);
        assert_eq!((listed(&store), store.line(ENDPOINT, None).count()), (vec![2, 3], 1));
    }
}
