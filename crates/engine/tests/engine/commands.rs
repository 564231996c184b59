//! Replay, skip and discard.

use railpost_engine::{Command, DeadReason, DeliveryState, IgnoredReason, Input, LoadedPage};
use railpost_wire::{DeliveryId, EndpointId};
use serde_json::json;

use crate::harness::{Harness, TIMEOUT, answer, at};

/// A lane of three whose first delivery is a dead letter.
fn held(harness: &mut Harness) -> (EndpointId, Vec<DeliveryId>) {
    let endpoint = harness.endpoint(json!({"retry": {"max_attempts": 1}}));
    let lane = harness.accept_lane(endpoint, 1, 3);
    harness.end(lane[0], TIMEOUT);
    assert!(matches!(harness.state(lane[0]), DeliveryState::Dead { holds: true, .. }));
    (endpoint, lane)
}

#[test]
fn a_replay_sends_the_dead_letter_again_and_its_success_releases_the_lane() {
    let mut harness = Harness::new();
    let (_, lane) = held(&mut harness);
    harness.command(Command::Replay, lane[0]);
    assert_eq!(harness.in_flight(), [lane[0]]);
    let attempt = harness.under_way[0];
    assert_eq!((attempt.number, attempt.replay), (2, true));
    harness.acknowledge(lane[0]);
    assert_eq!(harness.in_flight(), [lane[1]]);
    assert!(!harness.under_way[0].replay, "what follows was not replayed");
}

#[test]
fn a_replay_has_a_fresh_budget_and_holds_the_lane_again_when_it_fails() {
    let mut harness = Harness::new();
    let (_, lane) = held(&mut harness);
    harness.command(Command::Replay, lane[0]);
    harness.end(lane[0], TIMEOUT);
    let reason = DeadReason::AttemptsExhausted;
    assert_eq!(harness.state(lane[0]), DeliveryState::Dead { reason, holds: true });
    assert_eq!(harness.stored(lane[0]).progress.attempts, 2);
    assert_eq!(harness.in_flight(), []);
}

#[test]
fn a_skip_moves_the_lane_on_and_leaves_the_dead_letter_dead() {
    let mut harness = Harness::new();
    let (_, lane) = held(&mut harness);
    harness.command(Command::Skip, lane[0]);
    assert_eq!(harness.in_flight(), [lane[1]]);
    let reason = DeadReason::AttemptsExhausted;
    assert_eq!(harness.state(lane[0]), DeliveryState::Dead { reason, holds: false });
}

#[test]
fn a_skipped_dead_letter_is_replayed_outside_its_lane() {
    let mut harness = Harness::new();
    let (_, lane) = held(&mut harness);
    harness.command(Command::Skip, lane[0]);
    harness.command(Command::Replay, lane[0]);
    answer_scan(&mut harness, &[lane[0]]);
    assert_eq!(harness.in_flight(), [lane[1], lane[0]], "it blocks no other delivery");
    assert_eq!(harness.under_way[1].place, None);
    harness.acknowledge(lane[1]);
    assert_eq!(harness.in_flight(), [lane[0], lane[2]]);
}

#[test]
fn a_discard_moves_the_lane_on() {
    let mut harness = Harness::new();
    let (_, lane) = held(&mut harness);
    harness.command(Command::Discard, lane[0]);
    assert_eq!(harness.state(lane[0]), DeliveryState::DISCARDED);
    assert_eq!(harness.in_flight(), [lane[1]]);
}

#[test]
fn a_discard_behind_the_head_leaves_the_rest_in_order() {
    for (discarded, left) in [(1, [0, 2]), (2, [0, 1])] {
        let mut harness = Harness::new();
        let endpoint = harness.endpoint(json!({}));
        let mut lane = harness.accept_lane(endpoint, 1, 3);
        harness.command(Command::Discard, lane[discarded]);
        lane.push(harness.accept(endpoint, at(1, 4)));
        for index in left.into_iter().chain([3]) {
            assert_eq!(harness.in_flight(), [lane[index]], "{discarded} was discarded");
            harness.acknowledge(lane[index]);
        }
    }
}

#[test]
fn a_discard_while_waiting_takes_effect_at_once() {
    let mut harness = Harness::new();
    let endpoint = harness.endpoint(json!({}));
    let lane = harness.accept_lane(endpoint, 1, 2);
    harness.end(lane[0], TIMEOUT);
    harness.command(Command::Discard, lane[0]);
    assert_eq!(harness.in_flight(), [lane[1]]);
    harness.pass_secs(3_600);
    assert_eq!(harness.in_flight(), [lane[1]], "its alarm finds no delivery");
}

