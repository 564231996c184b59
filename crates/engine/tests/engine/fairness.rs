//! Caps, rates, and who goes first when there is not room for all.

use railpost_engine::{Config, IgnoredReason, Input, RateLimit, Span};
use serde_json::json;

use crate::harness::{Harness, at, policy};

fn tight(in_flight_max: u32) -> Harness {
    Harness::with(Config { in_flight_max, ..Config::default() })
}

#[test]
fn an_endpoint_never_has_more_under_way_than_its_cap() {
    let mut harness = Harness::new();
    let endpoint = harness.endpoint(json!({"in_flight_max": 3}));
    for _ in 0..10 {
        harness.accept(endpoint, None);
    }
    assert_eq!(harness.in_flight().len(), 3);
    let first = harness.in_flight()[0];
    harness.acknowledge(first);
    assert_eq!(harness.in_flight().len(), 3);
}

#[test]
fn a_raised_cap_takes_effect_at_once_and_a_lowered_one_as_attempts_end() {
    let mut harness = Harness::new();
    let endpoint = harness.endpoint(json!({"in_flight_max": 2}));
    for _ in 0..10 {
        harness.accept(endpoint, None);
    }
    let raised = policy(json!({"in_flight_max": 4}));
    harness.handle(Input::EndpointChanged { endpoint, policy: raised, rotation: None });
    assert_eq!(harness.in_flight().len(), 4);
    let lowered = policy(json!({"in_flight_max": 1}));
    harness.handle(Input::EndpointChanged { endpoint, policy: lowered, rotation: None });
    for left in [3, 2, 1, 1] {
        let first = harness.in_flight()[0];
        harness.acknowledge(first);
        assert_eq!(harness.in_flight().len(), left);
    }
}

#[test]
fn a_hanging_endpoint_takes_nothing_from_another() {
    let mut harness = Harness::new();
    let hanging = harness.endpoint(json!({"in_flight_max": 2}));
    let good = harness.endpoint(json!({"in_flight_max": 2}));
    for _ in 0..100 {
        harness.accept(hanging, None);
    }
    for _ in 0..100 {
        let id = harness.accept(good, None);
        assert!(harness.in_flight().contains(&id));
        harness.acknowledge(id);
    }
}

#[test]
fn one_tenant_never_takes_the_last_free_place_from_the_others() {
    let mut harness = tight(8);
    for _ in 0..10 {
        let endpoint = harness.endpoint_of("greedy", json!({}));
        harness.accept(endpoint, None);
    }
    assert_eq!(harness.in_flight().len(), 4, "half of all places");
    let modest = harness.endpoint_of("modest", json!({}));
    let id = harness.accept(modest, None);
    assert!(harness.in_flight().contains(&id));
}

#[test]
fn the_tenant_with_the_fewest_attempts_under_way_goes_first() {
    let mut harness = tight(2);
    let busy = harness.endpoint_of("busy", json!({}));
    let quiet = harness.endpoint_of("quiet", json!({}));
    let running = harness.accept(busy, None);
    for _ in 0..3 {
        harness.accept(busy, None);
    }
    let first = harness.accept(quiet, None);
    let second = harness.accept(quiet, None);
    assert_eq!(harness.in_flight(), [running, first]);
    harness.acknowledge(first);
    assert_eq!(harness.in_flight(), [running, second]);
}

#[test]
fn equal_tenants_take_turns_and_so_do_a_tenants_endpoints() {
    let mut harness = tight(1);
    let names = ["a", "a", "b"];
    let endpoints = names.map(|tenant| harness.endpoint_of(tenant, json!({})));
    let blocker = harness.accept(endpoints[0], None);
    for _ in 0..4 {
        for endpoint in endpoints {
            harness.accept(endpoint, None);
        }
    }
    harness.acknowledge(blocker);
    let mut order = Vec::new();
    while let Some(id) = harness.in_flight().first().copied() {
        let endpoint = harness.under_way[0].endpoint;
        order.push(endpoints.iter().position(|e| *e == endpoint).unwrap());
        harness.acknowledge(id);
    }
    assert_eq!(order[..8], [2, 0, 2, 1, 2, 0, 2, 1], "b, a, b, a …, and a's two in turn");
    assert_eq!(order.len(), 12);
}

#[test]
fn an_endpoints_rate_limit_lets_a_burst_go_and_then_paces() {
    let mut harness = Harness::new();
    let limit = json!({"rate_limit": {"count": 1, "per": "1s", "burst": 2}});
    let endpoint = harness.endpoint(limit);
    for lane in 1..=5 {
        harness.accept(endpoint, at(lane, 1));
    }
    let mut seen = vec![harness.started.len()];
    for _ in 0..4 {
        harness.pass_secs(1);
        seen.push(harness.started.len());
    }
    assert_eq!(seen, [2, 3, 4, 5, 5]);
}

#[test]
fn a_tenants_rate_limit_spans_its_endpoints_and_nobody_elses() {
    let mut harness = Harness::new();
    let limit = RateLimit { count: 1, per: Span::from_secs(1), burst: 1 };
    let tenant = "slow".parse().unwrap();
    harness.handle(Input::TenantChanged { tenant, rate_limit: Some(limit) });
    let slow = [harness.endpoint_of("slow", json!({})), harness.endpoint_of("slow", json!({}))];
    let free = harness.endpoint_of("free", json!({}));
    for endpoint in slow {
        harness.accept(endpoint, None);
        harness.accept(endpoint, None);
    }
    assert_eq!(harness.started.len(), 1);
    let other = harness.accept(free, None);
    assert!(harness.in_flight().contains(&other));
    harness.pass_secs(2);
    assert_eq!(harness.started.len(), 4);
    let tenant = "slow".parse().unwrap();
    harness.handle(Input::TenantChanged { tenant, rate_limit: None });
    assert_eq!(harness.started.len(), 5, "without a limit the rest goes at once");
}

#[test]
fn a_tenants_rate_limit_out_of_bounds_is_ignored() {
    let mut harness = Harness::new();
    for (count, per, burst) in
        [(0, Span::from_secs(1), 1), (1, Span::ZERO, 1), (1, Span::from_secs(1), 0)]
    {
        let rate_limit = Some(RateLimit { count, per, burst });
        harness.handle(Input::TenantChanged { tenant: "t".parse().unwrap(), rate_limit });
        assert_eq!(harness.last_ignored(), Some(IgnoredReason::RateLimitInvalid));
    }
}
