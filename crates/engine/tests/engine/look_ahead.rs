//! What comes next, so that payloads can be read early.

use railpost_wire::{DeliveryId, EndpointId};
use serde_json::json;

use crate::harness::{Harness, at};

fn ready(harness: &Harness, endpoint: EndpointId) -> Vec<DeliveryId> {
    harness.engine.ready(endpoint).collect()
}

#[test]
fn what_is_ready_is_shown_in_the_order_in_which_it_starts() {
    let mut harness = Harness::new();
    let endpoint = harness.endpoint(json!({"in_flight_max": 1}));
    let heads: Vec<_> = (1..=4).map(|lane| harness.accept(endpoint, at(lane, 1))).collect();
    assert_eq!(harness.in_flight(), [heads[0]]);
    assert_eq!(ready(&harness, endpoint), heads[1..]);
    for index in 1..heads.len() {
        harness.acknowledge(heads[index - 1]);
        assert_eq!(harness.in_flight(), [heads[index]]);
        assert_eq!(ready(&harness, endpoint), heads[index + 1..]);
    }
}

#[test]
fn what_waits_for_its_lane_is_not_ready_but_behind() {
    let mut harness = Harness::new();
    let endpoint = harness.endpoint(json!({}));
    let lane = harness.accept_lane(endpoint, 1, 4);
    let attempt = harness.under_way[0].token;
    assert_eq!(ready(&harness, endpoint), []);
    assert_eq!(harness.engine.behind(attempt).collect::<Vec<_>>(), lane[1..]);
    harness.acknowledge(lane[0]);
    let next = harness.under_way[0].token;
    assert_eq!(harness.engine.behind(next).collect::<Vec<_>>(), lane[2..]);
    assert_eq!(harness.engine.behind(attempt).count(), 0, "an attempt that ended");
}

#[test]
fn nothing_is_ready_where_nothing_is_served() {
    let mut harness = Harness::new();
    assert_eq!(ready(&harness, EndpointId::from_u128(7)), []);
    let endpoint = harness.endpoint(json!({"in_flight_max": 1}));
    let first = harness.accept(endpoint, None);
    harness.accept(endpoint, None);
    assert_eq!((harness.in_flight(), ready(&harness, endpoint).len()), (vec![first], 1));
    harness.handle(railpost_engine::Input::EndpointRemoved(endpoint));
    assert_eq!(ready(&harness, endpoint), []);
}
