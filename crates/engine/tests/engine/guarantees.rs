//! At most once, and what changing a guarantee means.

use railpost_engine::{Command, DeadReason, DeliveryState, IgnoredReason, Input};
use railpost_wire::DeliveryId;
use serde_json::json;

use crate::harness::{Harness, TIMEOUT, answer, at, policy};

fn dead(reason: DeadReason) -> DeliveryState {
    DeliveryState::Dead { reason, holds: false }
}

fn confirm_record(harness: &mut Harness) -> DeliveryId {
    let (transition, token) = harness.records_first.remove(0);
    harness.handle(Input::Recorded(token));
    transition.delivery
}

#[test]
fn an_at_most_once_delivery_leaves_only_after_it_is_recorded_as_sent() {
    let mut harness = Harness::new();
    let endpoint = harness.endpoint(json!({"guarantee": "at_most_once"}));
    let id = harness.accept(endpoint, at(1, 1));
    assert_eq!(harness.in_flight(), []);
    assert_eq!(harness.records_first[0].0.state, DeliveryState::InFlight);
    assert_eq!(confirm_record(&mut harness), id);
    assert_eq!(harness.in_flight(), [id]);
    harness.acknowledge(id);
    assert_eq!(harness.state(id), DeliveryState::Delivered);
}

#[test]
fn an_at_most_once_delivery_that_fails_is_given_up_on_and_its_lane_moves_on() {
    for result in [TIMEOUT, answer(500), answer(429)] {
        let mut harness = Harness::new();
        let endpoint = harness.endpoint(json!({"guarantee": "at_most_once"}));
        let lane = harness.accept_lane(endpoint, 1, 2);
        confirm_record(&mut harness);
        harness.end(lane[0], result);
        assert_eq!(harness.state(lane[0]), dead(DeadReason::SingleAttemptFailed));
        assert_eq!(confirm_record(&mut harness), lane[1]);
    }
}

#[test]
fn an_at_most_once_delivery_that_was_sent_is_never_replayed() {
    let mut harness = Harness::new();
    let endpoint = harness.endpoint(json!({"guarantee": "at_most_once"}));
    let id = harness.accept(endpoint, None);
    confirm_record(&mut harness);
    harness.end(id, TIMEOUT);
    harness.command(Command::Replay, id);
    assert_eq!(harness.last_ignored(), Some(IgnoredReason::SentOnce));
    assert_eq!(harness.in_flight(), []);
}

#[test]
fn a_record_that_the_store_refuses_sends_nothing_and_frees_the_place() {
    let mut harness = Harness::new();
    let endpoint = harness.endpoint(json!({"guarantee": "at_most_once", "in_flight_max": 1}));
    let lane = harness.accept_lane(endpoint, 1, 2);
    let (_, token) = harness.records_first.remove(0);
    harness.handle(Input::RecordRefused(token));
    assert_eq!(harness.in_flight(), []);
    assert_eq!(confirm_record(&mut harness), lane[1]);
    assert_eq!(harness.records, [], "what the store knows better is left alone");
}

#[test]
fn a_delivery_that_was_tried_before_is_not_sent_again_once_its_endpoint_is_at_most_once() {
    let mut harness = Harness::new();
    let endpoint = harness.endpoint(json!({}));
    let id = harness.accept(endpoint, at(1, 1));
    harness.end(id, TIMEOUT);
    let policy = policy(json!({"guarantee": "at_most_once"}));
    harness.handle(Input::EndpointChanged { endpoint, policy, rotation: None });
    harness.pass_secs(600);
    assert_eq!(harness.started.len(), 1);
    assert_eq!(harness.state(id), dead(DeadReason::SingleAttemptFailed));
}

#[test]
fn a_confirmation_for_something_else_is_ignored() {
    let mut harness = Harness::new();
    let endpoint = harness.endpoint(json!({}));
    let id = harness.accept(endpoint, None);
    let token = harness.take_attempt(id).token;
    harness.handle(Input::Recorded(token));
    assert_eq!(harness.last_ignored(), Some(IgnoredReason::AttemptUnknown));
    harness.handle(Input::RecordRefused(token));
    assert_eq!(harness.last_ignored(), Some(IgnoredReason::AttemptUnknown));
    assert_eq!(harness.in_flight(), [], "nothing was sent a second time");
}
