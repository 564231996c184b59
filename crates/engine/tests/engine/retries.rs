//! When a failed delivery is tried again, and when it is given up on.

use railpost_engine::{DeadReason, DeliveryState, Span};
use serde_json::json;

use crate::harness::{Harness, TIMEOUT, answer, answer_after, at};

fn fixed(delay: &str) -> serde_json::Value {
    json!({"retry": {"backoff": {"strategy": "fixed", "delay": delay}}, "breaker": null})
}

#[test]
fn a_retry_starts_when_it_is_due_and_not_before() {
    let mut harness = Harness::new();
    let endpoint = harness.endpoint(fixed("10s"));
    let id = harness.accept(endpoint, None);
    harness.end(id, TIMEOUT);
    let until = harness.now() + Span::from_secs(10);
    assert_eq!(harness.state(id), DeliveryState::Waiting { until });
    harness.pass(Span::from_millis(9_999));
    assert_eq!(harness.in_flight(), []);
    harness.pass(Span::from_millis(1));
    assert_eq!(harness.in_flight(), [id]);
}

#[test]
fn every_attempt_has_the_next_number() {
    let mut harness = Harness::new();
    let endpoint = harness.endpoint(fixed("1s"));
    let id = harness.accept(endpoint, at(1, 1));
    for _ in 0..3 {
        harness.end(id, answer(500));
        harness.pass_secs(1);
    }
    let numbers: Vec<u32> = harness.started.iter().map(|attempt| attempt.number).collect();
    assert_eq!(numbers, [1, 2, 3, 4]);
    assert_eq!(harness.stored(id).progress.attempts, 3, "attempts are recorded as they end");
}

#[test]
fn a_delivery_dies_after_its_last_attempt() {
    let mut harness = Harness::new();
    let mut policy = fixed("1s");
    policy["retry"]["max_attempts"] = json!(2);
    let endpoint = harness.endpoint(policy);
    let id = harness.accept(endpoint, None);
    harness.end(id, answer(500));
    harness.pass_secs(1);
    harness.end(id, answer(500));
    let reason = DeadReason::AttemptsExhausted;
    assert_eq!(harness.state(id), DeliveryState::Dead { reason, holds: false });
}

#[test]
fn a_delivery_dies_when_its_next_attempt_would_come_after_its_ttl() {
    let mut harness = Harness::new();
    let mut policy = fixed("20s");
    policy["retry"]["ttl"] = json!("30s");
    let endpoint = harness.endpoint(policy);
    let id = harness.accept(endpoint, None);
    harness.end(id, answer(500));
    harness.pass_secs(20);
    harness.end(id, answer(500));
    assert_eq!(
        harness.state(id),
        DeliveryState::Dead { reason: DeadReason::Expired, holds: false }
    );
}

#[test]
fn time_spent_waiting_for_its_turn_does_not_count_towards_the_ttl() {
    let mut harness = Harness::new();
    let mut policy = fixed("1s");
    policy["retry"]["ttl"] = json!("30s");
    policy["on_dead_letter"] = json!("advance");
    let endpoint = harness.endpoint(policy);
    let lane = harness.accept_lane(endpoint, 1, 2);
    harness.pass_secs(3_600);
    harness.acknowledge(lane[0]);
    harness.end(lane[1], answer(500));
    assert!(matches!(harness.state(lane[1]), DeliveryState::Waiting { .. }));
}

#[test]
fn retry_after_delays_the_one_delivery_on_most_statuses() {
    let mut harness = Harness::new();
    let endpoint = harness.endpoint(fixed("1s"));
    let slow = harness.accept(endpoint, None);
    harness.end(slow, answer_after(500, 60));
    let other = harness.accept(endpoint, None);
    assert_eq!(harness.in_flight(), [other], "the endpoint goes on");
    harness.pass_secs(59);
    assert_eq!(harness.in_flight(), [other]);
    harness.pass_secs(1);
    assert_eq!(harness.in_flight(), [other, slow]);
}

#[test]
fn retry_after_with_429_or_503_holds_the_whole_endpoint() {
    for status in [429, 503] {
        let mut harness = Harness::new();
        let endpoint = harness.endpoint(fixed("1s"));
        let first = harness.accept(endpoint, at(1, 1));
        harness.end(first, answer_after(status, 60));
        let other = harness.accept(endpoint, at(2, 1));
        harness.pass_secs(59);
        assert_eq!(harness.in_flight(), [], "{status}");
        harness.pass_secs(1);
        let mut in_flight = harness.in_flight();
        in_flight.sort();
        assert_eq!(in_flight, [first, other], "{status}");
    }
}

#[test]
fn a_shorter_retry_after_does_not_shorten_a_hold() {
    let mut harness = Harness::new();
    let endpoint = harness.endpoint(fixed("1s"));
    let (one, two) = (harness.accept(endpoint, None), harness.accept(endpoint, None));
    harness.end(one, answer_after(503, 60));
    harness.end(two, answer_after(503, 5));
    harness.pass_secs(59);
    assert_eq!(harness.in_flight(), []);
}

#[test]
fn an_override_turns_a_refusal_into_a_retry() {
    let mut harness = Harness::new();
    let endpoint = harness.endpoint(json!({"outcomes": {"404": "retryable"}}));
    let id = harness.accept(endpoint, None);
    harness.end(id, answer(404));
    assert!(matches!(harness.state(id), DeliveryState::Waiting { .. }));
}

#[test]
fn jitter_comes_from_the_seed_alone() {
    let waits = |_| {
        let mut harness = Harness::new();
        let endpoint = harness.endpoint(json!({"breaker": null}));
        let ids: Vec<_> = (0..20).map(|_| harness.accept(endpoint, None)).collect();
        ids.iter().for_each(|id| harness.end(*id, TIMEOUT));
        ids.iter().map(|id| harness.stored(*id).progress.last_delay).collect::<Vec<_>>()
    };
    let (one, two) = (waits(1), waits(2));
    assert_eq!(one, two);
    assert!(one.iter().any(|wait| *wait != one[0]), "waits are spread");
}

#[test]
fn a_clock_that_goes_back_neither_starts_nor_stalls_anything() {
    let mut harness = Harness::new();
    let endpoint = harness.endpoint(fixed("10s"));
    let id = harness.accept(endpoint, None);
    harness.end(id, TIMEOUT);
    let until = harness.now() + Span::from_secs(10);
    harness.turn_clock_back(Span::from_hours(1));
    let other = harness.accept(endpoint, None);
    harness.end(other, TIMEOUT);
    assert_eq!(harness.state(other), DeliveryState::Waiting { until }, "time stood still");
    harness.pass(Span::from_hours(1) + Span::from_secs(10));
    assert_eq!(harness.in_flight(), [id, other]);
}
