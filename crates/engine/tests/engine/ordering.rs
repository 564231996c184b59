//! Head-of-line blocking within a lane, independence between lanes.

use railpost_engine::{DeadReason, DeliveryState, NoticeKind};
use serde_json::json;

use crate::harness::{Harness, TIMEOUT, answer, at};

#[test]
fn a_lane_never_starts_its_second_delivery_while_the_first_is_open() {
    let mut harness = Harness::new();
    let endpoint = harness.endpoint(json!({}));
    let lane = harness.accept_lane(endpoint, 1, 3);
    assert_eq!(harness.in_flight(), [lane[0]]);
    harness.end(lane[0], TIMEOUT);
    harness.pass_secs(600);
    assert_eq!(harness.in_flight(), [lane[0]], "the retry, not the next one");
    harness.acknowledge(lane[0]);
    assert_eq!(harness.in_flight(), [lane[1]]);
    harness.acknowledge(lane[1]);
    assert_eq!(harness.in_flight(), [lane[2]]);
}

#[test]
fn an_acknowledgement_releases_the_next_one_before_it_is_recorded() {
    let mut harness = Harness::new();
    let endpoint = harness.endpoint(json!({}));
    let lane = harness.accept_lane(endpoint, 1, 2);
    harness.acknowledge(lane[0]);
    // The harness has recorded nothing durably yet: the effects came out together.
    assert_eq!(harness.state(lane[0]), DeliveryState::Delivered);
    assert_eq!(harness.in_flight(), [lane[1]]);
}

#[test]
fn a_stuck_lane_stalls_no_other_lane() {
    let mut harness = Harness::new();
    let endpoint = harness.endpoint(json!({}));
    let stuck = harness.accept_lane(endpoint, 1, 2);
    harness.end(stuck[0], TIMEOUT);
    let free = harness.accept_lane(endpoint, 2, 2);
    assert_eq!(harness.in_flight(), [free[0]]);
    harness.acknowledge(free[0]);
    assert_eq!(harness.in_flight(), [free[1]]);
}

#[test]
fn deliveries_without_a_lane_wait_for_nobody() {
    let mut harness = Harness::new();
    let endpoint = harness.endpoint(json!({}));
    let ids: Vec<_> = (0..3).map(|_| harness.accept(endpoint, None)).collect();
    assert_eq!(harness.in_flight(), ids);
}

#[test]
fn the_same_lane_number_at_two_endpoints_is_two_lanes() {
    let mut harness = Harness::new();
    let (one, other) = (harness.endpoint(json!({})), harness.endpoint(json!({})));
    let first = harness.accept(one, at(1, 1));
    let second = harness.accept(other, at(1, 1));
    assert_eq!(harness.in_flight(), [first, second]);
}

#[test]
fn a_dead_letter_holds_its_lane_by_default() {
    let mut harness = Harness::new();
    let endpoint = harness.endpoint(json!({}));
    let lane = harness.accept_lane(endpoint, 1, 2);
    harness.end(lane[0], answer(400));
    harness.pass_secs(100_000);
    assert_eq!(harness.in_flight(), []);
    let dead = DeliveryState::Dead { reason: DeadReason::Permanent, holds: true };
    assert_eq!(harness.state(lane[0]), dead);
    let held = NoticeKind::LaneHeld { lane: at(1, 1).unwrap().lane, delivery: lane[0] };
    assert_eq!(harness.notices, [held]);
}

#[test]
fn a_dead_letter_lets_its_lane_advance_where_the_owner_chose_so() {
    let mut harness = Harness::new();
    let endpoint = harness.endpoint(json!({"on_dead_letter": "advance"}));
    let lane = harness.accept_lane(endpoint, 1, 2);
    harness.end(lane[0], answer(400));
    assert_eq!(harness.in_flight(), [lane[1]]);
    let dead = DeliveryState::Dead { reason: DeadReason::Permanent, holds: false };
    assert_eq!(harness.state(lane[0]), dead);
    assert_eq!(harness.notices, []);
}

#[test]
fn a_lane_that_becomes_empty_goes_on_where_it_was() {
    let mut harness = Harness::new();
    let endpoint = harness.endpoint(json!({}));
    let first = harness.accept(endpoint, at(1, 1));
    harness.acknowledge(first);
    let second = harness.accept(endpoint, at(1, 2));
    assert_eq!(harness.in_flight(), [second]);
    assert_eq!(harness.loads, [], "an idle lane is remembered");
}
