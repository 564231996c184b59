//! Judging deliveries by the objective.

use futures_util::future::join_all;
use railpost_engine::{
    Accepted, DeadReason, DeliveryState, EndpointRecord, EndpointStatus, Progress, Span, Timestamp,
};
use railpost_wire::{DeliveryId, EndpointId};

use super::world::{START, World, progress};
use railpost_store::limits::{FIGURES_BATCH_MAX, FIGURES_HOURS_KEPT, LATE_PAGE_MAX};
use railpost_store::{
    Figures, FiguresScope, JudgedStep, LateAtEndpoint, LatePage, LateQuery, Period, PruneStep,
    RecordBatch, Resolution, Source, StoreError, TenantSettings, Write, first_delivery_id,
};

const WITHIN: Span = Span::from_mins(10);
const SECOND: Span = Span::from_secs(1);

/// Before every delivery of a check.
const FIRST: DeliveryId = DeliveryId::from_u128(0);

/// What is late among all that was made until now, when its time is over.
async fn late_from(world: &World, from: DeliveryId) -> LatePage {
    let before = world.later(1_000);
    world.source.set(before + WITHIN);
    let query = LateQuery { from, before, within: WITHIN };
    world.store.late_deliveries(query).await.expect("the store answers")
}

/// Attempted, behind an attempted one and not attempted, by endpoint.
async fn late(world: &World) -> Vec<(EndpointId, [u64; 3])> {
    let of = |late: &LateAtEndpoint| {
        (late.endpoint, [late.attempted, late.behind_attempted, late.unattempted])
    };
    late_from(world, FIRST).await.endpoints.iter().map(of).collect()
}

/// The progress of a delivery whose first attempt started then.
fn begun(at: Timestamp) -> Progress {
    Progress { attempts: 1, round_attempts: 1, round_started_at: Some(at), ..progress() }
}

async fn move_with(world: &World, accepted: &Accepted, state: DeliveryState, progress: Progress) {
    world
        .record([railpost_engine::Transition { progress, ..world.transition(accepted, state) }])
        .await;
}

fn waiting() -> DeliveryState {
    DeliveryState::Waiting { until: START + Span::from_days(1) }
}

fn dead(holds: bool) -> DeliveryState {
    DeliveryState::Dead { reason: DeadReason::Expired, holds }
}

pub(super) async fn late_is_what_was_neither_acknowledged_in_time_nor_discarded(world: World) {
    let endpoint = world.endpoint().await;
    let all = world.accept((0..7).map(|_| world.event(None)).collect()).await;
    let made = world.source.now();
    world.source.set(made + SECOND);
    let states = [DeliveryState::InFlight, waiting(), dead(false), DeliveryState::DISCARDED];
    for (accepted, state) in all[1..].iter().zip(states) {
        move_with(&world, accepted, state, begun(made)).await;
    }
    world.source.set(made + WITHIN);
    move_with(&world, &all[5], DeliveryState::Delivered, begun(made)).await;
    world.source.set(made + WITHIN + Span::from_millis(1));
    move_with(&world, &all[6], DeliveryState::Delivered, begun(made)).await;
    world.source.set(made);
    // In flight, waiting, dead and acknowledged a millisecond too late; and the one that nobody touched.
    assert_eq!(late(&world).await, [(endpoint, [4, 0, 1])]);
}

pub(super) async fn late_is_only_what_was_made_in_the_stretch(world: World) {
    let endpoint = world.endpoint().await;
    let mut made = Vec::new();
    for _ in 0..3 {
        world.publish_one(None).await;
        made.push(world.source.now());
        world.later(1_000);
    }
    let (second, third) = (first_delivery_id(made[1]), made[2]);
    for (from, before, expected) in [
        (FIRST, made[0], 0),
        (FIRST, made[0] + Span::from_millis(1), 1),
        (FIRST, third, 2),
        (second, third, 1),
        (second, third + SECOND, 2),
        (second, made[0], 0),
    ] {
        let query = LateQuery { from, before, within: WITHIN };
        let page = world.store.late_deliveries(query).await.unwrap();
        let found: u64 = page.endpoints.iter().map(|late| late.unattempted).sum();
        assert_eq!(found, expected, "{query:?}");
        assert_eq!(page.judged_before, query.end(), "{query:?}");
        assert!(page.endpoints.iter().all(|late| late.endpoint == endpoint));
    }
}

pub(super) async fn what_stands_behind_an_attempted_head_is_told_apart(world: World) {
    let endpoint = world.endpoint().await;
    let of = async |key| world.publish_one(Some(key)).await;
    let (head, behind) = (of("a").await, of("a").await);
    let (untouched, also) = (of("b").await, of("b").await);
    let (late_head, after_it) = (of("c").await, of("c").await);
    let held = of("d").await;
    of("d").await;
    let made = world.source.now();
    move_with(&world, &head, waiting(), begun(made)).await;
    move_with(&world, &held, dead(true), begun(made)).await;
    move_with(&world, &late_head, waiting(), begun(made + WITHIN + SECOND)).await;
    let _ = (behind, untouched, also, after_it);
    // Both heads of `a` and `d`; the ones behind them; all of `b`, and of `c`, whose head was late itself.
    assert_eq!(late(&world).await, [(endpoint, [2, 2, 4])]);
}

