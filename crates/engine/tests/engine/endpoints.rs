//! Endpoints that pause, change and vanish while deliveries are under way.

use railpost_engine::{Because, DeliveryState, Input};
use serde_json::json;

use crate::harness::{Shop, TIMEOUT, answer, at};

#[test]
fn a_paused_endpoint_starts_nothing_and_keeps_its_backlog() {
    let mut shop = Shop::new();
    let endpoint = shop.endpoint(json!({}));
    let flying = shop.accept(endpoint, at(1, 1));
    shop.handle(Input::EndpointPaused(endpoint));
    let late = shop.accept(endpoint, at(2, 1));
    shop.end(flying, TIMEOUT);
    shop.pass_secs(100_000);
    assert_eq!(shop.in_flight(), []);
    assert!(matches!(shop.state(flying), DeliveryState::Waiting { .. }), "its end was recorded");
    shop.handle(Input::EndpointResumed(endpoint));
    let mut seen = Vec::new();
    while let Some(id) = shop.in_flight().first().copied() {
        seen.push(id);
        shop.acknowledge(id);
    }
    seen.sort();
    assert_eq!(seen, [flying, late]);
}

#[test]
fn a_persons_pause_is_not_overwritten_by_the_engine() {
    let mut shop = Shop::new();
    let endpoint = shop.endpoint(json!({"quarantine_after": 1}));
    let id = shop.accept(endpoint, at(1, 1));
    shop.handle(Input::EndpointPaused(endpoint));
    shop.end(id, answer(410));
    assert_eq!(shop.status(endpoint), railpost_engine::EndpointStatus::Paused);
}

#[test]
fn what_was_under_way_when_its_endpoint_went_changes_nothing_when_it_ends() {
    let mut shop = Shop::new();
    let endpoint = shop.endpoint(json!({}));
    let lane = shop.accept_lane(endpoint, 1, 2);
    shop.handle(Input::EndpointRemoved(endpoint));
    assert_eq!(shop.engine.in_flight(), 1, "it still takes a place");
    shop.acknowledge(lane[0]);
    assert_eq!(shop.last_ignored(), Some(Because::EndpointUnknown));
    assert_eq!((shop.engine.in_flight(), shop.records.len()), (0, 0));
    assert_eq!(shop.in_flight(), []);
}

#[test]
fn an_endpoint_that_comes_back_counts_what_it_left_under_way() {
    let mut shop = Shop::new();
    let endpoint = shop.endpoint(json!({"in_flight_max": 1}));
    let flying = shop.accept(endpoint, None);
    shop.handle(Input::EndpointRemoved(endpoint));
    shop.endpoint_appears(endpoint, "acme", json!({"in_flight_max": 1}));
    shop.answer_loads_with_nothing();
    let next = shop.accept(endpoint, None);
    assert_eq!(shop.in_flight(), [flying]);
    shop.acknowledge(flying);
    assert_eq!(shop.in_flight(), [next]);
}

#[test]
fn an_at_most_once_delivery_whose_endpoint_went_before_its_record_was_confirmed_stays() {
    let mut shop = Shop::new();
    let endpoint = shop.endpoint(json!({"guarantee": "at_most_once"}));
    shop.accept(endpoint, None);
    shop.handle(Input::EndpointRemoved(endpoint));
    let (_, token) = shop.records_first[0];
    shop.handle(Input::Recorded(token));
    assert_eq!(shop.in_flight(), []);
    assert_eq!(shop.engine.in_flight(), 0);
}

#[test]
fn inputs_about_an_unknown_endpoint_are_ignored_and_counted() {
    let mut shop = Shop::new();
    let endpoint = shop.endpoint_id();
    let accepted = shop.new_delivery(endpoint, None);
    let inputs = [
        Input::EndpointPaused(endpoint),
        Input::EndpointResumed(endpoint),
        Input::EndpointRemoved(endpoint),
        Input::EndpointChanged { endpoint, policy: Default::default() },
        Input::Accepted(vec![accepted]),
    ];
    for input in inputs {
        shop.handle(input);
        assert_eq!(shop.last_ignored(), Some(Because::EndpointUnknown));
    }
    assert_eq!(shop.engine.counters().ignored[Because::EndpointUnknown as usize], 5);
}

#[test]
fn an_endpoint_that_appears_twice_is_ignored_the_second_time() {
    let mut shop = Shop::new();
    let endpoint = shop.endpoint(json!({"in_flight_max": 1}));
    shop.endpoint_appears(endpoint, "acme", json!({"in_flight_max": 9}));
    assert_eq!(shop.last_ignored(), Some(Because::EndpointKnown));
    shop.accept(endpoint, None);
    shop.accept(endpoint, None);
    assert_eq!(shop.in_flight().len(), 1);
}

#[test]
fn an_attempt_that_ends_twice_counts_once() {
    let mut shop = Shop::new();
    let endpoint = shop.endpoint(json!({}));
    let id = shop.accept(endpoint, at(1, 1));
    let attempt = shop.take_attempt(id).token;
    shop.handle(Input::AttemptEnded { attempt, result: TIMEOUT });
    shop.handle(Input::AttemptEnded { attempt, result: answer(200) });
    assert_eq!(shop.last_ignored(), Some(Because::AttemptUnknown));
    assert!(matches!(shop.state(id), DeliveryState::Waiting { .. }));
}
