//! Replay, skip and discard.

use railpost_engine::{Because, Command, DeadReason, DeliveryState, Input, Page};
use railpost_wire::{DeliveryId, EndpointId};
use serde_json::json;

use crate::harness::{Shop, TIMEOUT, answer, at};

/// A lane of three whose first delivery is a dead letter.
fn held(shop: &mut Shop) -> (EndpointId, Vec<DeliveryId>) {
    let endpoint = shop.endpoint(json!({"retry": {"max_attempts": 1}}));
    let lane = shop.accept_lane(endpoint, 1, 3);
    shop.end(lane[0], TIMEOUT);
    assert!(matches!(shop.state(lane[0]), DeliveryState::Dead { holds: true, .. }));
    (endpoint, lane)
}

#[test]
fn a_replay_sends_the_dead_letter_again_and_its_success_releases_the_lane() {
    let mut shop = Shop::new();
    let (_, lane) = held(&mut shop);
    shop.command(Command::Replay, lane[0]);
    assert_eq!(shop.in_flight(), [lane[0]]);
    let attempt = shop.under_way[0];
    assert_eq!((attempt.number, attempt.replay), (2, true));
    shop.acknowledge(lane[0]);
    assert_eq!(shop.in_flight(), [lane[1]]);
    assert!(!shop.under_way[0].replay, "what follows was not replayed");
}

#[test]
fn a_replay_has_a_fresh_budget_and_holds_the_lane_again_when_it_fails() {
    let mut shop = Shop::new();
    let (_, lane) = held(&mut shop);
    shop.command(Command::Replay, lane[0]);
    shop.end(lane[0], TIMEOUT);
    let reason = DeadReason::AttemptsExhausted;
    assert_eq!(shop.state(lane[0]), DeliveryState::Dead { reason, holds: true });
    assert_eq!(shop.stored(lane[0]).progress.attempts, 2);
    assert_eq!(shop.in_flight(), []);
}

#[test]
fn a_skip_moves_the_lane_on_and_leaves_the_dead_letter_dead() {
    let mut shop = Shop::new();
    let (_, lane) = held(&mut shop);
    shop.command(Command::Skip, lane[0]);
    assert_eq!(shop.in_flight(), [lane[1]]);
    let reason = DeadReason::AttemptsExhausted;
    assert_eq!(shop.state(lane[0]), DeliveryState::Dead { reason, holds: false });
}

#[test]
fn a_skipped_dead_letter_is_replayed_outside_its_lane() {
    let mut shop = Shop::new();
    let (_, lane) = held(&mut shop);
    shop.command(Command::Skip, lane[0]);
    shop.command(Command::Replay, lane[0]);
    answer_scan(&mut shop, &[lane[0]]);
    assert_eq!(shop.in_flight(), [lane[1], lane[0]], "it stands in nobody's way");
    assert_eq!(shop.under_way[1].place, None);
    shop.acknowledge(lane[1]);
    assert_eq!(shop.in_flight(), [lane[0], lane[2]]);
}

#[test]
fn a_discard_moves_the_lane_on() {
    let mut shop = Shop::new();
    let (_, lane) = held(&mut shop);
    shop.command(Command::Discard, lane[0]);
    assert_eq!(shop.state(lane[0]), DeliveryState::DISCARDED);
    assert_eq!(shop.in_flight(), [lane[1]]);
}

#[test]
fn a_discard_behind_the_head_leaves_the_rest_in_order() {
    for (discarded, left) in [(1, [0, 2]), (2, [0, 1])] {
        let mut shop = Shop::new();
        let endpoint = shop.endpoint(json!({}));
        let mut lane = shop.accept_lane(endpoint, 1, 3);
        shop.command(Command::Discard, lane[discarded]);
        lane.push(shop.accept(endpoint, at(1, 4)));
        for index in left.into_iter().chain([3]) {
            assert_eq!(shop.in_flight(), [lane[index]], "{discarded} was discarded");
            shop.acknowledge(lane[index]);
        }
    }
}

#[test]
fn a_discard_while_waiting_takes_effect_at_once() {
    let mut shop = Shop::new();
    let endpoint = shop.endpoint(json!({}));
    let lane = shop.accept_lane(endpoint, 1, 2);
    shop.end(lane[0], TIMEOUT);
    shop.command(Command::Discard, lane[0]);
    assert_eq!(shop.in_flight(), [lane[1]]);
    shop.pass_secs(3_600);
    assert_eq!(shop.in_flight(), [lane[1]], "its alarm finds nobody");
}

