//! What an attempt says of the one before it, when something in its lane was never delivered.

use railpost_engine::{
    Accepted, Command, Config, DeadReason, DeliveryState, Input, LaneId, LanePage, Load, Page,
    Progress,
};
use railpost_wire::{DeliveryId, EndpointId};
use serde_json::{Value, json};

use crate::harness::{Shop, TIMEOUT, answer, at, seq};

/// What the only attempt under way follows.
fn follows(shop: &Shop) -> Option<u64> {
    assert_eq!(shop.under_way.len(), 1);
    shop.under_way[0].follows
}

fn shop_with_lane(policy: Value, count: u64) -> (Shop, EndpointId, Vec<DeliveryId>) {
    let mut shop = Shop::new();
    let endpoint = shop.endpoint(policy);
    let lane = shop.accept_lane(endpoint, 1, count);
    (shop, endpoint, lane)
}

#[test]
fn an_attempt_says_nothing_where_the_one_before_was_delivered() {
    let (mut shop, _, lane) = shop_with_lane(json!({}), 3);
    for id in &lane {
        assert_eq!(follows(&shop), None);
        shop.end(*id, TIMEOUT);
        shop.pass_secs(3_600);
        assert_eq!(follows(&shop), None, "a retry neither");
        shop.acknowledge(*id);
    }
}

#[test]
fn a_discard_a_skip_and_an_advance_are_passed_over() {
    let hold = json!({});
    let advance = json!({"on_dead_letter": "advance"});
    type Act = fn(&mut Shop, DeliveryId);
    let discard: Act = |shop, id| shop.command(Command::Discard, id);
    let skip: Act = |shop, id| {
        shop.end(id, answer(400));
        shop.command(Command::Skip, id);
    };
    let die: Act = |shop, id| shop.end(id, answer(400));
    for (policy, act) in [(hold.clone(), discard), (hold, skip), (advance, die)] {
        let (mut shop, _, lane) = shop_with_lane(policy, 5);
        shop.acknowledge(lane[0]);
        for id in &lane[1..3] {
            act(&mut shop, *id);
            if shop.in_flight() == [*id] {
                // A discard of what is under way waits for its end.
                shop.end(*id, TIMEOUT);
            }
        }
        assert_eq!((shop.in_flight(), follows(&shop)), (vec![lane[3]], Some(1)));
        shop.end(lane[3], TIMEOUT);
        shop.pass_secs(3_600);
        assert_eq!(follows(&shop), Some(1), "every attempt says so");
        shop.acknowledge(lane[3]);
        assert_eq!((shop.in_flight(), follows(&shop)), (vec![lane[4]], None));
    }
}

#[test]
fn a_lane_of_which_nothing_was_delivered_follows_nothing() {
    let (mut shop, _, lane) = shop_with_lane(json!({"on_dead_letter": "advance"}), 3);
    shop.end(lane[0], answer(400));
    assert_eq!(follows(&shop), Some(0));
    shop.end(lane[1], answer(400));
    assert_eq!(follows(&shop), Some(0));
}

#[test]
fn discards_behind_the_head_are_passed_over_in_their_turn() {
    let (mut shop, _, lane) = shop_with_lane(json!({}), 7);
    for index in [4, 2, 3, 5] {
        shop.command(Command::Discard, lane[index]);
    }
    shop.acknowledge(lane[0]);
    assert_eq!(follows(&shop), None);
    shop.acknowledge(lane[1]);
    assert_eq!((shop.in_flight(), follows(&shop)), (vec![lane[6]], Some(2)));
}

#[test]
fn an_at_most_once_loss_is_passed_over() {
    let mut shop = Shop::new();
    let endpoint = shop.endpoint_id();
    shop.endpoint_appears(endpoint, "acme", json!({"guarantee": "at_most_once"}));
    let sent = shop.new_delivery(endpoint, at(1, 1));
    let next = shop.new_delivery(endpoint, at(1, 2));
    let sent = railpost_engine::Delivery { state: DeliveryState::InFlight, ..sent.into() };
    let lanes = vec![page(1, 2, vec![sent, next.into()], vec![])];
    shop.answer_load(Page::Lanes { lanes, next: None });
    shop.answer_loads_with_nothing();
    let (_, token) = shop.records_first[0];
    shop.handle(Input::Recorded(token));
    assert_eq!((shop.in_flight(), follows(&shop)), (vec![next.id], Some(0)));
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
    let mut shop = Shop::new();
    let endpoint = shop.endpoint_id();
    shop.endpoint_appears(endpoint, "acme", json!({}));
    let open = [5, 9].map(|number| shop.new_delivery(endpoint, at(1, number)));
    let deliveries = open.map(Into::into).to_vec();
    let lanes = vec![page(1, 9, deliveries, vec![(5, 2), (9, 5)])];
    shop.answer_load(Page::Lanes { lanes, next: None });
    shop.answer_loads_with_nothing();
    assert_eq!(follows(&shop), Some(2));
    shop.acknowledge(open[0].id);
    assert_eq!(follows(&shop), Some(5));
    shop.acknowledge(open[1].id);
    let next = shop.accept(endpoint, at(1, 10));
    assert_eq!((shop.in_flight(), follows(&shop)), (vec![next], None));
}

