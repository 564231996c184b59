//! What memory does not have is asked for: backlogs, gaps, windows.

use railpost_engine::{
    Because, Command, Config, DeadReason, Delivery, DeliveryState, Input, LaneId, LanePage, Load,
    Page, Progress, Span,
};
use railpost_wire::{DeliveryId, EndpointId};
use serde_json::json;

use crate::harness::{Shop, TIMEOUT, at, seq};

const PENDING: DeliveryState = DeliveryState::Pending;

/// Deliveries of lane 1 as a store has them, by seq.
fn stored(shop: &mut Shop, endpoint: EndpointId, states: &[(u64, DeliveryState)]) -> Vec<Delivery> {
    states
        .iter()
        .map(|(number, state)| {
            let accepted = shop.new_delivery(endpoint, at(1, *number));
            Delivery { state: *state, ..accepted.into() }
        })
        .collect()
}

fn lane_page(from: u64, through: u64, last: u64, deliveries: &[Delivery]) -> LanePage {
    LanePage {
        lane: LaneId(1),
        from: seq(from),
        through: Some(seq(through)),
        last: Some(seq(last)),
        deliveries: deliveries.to_vec(),
        follows: vec![],
    }
}

fn no_more_lanes(lanes: Vec<LanePage>) -> Page {
    Page::Lanes { lanes, next: None }
}

fn unkeyed_page(deliveries: &[Delivery], next: Option<DeliveryId>) -> Page {
    Page::Unkeyed { deliveries: deliveries.to_vec(), next, next_due: None }
}

/// An endpoint that appeared with the given backlog in lane 1.
fn with_backlog(shop: &mut Shop, states: &[(u64, DeliveryState)]) -> (EndpointId, Vec<DeliveryId>) {
    let endpoint = shop.endpoint_id();
    shop.endpoint_appears(endpoint, "acme", json!({}));
    let deliveries = stored(shop, endpoint, states);
    let last = states.last().map_or(1, |(number, _)| *number);
    shop.answer_load(no_more_lanes(vec![lane_page(1, last, last, &deliveries)]));
    shop.answer_loads_with_nothing();
    (endpoint, deliveries.iter().map(|delivery| delivery.id).collect())
}

fn asked_from(shop: &Shop) -> Vec<u64> {
    let from = shop.loads.iter().map(|(_, load)| match load {
        Load::Lane { from, .. } => from.get(),
        other => panic!("not a lane: {other:?}"),
    });
    from.collect()
}

#[test]
fn an_endpoint_that_appears_asks_for_its_backlog() {
    let mut shop = Shop::new();
    let endpoint = shop.endpoint_id();
    shop.endpoint_appears(endpoint, "acme", json!({}));
    let kinds: Vec<_> = shop.loads.iter().map(|(_, load)| *load).collect();
    let due_by = shop.now() + Span::from_secs(10);
    let due_beyond = shop.now() + Span::from_mins(10);
    assert_eq!(
        kinds,
        [
            Load::Lanes { endpoint, after: None, limit: 500, window: 16 },
            Load::Unkeyed { endpoint, after: None, due_by, due_beyond, limit: 1_024 },
        ]
    );
}

#[test]
fn a_backlog_is_loaded_page_by_page() {
    let mut shop = Shop::new();
    let endpoint = shop.endpoint_id();
    shop.endpoint_appears(endpoint, "acme", json!({}));
    let deliveries = stored(&mut shop, endpoint, &[(1, PENDING)]);
    let lanes = vec![lane_page(1, 1, 1, &deliveries)];
    shop.answer_load(Page::Lanes { lanes, next: Some(LaneId(1)) });
    assert_eq!(shop.in_flight(), [deliveries[0].id], "the first page starts at once");
    let next = shop.loads.last().unwrap().1;
    assert!(matches!(next, Load::Lanes { after: Some(LaneId(1)), .. }), "{next:?}");
}

#[test]
fn what_a_page_does_not_list_is_closed() {
    let mut shop = Shop::new();
    let (_, ids) = with_backlog(&mut shop, &[(3, PENDING), (5, PENDING)]);
    shop.acknowledge(ids[0]);
    assert_eq!(shop.in_flight(), [ids[1]], "4 was delivered before the crash");
    assert_eq!(shop.loads, []);
}

