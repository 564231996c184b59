//! Whoever stands in a lane is found there, settled or not: tried with groups at random.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use fastrand::Rng;
use railpost_engine::{
    DeadReason, DeliveryState, LaneId, LanePage, Load, Page, Place, Progress, Timestamp, Transition,
};
use railpost_wire::{DeliveryId, EndpointId, EventId, Seq, TenantId};
use tempfile::TempDir;

use super::archive;
use super::desk::Desk;
use super::desk::testing::{in_a_group, open};
use super::lanes::Pace;
use super::ledger::{Asked, load};
use super::unsettled::Unsettled;
use crate::{
    AcceptBatch, EndpointPrivate, EndpointSettings, Event, NewEndpoint, Receipt, RecordBatch,
    TenantSettings, Write,
};

const ENDPOINTS: [EndpointId; 2] = [EndpointId::from_u128(1), EndpointId::from_u128(2)];

/// What should be in the store.
#[derive(Clone, Debug, Default)]
struct Model {
    /// Who stands where, by endpoint and place.
    open: BTreeMap<(EndpointId, LaneId, Seq), DeliveryId>,
    last: BTreeMap<LaneId, Seq>,
    events: u64,
}

impl Model {
    fn lanes(&self, endpoint: EndpointId) -> Vec<LaneId> {
        let mut lanes: Vec<_> =
            self.open.keys().filter(|(whose, ..)| *whose == endpoint).map(|key| key.1).collect();
        lanes.dedup();
        lanes
    }

    /// What of a lane lies between these seqs.
    fn between(
        &self,
        at: (EndpointId, LaneId),
        from: Seq,
        through: Option<Seq>,
    ) -> Vec<DeliveryId> {
        let Some(through) = through.filter(|through| *through >= from) else { return vec![] };
        self.open.range((at.0, at.1, from)..=(at.0, at.1, through)).map(|(_, id)| *id).collect()
    }
}

fn tenant() -> TenantId {
    "acme".parse().unwrap()
}

/// A file with a tenant and its endpoints.
fn new_file(folder: &TempDir) -> PathBuf {
    let path = folder.path().join("store.db");
    let file = open(&path);
    let mut desk = file.desk(Unsettled::default()).unwrap();
    in_a_group(&mut desk, |desk| {
        let create = Write::CreateTenant(tenant(), TenantSettings::default());
        desk.commit(&create.into()).unwrap();
        for id in ENDPOINTS {
            let settings = EndpointSettings::all_events("https://example.com");
            let private = EndpointPrivate::default();
            let endpoint = NewEndpoint { id, tenant: tenant(), settings, private };
            desk.commit(&Write::CreateEndpoint(endpoint).into()).unwrap();
        }
    });
    path
}

/// Accepts some events, half of them of one key.
fn accept(desk: &mut Desk<'_>, model: &mut Model, dice: &mut Rng, count: u64) {
    let events = (0..count).map(|_| {
        model.events += 1;
        let key = if dice.bool() { 0 } else { dice.u64(..12) };
        Event {
            id: EventId::generate(model.events, [0; 10]),
            event_type: "a.b".parse().unwrap(),
            key: Some(format!("k{key}").parse().unwrap()),
            payload: Bytes::new(),
            content_type: "text/plain".parse().unwrap(),
            schema_version: None,
            time: Timestamp::from_millis(model.events),
            traceparent: None,
        }
    });
    let events = events.collect();
    let batch = Arc::new(AcceptBatch { tenant: tenant(), events, idempotency: None });
    for receipt in desk.accept(&batch).unwrap() {
        let Receipt::Accepted { deliveries, .. } = receipt else { panic!("every id is used once") };
        for accepted in deliveries {
            let Place { lane, seq } = accepted.place.unwrap();
            model.open.insert((accepted.endpoint, lane, seq), accepted.id);
            model.last.insert(lane, seq);
        }
    }
}

