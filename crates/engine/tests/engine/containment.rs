//! Breaker, quarantine, auto-disable: what keeps a bad endpoint from doing harm.

use railpost_engine::{
    AttemptResult, BreakerState, Command, DeliveryState, EndpointStatus, Failure, Input,
    NoticeKind, Page, Span,
};
use railpost_wire::{DeliveryId, EndpointId};
use serde_json::{Value, json};

use crate::harness::{Shop, TIMEOUT, answer, at, policy};

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
fn opened(shop: &mut Shop) -> (EndpointId, Vec<DeliveryId>) {
    let endpoint = shop.endpoint(nervous());
    let ids: Vec<_> = (1..=10).map(|lane| shop.accept(endpoint, at(lane, 1))).collect();
    while let Some(id) = shop.in_flight().first().copied() {
        shop.end(id, TIMEOUT);
    }
    (endpoint, ids)
}

#[test]
fn an_open_breaker_sends_nothing_and_burns_no_attempt() {
    let mut shop = Shop::new();
    let (endpoint, _) = opened(&mut shop);
    let until = shop.now() + Span::from_secs(10);
    assert_eq!(shop.engine.health(endpoint).unwrap().breaker, BreakerState::Open { until });
    assert_eq!(shop.notices, [NoticeKind::BreakerOpened { until }]);
    let started = shop.started.len();
    shop.pass(Span::from_millis(9_999));
    assert_eq!(shop.started.len(), started);
}

#[test]
fn one_probe_goes_when_the_breaker_has_been_open_long_enough() {
    let mut shop = Shop::new();
    let (endpoint, _) = opened(&mut shop);
    shop.pass_secs(10);
    assert_eq!(shop.in_flight().len(), 1);
    assert_eq!(shop.engine.health(endpoint).unwrap().breaker, BreakerState::Probing);
    shop.pass_secs(3_600);
    assert_eq!(shop.in_flight().len(), 1);
}

#[test]
fn a_failed_probe_keeps_the_breaker_open_for_longer() {
    let mut shop = Shop::new();
    opened(&mut shop);
    shop.pass_secs(10);
    let probe = shop.in_flight()[0];
    shop.end(probe, TIMEOUT);
    shop.pass_secs(19);
    assert_eq!(shop.in_flight(), []);
    shop.pass_secs(1);
    assert_eq!(shop.in_flight().len(), 1);
}

#[test]
fn after_a_good_probe_sending_ramps_up() {
    let mut shop = Shop::new();
    opened(&mut shop);
    shop.pass_secs(10);
    let mut most = Vec::new();
    while let Some(id) = shop.in_flight().first().copied() {
        shop.acknowledge(id);
        most.push(shop.in_flight().len());
    }
    assert_eq!(most, [1, 2, 3, 4, 4, 4, 3, 2, 1, 0]);
    assert!(shop.notices.contains(&NoticeKind::BreakerClosed));
}

#[test]
fn a_receiver_that_refuses_a_probe_for_good_is_well() {
    let mut shop = Shop::new();
    opened(&mut shop);
    shop.pass_secs(10);
    let probe = shop.in_flight()[0];
    shop.end(probe, answer(400));
    assert!(shop.notices.contains(&NoticeKind::BreakerClosed));
}

#[test]
fn what_failed_on_this_side_says_nothing_about_the_endpoint() {
    for failure in [Failure::PayloadMissing, Failure::NotSent] {
        let mut shop = Shop::new();
        opened(&mut shop);
        shop.pass_secs(10);
        let probe = shop.in_flight()[0];
        shop.end(probe, AttemptResult::Failed(failure));
        assert_eq!(shop.in_flight().len(), 1, "another probe takes its place");
        assert!(!shop.notices.contains(&NoticeKind::BreakerClosed));
        let opened = |notice: &&NoticeKind| matches!(notice, NoticeKind::BreakerOpened { .. });
        let count = shop.notices.iter().filter(opened).count();
        assert_eq!(count, 1, "{failure:?}: nor is the breaker open for longer");
    }
}

