//! Caps, rates, and who goes first when there is not room for all.

use railpost_engine::{Because, Config, Input, RateLimit, Span};
use serde_json::json;

use crate::harness::{Shop, at, policy};

fn tight(in_flight_max: u32) -> Shop {
    Shop::with(Config { in_flight_max, ..Config::default() })
}

#[test]
fn an_endpoint_never_has_more_under_way_than_its_cap() {
    let mut shop = Shop::new();
    let endpoint = shop.endpoint(json!({"in_flight_max": 3}));
    for _ in 0..10 {
        shop.accept(endpoint, None);
    }
    assert_eq!(shop.in_flight().len(), 3);
    let first = shop.in_flight()[0];
    shop.acknowledge(first);
    assert_eq!(shop.in_flight().len(), 3);
}

#[test]
fn a_raised_cap_takes_effect_at_once_and_a_lowered_one_as_attempts_end() {
    let mut shop = Shop::new();
    let endpoint = shop.endpoint(json!({"in_flight_max": 2}));
    for _ in 0..10 {
        shop.accept(endpoint, None);
    }
    let raised = policy(json!({"in_flight_max": 4}));
    shop.handle(Input::EndpointChanged { endpoint, policy: raised });
    assert_eq!(shop.in_flight().len(), 4);
    let lowered = policy(json!({"in_flight_max": 1}));
    shop.handle(Input::EndpointChanged { endpoint, policy: lowered });
    for left in [3, 2, 1, 1] {
        let first = shop.in_flight()[0];
        shop.acknowledge(first);
        assert_eq!(shop.in_flight().len(), left);
    }
}

#[test]
fn a_hanging_endpoint_takes_nothing_from_another() {
    let mut shop = Shop::new();
    let hanging = shop.endpoint(json!({"in_flight_max": 2}));
    let good = shop.endpoint(json!({"in_flight_max": 2}));
    for _ in 0..100 {
        shop.accept(hanging, None);
    }
    for _ in 0..100 {
        let id = shop.accept(good, None);
        assert!(shop.in_flight().contains(&id));
        shop.acknowledge(id);
    }
}

#[test]
fn one_tenant_never_takes_the_last_free_place_from_the_others() {
    let mut shop = tight(8);
    for _ in 0..10 {
        let endpoint = shop.endpoint_of("greedy", json!({}));
        shop.accept(endpoint, None);
    }
    assert_eq!(shop.in_flight().len(), 4, "half of all places");
    let modest = shop.endpoint_of("modest", json!({}));
    let id = shop.accept(modest, None);
    assert!(shop.in_flight().contains(&id));
}

#[test]
fn the_tenant_with_the_fewest_attempts_under_way_goes_first() {
    let mut shop = tight(2);
    let busy = shop.endpoint_of("busy", json!({}));
    let quiet = shop.endpoint_of("quiet", json!({}));
    let running = shop.accept(busy, None);
    for _ in 0..3 {
        shop.accept(busy, None);
    }
    let first = shop.accept(quiet, None);
    let second = shop.accept(quiet, None);
    assert_eq!(shop.in_flight(), [running, first]);
    shop.acknowledge(first);
    assert_eq!(shop.in_flight(), [running, second]);
}

#[test]
fn equal_tenants_take_turns_and_so_do_a_tenants_endpoints() {
    let mut shop = tight(1);
    let names = ["a", "a", "b"];
    let endpoints = names.map(|tenant| shop.endpoint_of(tenant, json!({})));
    let blocker = shop.accept(endpoints[0], None);
    for _ in 0..4 {
        for endpoint in endpoints {
            shop.accept(endpoint, None);
        }
    }
    shop.acknowledge(blocker);
    let mut order = Vec::new();
    while let Some(id) = shop.in_flight().first().copied() {
        let endpoint = shop.under_way[0].endpoint;
        order.push(endpoints.iter().position(|e| *e == endpoint).unwrap());
        shop.acknowledge(id);
    }
    assert_eq!(order[..8], [2, 0, 2, 1, 2, 0, 2, 1], "b, a, b, a …, and a's two in turn");
    assert_eq!(order.len(), 12);
}

#[test]
fn an_endpoints_rate_limit_lets_a_burst_go_and_then_paces() {
    let mut shop = Shop::new();
    let limit = json!({"rate_limit": {"count": 1, "per": "1s", "burst": 2}});
    let endpoint = shop.endpoint(limit);
    for lane in 1..=5 {
        shop.accept(endpoint, at(lane, 1));
    }
    let mut seen = vec![shop.started.len()];
    for _ in 0..4 {
        shop.pass_secs(1);
        seen.push(shop.started.len());
    }
    assert_eq!(seen, [2, 3, 4, 5, 5]);
}

#[test]
fn a_tenants_rate_limit_spans_its_endpoints_and_nobody_elses() {
    let mut shop = Shop::new();
    let limit = RateLimit { count: 1, per: Span::from_secs(1), burst: 1 };
    let tenant = "slow".parse().unwrap();
    shop.handle(Input::TenantChanged { tenant, rate_limit: Some(limit) });
    let slow = [shop.endpoint_of("slow", json!({})), shop.endpoint_of("slow", json!({}))];
    let free = shop.endpoint_of("free", json!({}));
    for endpoint in slow {
        shop.accept(endpoint, None);
        shop.accept(endpoint, None);
    }
    assert_eq!(shop.started.len(), 1);
    let other = shop.accept(free, None);
    assert!(shop.in_flight().contains(&other));
    shop.pass_secs(2);
    assert_eq!(shop.started.len(), 4);
    let tenant = "slow".parse().unwrap();
    shop.handle(Input::TenantChanged { tenant, rate_limit: None });
    assert_eq!(shop.started.len(), 5, "without a limit the rest goes at once");
}

#[test]
fn a_tenants_rate_limit_out_of_bounds_is_ignored() {
    let mut shop = Shop::new();
    for (count, per, burst) in
        [(0, Span::from_secs(1), 1), (1, Span::ZERO, 1), (1, Span::from_secs(1), 0)]
    {
        let rate_limit = Some(RateLimit { count, per, burst });
        shop.handle(Input::TenantChanged { tenant: "t".parse().unwrap(), rate_limit });
        assert_eq!(shop.last_ignored(), Some(Because::RateLimitInvalid));
    }
}
