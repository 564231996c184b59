//! What an attempt says of the one before it, when something in its lane was never delivered.

use railpost_engine::{
    Accepted, Command, Config, DeadReason, DeliveryState, Input, LaneId, LanePage, Load,
    LoadedPage, Progress,
};
use railpost_wire::{DeliveryId, EndpointId};
use serde_json::{Value, json};

use crate::harness::{Harness, TIMEOUT, answer, at, seq};

/// What the only attempt under way follows.
fn follows(harness: &Harness) -> Option<u64> {
    assert_eq!(harness.under_way.len(), 1);
    harness.under_way[0].follows
}

fn shop_with_lane(policy: Value, count: u64) -> (Harness, EndpointId, Vec<DeliveryId>) {
    let mut harness = Harness::new();
    let endpoint = harness.endpoint(policy);
    let lane = harness.accept_lane(endpoint, 1, count);
    (harness, endpoint, lane)
}

#[test]
fn an_attempt_says_nothing_where_the_one_before_was_delivered() {
    let (mut harness, _, lane) = shop_with_lane(json!({}), 3);
    for id in &lane {
        assert_eq!(follows(&harness), None);
        harness.end(*id, TIMEOUT);
        harness.pass_secs(3_600);
        assert_eq!(follows(&harness), None, "a retry neither");
        harness.acknowledge(*id);
    }
}

#[test]
fn a_discard_a_skip_and_an_advance_are_passed_over() {
    let hold = json!({});
    let advance = json!({"on_dead_letter": "advance"});
    type Act = fn(&mut Harness, DeliveryId);
    let discard: Act = |harness, id| harness.command(Command::Discard, id);
    let skip: Act = |harness, id| {
        harness.end(id, answer(400));
        harness.command(Command::Skip, id);
    };
    let die: Act = |harness, id| harness.end(id, answer(400));
    for (policy, act) in [(hold.clone(), discard), (hold, skip), (advance, die)] {
        let (mut harness, _, lane) = shop_with_lane(policy, 5);
        harness.acknowledge(lane[0]);
        for id in &lane[1..3] {
            act(&mut harness, *id);
            if harness.in_flight() == [*id] {
                // A discard of what is under way waits for its end.
                harness.end(*id, TIMEOUT);
            }
        }
        assert_eq!((harness.in_flight(), follows(&harness)), (vec![lane[3]], Some(1)));
        harness.end(lane[3], TIMEOUT);
        harness.pass_secs(3_600);
        assert_eq!(follows(&harness), Some(1), "every attempt says so");
        harness.acknowledge(lane[3]);
        assert_eq!((harness.in_flight(), follows(&harness)), (vec![lane[4]], None));
    }
}

#[test]
fn a_lane_of_which_nothing_was_delivered_follows_nothing() {
    let (mut harness, _, lane) = shop_with_lane(json!({"on_dead_letter": "advance"}), 3);
    harness.end(lane[0], answer(400));
    assert_eq!(follows(&harness), Some(0));
    harness.end(lane[1], answer(400));
    assert_eq!(follows(&harness), Some(0));
}

#[test]
fn discards_behind_the_head_are_passed_over_in_their_turn() {
    let (mut harness, _, lane) = shop_with_lane(json!({}), 7);
    for index in [4, 2, 3, 5] {
        harness.command(Command::Discard, lane[index]);
    }
    harness.acknowledge(lane[0]);
    assert_eq!(follows(&harness), None);
    harness.acknowledge(lane[1]);
    assert_eq!((harness.in_flight(), follows(&harness)), (vec![lane[6]], Some(2)));
}

#[test]
fn an_at_most_once_loss_is_passed_over() {
    let mut harness = Harness::new();
    let endpoint = harness.endpoint_id();
    harness.endpoint_appears(endpoint, "acme", json!({"guarantee": "at_most_once"}));
    let sent = harness.new_delivery(endpoint, at(1, 1));
    let next = harness.new_delivery(endpoint, at(1, 2));
    let sent = railpost_engine::Delivery { state: DeliveryState::InFlight, ..sent.into() };
    let lanes = vec![page(1, 2, vec![sent, next.into()], vec![])];
    harness.answer_load(LoadedPage::Lanes { lanes, next: None });
    harness.answer_loads_with_nothing();
    let (_, token) = harness.records_first[0];
    harness.handle(Input::Recorded(token));
    assert_eq!((harness.in_flight(), follows(&harness)), (vec![next.id], Some(0)));
}

fn page(
    from: u64,
    through: u64,
    deliveries: Vec<railpost_engine::Delivery>,
    follows: Vec<(u64, u64)>,
) -> LanePage {
    let follows = follows.into_iter().map(|(number, before)| (seq(number), before)).collect();
    let (through, last) = (Some(seq(through)), Some(seq(through)));
    LanePage { lane: LaneId(1), from: seq(from), through, last, deliveries, follows }
}