#[test]
fn a_loaded_delivery_goes_on_from_its_recorded_state() {
    let mut shop = Shop::new();
    let until = shop.now() + Span::from_secs(30);
    let dead = DeliveryState::Dead { reason: DeadReason::Permanent, holds: true };
    let waiting = DeliveryState::Waiting { until };
    let (_, ids) = with_backlog(&mut shop, &[(1, PENDING), (2, waiting), (3, dead), (4, PENDING)]);
    shop.acknowledge(ids[0]);
    assert_eq!(shop.in_flight(), [], "2 still waits");
    shop.pass_secs(30);
    shop.acknowledge(ids[1]);
    shop.pass_secs(3_600);
    assert_eq!(shop.in_flight(), [], "3 holds the lane");
    let delivery = Delivery { state: dead, ..shop.stored(ids[2]) };
    shop.handle(Input::Command { command: Command::Skip, delivery });
    assert_eq!(shop.in_flight(), [ids[3]]);
}

#[test]
fn an_at_most_once_delivery_recorded_as_sent_is_not_sent_again_after_a_crash() {
    let mut shop = Shop::new();
    let (_, ids) = with_backlog(&mut shop, &[(1, DeliveryState::InFlight), (2, PENDING)]);
    let reason = DeadReason::OutcomeUnknown;
    assert_eq!(shop.state(ids[0]), DeliveryState::Dead { reason, holds: false });
    assert_eq!(shop.in_flight(), [ids[1]]);
}

#[test]
fn a_lane_that_learns_of_7_before_6_waits_and_asks_for_6() {
    let mut shop = Shop::new();
    let (endpoint, ids) = with_backlog(&mut shop, &[(5, PENDING)]);
    shop.acknowledge(ids[0]);
    let seven = shop.accept(endpoint, at(1, 7));
    assert_eq!(shop.in_flight(), []);
    assert_eq!(asked_from(&shop), [6]);
    let mut page = stored(&mut shop, endpoint, &[(6, PENDING)]);
    page.push(shop.stored(seven));
    shop.answer_load(Page::Lane(lane_page(6, 7, 7, &page)));
    assert_eq!(shop.in_flight(), [page[0].id]);
    shop.acknowledge(page[0].id);
    assert_eq!(shop.in_flight(), [seven]);
}

#[test]
fn a_hint_that_fills_the_gap_is_taken_while_the_load_is_under_way() {
    let mut shop = Shop::new();
    let (endpoint, ids) = with_backlog(&mut shop, &[(5, PENDING)]);
    shop.acknowledge(ids[0]);
    shop.accept(endpoint, at(1, 7));
    let six = shop.accept(endpoint, at(1, 6));
    assert_eq!(shop.in_flight(), [six]);
    let page = [shop.stored(six)];
    shop.answer_load(Page::Lane(lane_page(6, 6, 7, &page)));
    assert_eq!(shop.started.len(), 2, "the page brought 6 a second time");
    assert_eq!(asked_from(&shop), [7], "and there is still 7 to ask for");
}

#[test]
fn a_lane_unknown_in_memory_is_asked_for_from_its_start() {
    let mut shop = Shop::new();
    let endpoint = shop.endpoint(json!({}));
    let forty_two = shop.accept(endpoint, at(1, 42));
    assert_eq!(shop.in_flight(), []);
    assert_eq!(asked_from(&shop), [1]);
    let page = [shop.stored(forty_two)];
    shop.answer_load(Page::Lane(lane_page(1, 42, 42, &page)));
    assert_eq!(shop.in_flight(), [forty_two]);
}

#[test]
fn a_lane_holds_a_window_and_asks_for_more_when_half_of_it_is_free() {
    let mut shop = Shop::with(Config { lane_window: 4, ..Config::default() });
    let endpoint = shop.endpoint(json!({}));
    let lane = shop.accept_lane(endpoint, 1, 10);
    shop.acknowledge(lane[0]);
    assert_eq!(shop.loads, [], "three are left");
    shop.acknowledge(lane[1]);
    assert_eq!(asked_from(&shop), [5]);
    let page: Vec<_> = lane[4..8].iter().map(|id| shop.stored(*id)).collect();
    shop.answer_load(Page::Lane(lane_page(5, 8, 10, &page)));
    shop.acknowledge(lane[2]);
    shop.acknowledge(lane[3]);
    assert_eq!(shop.in_flight(), [lane[4]]);
}

