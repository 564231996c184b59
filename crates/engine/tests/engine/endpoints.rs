//! Endpoints that pause, change and vanish while deliveries are under way.

use railpost_engine::{DeliveryState, IgnoredReason, Input};
use serde_json::json;

use crate::harness::{Harness, TIMEOUT, answer, at};

#[test]
fn a_paused_endpoint_starts_nothing_and_keeps_its_backlog() {
    let mut harness = Harness::new();
    let endpoint = harness.endpoint(json!({}));
    let flying = harness.accept(endpoint, at(1, 1));
    harness.handle(Input::EndpointPaused(endpoint));
    let late = harness.accept(endpoint, at(2, 1));
    harness.end(flying, TIMEOUT);
    harness.pass_secs(100_000);
    assert_eq!(harness.in_flight(), []);
    assert!(matches!(harness.state(flying), DeliveryState::Waiting { .. }), "its end was recorded");
    harness.handle(Input::EndpointResumed(endpoint));
    let mut seen = Vec::new();
    while let Some(id) = harness.in_flight().first().copied() {
        seen.push(id);
        harness.acknowledge(id);
    }
    seen.sort();
    assert_eq!(seen, [flying, late]);
}

#[test]
fn a_persons_pause_is_not_overwritten_by_the_engine() {
    let mut harness = Harness::new();
    let endpoint = harness.endpoint(json!({"quarantine_after": 1}));
    let id = harness.accept(endpoint, at(1, 1));
    harness.handle(Input::EndpointPaused(endpoint));
    harness.end(id, answer(410));
    assert_eq!(harness.status(endpoint), railpost_engine::EndpointStatus::Paused);
}

#[test]
fn what_was_under_way_when_its_endpoint_went_changes_nothing_when_it_ends() {
    let mut harness = Harness::new();
    let endpoint = harness.endpoint(json!({}));
    let lane = harness.accept_lane(endpoint, 1, 2);
    harness.handle(Input::EndpointRemoved(endpoint));
    assert_eq!(harness.engine.in_flight(), 1, "it still takes a place");
    harness.acknowledge(lane[0]);
    assert_eq!(harness.last_ignored(), Some(IgnoredReason::EndpointUnknown));
    assert_eq!((harness.engine.in_flight(), harness.records.len()), (0, 0));
    assert_eq!(harness.in_flight(), []);
}

#[test]
fn an_endpoint_that_comes_back_counts_what_it_left_under_way() {
    let mut harness = Harness::new();
    let endpoint = harness.endpoint(json!({"in_flight_max": 1}));
    let flying = harness.accept(endpoint, None);
    harness.handle(Input::EndpointRemoved(endpoint));
    harness.endpoint_appears(endpoint, "acme", json!({"in_flight_max": 1}));
    harness.answer_loads_with_nothing();
    let next = harness.accept(endpoint, None);
    assert_eq!(harness.in_flight(), [flying]);
    harness.acknowledge(flying);
    assert_eq!(harness.in_flight(), [next]);
}

#[test]
fn an_at_most_once_delivery_whose_endpoint_went_before_its_record_was_confirmed_stays() {
    let mut harness = Harness::new();
    let endpoint = harness.endpoint(json!({"guarantee": "at_most_once"}));
    harness.accept(endpoint, None);
    harness.handle(Input::EndpointRemoved(endpoint));
    let (_, token) = harness.records_first[0];
    harness.handle(Input::Recorded(token));
    assert_eq!(harness.in_flight(), []);
    assert_eq!(harness.engine.in_flight(), 0);
}

#[test]
fn inputs_about_an_unknown_endpoint_are_ignored_and_counted() {
    let mut harness = Harness::new();
    let endpoint = harness.endpoint_id();
    let accepted = harness.new_delivery(endpoint, None);
    let inputs = [
        Input::EndpointPaused(endpoint),
        Input::EndpointResumed(endpoint),
        Input::EndpointWaitEnded(endpoint),
        Input::EndpointRemoved(endpoint),
        Input::EndpointChanged { endpoint, policy: Default::default(), rotation: None },
        Input::Accepted(vec![accepted]),
    ];
    for input in inputs {
        harness.handle(input);
        assert_eq!(harness.last_ignored(), Some(IgnoredReason::EndpointUnknown));
    }
    assert_eq!(harness.engine.counters().ignored[IgnoredReason::EndpointUnknown as usize], 6);
}

#[test]
fn an_endpoint_that_appears_twice_is_ignored_the_second_time() {
    let mut harness = Harness::new();
    let endpoint = harness.endpoint(json!({"in_flight_max": 1}));
    harness.endpoint_appears(endpoint, "acme", json!({"in_flight_max": 9}));
    assert_eq!(harness.last_ignored(), Some(IgnoredReason::EndpointKnown));
    harness.accept(endpoint, None);
    harness.accept(endpoint, None);
    assert_eq!(harness.in_flight().len(), 1);
}

#[test]
fn an_attempt_that_ends_twice_counts_once() {
    let mut harness = Harness::new();
    let endpoint = harness.endpoint(json!({}));
    let id = harness.accept(endpoint, at(1, 1));
    let attempt = harness.take_attempt(id).token;
    harness.handle(Input::AttemptEnded { attempt, result: TIMEOUT });
    harness.handle(Input::AttemptEnded { attempt, result: answer(200) });
    assert_eq!(harness.last_ignored(), Some(IgnoredReason::AttemptUnknown));
    assert!(matches!(harness.state(id), DeliveryState::Waiting { .. }));
}
