//! Breaker, quarantine, auto-disable: what keeps a bad endpoint from doing harm.

use railpost_engine::{
    AttemptResult, BreakerState, Command, DeliveryState, EndpointStatus, Failure, Input,
    LoadedPage, NoticeKind, Span,
};
use railpost_wire::{DeliveryId, EndpointId};
use serde_json::{Value, json};

use crate::harness::{Harness, TIMEOUT, answer, at, policy};

/// Opens after two failures out of two, for ten seconds.
fn nervous() -> Value {
    json!({
        "retry": {"backoff": {"strategy": "fixed", "delay": "1s"}},
        "breaker": {"min_attempts": 2, "window": 2, "open_for": "10s", "open_for_max": "1h"},
        "in_flight_max": 4,
        "quarantine_after": 3,
    })
}

/// An endpoint with ten lanes of one delivery each, whose breaker has just opened.
fn opened(harness: &mut Harness) -> (EndpointId, Vec<DeliveryId>) {
    let endpoint = harness.endpoint(nervous());
    let ids: Vec<_> = (1..=10).map(|lane| harness.accept(endpoint, at(lane, 1))).collect();
    while let Some(id) = harness.in_flight().first().copied() {
        harness.end(id, TIMEOUT);
    }
    (endpoint, ids)
}

#[test]
fn an_open_breaker_sends_nothing_and_burns_no_attempt() {
    let mut harness = Harness::new();
    let (endpoint, _) = opened(&mut harness);
    let until = harness.now() + Span::from_secs(10);
    assert_eq!(harness.engine.health(endpoint).unwrap().breaker, BreakerState::Open { until });
    assert_eq!(harness.notices, [NoticeKind::BreakerOpened { until }]);
    let started = harness.started.len();
    harness.pass(Span::from_millis(9_999));
    assert_eq!(harness.started.len(), started);
}

#[test]
fn one_probe_goes_when_the_breaker_has_been_open_long_enough() {
    let mut harness = Harness::new();
    let (endpoint, _) = opened(&mut harness);
    harness.pass_secs(10);
    assert_eq!(harness.in_flight().len(), 1);
    assert_eq!(harness.engine.health(endpoint).unwrap().breaker, BreakerState::Probing);
    harness.pass_secs(3_600);
    assert_eq!(harness.in_flight().len(), 1);
}

#[test]
fn a_failed_probe_keeps_the_breaker_open_for_longer() {
    let mut harness = Harness::new();
    opened(&mut harness);
    harness.pass_secs(10);
    let probe = harness.in_flight()[0];
    harness.end(probe, TIMEOUT);
    harness.pass_secs(19);
    assert_eq!(harness.in_flight(), []);
    harness.pass_secs(1);
    assert_eq!(harness.in_flight().len(), 1);
}

#[test]
fn after_a_good_probe_sending_ramps_up() {
    let mut harness = Harness::new();
    opened(&mut harness);
    harness.pass_secs(10);
    let mut most = Vec::new();
    while let Some(id) = harness.in_flight().first().copied() {
        harness.acknowledge(id);
        most.push(harness.in_flight().len());
    }
    assert_eq!(most, [1, 2, 3, 4, 4, 4, 3, 2, 1, 0]);
    assert!(harness.notices.contains(&NoticeKind::BreakerClosed));
}

#[test]
fn a_receiver_that_refuses_a_probe_for_good_is_well() {
    let mut harness = Harness::new();
    opened(&mut harness);
    harness.pass_secs(10);
    let probe = harness.in_flight()[0];
    harness.end(probe, answer(400));
    assert!(harness.notices.contains(&NoticeKind::BreakerClosed));
}

#[test]
fn what_failed_on_this_side_says_nothing_about_the_endpoint() {
    for failure in [Failure::PayloadMissing, Failure::NotSent] {
        let mut harness = Harness::new();
        opened(&mut harness);
        harness.pass_secs(10);
        let probe = harness.in_flight()[0];
        harness.end(probe, AttemptResult::Failed(failure));
        assert_eq!(harness.in_flight().len(), 1, "another probe takes its place");
        assert!(!harness.notices.contains(&NoticeKind::BreakerClosed));
        let opened = |notice: &&NoticeKind| matches!(notice, NoticeKind::BreakerOpened { .. });
        let count = harness.notices.iter().filter(opened).count();
        assert_eq!(count, 1, "{failure:?}: nor is the breaker open for longer");
    }
}

