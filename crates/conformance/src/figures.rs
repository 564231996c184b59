//! Figures over time.

use futures_util::future::join_all;
use railpost_engine::{Span, Timestamp};
use railpost_wire::EndpointId;

use super::world::{START, World};
use railpost_store::limits::{
    FIGURES_BATCH_MAX, FIGURES_BUCKETS_MAX, FIGURES_FAILURE_LEN_MAX, FIGURES_FAILURES_MAX,
    FIGURES_HOURS_KEPT, FIGURES_MINUTES_KEPT,
};
use railpost_store::{
    Figures, FiguresScope, Histogram, Period, PruneStep, Resolution, StoreError, TenantSettings,
    Write,
};

const MINUTE: Span = Span::from_mins(1);
const HOUR: Span = Span::from_hours(1);

/// The first hour that begins after the checks do.
fn hour() -> Timestamp {
    Resolution::Hour.start_of(START + HOUR)
}

fn accepted(count: u64) -> Figures {
    Figures { accepted: count, ..Figures::default() }
}

async fn add(world: &World, scope: &FiguresScope, at: Timestamp, figures: Figures) {
    let batch = vec![(scope.clone(), at, figures)];
    world.store.add_figures(batch).await.expect("they are added");
}

async fn read(
    world: &World,
    scope: &FiguresScope,
    resolution: Resolution,
) -> Vec<(Timestamp, Figures)> {
    world.store.figures(scope, resolution, Period::default()).await.expect("the store answers")
}

/// How many were accepted in each minute or hour.
async fn counts(
    world: &World,
    scope: &FiguresScope,
    resolution: Resolution,
) -> Vec<(Timestamp, u64)> {
    let found = read(world, scope, resolution).await;
    found.into_iter().map(|(at, figures)| (at, figures.accepted)).collect()
}

pub(super) async fn figures_read_back_in_every_detail(world: World) {
    let mut attempt_us = Histogram::default();
    [0, 250, 1_000_000].into_iter().for_each(|value| attempt_us.record(value));
    let mut deliver_ms = Histogram::default();
    deliver_ms.record(u64::MAX);
    let mut first_attempt_ms = Histogram::default();
    first_attempt_ms.record(12);
    let figures = Figures {
        accepted: 1,
        attempts: 2,
        acknowledged: 3,
        retryable: 4,
        permanent: 5,
        dead: u64::MAX,
        by_status: [(0, 1), (200, 2), (999, 3)].into(),
        by_failure: [("dns".to_owned(), 1), ("é".to_owned(), 2)].into(),
        attempt_us,
        deliver_ms,
        first_attempts: 6,
        exhausted: 7,
        on_time: 8,
        late_operator: 9,
        late_receiver: u64::MAX,
        first_attempt_ms,
    };
    add(&world, &FiguresScope::All, hour(), figures.clone()).await;
    for resolution in [Resolution::Minute, Resolution::Hour] {
        let found = read(&world, &FiguresScope::All, resolution).await;
        assert_eq!(found, [(hour(), figures.clone())]);
    }
}

pub(super) async fn figures_add_up_by_minute_and_by_hour(world: World) {
    let (all, start) = (FiguresScope::All, hour());
    let last_of_minute = start + Span::from_millis(59_999);
    add(&world, &all, start, accepted(1)).await;
    add(&world, &all, last_of_minute, accepted(2)).await;
    add(&world, &all, start + MINUTE, accepted(4)).await;
    let next = (all.clone(), start + HOUR, accepted(16));
    let batch =
        vec![next, (all.clone(), start + MINUTE, accepted(8)), (all.clone(), start, accepted(0))];
    world.store.add_figures(batch).await.unwrap();
    let minutes = counts(&world, &all, Resolution::Minute).await;
    assert_eq!(minutes, [(start, 3), (start + MINUTE, 12), (start + HOUR, 16)]);
    assert_eq!(counts(&world, &all, Resolution::Hour).await, [(start, 15), (start + HOUR, 16)]);
}

pub(super) async fn histograms_of_figures_add_up(world: World) {
    let mut both = Histogram::default();
    for value in [10, 5_000] {
        let mut deliver_ms = Histogram::default();
        deliver_ms.record(value);
        both.record(value);
        let by_status = [(200, 1), (value as u16, 1)].into();
        let by_failure = [("timeout".to_owned(), value)].into();
        let figures = Figures { deliver_ms, by_failure, ..Figures::default() };
        let figures = if value < 999 { Figures { by_status, ..figures } } else { figures };
        add(&world, &FiguresScope::All, hour(), figures).await;
    }
    let found = read(&world, &FiguresScope::All, Resolution::Minute).await.remove(0).1;
    assert_eq!(found.deliver_ms, both);
    assert_eq!(found.by_status, [(10, 1), (200, 1)].into());
    assert_eq!(found.by_failure, [("timeout".to_owned(), 5_010)].into());
}