#[test]
fn what_was_passed_over_before_a_restart_is_known_from_the_page() {
    let mut harness = Harness::new();
    let endpoint = harness.endpoint_id();
    harness.endpoint_appears(endpoint, "acme", json!({}));
    let open = [5, 9].map(|number| harness.new_delivery(endpoint, at(1, number)));
    let deliveries = open.map(Into::into).to_vec();
    let lanes = vec![page(1, 9, deliveries, vec![(5, 2), (9, 5)])];
    harness.answer_load(LoadedPage::Lanes { lanes, next: None });
    harness.answer_loads_with_nothing();
    assert_eq!(follows(&harness), Some(2));
    harness.acknowledge(open[0].id);
    assert_eq!(follows(&harness), Some(5));
    harness.acknowledge(open[1].id);
    let next = harness.accept(endpoint, at(1, 10));
    assert_eq!((harness.in_flight(), follows(&harness)), (vec![next], None));
}

/// A lane with two in memory, and the page that had `seqs` and no room for the last of them.
fn shop_without_room(
    seqs: [u64; 2],
    passed_over: (u64, u64),
) -> (Harness, DeliveryId, [Accepted; 2]) {
    let mut harness = Harness::with(Config { lane_window: 2, ..Config::default() });
    let endpoint = harness.endpoint(json!({}));
    let first = harness.accept(endpoint, at(1, 1));
    let open = seqs.map(|number| harness.new_delivery(endpoint, at(1, number)));
    harness.handle(Input::Accepted(vec![open[1]]));
    let listed = open.map(Into::into).to_vec();
    harness.answer_load(LoadedPage::Lane(page(2, seqs[1], listed, vec![passed_over])));
    (harness, first, open)
}

#[test]
fn what_was_passed_over_is_known_even_where_a_page_has_more_than_there_is_room_for() {
    let (mut harness, first, open) = shop_without_room([3, 4], (3, 1));
    harness.acknowledge(first);
    assert_eq!((harness.in_flight(), follows(&harness)), (vec![open[0].id], Some(1)));
}

#[test]
fn a_later_page_knows_better_what_was_passed_over() {
    let (mut harness, first, open) = shop_without_room([2, 5], (5, 3));
    harness.acknowledge(first);
    // By now 3 was discarded, too.
    harness.answer_load(LoadedPage::Lane(page(3, 5, vec![open[1].into()], vec![(5, 2)])));
    harness.acknowledge(open[0].id);
    assert_eq!((harness.in_flight(), follows(&harness)), (vec![open[1].id], Some(2)));
}

#[test]
fn a_page_that_was_read_before_a_discard_does_not_undo_it() {
    let mut harness = Harness::new();
    let endpoint = harness.endpoint(json!({}));
    let first = harness.accept(endpoint, at(1, 1));
    // A hint with a gap makes the engine ask for what lies between.
    let third = harness.new_delivery(endpoint, at(1, 3));
    harness.handle(Input::Accepted(vec![third]));
    let Load::Lane { from, .. } = harness.loads[0].1 else { panic!("{:?}", harness.loads) };
    assert_eq!(from, seq(2));
    harness.command(Command::Discard, first);
    harness.end(first, TIMEOUT);
    // 2 had been discarded before the page was read: 3 follows 1, which is discarded by now.
    harness.answer_load(LoadedPage::Lane(page(2, 3, vec![third.into()], vec![(3, 1)])));
    assert_eq!((harness.in_flight(), follows(&harness)), (vec![third.id], Some(0)));
}

#[test]
fn a_replay_of_what_left_its_lane_follows_nothing() {
    let (mut harness, endpoint, lane) = shop_with_lane(json!({"on_dead_letter": "advance"}), 1);
    harness.end(lane[0], answer(400));
    let dead = railpost_engine::Delivery {
        place: None,
        state: DeliveryState::Dead { reason: DeadReason::Permanent, holds: false },
        progress: Progress { attempts: 1, ..Progress::default() },
        id: lane[0],
        endpoint,
    };
    harness.handle(Input::Command { command: Command::Replay, delivery: dead });
    let replayed = railpost_engine::Delivery {
        state: DeliveryState::Pending,
        progress: Progress { attempts: 1, replay: true, ..Progress::default() },
        ..dead
    };
    harness.answer_load(LoadedPage::Unkeyed {
        deliveries: vec![replayed],
        next: None,
        next_due: None,
    });
    assert_eq!((follows(&harness), harness.under_way[0].replay), (Some(0), true));
}

#[test]
fn a_redelivery_is_a_replay_from_its_first_attempt_on() {
    let mut harness = Harness::new();
    let endpoint = harness.endpoint(json!({}));
    let again =
        railpost_engine::Accepted { replay: true, ..harness.new_delivery(endpoint, at(1, 1)) };
    harness.handle(Input::Accepted(vec![again]));
    assert!(harness.under_way[0].replay);
}