#[test]
fn a_breaker_that_was_switched_off_while_it_probed_starts_anew() {
    let mut harness = Harness::new();
    let (endpoint, _) = opened(&mut harness);
    harness.pass_secs(10);
    let probe = harness.in_flight()[0];
    let mut without = nervous();
    without["breaker"] = Value::Null;
    harness.handle(Input::EndpointChanged { endpoint, policy: policy(without), rotation: None });
    harness.end(probe, TIMEOUT);
    harness.handle(Input::EndpointChanged { endpoint, policy: policy(nervous()), rotation: None });
    assert_eq!(harness.engine.health(endpoint).unwrap().breaker, BreakerState::Closed);
}

#[test]
fn without_a_breaker_failures_stop_nothing() {
    let mut harness = Harness::new();
    let endpoint = harness.endpoint(json!({"breaker": null, "in_flight_max": 100}));
    let ids: Vec<_> = (0..50).map(|_| harness.accept(endpoint, None)).collect();
    ids.iter().for_each(|id| harness.end(*id, TIMEOUT));
    let fresh = harness.accept(endpoint, None);
    assert!(harness.in_flight().contains(&fresh));
}

#[test]
fn lanes_that_fail_for_good_one_after_another_quarantine_their_endpoint() {
    let mut harness = Harness::new();
    let endpoint = harness.endpoint(nervous());
    let ids: Vec<_> = (1..=10).map(|lane| harness.accept(endpoint, at(lane, 1))).collect();
    for id in &ids[..3] {
        assert_eq!(harness.status(endpoint), EndpointStatus::Active);
        harness.end(*id, answer(400));
    }
    assert_eq!(harness.status(endpoint), EndpointStatus::Quarantined);
    let off = NoticeKind::SwitchedOff(EndpointStatus::Quarantined);
    assert!(harness.notices.contains(&off));
    let record = harness.endpoint_records.last().unwrap();
    assert_eq!(record.status, EndpointStatus::Quarantined);
    for id in harness.in_flight() {
        harness.acknowledge(id);
    }
    harness.pass_secs(100_000);
    assert_eq!(harness.in_flight(), [], "the backlog is kept");
    assert_eq!(harness.state(ids[9]), DeliveryState::Pending);
    harness.handle(Input::EndpointResumed(endpoint));
    assert_eq!(harness.in_flight().len(), 1, "and sending ramps up again");
}

#[test]
fn an_acknowledgement_in_between_starts_the_quarantine_count_anew() {
    let mut harness = Harness::new();
    let endpoint = harness.endpoint(nervous());
    let ids: Vec<_> = (1..=10).map(|lane| harness.accept(endpoint, at(lane, 1))).collect();
    for (id, status) in ids.iter().zip([400, 400, 200, 400, 400]) {
        harness.end(*id, answer(status));
    }
    assert_eq!(harness.status(endpoint), EndpointStatus::Active);
}

#[test]
fn one_bad_lane_does_not_quarantine_its_endpoint() {
    let mut harness = Harness::new();
    let mut policy = nervous();
    policy["on_dead_letter"] = json!("advance");
    let endpoint = harness.endpoint(policy);
    for id in harness.accept_lane(endpoint, 1, 10) {
        harness.end(id, answer(400));
    }
    assert_eq!(harness.status(endpoint), EndpointStatus::Active);
}

#[test]
fn one_bad_delivery_that_is_replayed_again_and_again_does_not_quarantine_its_endpoint() {
    let mut harness = Harness::new();
    let endpoint = harness.endpoint(nervous());
    let id = harness.accept(endpoint, None);
    for _ in 0..5 {
        harness.end(id, answer(400));
        harness.command(Command::Replay, id);
        let deliveries = vec![harness.stored(id)];
        harness.answer_load(LoadedPage::Unkeyed { deliveries, next: None, next_due: None });
    }
    assert_eq!(harness.status(endpoint), EndpointStatus::Active);
}

#[test]
fn a_receiver_that_says_gone_is_switched_off_at_once() {
    let mut harness = Harness::new();
    let endpoint = harness.endpoint(json!({}));
    let lane = harness.accept_lane(endpoint, 1, 2);
    harness.end(lane[0], answer(410));
    assert_eq!(harness.status(endpoint), EndpointStatus::Gone);
    let tolerant = harness.endpoint(json!({"outcomes": {"410": "retryable"}}));
    let id = harness.accept(tolerant, None);
    harness.end(id, answer(410));
    assert_eq!(harness.status(tolerant), EndpointStatus::Active);
}

