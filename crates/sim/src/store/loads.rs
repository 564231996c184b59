//! What the engine asks the store for, and what sweeps find.

use railpost_engine::{
    Accepted, Delivery, DeliveryState, LaneId, LanePage, Load, LoadedPage, Timestamp,
};
use railpost_wire::{DeliveryId, EndpointId, Seq};

use super::{Row, Store};

impl Store {
    pub(crate) fn load(&self, load: &Load) -> LoadedPage {
        match *load {
            Load::Lanes { endpoint, after, limit, window } => {
                self.load_lanes(endpoint, after, limit as usize, window as usize)
            }
            Load::Lane { endpoint, lane, from, limit } => {
                LoadedPage::Lane(self.lane_page(endpoint, lane, from, limit as usize))
            }
            Load::Unkeyed { endpoint, after, due_by, due_beyond, limit } => {
                self.load_unkeyed(endpoint, after, (due_by, due_beyond), limit as usize)
            }
        }
    }

    fn load_lanes(
        &self,
        endpoint: EndpointId,
        after: Option<LaneId>,
        limit: usize,
        window: usize,
    ) -> LoadedPage {
        let lanes = self.lanes(endpoint).filter(|id| Some(*id) > after);
        let pages = lanes.map(|id| self.lane_page(endpoint, id, Seq::FIRST, window));
        let open = pages.filter(|page| !page.deliveries.is_empty());
        let (lanes, more) = first(open, limit);
        let next = lanes.last().filter(|_| more).map(|page| page.lane);
        LoadedPage::Lanes { lanes, next }
    }

    fn lane_page(&self, endpoint: EndpointId, lane: LaneId, from: Seq, limit: usize) -> LanePage {
        let row = self.lanes.get(&lane).filter(|row| row.endpoint == endpoint);
        let last = row.map(|row| row.last);
        let seq = |delivery: &Delivery| delivery.place.expect("it stands in a lane").seq;
        let open =
            self.open(endpoint, Some(lane)).copied().filter(|delivery| seq(delivery) >= from);
        let deliveries: Vec<Delivery> = open.take(limit).collect();
        // There may be more behind a full page.
        let listed = deliveries.last().map(seq).filter(|_| deliveries.len() == limit);
        let through = listed.or(last.filter(|last| *last >= from));
        let end = through.map_or(0, Seq::get) + 1;
        let follows = row.into_iter().flat_map(|row| row.follows.range(from.get()..));
        let follows = follows.take_while(|(seq, _)| **seq <= end);
        let follows = follows.filter_map(|(seq, before)| Some((Seq::new(*seq)?, *before)));
        LanePage { lane, from, through, last, deliveries, follows: follows.collect() }
    }

    fn load_unkeyed(
        &self,
        endpoint: EndpointId,
        after: Option<DeliveryId>,
        (due_by, due_beyond): (Timestamp, Timestamp),
        limit: usize,
    ) -> LoadedPage {
        let waits = |delivery: &Delivery| {
            waits_until(delivery).filter(|until| *until > due_by && *until <= due_beyond)
        };
        let open = || self.open(endpoint, None).copied();
        let due = open().filter(|delivery| waits(delivery).is_none() && Some(delivery.id) > after);
        let (deliveries, more) = first(due, limit);
        let next = deliveries.last().filter(|_| more).map(|delivery| delivery.id);
        let next_due = open().filter_map(|delivery| waits(&delivery)).min();
        LoadedPage::Unkeyed { deliveries, next, next_due }
    }

    /// The open deliveries with an id above `after`.
    pub(crate) fn sweep(&self, after: DeliveryId) -> Vec<Accepted> {
        let later = self.rows.range(after..).map(|(_, Row { delivery, .. })| delivery);
        let open = later.filter(|delivery| delivery.id > after && delivery.state.is_open());
        let accepted = |delivery: &Delivery| {
            let Delivery { id, endpoint, place, progress, .. } = *delivery;
            Accepted { id, endpoint, place, replay: progress.replay }
        };
        open.map(accepted).collect()
    }
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
    use super::super::Event;
    use super::*;
    use railpost_engine::{
        DeadReason, Endpoint, EndpointStatus, Policy, Progress, Span, Transition,
    };

    const ENDPOINT: EndpointId = EndpointId::from_u128(1);
    const NOW: Timestamp = Timestamp::from_millis(1_000_000);

    fn delivery(number: u128) -> DeliveryId {
        DeliveryId::from_u128(number)
    }

    /// A store with one endpoint and a lane of three.
    fn store() -> Store {
        let tenant: railpost_wire::TenantId = "tenant-1".parse().unwrap();
        let (policy, status) = (Policy::default(), EndpointStatus::Active);
        let mut store = Store::default();
        let endpoint = Endpoint {
            id: ENDPOINT,
            tenant: tenant.clone(),
            policy,
            status,
            status_since: None,
            failing_since: None,
            rotation: None,
        };
        store.put_endpoint(endpoint);
        store.add_event(1, Event { tenant, key: Some("key".to_owned()) });
        (1..=3).for_each(|number| accept(&mut store, number));
        store
    }

    fn accept(store: &mut Store, number: u128) {
        store.accept(delivery(number), ENDPOINT, 1, false, NOW);
    }

    fn record(store: &mut Store, number: u128, state: DeliveryState) {
        let (id, progress, at) = (delivery(number), Progress::default(), Timestamp::default());
        let place = store.rows[&id].delivery.place;
        let (endpoint, attempt) = (ENDPOINT, None);
        store.record(&Transition { delivery: id, endpoint, place, state, progress, attempt, at });
    }