#[test]
fn over_its_budget_the_engine_holds_nothing_but_heads() {
    let mut shop = Shop::with(Config { deliveries_max: 3, ..Config::default() });
    let endpoint = shop.endpoint(json!({}));
    let first = shop.accept_lane(endpoint, 1, 3);
    let second = shop.accept_lane(endpoint, 2, 2);
    assert_eq!(shop.in_flight(), [first[0], second[0]], "a head is always held");
    shop.acknowledge(second[0]);
    assert_eq!(asked_from(&shop), [2]);
}

#[test]
fn a_load_that_fails_is_asked_for_again_after_a_while() {
    let mut shop = Shop::new();
    let endpoint = shop.endpoint(json!({}));
    shop.accept(endpoint, at(1, 42));
    let (ticket, _) = shop.loads.remove(0);
    shop.handle(Input::LoadFailed(ticket));
    assert_eq!(shop.loads, []);
    shop.pass_secs(1);
    assert_eq!(asked_from(&shop), [1]);
}

#[test]
fn a_page_that_brings_nothing_does_not_make_a_busy_loop() {
    let mut shop = Shop::new();
    let endpoint = shop.endpoint(json!({}));
    shop.accept(endpoint, at(1, 42));
    let empty = LanePage { through: None, ..lane_page(1, 1, 42, &[]) };
    shop.answer_load(Page::Lane(empty));
    assert_eq!(shop.loads, []);
    shop.pass_secs(1);
    assert_eq!(asked_from(&shop), [1]);
}

#[test]
fn the_store_has_the_last_word_on_where_a_lane_ends() {
    let mut shop = Shop::new();
    let endpoint = shop.endpoint(json!({}));
    shop.accept(endpoint, at(1, 42));
    shop.answer_load(Page::Lane(lane_page(1, 7, 7, &[])));
    shop.pass_secs(60);
    assert_eq!(shop.loads, [], "there never was a 42");
}

#[test]
fn a_page_that_was_not_asked_for_is_ignored() {
    let mut shop = Shop::new();
    let endpoint = shop.endpoint_id();
    shop.endpoint_appears(endpoint, "acme", json!({}));
    let (ticket, _) = shop.loads[0];
    shop.handle(Input::EndpointRemoved(endpoint));
    let deliveries = stored(&mut shop, endpoint, &[(1, PENDING)]);
    let page = no_more_lanes(vec![lane_page(1, 1, 1, &deliveries)]);
    shop.handle(Input::Loaded { ticket, page });
    assert_eq!(shop.last_ignored(), Some(Because::LoadUnknown));
    assert_eq!(shop.in_flight(), []);
}

#[test]
fn a_page_of_the_wrong_kind_is_ignored_and_asked_for_again() {
    let mut shop = Shop::new();
    let endpoint = shop.endpoint_id();
    shop.endpoint_appears(endpoint, "acme", json!({}));
    let lanes = shop.loads[0].1;
    shop.answer_load(unkeyed_page(&[], None));
    assert_eq!(shop.last_ignored(), Some(Because::PageMismatch));
    shop.loads.clear();
    shop.pass_secs(1);
    assert_eq!(shop.loads[0].1, lanes);
}

#[test]
fn a_delivery_in_the_wrong_page_is_ignored() {
    let mut shop = Shop::new();
    let endpoint = shop.endpoint(json!({}));
    let other = shop.endpoint(json!({}));
    shop.accept(endpoint, at(1, 42));
    let strangers = [
        Delivery { endpoint: other, ..stored(&mut shop, endpoint, &[(1, PENDING)])[0] },
        Delivery { place: at(2, 1), ..stored(&mut shop, endpoint, &[(1, PENDING)])[0] },
        Delivery { place: None, ..stored(&mut shop, endpoint, &[(1, PENDING)])[0] },
        stored(&mut shop, endpoint, &[(43, PENDING)])[0],
    ];
    shop.answer_load(Page::Lane(lane_page(1, 42, 42, &strangers)));
    assert_eq!(shop.in_flight(), []);
    assert_eq!(shop.engine.counters().ignored[Because::LaneMismatch as usize], 4);
}