#[test]
fn a_discard_while_in_flight_takes_effect_unless_it_is_acknowledged() {
    for (status, state) in [
        (200, DeliveryState::Delivered),
        (500, DeliveryState::DISCARDED),
        (400, DeliveryState::DISCARDED),
    ] {
        let mut shop = Shop::new();
        let endpoint = shop.endpoint(json!({}));
        let lane = shop.accept_lane(endpoint, 1, 2);
        shop.command(Command::Discard, lane[0]);
        assert_eq!(shop.in_flight(), [lane[0]], "it has not landed yet");
        shop.end(lane[0], answer(status));
        assert_eq!(shop.state(lane[0]), state);
        assert_eq!(shop.in_flight(), [lane[1]]);
    }
}

#[test]
fn a_command_that_makes_no_sense_is_ignored_and_says_why() {
    let mut shop = Shop::new();
    let endpoint =
        shop.endpoint(json!({"on_dead_letter": "advance", "retry": {"max_attempts": 1}}));
    let (dead, delivered) = (shop.accept(endpoint, at(1, 1)), shop.accept(endpoint, at(2, 1)));
    let open = shop.accept(endpoint, at(3, 1));
    shop.end(dead, TIMEOUT);
    shop.acknowledge(delivered);
    for (command, id, because) in [
        (Command::Replay, open, Because::NotDead),
        (Command::Skip, open, Because::NotDead),
        (Command::Skip, dead, Because::NotHeld),
        (Command::Replay, delivered, Because::Closed),
        (Command::Skip, delivered, Because::Closed),
        (Command::Discard, delivered, Because::Closed),
    ] {
        let records = shop.records.len();
        shop.command(command, id);
        assert_eq!(shop.last_ignored(), Some(because), "{command:?}");
        assert_eq!(shop.records.len(), records, "{command:?} changed nothing");
    }
}

#[test]
fn a_command_from_an_old_look_at_the_store_does_not_reopen_what_is_closed() {
    let mut shop = Shop::new();
    let endpoint = shop.endpoint(json!({}));
    let id = shop.accept(endpoint, at(1, 1));
    let seen_as_pending = shop.stored(id);
    shop.acknowledge(id);
    let command = Command::Discard;
    shop.handle(Input::Command { command, delivery: seen_as_pending });
    assert_eq!(shop.last_ignored(), Some(Because::Closed));
    assert_eq!(shop.state(id), DeliveryState::Delivered);
}

#[test]
fn a_replayed_dead_letter_without_a_lane_is_sent_again() {
    let mut shop = Shop::new();
    let endpoint = shop.endpoint(json!({"retry": {"max_attempts": 1}}));
    let id = shop.accept(endpoint, None);
    shop.end(id, TIMEOUT);
    shop.command(Command::Replay, id);
    answer_scan(&mut shop, &[id]);
    assert_eq!(shop.in_flight(), [id]);
    assert!(shop.under_way[0].replay);
    shop.command(Command::Replay, id);
    assert_eq!(shop.last_ignored(), Some(Because::NotDead), "once is enough");
}

#[test]
fn a_hint_that_comes_after_its_delivery_was_discarded_sends_nothing() {
    let mut shop = Shop::new();
    let endpoint = shop.endpoint(json!({}));
    let accepted = shop.new_delivery(endpoint, None);
    shop.command(Command::Discard, accepted.id);
    shop.handle(Input::Accepted(vec![accepted]));
    answer_scan(&mut shop, &[]);
    assert_eq!(shop.in_flight(), []);
}

#[test]
fn a_replay_that_the_store_does_not_take_sends_nothing() {
    let mut shop = Shop::new();
    let endpoint = shop.endpoint(json!({"retry": {"max_attempts": 1}}));
    let id = shop.accept(endpoint, None);
    shop.end(id, TIMEOUT);
    let seen_as_dead = shop.stored(id);
    shop.command(Command::Discard, id);
    let command = Command::Replay;
    shop.handle(Input::Command { command, delivery: seen_as_dead });
    answer_scan(&mut shop, &[]);
    assert_eq!(shop.in_flight(), []);
}

/// Answers a scan for deliveries without a lane with these.
fn answer_scan(shop: &mut Shop, open: &[DeliveryId]) {
    let deliveries = open.iter().map(|id| shop.stored(*id)).collect();
    shop.answer_load(Page::Unkeyed { deliveries, next: None, next_due: None });
}