#[test]
fn days_of_nothing_but_failures_disable_an_endpoint() {
    let mut harness = Harness::new();
    let endpoint = harness.endpoint(json!({
        "retry": {"backoff": {"strategy": "fixed", "delay": "10m"}, "max_attempts": 10000, "ttl": "90d"},
        "disable_after": "2d",
    }));
    let id = harness.accept(endpoint, None);
    let began = harness.now();
    while harness.status(endpoint) == EndpointStatus::Active {
        if harness.in_flight().is_empty() {
            harness.pass_secs(600);
        }
        harness.end(id, answer(500));
    }
    assert_eq!(harness.status(endpoint), EndpointStatus::Failing);
    assert_eq!(harness.now().since(began), Span::from_days(2));
    let record = harness.endpoint_records.last().unwrap();
    assert_eq!((record.status, record.failing_since), (EndpointStatus::Failing, Some(began)));
}

#[test]
fn failing_since_is_recorded_once_and_taken_back_by_a_success() {
    let mut harness = Harness::new();
    let endpoint = harness.endpoint(json!({
        "retry": {"backoff": {"strategy": "fixed", "delay": "40s"}}, "breaker": null,
    }));
    let id = harness.accept(endpoint, None);
    let began = harness.now();
    for _ in 0..4 {
        harness.end(id, answer(500));
        harness.pass_secs(40);
    }
    harness.acknowledge(id);
    let recorded: Vec<_> = harness.endpoint_records.iter().map(|r| r.failing_since).collect();
    assert_eq!(recorded, [Some(began), None]);
}

#[test]
fn a_single_failure_between_successes_costs_no_record() {
    let mut harness = Harness::new();
    let endpoint = harness.endpoint(json!({}));
    let id = harness.accept(endpoint, None);
    harness.end(id, answer(500));
    harness.pass_secs(10);
    harness.acknowledge(id);
    assert_eq!(harness.endpoint_records, []);
}

#[test]
fn what_is_about_a_lane_counts_against_nobody() {
    for status in [409, 425] {
        let mut harness = Harness::new();
        let endpoint = harness.endpoint(json!({
            "retry": {"backoff": {"strategy": "fixed", "delay": "1s"}, "max_attempts": 1_000},
            "breaker": {"min_attempts": 1, "window": 1, "open_for": "10s"},
            "quarantine_after": 1,
            "disable_after": "1m",
        }));
        let ids: Vec<_> = (1..=10).map(|lane| harness.accept(endpoint, at(lane, 1))).collect();
        for _ in 0..100 {
            ids.iter().for_each(|id| harness.end(*id, answer(status)));
            harness.pass_secs(1);
            assert_eq!(harness.in_flight().len(), 10, "every lane is tried again in its own time");
        }
        let health = harness.engine.health(endpoint).unwrap();
        assert_eq!((health.status, health.breaker), (EndpointStatus::Active, BreakerState::Closed));
        assert_eq!(health.failing_since, None);
    }
}

#[test]
fn a_probe_that_is_answered_about_its_lane_closes_the_breaker() {
    let mut harness = Harness::new();
    let (endpoint, _) = opened(&mut harness);
    harness.pass_secs(10);
    let probe = harness.in_flight()[0];
    harness.end(probe, answer(425));
    assert_eq!(harness.notices.last(), Some(&NoticeKind::BreakerClosed));
    assert!(!harness.in_flight().is_empty(), "another one goes at once");
    assert_eq!(harness.engine.health(endpoint).unwrap().status, EndpointStatus::Active);
}

#[test]
fn a_blocked_endpoint_sends_nothing_and_keeps_its_backlog_and_status() {
    let mut harness = Harness::new();
    let endpoint = harness.endpoint(json!({"in_flight_max": 1}));
    let lane = harness.accept_lane(endpoint, 1, 2);
    harness.handle(Input::EndpointBlocked { endpoint, blocked: true });
    harness.end(lane[0], TIMEOUT);
    harness.pass_secs(100 * 3_600);
    assert_eq!((harness.in_flight().len(), harness.started.len()), (0, 1));
    let health = harness.engine.health(endpoint).unwrap();
    assert_eq!((health.status, health.blocked), (EndpointStatus::Active, true));
    harness.handle(Input::EndpointBlocked { endpoint, blocked: false });
    assert_eq!(harness.in_flight(), [lane[0]]);
    harness.acknowledge(lane[0]);
    assert_eq!(harness.in_flight(), [lane[1]]);
}