#[test]
fn a_forgotten_idle_lane_is_asked_for_when_it_comes_back() {
    let mut shop = Shop::with(Config { idle_lanes_max: 1, ..Config::default() });
    let endpoint = shop.endpoint(json!({}));
    for lane in [1, 2] {
        let id = shop.accept(endpoint, at(lane, 1));
        shop.acknowledge(id);
    }
    let remembered = shop.accept(endpoint, at(2, 2));
    assert_eq!((shop.in_flight(), shop.loads.len()), (vec![remembered], 0));
    shop.accept(endpoint, at(1, 2));
    assert_eq!(asked_from(&shop), [1]);
}

#[test]
fn a_second_hint_for_the_same_delivery_is_ignored() {
    let mut shop = Shop::new();
    let endpoint = shop.endpoint(json!({}));
    for place in [at(1, 1), None] {
        let accepted = shop.new_delivery(endpoint, place);
        shop.handle(Input::Accepted(vec![accepted, accepted]));
        assert_eq!(shop.last_ignored(), Some(Because::DeliveryKnown));
    }
    assert_eq!(shop.started.len(), 2);
}

#[test]
fn a_late_hint_for_what_is_closed_and_forgotten_sends_nothing() {
    let mut shop = Shop::with(Config { idle_lanes_max: 0, ..Config::default() });
    let endpoint = shop.endpoint(json!({}));
    for place in [at(1, 1), None] {
        let accepted = shop.new_delivery(endpoint, place);
        shop.handle(Input::Accepted(vec![accepted]));
        shop.acknowledge(accepted.id);
        shop.handle(Input::Accepted(vec![accepted]));
        assert_eq!(shop.in_flight(), [], "the store is asked instead");
    }
    let page = LanePage { deliveries: vec![], ..lane_page(1, 1, 1, &[]) };
    shop.answer_load(Page::Lane(page));
    shop.answer_load(unkeyed_page(&[], None));
    assert_eq!((shop.started.len(), shop.loads.len()), (2, 0));
}

#[test]
fn a_hint_from_before_its_endpoint_appeared_here_is_looked_up_in_the_store() {
    let mut shop = Shop::new();
    let endpoint = shop.endpoint_id();
    let old = [shop.new_delivery(endpoint, at(1, 1)), shop.new_delivery(endpoint, None)];
    shop.pass_secs(1);
    shop.endpoint_appears(endpoint, "acme", json!({}));
    shop.answer_loads_with_nothing();
    shop.handle(Input::Accepted(old.to_vec()));
    assert_eq!((shop.in_flight().len(), shop.loads.len()), (0, 2));
}

#[test]
fn hints_that_come_out_of_order_are_taken_at_their_word() {
    let mut shop = Shop::new();
    let endpoint = shop.endpoint(json!({}));
    let mut hints: Vec<_> = (1..=4).map(|lane| shop.new_delivery(endpoint, at(lane, 1))).collect();
    hints.extend((0..4).map(|_| shop.new_delivery(endpoint, None)));
    hints.reverse();
    shop.handle(Input::Accepted(hints));
    assert_eq!((shop.in_flight().len(), shop.loads.len()), (8, 0));
}

#[test]
fn a_sweep_finds_what_a_lost_hint_failed_to_mention() {
    let mut shop = Shop::new();
    let endpoint = shop.endpoint(json!({}));
    let lost = shop.new_delivery(endpoint, at(1, 1));
    shop.handle(Input::Swept(vec![lost]));
    assert_eq!(shop.in_flight(), [], "the store is asked first");
    shop.answer_load(Page::Lane(lane_page(1, 1, 1, &[lost.into()])));
    assert_eq!(shop.in_flight(), [lost.id]);
}

#[test]
fn a_sweep_finds_a_lost_delivery_without_a_lane() {
    let mut shop = Shop::new();
    let endpoint = shop.endpoint(json!({}));
    let lost = shop.new_delivery(endpoint, None);
    shop.handle(Input::Swept(vec![lost]));
    assert_eq!(shop.in_flight(), []);
    shop.answer_load(unkeyed_page(&[lost.into()], None));
    assert_eq!(shop.in_flight(), [lost.id]);
}

