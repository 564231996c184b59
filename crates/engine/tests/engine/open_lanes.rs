//! Lanes with anything open, as people are told of them.

use railpost_engine::{Command, Input, LaneCounts, LaneId, LaneState, OpenLanes, Span, Timestamp};
use railpost_wire::EndpointId;
use serde_json::{Value, json};

use crate::harness::{Harness, TIMEOUT, answer, answer_after, at};

/// Opens after two failures out of two, for ten seconds.
fn nervous() -> Value {
    json!({
        "retry": {"backoff": {"strategy": "fixed", "delay": "1s"}},
        "breaker": {"min_attempts": 2, "window": 2, "open_for": "10s", "open_for_max": "1h"},
    })
}

fn open(harness: &Harness, endpoint: Option<EndpointId>) -> OpenLanes {
    harness.engine.open_lanes(&"acme".parse().unwrap(), endpoint, 100)
}

/// The lanes that are shown, with what they do.
fn shown(harness: &Harness) -> Vec<(u64, LaneState, Option<Timestamp>)> {
    let first = open(harness, None).first;
    first.iter().map(|lane| (lane.lane.0, lane.state, lane.until)).collect()
}

#[test]
fn each_lane_says_what_it_waits_for() {
    let mut harness = Harness::new();
    let endpoint = harness.endpoint(json!({
        "retry": {"backoff": {"strategy": "fixed", "delay": "1m"}},
        "breaker": null,
        "in_flight_max": 3,
    }));
    let heads: Vec<_> = (1..=4).map(|lane| harness.accept(endpoint, at(lane, 1))).collect();
    harness.accept(endpoint, at(2, 2));
    harness.end(heads[0], answer(500));
    harness.end(heads[1], answer(400));
    harness.accept(endpoint, at(5, 1));
    harness.accept(endpoint, at(6, 1));
    let due = harness.now() + Span::from_secs(60);
    let expected = [
        (2, LaneState::Held, None),
        (1, LaneState::BackingOff, Some(due)),
        (3, LaneState::InFlight, None),
        (4, LaneState::InFlight, None),
        (5, LaneState::InFlight, None),
        (6, LaneState::WaitingForLimit, None),
    ];
    assert_eq!(shown(&harness), expected);
    let OpenLanes { counts, first } = open(&harness, Some(endpoint));
    let by_stage = LaneCounts { lanes: 6, held: 1, in_flight: 3, backing_off: 1, ready: 1 };
    assert_eq!(counts, by_stage);
    assert_eq!((first[0].head, first[0].open, first[0].by_key), (Some(heads[1]), 2, true));
}

#[test]
fn lanes_behind_an_open_breaker_wait_for_it_and_none_is_in_flight() {
    let mut harness = Harness::new();
    let endpoint = harness.endpoint(nervous());
    let heads: Vec<_> = (1..=32).map(|lane| harness.accept(endpoint, at(lane, 1))).collect();
    for head in heads {
        harness.end(head, TIMEOUT);
    }
    let until = harness.now() + Span::from_secs(10);
    harness.pass_secs(5);
    let lanes = shown(&harness);
    assert_eq!(lanes.len(), 32);
    let waits =
        |(_, state, at): &(_, _, _)| *state == LaneState::WaitingForBreaker && *at == Some(until);
    assert!(lanes.iter().all(waits), "{lanes:?}");
    assert_eq!(
        open(&harness, None).counts,
        LaneCounts { lanes: 32, ready: 32, ..Default::default() }
    );
    harness.pass_secs(5);
    assert_eq!(open(&harness, None).counts.in_flight, 1, "the probe");
    assert_eq!(shown(&harness)[1], (2, LaneState::WaitingForBreaker, None));
}

#[test]
fn a_retry_that_is_due_after_its_gate_opens_is_backing_off() {
    let mut harness = Harness::new();
    let endpoint = harness.endpoint(json!({
        "retry": {"backoff": {"strategy": "fixed", "delay": "1h"}, "max_delay": "1h"},
    }));
    let head = harness.accept(endpoint, at(1, 1));
    let other = harness.accept(endpoint, at(2, 1));
    harness.accept(endpoint, at(3, 1));
    harness.end(head, answer(500));
    let due = harness.now() + Span::from_secs(3_600);
    harness.end(other, answer_after(429, 60));
    let held_until = harness.now() + Span::from_secs(60);
    let lanes = shown(&harness);
    assert_eq!(lanes[0], (1, LaneState::BackingOff, Some(due)));
    assert_eq!(lanes[1], (2, LaneState::WaitingForRetryAfter, Some(held_until)));
    assert_eq!(lanes[2], (3, LaneState::InFlight, None), "it left before");
}