pub(super) async fn figures_of_each_scope_stand_alone(world: World) {
    let other = world.add_tenant("other", TenantSettings::default()).await;
    let scopes = [
        FiguresScope::All,
        FiguresScope::Tenant(world.tenant.clone()),
        FiguresScope::Tenant(other),
        FiguresScope::Endpoint(world.endpoint().await),
        FiguresScope::Endpoint(world.endpoint().await),
    ];
    let entry = |(scope, count): (&FiguresScope, u64)| (scope.clone(), hour(), accepted(count));
    let batch = scopes.iter().zip(1..).map(entry).collect();
    world.store.add_figures(batch).await.unwrap();
    for (scope, count) in scopes.iter().zip(1..) {
        let found = counts(&world, scope, Resolution::Minute).await;
        assert_eq!(found, [(hour(), count)], "{scope:?}");
    }
}

pub(super) async fn figures_list_what_begins_in_the_period(world: World) {
    let at = [hour(), hour() + MINUTE, hour() + MINUTE.times(2)];
    for at in at.iter().rev() {
        add(&world, &FiguresScope::All, *at, accepted(1)).await;
    }
    let period = |from, before| Period { from, before };
    for (period, expected) in [
        (period(None, None), &at[..]),
        (period(Some(at[1]), None), &at[1..]),
        (period(None, Some(at[1])), &at[..1]),
        (period(Some(at[0] + Span::from_millis(1)), Some(at[1] + Span::from_millis(1))), &at[1..2]),
        (period(Some(at[2] + MINUTE), None), &[]),
    ] {
        let found = world.store.figures(&FiguresScope::All, Resolution::Minute, period).await;
        let found: Vec<_> = found.unwrap().into_iter().map(|(at, _)| at).collect();
        assert_eq!(found, expected, "{period:?}");
    }
}

pub(super) async fn figures_of_what_is_not_there_are_left_out(world: World) {
    let unknown = [
        FiguresScope::Tenant("nobody".parse().unwrap()),
        FiguresScope::Endpoint(EndpointId::from_u128(404)),
    ];
    let mut batch: Vec<_> =
        unknown.iter().map(|scope| (scope.clone(), hour(), accepted(1))).collect();
    batch.push((FiguresScope::All, hour(), accepted(2)));
    world.store.add_figures(batch).await.unwrap();
    assert_eq!(counts(&world, &FiguresScope::All, Resolution::Minute).await, [(hour(), 2)]);
    for scope in &unknown {
        assert_eq!(read(&world, scope, Resolution::Minute).await, []);
    }
}

pub(super) async fn a_removed_endpoint_keeps_its_figures(world: World) {
    let endpoint = world.endpoint().await;
    let scope = FiguresScope::Endpoint(endpoint);
    add(&world, &scope, hour(), accepted(1)).await;
    world.commit(Write::RemoveEndpoint(endpoint)).await;
    add(&world, &scope, hour(), accepted(1)).await;
    assert_eq!(counts(&world, &scope, Resolution::Minute).await, [(hour(), 2)]);
}

pub(super) async fn figures_added_at_once_all_count(world: World) {
    let tenant = FiguresScope::Tenant(world.tenant.clone());
    let batches = (0..20).map(|number| {
        let mut batch = vec![
            (FiguresScope::All, hour(), accepted(1)),
            (tenant.clone(), hour() + MINUTE.times(number % 3), accepted(1)),
        ];
        if number % 2 == 0 {
            batch.reverse();
        }
        world.store.add_figures(batch)
    });
    join_all(batches).await.into_iter().for_each(|added| added.unwrap());
    assert_eq!(counts(&world, &FiguresScope::All, Resolution::Minute).await, [(hour(), 20)]);
    assert_eq!(counts(&world, &tenant, Resolution::Hour).await, [(hour(), 20)]);
}

pub(super) async fn more_figures_than_an_answer_holds_are_refused(world: World) {
    let minute = |number: usize| hour() + MINUTE.times(number as u64);
    let entry = |number| (FiguresScope::All, minute(number), accepted(1));
    for start in (0..=FIGURES_BUCKETS_MAX).step_by(FIGURES_BATCH_MAX) {
        let end = (start + FIGURES_BATCH_MAX).min(FIGURES_BUCKETS_MAX + 1);
        world.store.add_figures((start..end).map(entry).collect()).await.unwrap();
    }
    let figures = |period| world.store.figures(&FiguresScope::All, Resolution::Minute, period);
    let error = figures(Period::default()).await.expect_err("too many");
    assert!(matches!(&error, StoreError::Invalid { field, .. } if field == "period"), "{error:?}");
    assert!(error.to_string().contains(&FIGURES_BUCKETS_MAX.to_string()), "{error}");
    let period = Period { from: Some(minute(1)), before: None };
    assert_eq!(figures(period).await.unwrap().len(), FIGURES_BUCKETS_MAX);
}