/// A lane with two in memory, and the page that had `seqs` and no room for the last of them.
fn shop_without_room(seqs: [u64; 2], passed_over: (u64, u64)) -> (Shop, DeliveryId, [Accepted; 2]) {
    let mut shop = Shop::with(Config { lane_window: 2, ..Config::default() });
    let endpoint = shop.endpoint(json!({}));
    let first = shop.accept(endpoint, at(1, 1));
    let open = seqs.map(|number| shop.new_delivery(endpoint, at(1, number)));
    shop.handle(Input::Accepted(vec![open[1]]));
    let listed = open.map(Into::into).to_vec();
    shop.answer_load(Page::Lane(page(2, seqs[1], listed, vec![passed_over])));
    (shop, first, open)
}

#[test]
fn what_was_passed_over_is_known_even_where_a_page_has_more_than_there_is_room_for() {
    let (mut shop, first, open) = shop_without_room([3, 4], (3, 1));
    shop.acknowledge(first);
    assert_eq!((shop.in_flight(), follows(&shop)), (vec![open[0].id], Some(1)));
}

#[test]
fn a_later_page_knows_better_what_was_passed_over() {
    let (mut shop, first, open) = shop_without_room([2, 5], (5, 3));
    shop.acknowledge(first);
    // By now 3 was discarded, too.
    shop.answer_load(Page::Lane(page(3, 5, vec![open[1].into()], vec![(5, 2)])));
    shop.acknowledge(open[0].id);
    assert_eq!((shop.in_flight(), follows(&shop)), (vec![open[1].id], Some(2)));
}

#[test]
fn a_page_that_was_read_before_a_discard_does_not_undo_it() {
    let mut shop = Shop::new();
    let endpoint = shop.endpoint(json!({}));
    let first = shop.accept(endpoint, at(1, 1));
    // A hint with a gap makes the engine ask for what lies between.
    let third = shop.new_delivery(endpoint, at(1, 3));
    shop.handle(Input::Accepted(vec![third]));
    let Load::Lane { from, .. } = shop.loads[0].1 else { panic!("{:?}", shop.loads) };
    assert_eq!(from, seq(2));
    shop.command(Command::Discard, first);
    shop.end(first, TIMEOUT);
    // 2 had been discarded before the page was read: 3 follows 1, which is discarded by now.
    shop.answer_load(Page::Lane(page(2, 3, vec![third.into()], vec![(3, 1)])));
    assert_eq!((shop.in_flight(), follows(&shop)), (vec![third.id], Some(0)));
}

#[test]
fn a_replay_of_what_left_its_lane_follows_nothing() {
    let (mut shop, endpoint, lane) = shop_with_lane(json!({"on_dead_letter": "advance"}), 1);
    shop.end(lane[0], answer(400));
    let dead = railpost_engine::Delivery {
        place: None,
        state: DeliveryState::Dead { reason: DeadReason::Permanent, holds: false },
        progress: Progress { attempts: 1, ..Progress::default() },
        id: lane[0],
        endpoint,
    };
    shop.handle(Input::Command { command: Command::Replay, delivery: dead });
    let replayed = railpost_engine::Delivery {
        state: DeliveryState::Pending,
        progress: Progress { attempts: 1, replay: true, ..Progress::default() },
        ..dead
    };
    shop.answer_load(Page::Unkeyed { deliveries: vec![replayed], next: None, next_due: None });
    assert_eq!((follows(&shop), shop.under_way[0].replay), (Some(0), true));
}

#[test]
fn a_redelivery_is_a_replay_from_its_first_attempt_on() {
    let mut shop = Shop::new();
    let endpoint = shop.endpoint(json!({}));
    let again = railpost_engine::Accepted { replay: true, ..shop.new_delivery(endpoint, at(1, 1)) };
    shop.handle(Input::Accepted(vec![again]));
    assert!(shop.under_way[0].replay);
}
