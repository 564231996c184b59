//! How an endpoint is doing: one answer for each of its states and each way between them.

use railpost_engine::{
    AttemptResult, BreakerState, Command, DeliveryState, Endpoint, EndpointStatus, ErrorCause,
    Failure, Health, HealthState, Input, LastError, Rotation, Span, Timestamp, Wait, WaitReason,
};
use railpost_wire::{DeliveryId, EndpointId};
use serde_json::{Value, json};

use crate::harness::{Harness, TIMEOUT, answer, answer_after, at, policy};

/// Opens after two failures out of two, for ten seconds.
fn nervous() -> Value {
    json!({
        "retry": {"backoff": {"strategy": "fixed", "delay": "1s"}},
        "breaker": {"min_attempts": 2, "window": 2, "open_for": "10s", "open_for_max": "1h"},
        "in_flight_max": 4,
        "quarantine_after": 3,
        "disable_after": "1d",
    })
}

fn health(harness: &Harness, endpoint: EndpointId) -> Health {
    harness.engine.health(endpoint).expect("a served endpoint")
}

fn state(harness: &Harness, endpoint: EndpointId) -> (HealthState, Option<Timestamp>) {
    let health = health(harness, endpoint);
    (health.state, health.since)
}

fn wait_for(reason: WaitReason, until: Option<Timestamp>) -> Option<Wait> {
    Some(Wait { reason, until })
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
fn an_endpoint_that_appears_is_active_and_nothing_is_known_of_its_past() {
    let mut harness = Harness::new();
    let endpoint = harness.endpoint(nervous());
    let health = health(&harness, endpoint);
    assert_eq!((health.state, health.since), (HealthState::Active, None));
    assert_eq!((health.wait, health.last_error, health.last_success_at), (None, None, None));
}

#[test]
fn the_last_error_stays_until_an_attempt_is_acknowledged() {
    let mut harness = Harness::new();
    let endpoint = harness.endpoint(json!({"breaker": null}));
    let ids = [harness.accept(endpoint, None), harness.accept(endpoint, None)];
    harness.end(ids[0], answer(503));
    let at = harness.now();
    let error = |cause| Some(LastError { at, cause });
    assert_eq!(health(&harness, endpoint).last_error, error(ErrorCause::Status(503)));
    harness.end(ids[1], AttemptResult::Failed(Failure::Refused));
    let refused = error(ErrorCause::Failure(Failure::Refused));
    assert_eq!(health(&harness, endpoint).last_error, refused);
    harness.pass_secs(3_600);
    harness.acknowledge(ids[0]);
    let health = health(&harness, endpoint);
    assert_eq!((health.last_error, health.last_success_at), (None, Some(harness.now())));
}

#[test]
fn an_open_breaker_is_waited_for_until_its_probe_may_go() {
    let mut harness = Harness::new();
    let (endpoint, _) = opened(&mut harness);
    let opened_at = harness.now();
    let until = opened_at + Span::from_secs(10);
    assert_eq!(state(&harness, endpoint), (HealthState::Waiting, Some(opened_at)));
    assert_eq!(health(&harness, endpoint).wait, wait_for(WaitReason::Breaker, Some(until)));
    harness.pass_secs(10);
    assert_eq!(health(&harness, endpoint).wait, wait_for(WaitReason::Probe, None));
    assert_eq!(state(&harness, endpoint), (HealthState::Waiting, Some(opened_at)));
}

#[test]
fn a_failed_probe_goes_on_with_the_same_wait() {
    let mut harness = Harness::new();
    let (endpoint, _) = opened(&mut harness);
    let opened_at = harness.now();
    harness.pass_secs(10);
    let probe = harness.in_flight()[0];
    harness.pass_secs(5);
    harness.end(probe, answer(500));
    let until = harness.now() + Span::from_secs(20);
    assert_eq!(state(&harness, endpoint), (HealthState::Waiting, Some(opened_at)));
    assert_eq!(health(&harness, endpoint).wait, wait_for(WaitReason::Breaker, Some(until)));
}

#[test]
fn a_successful_probe_makes_it_active_and_sending_ramps_up() {
    let mut harness = Harness::new();
    let (endpoint, _) = opened(&mut harness);
    harness.pass_secs(10);
    let probe = harness.in_flight()[0];
    harness.acknowledge(probe);
    assert_eq!(state(&harness, endpoint), (HealthState::Active, Some(harness.now())));
    assert_eq!(health(&harness, endpoint).breaker, BreakerState::Ramping { limit: 1 });
    assert_eq!(health(&harness, endpoint).wait, None);
}

#[test]
fn a_breaker_that_nothing_waits_for_is_half_open_when_its_time_is_over() {
    let mut harness = Harness::new();
    let endpoint = harness.endpoint(nervous());
    let ids = [harness.accept(endpoint, at(1, 1)), harness.accept(endpoint, at(2, 1))];
    ids.iter().for_each(|id| harness.end(*id, TIMEOUT));
    let until = harness.now() + Span::from_secs(10);
    for id in ids {
        harness.command(Command::Discard, id);
    }
    harness.pass_secs(60);
    assert_eq!(health(&harness, endpoint).wait, wait_for(WaitReason::Probe, Some(until)));
    let probe = harness.accept(endpoint, None);
    assert_eq!(harness.in_flight(), [probe]);
}

#[test]
fn a_retry_after_of_429_and_503_is_waited_for_and_ends_by_itself() {
    for status in [429, 503] {
        let mut harness = Harness::new();
        let endpoint = harness.endpoint(json!({}));
        let id = harness.accept(endpoint, None);
        harness.pass_secs(5);
        harness.end(id, answer_after(status, 30));
        let (since, until) = (harness.now(), harness.now() + Span::from_secs(30));
        assert_eq!(state(&harness, endpoint), (HealthState::Waiting, Some(since)));
        assert_eq!(health(&harness, endpoint).wait, wait_for(WaitReason::RetryAfter, Some(until)));
        harness.pass_secs(40);
        assert_eq!(state(&harness, endpoint), (HealthState::Active, Some(until)), "{status}");
    }
}

#[test]
fn of_two_waits_the_one_that_ends_later_is_told() {
    for (retry_after, reason) in [(5, WaitReason::Breaker), (600, WaitReason::RetryAfter)] {
        let mut harness = Harness::new();
        let endpoint = harness.endpoint(nervous());
        let ids = [harness.accept(endpoint, at(1, 1)), harness.accept(endpoint, at(2, 1))];
        ids.iter().for_each(|id| harness.end(*id, answer_after(503, retry_after)));
        let until = harness.now() + Span::from_secs(retry_after.max(10));
        assert_eq!(health(&harness, endpoint).wait, wait_for(reason, Some(until)));
    }
}

#[test]
fn ending_a_wait_half_opens_the_breaker_and_lifts_retry_after() {
    let mut harness = Harness::new();
    let (endpoint, _) = opened(&mut harness);
    harness.pass_secs(1);
    harness.handle(Input::EndpointWaitEnded(endpoint));
    assert_eq!(harness.in_flight().len(), 1, "one probe goes at once");
    assert_eq!(health(&harness, endpoint).wait, wait_for(WaitReason::Probe, None));
    let probe = harness.in_flight()[0];
    harness.end(probe, answer_after(503, 600));
    assert_eq!(health(&harness, endpoint).wait.unwrap().reason, WaitReason::RetryAfter);
    harness.handle(Input::EndpointWaitEnded(endpoint));
    assert_eq!(harness.in_flight().len(), 1, "neither gate is closed");
    let probe = harness.in_flight()[0];
    harness.acknowledge(probe);
    assert_eq!(state(&harness, endpoint), (HealthState::Active, Some(harness.now())));
}

#[test]
fn ending_a_wait_sends_what_backs_off_at_once() {
    let mut harness = Harness::new();
    let endpoint = harness.endpoint(json!({"in_flight_max": 100}));
    let keyed = harness.accept(endpoint, at(1, 1));
    let unkeyed = harness.accept(endpoint, None);
    harness.end(keyed, answer_after(429, 600));
    harness.end(unkeyed, answer_after(429, 600));
    harness.pass_secs(1);
    assert!(harness.in_flight().is_empty());
    harness.handle(Input::EndpointWaitEnded(endpoint));
    assert_eq!(harness.in_flight(), [keyed, unkeyed]);
}

#[test]
fn ending_no_wait_leaves_what_backs_off_as_it_is() {
    let mut harness = Harness::new();
    let endpoint = harness.endpoint(json!({"in_flight_max": 100}));
    let id = harness.accept(endpoint, at(1, 1));
    harness.end(id, answer(500));
    harness.handle(Input::EndpointWaitEnded(endpoint));
    assert!(harness.in_flight().is_empty(), "nothing waits but the delivery itself");
    harness.handle(Input::EndpointPaused(endpoint));
    harness.handle(Input::EndpointWaitEnded(endpoint));
    assert_eq!(health(&harness, endpoint).ready, 0, "what a person paused stays as it is");
}

#[test]
fn ending_a_wait_where_there_is_none_changes_nothing() {
    let mut harness = Harness::new();
    let endpoint = harness.endpoint(nervous());
    let before = health(&harness, endpoint);
    harness.handle(Input::EndpointWaitEnded(endpoint));
    assert_eq!(health(&harness, endpoint), before);
    harness.handle(Input::EndpointPaused(endpoint));
    let paused = health(&harness, endpoint);
    harness.handle(Input::EndpointWaitEnded(endpoint));
    assert_eq!(health(&harness, endpoint), paused, "what a person paused stays paused");
}

type SwitchOff = fn(&mut Harness, EndpointId);

#[test]
fn each_way_to_be_switched_off_has_its_state_and_ends_when_a_person_resumes_it() {
    let cases: [(HealthState, SwitchOff); 4] = [
        (HealthState::Paused, |harness, endpoint| {
            harness.handle(Input::EndpointPaused(endpoint));
        }),
        (HealthState::Gone, |harness, endpoint| {
            let id = harness.accept(endpoint, None);
            harness.end(id, answer(410));
        }),
        (HealthState::Quarantined, |harness, endpoint| {
            for lane in 1..=3 {
                let id = harness.accept(endpoint, at(lane, 1));
                harness.end(id, answer(400));
            }
        }),
        (HealthState::Failing, |harness, endpoint| {
            let first = harness.accept(endpoint, None);
            harness.end(first, answer(500));
            let second = harness.accept(endpoint, None);
            harness.pass_secs(24 * 3_600);
            harness.end(second, answer(500));
        }),
    ];
    for (expected, switch_off) in cases {
        let mut harness = Harness::new();
        let endpoint = harness.endpoint(nervous());
        switch_off(&mut harness, endpoint);
        assert_eq!(state(&harness, endpoint), (expected, Some(harness.now())));
        assert_eq!(health(&harness, endpoint).wait, None);
        harness.pass_secs(60);
        harness.handle(Input::EndpointResumed(endpoint));
        assert_eq!(state(&harness, endpoint), (HealthState::Active, Some(harness.now())));
    }
}

#[test]
fn a_resumed_endpoint_waits_for_nothing() {
    let mut harness = Harness::new();
    let (endpoint, _) = opened(&mut harness);
    harness.handle(Input::EndpointPaused(endpoint));
    assert_eq!(health(&harness, endpoint).state, HealthState::Paused);
    harness.handle(Input::EndpointResumed(endpoint));
    assert_eq!(health(&harness, endpoint).state, HealthState::Active);
    harness.end(harness.in_flight()[0], answer_after(429, 3_600));
    harness.handle(Input::EndpointPaused(endpoint));
    harness.handle(Input::EndpointResumed(endpoint));
    assert_eq!(health(&harness, endpoint).state, HealthState::Active, "Retry-After is lifted");
    assert!(!harness.in_flight().is_empty());
}

#[test]
fn a_blocked_endpoint_is_blocked_while_it_is_switched_on() {
    let mut harness = Harness::new();
    let endpoint = harness.endpoint(json!({}));
    harness.pass_secs(1);
    harness.handle(Input::EndpointBlocked { endpoint, blocked: true });
    let since = harness.now();
    harness.pass_secs(1);
    assert_eq!(state(&harness, endpoint), (HealthState::Blocked, Some(since)));
    harness.handle(Input::EndpointPaused(endpoint));
    assert_eq!(health(&harness, endpoint).state, HealthState::Paused);
    assert!(health(&harness, endpoint).blocked);
    harness.handle(Input::EndpointResumed(endpoint));
    assert_eq!(health(&harness, endpoint).state, HealthState::Blocked);
    harness.handle(Input::EndpointBlocked { endpoint, blocked: false });
    assert_eq!(state(&harness, endpoint), (HealthState::Active, Some(harness.now())));
}

#[test]
fn a_breaker_that_is_taken_away_ends_the_wait() {
    let mut harness = Harness::new();
    let (endpoint, _) = opened(&mut harness);
    let policy = policy(json!({"breaker": null}));
    harness.pass_secs(1);
    harness.handle(Input::EndpointChanged { endpoint, policy, rotation: None });
    assert_eq!(state(&harness, endpoint), (HealthState::Active, Some(harness.now())));
}

#[test]
fn after_a_restart_what_was_switched_off_knows_since_when() {
    let mut harness = Harness::new();
    let since = Timestamp::from_millis(harness.now().as_millis() - 60_000);
    for (status, expected, known) in [
        (EndpointStatus::Quarantined, HealthState::Quarantined, Some(since)),
        (EndpointStatus::Paused, HealthState::Paused, Some(since)),
        (EndpointStatus::Active, HealthState::Active, None),
    ] {
        let id = harness.endpoint_id();
        harness.handle(Input::EndpointAppeared(Endpoint {
            id,
            tenant: "acme".parse().unwrap(),
            policy: policy(nervous()),
            status,
            status_since: Some(since),
            failing_since: None,
            rotation: None,
        }));
        assert_eq!(state(&harness, id), (expected, known));
    }
}

#[test]
fn a_survey_counts_each_state_and_names_what_needs_attention() {
    let mut harness = Harness::new();
    let (waiting, _) = opened(&mut harness);
    let paused = harness.endpoint(json!({}));
    harness.handle(Input::EndpointPaused(paused));
    let blocked = harness.endpoint_of("other", json!({}));
    harness.handle(Input::EndpointBlocked { endpoint: blocked, blocked: true });
    harness.endpoint_of("other", json!({}));
    let count = |survey: &railpost_engine::HealthSurvey, state| survey.counts[state as usize];

    let all = harness.engine.survey(None, 10);
    assert_eq!(
        (all.attention.as_slice(), all.paused.as_slice()),
        (&[waiting, blocked][..], &[paused][..])
    );
    for state in [HealthState::Waiting, HealthState::Paused, HealthState::Blocked] {
        assert_eq!(count(&all, state), 1, "{state:?}");
    }
    assert_eq!((count(&all, HealthState::Active), all.counts.iter().sum::<u64>()), (1, 4));
    assert_eq!(harness.engine.survey(None, 1).attention, [waiting]);
    let other = harness.engine.survey(Some(&"other".parse().unwrap()), 10);
    assert_eq!((other.attention, other.counts.iter().sum::<u64>()), (vec![blocked], 2));
    let nobody = harness.engine.survey(Some(&"nobody".parse().unwrap()), 10);
    assert_eq!(nobody.counts.iter().sum::<u64>(), 0);
}

#[test]
fn for_an_hour_after_a_rotation_401_and_403_are_retried() {
    for status in [401, 403] {
        let mut harness = Harness::new();
        let endpoint = harness.endpoint(json!({"in_flight_max": 100}));
        let ids: Vec<_> = (0..3).map(|_| harness.accept(endpoint, None)).collect();
        harness.end(ids[0], answer(status));
        assert!(matches!(harness.state(ids[0]), DeliveryState::Dead { .. }), "no rotation");
        let rotation = Some(rotation(harness.now(), harness.now()));
        let changed = Input::EndpointChanged { endpoint, policy: policy(json!({})), rotation };
        harness.handle(changed);
        harness.pass(Span::from_millis(3_599_999));
        harness.end(ids[1], answer(status));
        assert!(matches!(harness.state(ids[1]), DeliveryState::Waiting { .. }), "within the hour");
        harness.pass(Span::from_millis(1));
        harness.end(ids[2], answer(status));
        assert!(matches!(harness.state(ids[2]), DeliveryState::Dead { .. }), "the hour is over");
    }
}

#[test]
fn for_an_hour_after_the_old_secrets_stop_401_and_403_are_retried_too() {
    let mut harness = Harness::new();
    let endpoint = harness.endpoint(json!({"in_flight_max": 100}));
    let ids: Vec<_> = (0..3).map(|_| harness.accept(endpoint, None)).collect();
    let ends_at = harness.now() + Span::from_hours(24);
    let rotation = Some(rotation(harness.now(), ends_at));
    harness.handle(Input::EndpointChanged { endpoint, policy: policy(json!({})), rotation });
    harness.pass(Span::from_millis(24 * 3_600_000 - 1));
    harness.end(ids[0], answer(401));
    assert!(matches!(harness.state(ids[0]), DeliveryState::Dead { .. }), "the old ones still sign");
    harness.pass(Span::from_hours(1));
    harness.end(ids[1], answer(401));
    assert!(matches!(harness.state(ids[1]), DeliveryState::Waiting { .. }), "within the hour");
    harness.pass(Span::from_millis(1));
    harness.end(ids[2], answer(401));
    assert!(matches!(harness.state(ids[2]), DeliveryState::Dead { .. }), "the hour is over");
}

fn rotation(began_at: Timestamp, ends_at: Timestamp) -> Rotation {
    Rotation { began_at, ends_at }
}

#[test]
fn an_override_wins_over_the_leniency_after_a_rotation() {
    let mut harness = Harness::new();
    let endpoint = harness.endpoint(json!({}));
    let id = harness.accept(endpoint, None);
    let policy = policy(json!({"outcomes": {"401": "permanent"}}));
    let rotation = Some(rotation(harness.now(), harness.now()));
    harness.handle(Input::EndpointChanged { endpoint, policy, rotation });
    harness.end(id, answer(401));
    assert!(matches!(harness.state(id), DeliveryState::Dead { .. }));
}