pub(super) async fn bad_figures_name_the_bound_and_add_nothing(world: World) {
    let by_failure = |names: Vec<String>| Figures {
        by_failure: names.into_iter().map(|name| (name, 1)).collect(),
        ..Figures::default()
    };
    let many = (0..=FIGURES_FAILURES_MAX).map(|number| number.to_string()).collect();
    let status = Figures { by_status: [(1_000, 1)].into(), ..Figures::default() };
    let alone = |figures| vec![accepted(1), figures];
    for (named, batch) in [
        ("figures (entries)", vec![accepted(1); FIGURES_BATCH_MAX + 1]),
        ("by_status (status)", alone(status)),
        ("by_failure (entries)", alone(by_failure(many))),
        (
            "by_failure (bytes of a name)",
            alone(by_failure(vec!["x".repeat(FIGURES_FAILURE_LEN_MAX + 1)])),
        ),
    ] {
        let batch = batch.into_iter().map(|figures| (FiguresScope::All, hour(), figures));
        let refused = world.store.add_figures(batch.collect()).await;
        assert!(
            matches!(&refused, Err(StoreError::Invalid { field, .. }) if field == named),
            "{named}: {refused:?}"
        );
    }
    assert_eq!(read(&world, &FiguresScope::All, Resolution::Minute).await, []);
}

pub(super) async fn figures_are_pruned_by_the_clock(world: World) {
    let all = FiguresScope::All;
    add(&world, &all, hour(), accepted(1)).await;
    add(&world, &all, hour() + HOUR, accepted(2)).await;
    let prune_at = async |now: Timestamp| {
        world.source.set(now);
        world.store.prune(PruneStep::of_all_before(START, 1)).await.unwrap().others
    };
    assert_eq!(prune_at(hour() + FIGURES_MINUTES_KEPT).await, 0);
    assert_eq!(prune_at(hour() + FIGURES_MINUTES_KEPT + Span::from_millis(1)).await, 1);
    assert_eq!(counts(&world, &all, Resolution::Minute).await, [(hour() + HOUR, 2)]);
    assert_eq!(counts(&world, &all, Resolution::Hour).await.len(), 2);
    assert_eq!(prune_at(hour() + FIGURES_HOURS_KEPT + Span::from_millis(1)).await, 2);
    assert_eq!(read(&world, &all, Resolution::Minute).await, []);
    assert_eq!(counts(&world, &all, Resolution::Hour).await, [(hour() + HOUR, 2)]);
}

pub(super) async fn figures_are_erased_with_their_tenant(world: World) {
    let other = world.add_tenant("other", TenantSettings::default()).await;
    let endpoint = FiguresScope::Endpoint(world.endpoint().await);
    let (mine, theirs) = (FiguresScope::Tenant(world.tenant.clone()), FiguresScope::Tenant(other));
    for scope in [&FiguresScope::All, &mine, &theirs, &endpoint] {
        add(&world, scope, hour(), accepted(1)).await;
    }
    world.erase(&world.tenant).await;
    world.add_tenant("acme", TenantSettings::default()).await;
    for scope in [&mine, &endpoint] {
        assert_eq!(read(&world, scope, Resolution::Minute).await, [], "{scope:?}");
    }
    for scope in [&FiguresScope::All, &theirs] {
        assert_eq!(counts(&world, scope, Resolution::Hour).await, [(hour(), 1)], "{scope:?}");
    }
    let step = PruneStep::of_all_before(START, 1);
    world.source.set(hour() + FIGURES_HOURS_KEPT + HOUR);
    assert_eq!(world.store.prune(step).await.unwrap().others, 4, "only the others' are left");
}

pub(super) async fn more_figures_than_one_step_erases_are_all_erased(world: World) {
    let scope = FiguresScope::Endpoint(world.endpoint().await);
    let batch = (0..900).map(|n| (scope.clone(), hour() + HOUR.times(n), accepted(1))).collect();
    world.store.add_figures(batch).await.unwrap();
    world.commit(Write::EraseTenant(world.tenant.clone())).await;
    assert_eq!(read(&world, &scope, Resolution::Hour).await, [], "gone from the mark on");
    while !world.erase_step(&world.tenant).await {}
    let step = PruneStep::of_all_before(START, 1);
    world.source.set(hour() + FIGURES_HOURS_KEPT.times(3));
    assert_eq!(world.store.prune(step).await.unwrap().others, 0, "nothing is left");
}

pub(super) async fn a_backup_holds_figures(world: World) {
    add(&world, &FiguresScope::All, hour(), accepted(7)).await;
    let path = world.new_path();
    world.store.backup(&path).await.unwrap();
    let restored = world.restore(&path, 1).await.unwrap();
    let found = restored.figures(&FiguresScope::All, Resolution::Hour, Period::default()).await;
    assert_eq!(found, Ok(vec![(hour(), accepted(7))]));
}