#[test]
fn lanes_of_an_endpoint_that_is_off_say_so() {
    let mut harness = Harness::new();
    let endpoint = harness.endpoint(json!({}));
    harness.handle(Input::EndpointPaused(endpoint));
    harness.accept_lane(endpoint, 1, 3);
    assert_eq!(shown(&harness), [(1, LaneState::EndpointOff, None)]);
    harness.handle(Input::EndpointResumed(endpoint));
    assert_eq!(shown(&harness), [(1, LaneState::InFlight, None)]);
    harness.handle(Input::EndpointRemoved(endpoint));
    assert_eq!(open(&harness, None), OpenLanes::default());
}

#[test]
fn what_a_person_decided_shows_at_once() {
    let mut harness = Harness::new();
    let endpoint = harness.endpoint(json!({"quarantine_after": null}));
    let lanes: Vec<_> = (1..=3).map(|lane| harness.accept_lane(endpoint, lane, 2)).collect();
    for lane in &lanes {
        harness.end(lane[0], answer(400));
    }
    assert_eq!(open(&harness, None).counts.held, 3);
    harness.command(Command::Replay, lanes[0][0]);
    harness.command(Command::Skip, lanes[1][0]);
    harness.command(Command::Discard, lanes[2][0]);
    let OpenLanes { counts, first } = open(&harness, None);
    assert_eq!((counts.held, counts.in_flight), (0, 3));
    let heads: Vec<_> = first.iter().filter_map(|lane| lane.head).collect();
    assert_eq!(heads, [lanes[0][0], lanes[1][1], lanes[2][1]]);
    for head in heads {
        harness.acknowledge(head);
    }
    harness.acknowledge(lanes[0][1]);
    assert_eq!(open(&harness, None), OpenLanes::default());
}

#[test]
fn a_lane_whose_head_is_being_read_is_loading() {
    let mut harness = Harness::new();
    let endpoint = harness.endpoint(json!({}));
    let late = harness.new_delivery(endpoint, at(1, 7));
    harness.handle(Input::Accepted(vec![late]));
    let OpenLanes { counts, first } = open(&harness, None);
    assert_eq!(counts, LaneCounts { lanes: 1, ..Default::default() });
    assert_eq!(
        (first[0].lane, first[0].state, first[0].head),
        (LaneId(1), LaneState::Loading, None)
    );
}

#[test]
fn the_held_come_first_then_those_whose_head_was_made_first_and_no_more_than_asked_for() {
    let mut harness = Harness::new();
    let endpoint = harness.endpoint(json!({"quarantine_after": null, "in_flight_max": 100}));
    let heads: Vec<_> = (1..=20).rev().map(|lane| harness.accept(endpoint, at(lane, 1))).collect();
    harness.end(heads[15], answer(400));
    harness.end(heads[10], answer(400));
    let first = harness.engine.open_lanes(&"acme".parse().unwrap(), None, 4).first;
    let shown: Vec<_> = first.iter().filter_map(|lane| lane.head).collect();
    assert_eq!(shown, [heads[10], heads[15], heads[0], heads[1]]);
}

#[test]
fn other_tenants_and_endpoints_are_left_out() {
    let mut harness = Harness::new();
    let (one, two) = (harness.endpoint(json!({})), harness.endpoint(json!({})));
    let other = harness.endpoint_of("other", json!({}));
    for (lane, endpoint) in [(1, one), (2, two), (3, other)] {
        harness.accept(endpoint, at(lane, 1));
    }
    assert_eq!(open(&harness, None).counts.lanes, 2);
    assert_eq!(open(&harness, Some(two)).first[0].lane, LaneId(2));
    assert_eq!(open(&harness, Some(other)), OpenLanes::default());
}