#[test]
fn a_breaker_that_was_switched_off_while_it_probed_starts_anew() {
    let mut shop = Shop::new();
    let (endpoint, _) = opened(&mut shop);
    shop.pass_secs(10);
    let probe = shop.in_flight()[0];
    let mut without = nervous();
    without["breaker"] = Value::Null;
    shop.handle(Input::EndpointChanged { endpoint, policy: policy(without) });
    shop.end(probe, TIMEOUT);
    shop.handle(Input::EndpointChanged { endpoint, policy: policy(nervous()) });
    assert_eq!(shop.engine.health(endpoint).unwrap().breaker, BreakerState::Closed);
}

#[test]
fn without_a_breaker_failures_stop_nothing() {
    let mut shop = Shop::new();
    let endpoint = shop.endpoint(json!({"breaker": null, "in_flight_max": 100}));
    let ids: Vec<_> = (0..50).map(|_| shop.accept(endpoint, None)).collect();
    ids.iter().for_each(|id| shop.end(*id, TIMEOUT));
    let fresh = shop.accept(endpoint, None);
    assert!(shop.in_flight().contains(&fresh));
}

#[test]
fn lanes_that_fail_for_good_one_after_another_quarantine_their_endpoint() {
    let mut shop = Shop::new();
    let endpoint = shop.endpoint(nervous());
    let ids: Vec<_> = (1..=10).map(|lane| shop.accept(endpoint, at(lane, 1))).collect();
    for id in &ids[..3] {
        assert_eq!(shop.status(endpoint), EndpointStatus::Active);
        shop.end(*id, answer(400));
    }
    assert_eq!(shop.status(endpoint), EndpointStatus::Quarantined);
    let off = NoticeKind::SwitchedOff(EndpointStatus::Quarantined);
    assert!(shop.notices.contains(&off));
    let record = shop.endpoint_records.last().unwrap();
    assert_eq!(record.status, EndpointStatus::Quarantined);
    for id in shop.in_flight() {
        shop.acknowledge(id);
    }
    shop.pass_secs(100_000);
    assert_eq!(shop.in_flight(), [], "the backlog is kept");
    assert_eq!(shop.state(ids[9]), DeliveryState::Pending);
    shop.handle(Input::EndpointResumed(endpoint));
    assert_eq!(shop.in_flight().len(), 1, "and sending ramps up again");
}

#[test]
fn an_acknowledgement_in_between_starts_the_quarantine_count_anew() {
    let mut shop = Shop::new();
    let endpoint = shop.endpoint(nervous());
    let ids: Vec<_> = (1..=10).map(|lane| shop.accept(endpoint, at(lane, 1))).collect();
    for (id, status) in ids.iter().zip([400, 400, 200, 400, 400]) {
        shop.end(*id, answer(status));
    }
    assert_eq!(shop.status(endpoint), EndpointStatus::Active);
}

#[test]
fn one_bad_lane_does_not_quarantine_its_endpoint() {
    let mut shop = Shop::new();
    let mut policy = nervous();
    policy["on_dead_letter"] = json!("advance");
    let endpoint = shop.endpoint(policy);
    for id in shop.accept_lane(endpoint, 1, 10) {
        shop.end(id, answer(400));
    }
    assert_eq!(shop.status(endpoint), EndpointStatus::Active);
}

#[test]
fn one_bad_delivery_that_is_replayed_again_and_again_does_not_quarantine_its_endpoint() {
    let mut shop = Shop::new();
    let endpoint = shop.endpoint(nervous());
    let id = shop.accept(endpoint, None);
    for _ in 0..5 {
        shop.end(id, answer(400));
        shop.command(Command::Replay, id);
        let deliveries = vec![shop.stored(id)];
        shop.answer_load(Page::Unkeyed { deliveries, next: None, next_due: None });
    }
    assert_eq!(shop.status(endpoint), EndpointStatus::Active);
}

#[test]
fn a_receiver_that_says_gone_is_switched_off_at_once() {
    let mut shop = Shop::new();
    let endpoint = shop.endpoint(json!({}));
    let lane = shop.accept_lane(endpoint, 1, 2);
    shop.end(lane[0], answer(410));
    assert_eq!(shop.status(endpoint), EndpointStatus::Gone);
    let tolerant = shop.endpoint(json!({"outcomes": {"410": "retryable"}}));
    let id = shop.accept(tolerant, None);
    shop.end(id, answer(410));
    assert_eq!(shop.status(tolerant), EndpointStatus::Active);
}