#[test]
fn a_sweep_of_what_is_known_or_of_no_endpoint_here_asks_for_nothing() {
    let mut shop = Shop::new();
    let endpoint = shop.endpoint(json!({}));
    let known = [shop.new_delivery(endpoint, at(1, 1)), shop.new_delivery(endpoint, None)];
    shop.handle(Input::Accepted(known.to_vec()));
    let elsewhere = shop.endpoint_id();
    let stranger = shop.new_delivery(elsewhere, None);
    shop.handle(Input::Swept(vec![known[0], known[1], stranger]));
    assert_eq!((shop.loads.len(), shop.ignored.len()), (0, 0));
    shop.acknowledge(known[0].id);
    shop.handle(Input::Swept(vec![known[0]]));
    assert_eq!(shop.loads, [], "it was read before it closed");
}

#[test]
fn unkeyed_deliveries_beyond_the_window_are_scanned_as_room_allows() {
    let mut shop = Shop::with(Config { unkeyed_window: 4, ..Config::default() });
    let endpoint = shop.endpoint(json!({"in_flight_max": 1}));
    let ids: Vec<_> = (0..7).map(|_| shop.accept(endpoint, None)).collect();
    assert_eq!(shop.loads, [], "there is no room for more");
    shop.acknowledge(ids[0]);
    shop.acknowledge(ids[1]);
    let Load::Unkeyed { after: None, limit: 2, .. } = shop.loads[0].1 else {
        panic!("{:?}", shop.loads)
    };
    let page: Vec<_> = ids[2..6].iter().map(|id| shop.stored(*id)).collect();
    shop.answer_load(unkeyed_page(&page, Some(ids[5])));
    for id in &ids[2..4] {
        shop.acknowledge(*id);
    }
    let Load::Unkeyed { after, .. } = shop.loads[0].1 else { panic!("{:?}", shop.loads) };
    assert_eq!(after, Some(ids[5]));
    let page = [shop.stored(ids[6])];
    shop.answer_load(unkeyed_page(&page, None));
    for id in &ids[4..] {
        assert_eq!(shop.in_flight(), [*id]);
        shop.acknowledge(*id);
    }
    assert_eq!(shop.started.len(), 7, "each was sent once");
}

#[test]
fn a_page_read_before_a_delivery_was_closed_does_not_bring_it_back() {
    let mut shop = Shop::with(Config { unkeyed_window: 2, ..Config::default() });
    let endpoint = shop.endpoint(json!({}));
    let ids: Vec<_> = (0..3).map(|_| shop.accept(endpoint, None)).collect();
    shop.acknowledge(ids[0]);
    let page: Vec<_> = ids[1..].iter().map(|id| shop.stored(*id)).collect();
    shop.acknowledge(ids[1]);
    shop.answer_load(unkeyed_page(&page, None));
    assert_eq!(shop.in_flight(), [ids[2]]);
}

#[test]
fn what_waits_for_long_gives_its_room_to_what_does_not() {
    let mut shop = Shop::with(Config { unkeyed_window: 2, ..Config::default() });
    let retry = json!({"backoff": {"strategy": "fixed", "delay": "5m"}});
    let endpoint = shop.endpoint(json!({"retry": retry, "breaker": null}));
    let poison: Vec<_> = (0..2).map(|_| shop.accept(endpoint, None)).collect();
    poison.iter().for_each(|id| shop.end(*id, TIMEOUT));
    let fresh = shop.accept(endpoint, None);
    assert_eq!(shop.in_flight(), [fresh], "poison does not fill the window");
    shop.acknowledge(fresh);
    shop.pass_secs(290);
    let Load::Unkeyed { due_by, .. } = shop.loads[0].1 else { panic!("{:?}", shop.loads) };
    assert_eq!(due_by, shop.now() + Span::from_secs(10), "in time for what was set aside");
    let page: Vec<_> = poison.iter().map(|id| shop.stored(*id)).collect();
    shop.answer_load(unkeyed_page(&page, None));
    shop.pass_secs(10);
    let mut in_flight = shop.in_flight();
    in_flight.sort();
    assert_eq!(in_flight, poison);
}

