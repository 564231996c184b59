//! At most once, and what changing a guarantee means.

use railpost_engine::{Because, Command, DeadReason, DeliveryState, Input};
use railpost_wire::DeliveryId;
use serde_json::json;

use crate::harness::{Shop, TIMEOUT, answer, at, policy};

fn dead(reason: DeadReason) -> DeliveryState {
    DeliveryState::Dead { reason, holds: false }
}

fn confirm_record(shop: &mut Shop) -> DeliveryId {
    let (transition, token) = shop.records_first.remove(0);
    shop.handle(Input::Recorded(token));
    transition.delivery
}

#[test]
fn an_at_most_once_delivery_leaves_only_after_it_is_recorded_as_sent() {
    let mut shop = Shop::new();
    let endpoint = shop.endpoint(json!({"guarantee": "at_most_once"}));
    let id = shop.accept(endpoint, at(1, 1));
    assert_eq!(shop.in_flight(), []);
    assert_eq!(shop.records_first[0].0.state, DeliveryState::InFlight);
    assert_eq!(confirm_record(&mut shop), id);
    assert_eq!(shop.in_flight(), [id]);
    shop.acknowledge(id);
    assert_eq!(shop.state(id), DeliveryState::Delivered);
}

#[test]
fn an_at_most_once_delivery_that_fails_is_given_up_on_and_its_lane_moves_on() {
    for result in [TIMEOUT, answer(500), answer(429)] {
        let mut shop = Shop::new();
        let endpoint = shop.endpoint(json!({"guarantee": "at_most_once"}));
        let lane = shop.accept_lane(endpoint, 1, 2);
        confirm_record(&mut shop);
        shop.end(lane[0], result);
        assert_eq!(shop.state(lane[0]), dead(DeadReason::SingleAttemptFailed));
        assert_eq!(confirm_record(&mut shop), lane[1]);
    }
}

#[test]
fn an_at_most_once_delivery_that_was_sent_is_never_replayed() {
    let mut shop = Shop::new();
    let endpoint = shop.endpoint(json!({"guarantee": "at_most_once"}));
    let id = shop.accept(endpoint, None);
    confirm_record(&mut shop);
    shop.end(id, TIMEOUT);
    shop.command(Command::Replay, id);
    assert_eq!(shop.last_ignored(), Some(Because::SentOnce));
    assert_eq!(shop.in_flight(), []);
}

#[test]
fn a_record_that_the_store_refuses_sends_nothing_and_frees_the_place() {
    let mut shop = Shop::new();
    let endpoint = shop.endpoint(json!({"guarantee": "at_most_once", "in_flight_max": 1}));
    let lane = shop.accept_lane(endpoint, 1, 2);
    let (_, token) = shop.records_first.remove(0);
    shop.handle(Input::RecordRefused(token));
    assert_eq!(shop.in_flight(), []);
    assert_eq!(confirm_record(&mut shop), lane[1]);
    assert_eq!(shop.records, [], "what the store knows better is left alone");
}

#[test]
fn a_delivery_that_was_tried_before_is_not_sent_again_once_its_endpoint_is_at_most_once() {
    let mut shop = Shop::new();
    let endpoint = shop.endpoint(json!({}));
    let id = shop.accept(endpoint, at(1, 1));
    shop.end(id, TIMEOUT);
    let policy = policy(json!({"guarantee": "at_most_once"}));
    shop.handle(Input::EndpointChanged { endpoint, policy });
    shop.pass_secs(600);
    assert_eq!(shop.started.len(), 1);
    assert_eq!(shop.state(id), dead(DeadReason::SingleAttemptFailed));
}

#[test]
fn a_confirmation_for_something_else_is_ignored() {
    let mut shop = Shop::new();
    let endpoint = shop.endpoint(json!({}));
    let id = shop.accept(endpoint, None);
    let token = shop.take_attempt(id).token;
    shop.handle(Input::Recorded(token));
    assert_eq!(shop.last_ignored(), Some(Because::AttemptUnknown));
    shop.handle(Input::RecordRefused(token));
    assert_eq!(shop.last_ignored(), Some(Because::AttemptUnknown));
    assert_eq!(shop.in_flight(), [], "nothing was sent a second time");
}