#[test]
fn a_discard_while_in_flight_takes_effect_unless_it_is_acknowledged() {
    for (status, state) in [
        (200, DeliveryState::Delivered),
        (500, DeliveryState::DISCARDED),
        (400, DeliveryState::DISCARDED),
    ] {
        let mut harness = Harness::new();
        let endpoint = harness.endpoint(json!({}));
        let lane = harness.accept_lane(endpoint, 1, 2);
        harness.command(Command::Discard, lane[0]);
        assert_eq!(harness.in_flight(), [lane[0]], "it has not landed yet");
        harness.end(lane[0], answer(status));
        assert_eq!(harness.state(lane[0]), state);
        assert_eq!(harness.in_flight(), [lane[1]]);
    }
}

#[test]
fn a_command_that_makes_no_sense_is_ignored_and_says_why() {
    let mut harness = Harness::new();
    let endpoint =
        harness.endpoint(json!({"on_dead_letter": "advance", "retry": {"max_attempts": 1}}));
    let (dead, delivered) =
        (harness.accept(endpoint, at(1, 1)), harness.accept(endpoint, at(2, 1)));
    let open = harness.accept(endpoint, at(3, 1));
    harness.end(dead, TIMEOUT);
    harness.acknowledge(delivered);
    for (command, id, because) in [
        (Command::Replay, open, IgnoredReason::NotDead),
        (Command::Skip, open, IgnoredReason::NotDead),
        (Command::Skip, dead, IgnoredReason::NotHeld),
        (Command::Replay, delivered, IgnoredReason::Closed),
        (Command::Skip, delivered, IgnoredReason::Closed),
        (Command::Discard, delivered, IgnoredReason::Closed),
    ] {
        let records = harness.records.len();
        harness.command(command, id);
        assert_eq!(harness.last_ignored(), Some(because), "{command:?}");
        assert_eq!(harness.records.len(), records, "{command:?} changed nothing");
    }
}

#[test]
fn a_command_from_an_old_look_at_the_store_does_not_reopen_what_is_closed() {
    let mut harness = Harness::new();
    let endpoint = harness.endpoint(json!({}));
    let id = harness.accept(endpoint, at(1, 1));
    let seen_as_pending = harness.stored(id);
    harness.acknowledge(id);
    let command = Command::Discard;
    harness.handle(Input::Command { command, delivery: seen_as_pending });
    assert_eq!(harness.last_ignored(), Some(IgnoredReason::Closed));
    assert_eq!(harness.state(id), DeliveryState::Delivered);
}

#[test]
fn a_replayed_dead_letter_without_a_lane_is_sent_again() {
    let mut harness = Harness::new();
    let endpoint = harness.endpoint(json!({"retry": {"max_attempts": 1}}));
    let id = harness.accept(endpoint, None);
    harness.end(id, TIMEOUT);
    harness.command(Command::Replay, id);
    answer_scan(&mut harness, &[id]);
    assert_eq!(harness.in_flight(), [id]);
    assert!(harness.under_way[0].replay);
    harness.command(Command::Replay, id);
    assert_eq!(harness.last_ignored(), Some(IgnoredReason::NotDead), "once is enough");
}

#[test]
fn a_hint_that_comes_after_its_delivery_was_discarded_sends_nothing() {
    let mut harness = Harness::new();
    let endpoint = harness.endpoint(json!({}));
    let accepted = harness.new_delivery(endpoint, None);
    harness.command(Command::Discard, accepted.id);
    harness.handle(Input::Accepted(vec![accepted]));
    answer_scan(&mut harness, &[]);
    assert_eq!(harness.in_flight(), []);
}

#[test]
fn a_replay_that_the_store_does_not_take_sends_nothing() {
    let mut harness = Harness::new();
    let endpoint = harness.endpoint(json!({"retry": {"max_attempts": 1}}));
    let id = harness.accept(endpoint, None);
    harness.end(id, TIMEOUT);
    let seen_as_dead = harness.stored(id);
    harness.command(Command::Discard, id);
    let command = Command::Replay;
    harness.handle(Input::Command { command, delivery: seen_as_dead });
    answer_scan(&mut harness, &[]);
    assert_eq!(harness.in_flight(), []);
}

/// Answers a scan for deliveries without a lane with these.
fn answer_scan(harness: &mut Harness, open: &[DeliveryId]) {
    let deliveries = open.iter().map(|id| harness.stored(*id)).collect();
    harness.answer_load(LoadedPage::Unkeyed { deliveries, next: None, next_due: None });
}