/// Lets some that are open move on, wherever in their lanes they stand.
fn record(desk: &mut Desk<'_>, model: &mut Model, dice: &mut Rng, count: u64) {
    for _ in 0..count.min(model.open.len() as u64) {
        let any = dice.usize(..model.open.len());
        let ((endpoint, lane, seq), delivery) = model.open.iter().nth(any).unwrap();
        let state = match dice.u64(..6) {
            0 => DeliveryState::Waiting { until: Timestamp::from_millis(9) },
            1 => DeliveryState::Dead { reason: DeadReason::Expired, holds: false },
            2 => DeliveryState::Dead { reason: DeadReason::Permanent, holds: true },
            3 => DeliveryState::Discarded,
            _ => DeliveryState::Delivered,
        };
        let transition = Transition {
            delivery: *delivery,
            endpoint: *endpoint,
            place: Some(Place { lane: *lane, seq: *seq }),
            state,
            progress: Progress::default(),
            attempt: None,
            at: Timestamp::from_millis(1),
        };
        let recorded = desk.record(&RecordBatch::of([transition])).unwrap();
        // Not every state may follow those before.
        if recorded.applied == 1 && !state.is_open() {
            model.open.remove(&(*endpoint, *lane, *seq));
        }
    }
}

/// A page tells the truth about its stretch, and has one.
fn check_page(model: &Model, before: &Model, endpoint: EndpointId, page: &LanePage) {
    let listed: Vec<_> = page.deliveries.iter().map(|delivery| delivery.id).collect();
    let at = (endpoint, page.lane);
    assert_eq!(listed, model.between(at, page.from, page.through), "{page:?}");
    let known = before.last.get(&page.lane).copied();
    assert!(page.last >= known && page.last >= page.through, "{known:?} {page:?}");
    let is_in_lane = known >= Some(page.from);
    assert!(!is_in_lane || page.through >= Some(page.from), "{known:?} {page:?}");
}

/// A lane's page reaches to its end as it was before, unless it is full, or was.
fn check_end(before: &Model, endpoint: EndpointId, page: &LanePage, limit: u32) {
    let known = before.last.get(&page.lane).copied().filter(|last| *last >= page.from);
    let was_listed = before.between((endpoint, page.lane), page.from, page.through).len();
    let is_full = page.deliveries.len().max(was_listed) >= limit as usize;
    assert!(is_full || page.through >= known, "{known:?} {page:?}");
}

/// What was asked before some groups is answered after them.
fn check_loads(
    desk: &Desk<'_>,
    model: &Model,
    before: &Model,
    asked: &[(Load, Asked)],
    seen: &Unsettled,
) {
    for (asked_for, asked) in asked {
        match (*asked_for, load(desk.db, asked, seen).unwrap()) {
            (Load::Lane { endpoint, limit, .. }, Page::Lane(page)) => {
                check_page(model, before, endpoint, &page);
                check_end(before, endpoint, &page, limit);
            }
            (Load::Lanes { endpoint, after, limit, .. }, Page::Lanes { lanes, next }) => {
                assert!(lanes.len() <= limit as usize);
                lanes.iter().for_each(|page| check_page(model, before, endpoint, page));
                let listed: Vec<_> = lanes.iter().map(|page| page.lane).collect();
                let mut still = model.clone();
                still.open.retain(|at, _| before.open.contains_key(at));
                let within =
                    |lane: &LaneId| Some(*lane) > after && next.is_none_or(|next| *lane <= next);
                let missing = still
                    .lanes(endpoint)
                    .into_iter()
                    .filter(within)
                    .find(|lane| !listed.contains(lane));
                assert_eq!(missing, None, "after {after:?}: {listed:?}");
                let now = model.lanes(endpoint);
                let in_vain =
                    |page: &&LanePage| page.through == page.last && !now.contains(&page.lane);
                assert_eq!(lanes.iter().find(in_vain), None);
            }
            (_, other) => panic!("{other:?}"),
        }
    }
}