#[test]
fn a_waiting_delivery_that_a_page_left_out_is_scanned_for_before_it_is_due() {
    let mut shop = Shop::new();
    let endpoint = shop.endpoint_id();
    shop.endpoint_appears(endpoint, "acme", json!({}));
    shop.answer_load(no_more_lanes(vec![]));
    let next_due = Some(shop.now() + Span::from_secs(600));
    shop.answer_load(Page::Unkeyed { deliveries: vec![], next: None, next_due });
    shop.pass_secs(589);
    assert_eq!(shop.loads, []);
    shop.pass_secs(1);
    assert!(matches!(shop.loads[0].1, Load::Unkeyed { .. }));
}

#[test]
fn a_command_for_what_is_not_loaded_yet_asks_for_its_lane() {
    let mut shop = Shop::new();
    let endpoint = shop.endpoint(json!({}));
    let dead = DeliveryState::Dead { reason: DeadReason::Permanent, holds: true };
    let delivery = stored(&mut shop, endpoint, &[(3, dead)])[0];
    shop.handle(Input::Command { command: Command::Replay, delivery });
    assert_eq!(shop.last_ignored(), Some(Because::NotLoaded));
    shop.answer_load(Page::Lane(lane_page(1, 3, 3, &[delivery])));
    shop.handle(Input::Command { command: Command::Replay, delivery });
    assert_eq!(shop.in_flight(), [delivery.id]);
}

#[test]
fn a_delivery_beyond_the_window_can_be_discarded_where_it_is() {
    let mut shop = Shop::with(Config { lane_window: 1, ..Config::default() });
    let endpoint = shop.endpoint(json!({}));
    let lane = shop.accept_lane(endpoint, 1, 3);
    shop.command(Command::Discard, lane[2]);
    assert_eq!(shop.state(lane[2]), DeliveryState::DISCARDED);
    assert_eq!(shop.in_flight(), [lane[0]]);
}

#[test]
fn a_loaded_delivery_keeps_its_count_of_attempts() {
    let mut shop = Shop::new();
    let endpoint = shop.endpoint_id();
    shop.endpoint_appears(endpoint, "acme", json!({"retry": {"max_attempts": 4}, "breaker": null}));
    let progress = Progress { attempts: 9, round_attempts: 3, ..Progress::default() };
    let state = DeliveryState::Waiting { until: shop.now() };
    let delivery = Delivery { progress, state, ..stored(&mut shop, endpoint, &[(1, PENDING)])[0] };
    shop.answer_load(no_more_lanes(vec![lane_page(1, 1, 1, &[delivery])]));
    assert_eq!(shop.under_way[0].number, 10);
    shop.end(delivery.id, TIMEOUT);
    let reason = DeadReason::AttemptsExhausted;
    assert_eq!(shop.state(delivery.id), DeliveryState::Dead { reason, holds: true });
}

#[test]
fn an_instant_further_ahead_than_the_policy_plans_is_due_at_once() {
    let mut shop = Shop::new();
    let (plausible, far) =
        (shop.now() + Span::from_mins(10), shop.now() + Span::from_mins(10) + Span::from_secs(1));
    for (until, in_flight) in [(plausible, 0), (far, 1)] {
        let before = shop.in_flight().len();
        with_backlog(&mut shop, &[(1, DeliveryState::Waiting { until })]);
        assert_eq!(shop.in_flight().len() - before, in_flight);
    }
    shop.pass(Span::from_mins(10));
    assert_eq!(shop.in_flight().len(), 2, "the plausible one in its time");
}

#[test]
fn a_delivery_without_a_lane_that_waits_beyond_belief_is_asked_for_and_sent() {
    let mut shop = Shop::new();
    let endpoint = shop.endpoint(json!({}));
    let late = shop.new_delivery(endpoint, None);
    shop.handle(Input::Swept(vec![late]));
    let Load::Unkeyed { due_beyond, .. } = shop.loads[0].1 else { panic!("{:?}", shop.loads) };
    assert_eq!(due_beyond, shop.now() + Span::from_mins(10));
    let until = shop.now() + Span::from_days(30);
    let stored = Delivery { state: DeliveryState::Waiting { until }, ..late.into() };
    shop.answer_load(unkeyed_page(&[stored], None));
    assert_eq!(shop.in_flight(), [late.id]);
}