pub(super) async fn an_attempt_of_an_earlier_round_counts_as_one(world: World) {
    let endpoint = world.endpoint().await;
    let replayed = world.publish_one(None).await;
    let made = world.source.now();
    move_with(&world, &replayed, dead(false), begun(made)).await;
    let again = Progress { attempts: 1, round_attempts: 0, round_started_at: None, ..progress() };
    move_with(&world, &replayed, DeliveryState::Pending, again).await;
    assert_eq!(late(&world).await, [(endpoint, [1, 0, 0])]);
}

pub(super) async fn late_deliveries_have_the_status_of_their_endpoint(world: World) {
    let failing_since = Some(START);
    let statuses = [
        (EndpointStatus::Active, None),
        (EndpointStatus::Active, failing_since),
        (EndpointStatus::Paused, None),
        (EndpointStatus::Quarantined, failing_since),
    ];
    let mut expected = Vec::new();
    for (status, failing_since) in statuses {
        let endpoint = world.endpoint().await;
        let was = EndpointStatus::Active;
        let at = world.source.now();
        let record = EndpointRecord { endpoint, status, was, failing_since, at };
        let batch = RecordBatch { endpoints: vec![record], ..RecordBatch::of([]) };
        world.store.record(batch.into()).await.unwrap();
        expected.push((endpoint, world.tenant.clone(), status, failing_since));
    }
    world.publish(None).await;
    let page = late_from(&world, FIRST).await.endpoints.into_iter();
    let found: Vec<_> =
        page.map(|late| (late.endpoint, late.tenant, late.status, late.failing_since)).collect();
    assert_eq!(found, expected);
}

pub(super) async fn nothing_is_late_at_endpoints_and_tenants_that_are_gone(world: World) {
    let (stays, goes) = (world.endpoint().await, world.endpoint().await);
    world.publish(None).await;
    world.commit(Write::RemoveEndpoint(goes)).await;
    assert_eq!(late(&world).await, [(stays, [0, 0, 1])]);
    world.commit(Write::EraseTenant(world.tenant.clone())).await;
    assert_eq!(late(&world).await, []);
}

pub(super) async fn more_late_deliveries_than_a_page_holds_are_all_found_once(world: World) {
    world.endpoint().await;
    let events = LATE_PAGE_MAX as u64 + 7;
    for _ in 0..events {
        world.publish_one(None).await;
    }
    let first = late_from(&world, FIRST).await;
    assert_eq!(first.endpoints[0].unattempted, LATE_PAGE_MAX as u64);
    let second = late_from(&world, first.judged_before).await;
    assert_eq!(second.endpoints[0].unattempted, 7);
    assert_eq!(late_from(&world, second.judged_before).await.endpoints, []);
}

fn late_figures(count: u64) -> Figures {
    Figures { late_operator: count, ..Figures::default() }
}

fn step(was: Option<DeliveryId>, next: u128, late: u64) -> JudgedStep {
    let figures = vec![(FiguresScope::All, START, late_figures(late))];
    JudgedStep { was, judged_before: DeliveryId::from_u128(next), figures }
}

async fn judged(world: &World) -> (Option<DeliveryId>, u64) {
    let found = world.store.figures(&FiguresScope::All, Resolution::Hour, Period::default()).await;
    let late = found.unwrap().iter().map(|(_, figures)| figures.late_operator).sum();
    (world.store.judged_before().await.unwrap(), late)
}

pub(super) async fn what_was_judged_is_added_once_whoever_asks_again(world: World) {
    let id = |number| Some(DeliveryId::from_u128(number));
    assert_eq!(judged(&world).await, (None, 0));
    for (was, next, added, expected) in [
        (id(3), 5, false, (None, 0)),
        (None, 5, true, (id(5), 2)),
        (None, 5, false, (id(5), 2)),
        (id(5), 9, true, (id(9), 4)),
        (id(5), 9, false, (id(9), 4)),
        (id(9), 4, true, (id(4), 6)),
    ] {
        assert_eq!(world.store.add_judged(step(was, next, 2)).await, Ok(added), "{was:?}");
        assert_eq!(judged(&world).await, expected, "{was:?}");
    }
}

pub(super) async fn of_those_who_judge_at_once_one_is_believed(world: World) {
    let all = join_all((1..9).map(|next| world.store.add_judged(step(None, next, 1)))).await;
    assert_eq!(all.iter().filter(|added| **added == Ok(true)).count(), 1, "{all:?}");
    assert_eq!(judged(&world).await.1, 1);
}

pub(super) async fn bad_figures_of_what_was_judged_move_nothing(world: World) {
    let figures = vec![(FiguresScope::All, START, late_figures(1)); FIGURES_BATCH_MAX + 1];
    let refused = world.store.add_judged(JudgedStep { figures, ..step(None, 5, 1) }).await;
    assert!(matches!(refused, Err(StoreError::Invalid { .. })), "{refused:?}");
    assert_eq!(judged(&world).await, (None, 0));
}

pub(super) async fn how_far_was_judged_outlives_pruning_erasing_and_a_backup(world: World) {
    world.store.add_judged(step(None, 5, 1)).await.unwrap();
    world.source.set(START + FIGURES_HOURS_KEPT.times(2));
    world.store.prune(PruneStep::of_all_before(START, 1)).await.unwrap();
    world.erase(&world.tenant).await;
    world.add_tenant("other", TenantSettings::default()).await;
    let id = Some(DeliveryId::from_u128(5));
    assert_eq!(judged(&world).await, (id, 0));
    let path = world.new_path();
    world.store.backup(&path).await.unwrap();
    let restored = world.restore(&path, 1).await.unwrap();
    assert_eq!(restored.judged_before().await, Ok(id));
}