fn asks(model: &Model, dice: &mut Rng, seen: &Unsettled) -> Vec<(Load, Asked)> {
    let mut loads = Vec::new();
    for endpoint in ENDPOINTS {
        let lanes = model.lanes(endpoint);
        let after = lanes.get(dice.usize(..8)).copied().filter(|_| dice.bool());
        let (limit, window) = (dice.u32(1..=12), dice.u32(1..=5));
        loads.push(Load::Lanes { endpoint, after, limit, window });
        for lane in lanes {
            let last = model.last[&lane].get();
            let from = Seq::new(dice.u64(1..=last + 1)).unwrap();
            loads.push(Load::Lane { endpoint, lane, from, limit: dice.u32(1..=9) });
        }
    }
    loads.into_iter().map(|load| (load, Asked::new(load, seen))).collect()
}

fn check_counts(desk: &Desk<'_>, model: &Model) {
    let counts = archive::totals(desk.db, None).unwrap();
    let open = counts.pending + counts.in_flight + counts.waiting + counts.held;
    assert_eq!(open as usize, model.open.len(), "{counts:?}");
    let by_row = "SELECT count(*) FROM deliveries WHERE standing = 2 AND lane IS NOT NULL";
    let waiting: u64 = desk.db.query_row(by_row, [], |row| row.get(0)).unwrap();
    assert_eq!(counts.waiting, waiting);
    let oldest = model.open.values().min().map(|id| Timestamp::from_millis(id.unix_ms()));
    assert_eq!(counts.oldest_open_at, oldest);
}

/// Groups at random, some of which fail; every now and then a new process.
fn run(seed: u64, pace: Pace) -> (u64, u64) {
    let folder = TempDir::new().unwrap();
    let path = new_file(&folder);
    let (mut model, mut dice) = (Model::default(), Rng::with_seed(seed));
    let (mut most_unsettled, mut most_settled) = (0, 0);
    for _ in 0..4 {
        let file = open(&path);
        let seen = Unsettled::default();
        let mut desk = file.desk(seen.clone()).unwrap();
        desk.notes.lanes.pace = pace;
        for _ in 0..40 {
            let before = model.clone();
            let asked = asks(&model, &mut dice, &seen);
            for _ in 0..dice.u64(1..=2) {
                let fails = dice.u64(..7) == 0;
                let mut next = model.clone();
                desk.begin(false).unwrap();
                let (made, moved) = (dice.u64(..14), dice.u64(..40));
                record(&mut desk, &mut next, &mut dice, moved);
                accept(&mut desk, &mut next, &mut dice, made);
                if fails {
                    desk.give_up();
                    model.events = next.events;
                } else {
                    desk.end().unwrap();
                    model = next;
                }
            }
            check_loads(&desk, &model, &before, &asked, &seen);
            let asked = asks(&model, &mut dice, &seen);
            check_loads(&desk, &model, &model, &asked, &seen);
            check_counts(&desk, &model);
            most_settled = most_settled.max(places(&desk));
            most_unsettled = most_unsettled.max(seen.len().1 as u64);
        }
    }
    let file = open(&path);
    let mut desk = file.desk(Unsettled::default()).unwrap();
    while !in_a_group(&mut desk, |desk| desk.erase_tenant(&tenant()).unwrap()) {}
    assert_eq!(places(&desk), 0);
    (most_unsettled, most_settled)
}

fn places(desk: &Desk<'_>) -> u64 {
    desk.db.query_row("SELECT count(*) FROM places", [], |row| row.get(0)).unwrap()
}

#[test]
fn whoever_is_open_is_found_however_lanes_are_settled() {
    let slow = Pace::default();
    let quick = Pace { round: 60, group_min: 4, settled_min: 3, ..slow };
    let crowded = Pace { unsettled_max: 9, settled_min: 3, ..slow };
    let at_once = Pace { at_once_max: 12, ..quick };
    for (seed, pace) in [slow, quick, crowded, at_once].into_iter().enumerate() {
        let (unsettled, settled) = run(seed as u64, pace);
        assert!(unsettled > 0 && settled > 0, "{pace:?}: {unsettled} {settled}");
    }
}
