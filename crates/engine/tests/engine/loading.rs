//! What memory does not have is asked for: backlogs, gaps, windows.

use railpost_engine::{
    Command, Config, DeadReason, Delivery, DeliveryState, IgnoredReason, Input, LaneId, LanePage,
    Load, LoadedPage, Progress, Span,
};
use railpost_wire::{DeliveryId, EndpointId};
use serde_json::json;

use crate::harness::{Harness, TIMEOUT, at, seq};

const PENDING: DeliveryState = DeliveryState::Pending;

/// Deliveries of lane 1 as a store has them, by seq.
fn stored(
    harness: &mut Harness,
    endpoint: EndpointId,
    states: &[(u64, DeliveryState)],
) -> Vec<Delivery> {
    states
        .iter()
        .map(|(number, state)| {
            let accepted = harness.new_delivery(endpoint, at(1, *number));
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

fn no_more_lanes(lanes: Vec<LanePage>) -> LoadedPage {
    LoadedPage::Lanes { lanes, next: None }
}

fn unkeyed_page(deliveries: &[Delivery], next: Option<DeliveryId>) -> LoadedPage {
    LoadedPage::Unkeyed { deliveries: deliveries.to_vec(), next, next_due: None }
}

/// An endpoint that appeared with the given backlog in lane 1.
fn with_backlog(
    harness: &mut Harness,
    states: &[(u64, DeliveryState)],
) -> (EndpointId, Vec<DeliveryId>) {
    let endpoint = harness.endpoint_id();
    harness.endpoint_appears(endpoint, "acme", json!({}));
    let deliveries = stored(harness, endpoint, states);
    let last = states.last().map_or(1, |(number, _)| *number);
    harness.answer_load(no_more_lanes(vec![lane_page(1, last, last, &deliveries)]));
    harness.answer_loads_with_nothing();
    (endpoint, deliveries.iter().map(|delivery| delivery.id).collect())
}

fn asked_from(harness: &Harness) -> Vec<u64> {
    let from = harness.loads.iter().map(|(_, load)| match load {
        Load::Lane { from, .. } => from.get(),
        other => panic!("not a lane: {other:?}"),
    });
    from.collect()
}

#[test]
fn an_endpoint_that_appears_asks_for_its_backlog() {
    let mut harness = Harness::new();
    let endpoint = harness.endpoint_id();
    harness.endpoint_appears(endpoint, "acme", json!({}));
    let kinds: Vec<_> = harness.loads.iter().map(|(_, load)| *load).collect();
    let due_by = harness.now() + Span::from_secs(10);
    let due_beyond = harness.now() + Span::from_mins(10);
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
    let mut harness = Harness::new();
    let endpoint = harness.endpoint_id();
    harness.endpoint_appears(endpoint, "acme", json!({}));
    let deliveries = stored(&mut harness, endpoint, &[(1, PENDING)]);
    let lanes = vec![lane_page(1, 1, 1, &deliveries)];
    harness.answer_load(LoadedPage::Lanes { lanes, next: Some(LaneId(1)) });
    assert_eq!(harness.in_flight(), [deliveries[0].id], "the first page starts at once");
    let next = harness.loads.last().unwrap().1;
    assert!(matches!(next, Load::Lanes { after: Some(LaneId(1)), .. }), "{next:?}");
}

#[test]
fn what_a_page_does_not_list_is_closed() {
    let mut harness = Harness::new();
    let (_, ids) = with_backlog(&mut harness, &[(3, PENDING), (5, PENDING)]);
    harness.acknowledge(ids[0]);
    assert_eq!(harness.in_flight(), [ids[1]], "4 was delivered before the crash");
    assert_eq!(harness.loads, []);
}

#[test]
fn a_loaded_delivery_goes_on_from_its_recorded_state() {
    let mut harness = Harness::new();
    let until = harness.now() + Span::from_secs(30);
    let dead = DeliveryState::Dead { reason: DeadReason::Permanent, holds: true };
    let waiting = DeliveryState::Waiting { until };
    let (_, ids) =
        with_backlog(&mut harness, &[(1, PENDING), (2, waiting), (3, dead), (4, PENDING)]);
    harness.acknowledge(ids[0]);
    assert_eq!(harness.in_flight(), [], "2 still waits");
    harness.pass_secs(30);
    harness.acknowledge(ids[1]);
    harness.pass_secs(3_600);
    assert_eq!(harness.in_flight(), [], "3 holds the lane");
    let delivery = Delivery { state: dead, ..harness.stored(ids[2]) };
    harness.handle(Input::Command { command: Command::Skip, delivery });
    assert_eq!(harness.in_flight(), [ids[3]]);
}

#[test]
fn an_at_most_once_delivery_recorded_as_sent_is_not_sent_again_after_a_crash() {
    let mut harness = Harness::new();
    let (_, ids) = with_backlog(&mut harness, &[(1, DeliveryState::InFlight), (2, PENDING)]);
    let reason = DeadReason::OutcomeUnknown;
    assert_eq!(harness.state(ids[0]), DeliveryState::Dead { reason, holds: false });
    assert_eq!(harness.in_flight(), [ids[1]]);
}

#[test]
fn a_lane_that_learns_of_7_before_6_waits_and_asks_for_6() {
    let mut harness = Harness::new();
    let (endpoint, ids) = with_backlog(&mut harness, &[(5, PENDING)]);
    harness.acknowledge(ids[0]);
    let seven = harness.accept(endpoint, at(1, 7));
    assert_eq!(harness.in_flight(), []);
    assert_eq!(asked_from(&harness), [6]);
    let mut page = stored(&mut harness, endpoint, &[(6, PENDING)]);
    page.push(harness.stored(seven));
    harness.answer_load(LoadedPage::Lane(lane_page(6, 7, 7, &page)));
    assert_eq!(harness.in_flight(), [page[0].id]);
    harness.acknowledge(page[0].id);
    assert_eq!(harness.in_flight(), [seven]);
}

#[test]
fn a_hint_that_fills_the_gap_is_taken_while_the_load_is_under_way() {
    let mut harness = Harness::new();
    let (endpoint, ids) = with_backlog(&mut harness, &[(5, PENDING)]);
    harness.acknowledge(ids[0]);
    harness.accept(endpoint, at(1, 7));
    let six = harness.accept(endpoint, at(1, 6));
    assert_eq!(harness.in_flight(), [six]);
    let page = [harness.stored(six)];
    harness.answer_load(LoadedPage::Lane(lane_page(6, 6, 7, &page)));
    assert_eq!(harness.started.len(), 2, "the page brought 6 a second time");
    assert_eq!(asked_from(&harness), [7], "and there is still 7 to ask for");
}

#[test]
fn a_lane_unknown_in_memory_is_asked_for_from_its_start() {
    let mut harness = Harness::new();
    let endpoint = harness.endpoint(json!({}));
    let forty_two = harness.accept(endpoint, at(1, 42));
    assert_eq!(harness.in_flight(), []);
    assert_eq!(asked_from(&harness), [1]);
    let page = [harness.stored(forty_two)];
    harness.answer_load(LoadedPage::Lane(lane_page(1, 42, 42, &page)));
    assert_eq!(harness.in_flight(), [forty_two]);
}

#[test]
fn a_lane_holds_a_window_and_asks_for_more_when_half_of_it_is_free() {
    let mut harness = Harness::with(Config { lane_window: 4, ..Config::default() });
    let endpoint = harness.endpoint(json!({}));
    let lane = harness.accept_lane(endpoint, 1, 10);
    harness.acknowledge(lane[0]);
    assert_eq!(harness.loads, [], "three are left");
    harness.acknowledge(lane[1]);
    assert_eq!(asked_from(&harness), [5]);
    let page: Vec<_> = lane[4..8].iter().map(|id| harness.stored(*id)).collect();
    harness.answer_load(LoadedPage::Lane(lane_page(5, 8, 10, &page)));
    harness.acknowledge(lane[2]);
    harness.acknowledge(lane[3]);
    assert_eq!(harness.in_flight(), [lane[4]]);
}

#[test]
fn over_its_budget_the_engine_holds_nothing_but_heads() {
    let mut harness = Harness::with(Config { deliveries_max: 3, ..Config::default() });
    let endpoint = harness.endpoint(json!({}));
    let first = harness.accept_lane(endpoint, 1, 3);
    let second = harness.accept_lane(endpoint, 2, 2);
    assert_eq!(harness.in_flight(), [first[0], second[0]], "a head is always held");
    harness.acknowledge(second[0]);
    assert_eq!(asked_from(&harness), [2]);
}

#[test]
fn a_load_that_fails_is_asked_for_again_after_a_while() {
    let mut harness = Harness::new();
    let endpoint = harness.endpoint(json!({}));
    harness.accept(endpoint, at(1, 42));
    let (ticket, _) = harness.loads.remove(0);
    harness.handle(Input::LoadFailed(ticket));
    assert_eq!(harness.loads, []);
    harness.pass_secs(1);
    assert_eq!(asked_from(&harness), [1]);
}

#[test]
fn a_page_that_brings_nothing_does_not_make_a_busy_loop() {
    let mut harness = Harness::new();
    let endpoint = harness.endpoint(json!({}));
    harness.accept(endpoint, at(1, 42));
    let empty = LanePage { through: None, ..lane_page(1, 1, 42, &[]) };
    harness.answer_load(LoadedPage::Lane(empty));
    assert_eq!(harness.loads, []);
    harness.pass_secs(1);
    assert_eq!(asked_from(&harness), [1]);
}

#[test]
fn the_store_has_the_last_word_on_where_a_lane_ends() {
    let mut harness = Harness::new();
    let endpoint = harness.endpoint(json!({}));
    harness.accept(endpoint, at(1, 42));
    harness.answer_load(LoadedPage::Lane(lane_page(1, 7, 7, &[])));
    harness.pass_secs(60);
    assert_eq!(harness.loads, [], "there never was a 42");
}

#[test]
fn a_page_that_was_not_asked_for_is_ignored() {
    let mut harness = Harness::new();
    let endpoint = harness.endpoint_id();
    harness.endpoint_appears(endpoint, "acme", json!({}));
    let (ticket, _) = harness.loads[0];
    harness.handle(Input::EndpointRemoved(endpoint));
    let deliveries = stored(&mut harness, endpoint, &[(1, PENDING)]);
    let page = no_more_lanes(vec![lane_page(1, 1, 1, &deliveries)]);
    harness.handle(Input::Loaded { ticket, page });
    assert_eq!(harness.last_ignored(), Some(IgnoredReason::LoadUnknown));
    assert_eq!(harness.in_flight(), []);
}

#[test]
fn a_page_of_the_wrong_kind_is_ignored_and_asked_for_again() {
    let mut harness = Harness::new();
    let endpoint = harness.endpoint_id();
    harness.endpoint_appears(endpoint, "acme", json!({}));
    let lanes = harness.loads[0].1;
    harness.answer_load(unkeyed_page(&[], None));
    assert_eq!(harness.last_ignored(), Some(IgnoredReason::PageMismatch));
    harness.loads.clear();
    harness.pass_secs(1);
    assert_eq!(harness.loads[0].1, lanes);
}

#[test]
fn a_delivery_in_the_wrong_page_is_ignored() {
    let mut harness = Harness::new();
    let endpoint = harness.endpoint(json!({}));
    let other = harness.endpoint(json!({}));
    harness.accept(endpoint, at(1, 42));
    let strangers = [
        Delivery { endpoint: other, ..stored(&mut harness, endpoint, &[(1, PENDING)])[0] },
        Delivery { place: at(2, 1), ..stored(&mut harness, endpoint, &[(1, PENDING)])[0] },
        Delivery { place: None, ..stored(&mut harness, endpoint, &[(1, PENDING)])[0] },
        stored(&mut harness, endpoint, &[(43, PENDING)])[0],
    ];
    harness.answer_load(LoadedPage::Lane(lane_page(1, 42, 42, &strangers)));
    assert_eq!(harness.in_flight(), []);
    assert_eq!(harness.engine.counters().ignored[IgnoredReason::LaneMismatch as usize], 4);
}

#[test]
fn a_forgotten_idle_lane_is_asked_for_when_it_comes_back() {
    let mut harness = Harness::with(Config { idle_lanes_max: 1, ..Config::default() });
    let endpoint = harness.endpoint(json!({}));
    for lane in [1, 2] {
        let id = harness.accept(endpoint, at(lane, 1));
        harness.acknowledge(id);
    }
    let remembered = harness.accept(endpoint, at(2, 2));
    assert_eq!((harness.in_flight(), harness.loads.len()), (vec![remembered], 0));
    harness.accept(endpoint, at(1, 2));
    assert_eq!(asked_from(&harness), [1]);
}

#[test]
fn a_second_hint_for_the_same_delivery_is_ignored() {
    let mut harness = Harness::new();
    let endpoint = harness.endpoint(json!({}));
    for place in [at(1, 1), None] {
        let accepted = harness.new_delivery(endpoint, place);
        harness.handle(Input::Accepted(vec![accepted, accepted]));
        assert_eq!(harness.last_ignored(), Some(IgnoredReason::DeliveryKnown));
    }
    assert_eq!(harness.started.len(), 2);
}

#[test]
fn a_late_hint_for_what_is_closed_and_forgotten_sends_nothing() {
    let mut harness = Harness::with(Config { idle_lanes_max: 0, ..Config::default() });
    let endpoint = harness.endpoint(json!({}));
    for place in [at(1, 1), None] {
        let accepted = harness.new_delivery(endpoint, place);
        harness.handle(Input::Accepted(vec![accepted]));
        harness.acknowledge(accepted.id);
        harness.handle(Input::Accepted(vec![accepted]));
        assert_eq!(harness.in_flight(), [], "the store is asked instead");
    }
    let page = LanePage { deliveries: vec![], ..lane_page(1, 1, 1, &[]) };
    harness.answer_load(LoadedPage::Lane(page));
    harness.answer_load(unkeyed_page(&[], None));
    assert_eq!((harness.started.len(), harness.loads.len()), (2, 0));
}

#[test]
fn a_hint_from_before_its_endpoint_appeared_here_is_looked_up_in_the_store() {
    let mut harness = Harness::new();
    let endpoint = harness.endpoint_id();
    let old = [harness.new_delivery(endpoint, at(1, 1)), harness.new_delivery(endpoint, None)];
    harness.pass_secs(1);
    harness.endpoint_appears(endpoint, "acme", json!({}));
    harness.answer_loads_with_nothing();
    harness.handle(Input::Accepted(old.to_vec()));
    assert_eq!((harness.in_flight().len(), harness.loads.len()), (0, 2));
}

#[test]
fn hints_that_come_out_of_order_are_taken_at_their_word() {
    let mut harness = Harness::new();
    let endpoint = harness.endpoint(json!({}));
    let mut hints: Vec<_> =
        (1..=4).map(|lane| harness.new_delivery(endpoint, at(lane, 1))).collect();
    hints.extend((0..4).map(|_| harness.new_delivery(endpoint, None)));
    hints.reverse();
    harness.handle(Input::Accepted(hints));
    assert_eq!((harness.in_flight().len(), harness.loads.len()), (8, 0));
}

#[test]
fn a_sweep_finds_what_a_lost_hint_failed_to_mention() {
    let mut harness = Harness::new();
    let endpoint = harness.endpoint(json!({}));
    let lost = harness.new_delivery(endpoint, at(1, 1));
    harness.handle(Input::Swept(vec![lost]));
    assert_eq!(harness.in_flight(), [], "the store is asked first");
    harness.answer_load(LoadedPage::Lane(lane_page(1, 1, 1, &[lost.into()])));
    assert_eq!(harness.in_flight(), [lost.id]);
}

#[test]
fn a_sweep_finds_a_lost_delivery_without_a_lane() {
    let mut harness = Harness::new();
    let endpoint = harness.endpoint(json!({}));
    let lost = harness.new_delivery(endpoint, None);
    harness.handle(Input::Swept(vec![lost]));
    assert_eq!(harness.in_flight(), []);
    harness.answer_load(unkeyed_page(&[lost.into()], None));
    assert_eq!(harness.in_flight(), [lost.id]);
}

#[test]
fn a_sweep_of_what_is_known_or_of_no_endpoint_here_asks_for_nothing() {
    let mut harness = Harness::new();
    let endpoint = harness.endpoint(json!({}));
    let known = [harness.new_delivery(endpoint, at(1, 1)), harness.new_delivery(endpoint, None)];
    harness.handle(Input::Accepted(known.to_vec()));
    let elsewhere = harness.endpoint_id();
    let stranger = harness.new_delivery(elsewhere, None);
    harness.handle(Input::Swept(vec![known[0], known[1], stranger]));
    assert_eq!((harness.loads.len(), harness.ignored.len()), (0, 0));
    harness.acknowledge(known[0].id);
    harness.handle(Input::Swept(vec![known[0]]));
    assert_eq!(harness.loads, [], "it was read before it closed");
}

#[test]
fn unkeyed_deliveries_beyond_the_window_are_scanned_as_room_allows() {
    let mut harness = Harness::with(Config { unkeyed_window: 4, ..Config::default() });
    let endpoint = harness.endpoint(json!({"in_flight_max": 1}));
    let ids: Vec<_> = (0..7).map(|_| harness.accept(endpoint, None)).collect();
    assert_eq!(harness.loads, [], "there is no room for more");
    harness.acknowledge(ids[0]);
    harness.acknowledge(ids[1]);
    let Load::Unkeyed { after: None, limit: 2, .. } = harness.loads[0].1 else {
        panic!("{:?}", harness.loads)
    };
    let page: Vec<_> = ids[2..6].iter().map(|id| harness.stored(*id)).collect();
    harness.answer_load(unkeyed_page(&page, Some(ids[5])));
    for id in &ids[2..4] {
        harness.acknowledge(*id);
    }
    let Load::Unkeyed { after, .. } = harness.loads[0].1 else { panic!("{:?}", harness.loads) };
    assert_eq!(after, Some(ids[5]));
    let page = [harness.stored(ids[6])];
    harness.answer_load(unkeyed_page(&page, None));
    for id in &ids[4..] {
        assert_eq!(harness.in_flight(), [*id]);
        harness.acknowledge(*id);
    }
    assert_eq!(harness.started.len(), 7, "each was sent once");
}

#[test]
fn a_page_read_before_a_delivery_was_closed_does_not_bring_it_back() {
    let mut harness = Harness::with(Config { unkeyed_window: 2, ..Config::default() });
    let endpoint = harness.endpoint(json!({}));
    let ids: Vec<_> = (0..3).map(|_| harness.accept(endpoint, None)).collect();
    harness.acknowledge(ids[0]);
    let page: Vec<_> = ids[1..].iter().map(|id| harness.stored(*id)).collect();
    harness.acknowledge(ids[1]);
    harness.answer_load(unkeyed_page(&page, None));
    assert_eq!(harness.in_flight(), [ids[2]]);
}

#[test]
fn what_waits_for_long_gives_its_room_to_what_does_not() {
    let mut harness = Harness::with(Config { unkeyed_window: 2, ..Config::default() });
    let retry = json!({"backoff": {"strategy": "fixed", "delay": "5m"}});
    let endpoint = harness.endpoint(json!({"retry": retry, "breaker": null}));
    let poison: Vec<_> = (0..2).map(|_| harness.accept(endpoint, None)).collect();
    poison.iter().for_each(|id| harness.end(*id, TIMEOUT));
    let fresh = harness.accept(endpoint, None);
    assert_eq!(harness.in_flight(), [fresh], "poison does not fill the window");
    harness.acknowledge(fresh);
    harness.pass_secs(290);
    let Load::Unkeyed { due_by, .. } = harness.loads[0].1 else { panic!("{:?}", harness.loads) };
    assert_eq!(due_by, harness.now() + Span::from_secs(10), "in time for what was set aside");
    let page: Vec<_> = poison.iter().map(|id| harness.stored(*id)).collect();
    harness.answer_load(unkeyed_page(&page, None));
    harness.pass_secs(10);
    let mut in_flight = harness.in_flight();
    in_flight.sort();
    assert_eq!(in_flight, poison);
}

#[test]
fn a_waiting_delivery_that_a_page_left_out_is_scanned_for_before_it_is_due() {
    let mut harness = Harness::new();
    let endpoint = harness.endpoint_id();
    harness.endpoint_appears(endpoint, "acme", json!({}));
    harness.answer_load(no_more_lanes(vec![]));
    let next_due = Some(harness.now() + Span::from_secs(600));
    harness.answer_load(LoadedPage::Unkeyed { deliveries: vec![], next: None, next_due });
    harness.pass_secs(589);
    assert_eq!(harness.loads, []);
    harness.pass_secs(1);
    assert!(matches!(harness.loads[0].1, Load::Unkeyed { .. }));
}

#[test]
fn a_command_for_what_is_not_loaded_yet_asks_for_its_lane() {
    let mut harness = Harness::new();
    let endpoint = harness.endpoint(json!({}));
    let dead = DeliveryState::Dead { reason: DeadReason::Permanent, holds: true };
    let delivery = stored(&mut harness, endpoint, &[(3, dead)])[0];
    harness.handle(Input::Command { command: Command::Replay, delivery });
    assert_eq!(harness.last_ignored(), Some(IgnoredReason::NotLoaded));
    harness.answer_load(LoadedPage::Lane(lane_page(1, 3, 3, &[delivery])));
    harness.handle(Input::Command { command: Command::Replay, delivery });
    assert_eq!(harness.in_flight(), [delivery.id]);
}

#[test]
fn a_delivery_beyond_the_window_can_be_discarded_where_it_is() {
    let mut harness = Harness::with(Config { lane_window: 1, ..Config::default() });
    let endpoint = harness.endpoint(json!({}));
    let lane = harness.accept_lane(endpoint, 1, 3);
    harness.command(Command::Discard, lane[2]);
    assert_eq!(harness.state(lane[2]), DeliveryState::DISCARDED);
    assert_eq!(harness.in_flight(), [lane[0]]);
}

#[test]
fn a_loaded_delivery_keeps_its_count_of_attempts() {
    let mut harness = Harness::new();
    let endpoint = harness.endpoint_id();
    harness.endpoint_appears(
        endpoint,
        "acme",
        json!({"retry": {"max_attempts": 4}, "breaker": null}),
    );
    let progress = Progress { attempts: 9, round_attempts: 3, ..Progress::default() };
    let state = DeliveryState::Waiting { until: harness.now() };
    let delivery =
        Delivery { progress, state, ..stored(&mut harness, endpoint, &[(1, PENDING)])[0] };
    harness.answer_load(no_more_lanes(vec![lane_page(1, 1, 1, &[delivery])]));
    assert_eq!(harness.under_way[0].number, 10);
    harness.end(delivery.id, TIMEOUT);
    let reason = DeadReason::AttemptsExhausted;
    assert_eq!(harness.state(delivery.id), DeliveryState::Dead { reason, holds: true });
}

#[test]
fn an_instant_further_ahead_than_the_policy_plans_is_due_at_once() {
    let mut harness = Harness::new();
    let (plausible, far) = (
        harness.now() + Span::from_mins(10),
        harness.now() + Span::from_mins(10) + Span::from_secs(1),
    );
    for (until, in_flight) in [(plausible, 0), (far, 1)] {
        let before = harness.in_flight().len();
        with_backlog(&mut harness, &[(1, DeliveryState::Waiting { until })]);
        assert_eq!(harness.in_flight().len() - before, in_flight);
    }
    harness.pass(Span::from_mins(10));
    assert_eq!(harness.in_flight().len(), 2, "the plausible one in its time");
}

#[test]
fn a_delivery_without_a_lane_that_waits_beyond_belief_is_asked_for_and_sent() {
    let mut harness = Harness::new();
    let endpoint = harness.endpoint(json!({}));
    let late = harness.new_delivery(endpoint, None);
    harness.handle(Input::Swept(vec![late]));
    let Load::Unkeyed { due_beyond, .. } = harness.loads[0].1 else {
        panic!("{:?}", harness.loads)
    };
    assert_eq!(due_beyond, harness.now() + Span::from_mins(10));
    let until = harness.now() + Span::from_days(30);
    let stored = Delivery { state: DeliveryState::Waiting { until }, ..late.into() };
    harness.answer_load(unkeyed_page(&[stored], None));
    assert_eq!(harness.in_flight(), [late.id]);
}
