//! What comes next, for whoever fetches payloads.

use railpost_wire::{DeliveryId, EndpointId};
use serde_json::json;

use crate::harness::{Shop, at};

fn ready(shop: &Shop, endpoint: EndpointId) -> Vec<DeliveryId> {
    shop.engine.ready(endpoint).collect()
}

#[test]
fn what_is_ready_is_shown_in_the_order_in_which_it_starts() {
    let mut shop = Shop::new();
    let endpoint = shop.endpoint(json!({"in_flight_max": 1}));
    let heads: Vec<_> = (1..=4).map(|lane| shop.accept(endpoint, at(lane, 1))).collect();
    assert_eq!(shop.in_flight(), [heads[0]]);
    assert_eq!(ready(&shop, endpoint), heads[1..]);
    for index in 1..heads.len() {
        shop.acknowledge(heads[index - 1]);
        assert_eq!(shop.in_flight(), [heads[index]]);
        assert_eq!(ready(&shop, endpoint), heads[index + 1..]);
    }
}

#[test]
fn what_waits_for_its_lane_is_not_ready_but_behind() {
    let mut shop = Shop::new();
    let endpoint = shop.endpoint(json!({}));
    let lane = shop.accept_lane(endpoint, 1, 4);
    let attempt = shop.under_way[0].token;
    assert_eq!(ready(&shop, endpoint), []);
    assert_eq!(shop.engine.behind(attempt).collect::<Vec<_>>(), lane[1..]);
    shop.acknowledge(lane[0]);
    let next = shop.under_way[0].token;
    assert_eq!(shop.engine.behind(next).collect::<Vec<_>>(), lane[2..]);
    assert_eq!(shop.engine.behind(attempt).count(), 0, "an attempt that ended");
}

#[test]
fn nothing_is_ready_where_nothing_is_served() {
    let mut shop = Shop::new();
    assert_eq!(ready(&shop, EndpointId::from_u128(7)), []);
    let endpoint = shop.endpoint(json!({"in_flight_max": 1}));
    let first = shop.accept(endpoint, None);
    shop.accept(endpoint, None);
    assert_eq!((shop.in_flight(), ready(&shop, endpoint).len()), (vec![first], 1));
    shop.handle(railpost_engine::Input::EndpointRemoved(endpoint));
    assert_eq!(ready(&shop, endpoint), []);
}