    fn listed(store: &Store) -> Vec<u64> {
        let seqs = store.open(ENDPOINT, Some(LaneId(1)));
        seqs.map(|delivery| delivery.place.unwrap().seq.get()).collect()
    }

    fn page(store: &Store, from: u64, limit: usize) -> LanePage {
        store.lane_page(ENDPOINT, LaneId(1), Seq::new(from).unwrap(), limit)
    }

    fn follows(store: &Store) -> Vec<(u64, u64)> {
        page(store, 1, 99).follows.into_iter().map(|(seq, before)| (seq.get(), before)).collect()
    }

    /// The line and the number in it.
    fn numbered(store: &Store, number: u128) -> (String, u64) {
        let place = store.line_place(delivery(number)).unwrap();
        (place.line.to_string(), place.seq.get())
    }

    #[test]
    fn what_is_written_is_visible_at_once_and_durable_after_a_flush() {
        let mut store = store();
        record(&mut store, 1, DeliveryState::Delivered);
        assert_eq!(listed(&store), [2, 3]);
        assert_eq!(store.durable_state(delivery(1)), Some(DeliveryState::Pending));
        store.flush();
        record(&mut store, 2, DeliveryState::DISCARDED);
        assert_eq!(follows(&store), [(3, 1)]);
        store.crash();
        assert_eq!((listed(&store), follows(&store)), (vec![2, 3], vec![]));
        assert_eq!(store.durable_state(delivery(1)), Some(DeliveryState::Delivered));
    }

    #[test]
    fn a_page_of_a_lane_ends_where_its_limit_or_the_lane_does() {
        let mut store = store();
        record(&mut store, 2, DeliveryState::DISCARDED);
        for (from, limit, seqs, through) in [
            (1, 1, vec![1], Some(1)),
            (1, 2, vec![1, 3], Some(3)),
            (2, 9, vec![3], Some(3)),
            (4, 9, vec![], None),
        ] {
            let page = page(&store, from, limit);
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
        record(&mut store, 1, DeliveryState::Dead { reason: DeadReason::Permanent, holds: false });
        assert_eq!((listed(&store), store.open(ENDPOINT, None).count()), (vec![2, 3], 0));
        assert_eq!(follows(&store), [(2, 0)]);
        record(&mut store, 1, DeliveryState::Pending);
        assert_eq!((listed(&store), store.open(ENDPOINT, None).count()), (vec![2, 3], 1));
        assert_eq!(numbered(&store, 1).1, 1, "it keeps its line");
    }

    #[test]
    fn a_restored_copy_goes_on_in_new_lines_and_leaves_the_old_ones_alone() {
        let mut store = store();
        let mut copy = store.copy();
        accept(&mut store, 4);
        copy.begin_era(7);
        accept(&mut copy, 5);
        accept(&mut copy, 6);
        let (old, new) = (numbered(&store, 4).0, numbered(&copy, 5).0);
        assert_ne!(old, new);
        assert_eq!(numbered(&copy, 3), (old, 3));
        assert_eq!(numbered(&copy, 6), (new, 2));
        assert_eq!(listed(&copy), [1, 2, 3, 4, 5], "the lane's own numbers go on");
    }

    #[test]
    fn a_lane_that_stood_empty_goes_once_that_is_durable() {
        let mut store = store();
        (1..=3).for_each(|number| record(&mut store, number, DeliveryState::Delivered));
        let later = NOW + Span::from_millis(1);
        assert_eq!(store.prune_lanes(later), 0);
        store.flush();
        assert_eq!((store.prune_lanes(NOW), store.prune_lanes(later)), (0, 1));
        accept(&mut store, 4);
        assert_eq!(store.rows[&delivery(4)].delivery.place.unwrap().lane, LaneId(2));
        assert_eq!(numbered(&store, 4).1, 1);
    }

    #[test]
    fn a_sweep_finds_what_is_open_above_an_id() {
        let mut store = store();
        record(&mut store, 2, DeliveryState::Delivered);
        for (after, expected) in [(0, vec![1, 3]), (1, vec![3]), (3, vec![])] {
            let found = store.sweep(delivery(after)).into_iter().map(|one| one.id);
            let expected: Vec<_> = expected.into_iter().map(delivery).collect();
            assert_eq!(found.collect::<Vec<_>>(), expected);
        }
    }

    #[test]
    fn what_waits_longer_than_any_policy_plans_is_not_left_out() {
        let mut store = store();
        store.add_event(1, Event { tenant: "tenant-1".parse().unwrap(), key: None });
        for (number, secs) in [(7, 5), (8, 50), (9, 500)] {
            accept(&mut store, number);
            let until = NOW + Span::from_secs(secs);
            record(&mut store, number, DeliveryState::Waiting { until });
        }
        let (due_by, due_beyond) = (NOW + Span::from_secs(10), NOW + Span::from_secs(100));
        let page = store.load_unkeyed(ENDPOINT, None, (due_by, due_beyond), 9);
        let LoadedPage::Unkeyed { deliveries, next_due, .. } = page else { panic!("{page:?}") };
        assert_eq!(deliveries.iter().map(|it| it.id).collect::<Vec<_>>(), [7, 9].map(delivery));
        assert_eq!(next_due, Some(NOW + Span::from_secs(50)));
    }
}