#[test]
fn days_of_nothing_but_failures_disable_an_endpoint() {
    let mut shop = Shop::new();
    let endpoint = shop.endpoint(json!({
        "retry": {"backoff": {"strategy": "fixed", "delay": "10m"}, "max_attempts": 10000, "ttl": "90d"},
        "disable_after": "2d",
    }));
    let id = shop.accept(endpoint, None);
    let began = shop.now();
    while shop.status(endpoint) == EndpointStatus::Active {
        if shop.in_flight().is_empty() {
            shop.pass_secs(600);
        }
        shop.end(id, answer(500));
    }
    assert_eq!(shop.status(endpoint), EndpointStatus::Failing);
    assert_eq!(shop.now().since(began), Span::from_days(2));
    let record = shop.endpoint_records.last().unwrap();
    assert_eq!((record.status, record.failing_since), (EndpointStatus::Failing, Some(began)));
}

#[test]
fn failing_since_is_recorded_once_and_taken_back_by_a_success() {
    let mut shop = Shop::new();
    let endpoint = shop.endpoint(json!({
        "retry": {"backoff": {"strategy": "fixed", "delay": "40s"}}, "breaker": null,
    }));
    let id = shop.accept(endpoint, None);
    let began = shop.now();
    for _ in 0..4 {
        shop.end(id, answer(500));
        shop.pass_secs(40);
    }
    shop.acknowledge(id);
    let recorded: Vec<_> = shop.endpoint_records.iter().map(|r| r.failing_since).collect();
    assert_eq!(recorded, [Some(began), None]);
}

#[test]
fn a_single_failure_between_successes_costs_no_record() {
    let mut shop = Shop::new();
    let endpoint = shop.endpoint(json!({}));
    let id = shop.accept(endpoint, None);
    shop.end(id, answer(500));
    shop.pass_secs(10);
    shop.acknowledge(id);
    assert_eq!(shop.endpoint_records, []);
}

#[test]
fn what_is_about_a_lane_counts_against_nobody() {
    for status in [409, 425] {
        let mut shop = Shop::new();
        let endpoint = shop.endpoint(json!({
            "retry": {"backoff": {"strategy": "fixed", "delay": "1s"}, "max_attempts": 1_000},
            "breaker": {"min_attempts": 1, "window": 1, "open_for": "10s"},
            "quarantine_after": 1,
            "disable_after": "1m",
        }));
        let ids: Vec<_> = (1..=10).map(|lane| shop.accept(endpoint, at(lane, 1))).collect();
        for _ in 0..100 {
            ids.iter().for_each(|id| shop.end(*id, answer(status)));
            shop.pass_secs(1);
            assert_eq!(shop.in_flight().len(), 10, "every lane is tried again in its own time");
        }
        let health = shop.engine.health(endpoint).unwrap();
        assert_eq!((health.status, health.breaker), (EndpointStatus::Active, BreakerState::Closed));
        assert_eq!(health.failing_since, None);
    }
}

#[test]
fn a_probe_that_is_answered_about_its_lane_closes_the_breaker() {
    let mut shop = Shop::new();
    let (endpoint, _) = opened(&mut shop);
    shop.pass_secs(10);
    let probe = shop.in_flight()[0];
    shop.end(probe, answer(425));
    assert_eq!(shop.notices.last(), Some(&NoticeKind::BreakerClosed));
    assert!(!shop.in_flight().is_empty(), "another one goes at once");
    assert_eq!(shop.engine.health(endpoint).unwrap().status, EndpointStatus::Active);
}

#[test]
fn a_blocked_endpoint_sends_nothing_and_keeps_its_backlog_and_status() {
    let mut shop = Shop::new();
    let endpoint = shop.endpoint(json!({"in_flight_max": 1}));
    let lane = shop.accept_lane(endpoint, 1, 2);
    shop.handle(Input::EndpointBlocked { endpoint, blocked: true });
    shop.end(lane[0], TIMEOUT);
    shop.pass_secs(100 * 3_600);
    assert_eq!((shop.in_flight().len(), shop.started.len()), (0, 1));
    let health = shop.engine.health(endpoint).unwrap();
    assert_eq!((health.status, health.blocked), (EndpointStatus::Active, true));
    shop.handle(Input::EndpointBlocked { endpoint, blocked: false });
    assert_eq!(shop.in_flight(), [lane[0]]);
    shop.acknowledge(lane[0]);
    assert_eq!(shop.in_flight(), [lane[1]]);
}
