//! What a page shows beside its rows: counts, settings and last attempts of all of its items at once.

use railpost_engine::{AttemptResult, DeadReason, DeliveryState, DiscardReason, Failure};
use railpost_wire::{ApiKeyId, DeliveryId, EndpointId, TenantId};

use super::world::{START, World, detail};
use railpost_store::limits::LIST_LIMIT_MAX;
use railpost_store::{
    AcceptBatch, AcceptedBy, AttemptDetail, AuditEntry, Change, ClosedReason, DeliveryFilter,
    DeliveryQuery, EndpointSettings, EventDetails, PageRequest, RecordBatch, RedeliverBatch,
    StateCounts, StoreError, TenantSettings, Write,
};

fn dead(reason: DeadReason, holds: bool) -> DeliveryState {
    DeliveryState::Dead { reason, holds }
}

/// The deliveries that a filter finds, by pages of one.
async fn found_by(world: &World, filter: DeliveryFilter) -> Vec<DeliveryId> {
    let (mut found, mut page) = (Vec::new(), PageRequest::first(1));
    loop {
        let query = DeliveryQuery { tenant: world.tenant.clone(), filter: filter.clone(), page };
        let listed = world.store.deliveries(query).await.unwrap();
        found.extend(listed.items.into_iter().map(|view| view.delivery.id));
        let Some(next) = listed.next else { return found };
        page = PageRequest::after(1, next);
    }
}

pub(super) async fn deliveries_list_by_reason(world: World) {
    world.endpoint().await;
    let all = world.accept((0..5).map(|_| world.event(Some("k"))).collect()).await;
    let discarded = DeliveryState::Discarded { reason: DiscardReason::Person };
    let states = [
        dead(DeadReason::Permanent, true),
        dead(DeadReason::Expired, false),
        discarded,
        DeliveryState::Delivered,
    ];
    for (accepted, state) in all.iter().zip(states) {
        world.move_to(accepted, state).await;
    }
    let by = |reason| DeliveryFilter { reason: Some(reason), ..DeliveryFilter::default() };
    for (reason, expected) in [
        (ClosedReason::Dead(DeadReason::Permanent), vec![all[0].id]),
        (ClosedReason::Dead(DeadReason::Expired), vec![all[1].id]),
        (ClosedReason::Dead(DeadReason::AttemptsExhausted), vec![]),
        (ClosedReason::Discarded(DiscardReason::Person), vec![all[2].id]),
    ] {
        assert_eq!(found_by(&world, by(reason)).await, expected, "{reason:?}");
    }
}

pub(super) async fn deliveries_list_by_their_last_answer(world: World) {
    world.endpoint().await;
    let all = world.accept((0..5).map(|_| world.event(None)).collect()).await;
    let until = world.later(1);
    let waiting = |n: usize| world.transition(&all[n], DeliveryState::Waiting { until });
    let timeout = AttemptDetail {
        result: AttemptResult::Failed(Failure::Timeout),
        message: Some("nothing came".to_owned()),
        ..detail(2, 500)
    };
    let brief = AttemptDetail {
        response_headers: vec![],
        response_body: "".into(),
        message: None,
        ..detail(1, 200)
    };
    let transitions = vec![
        (waiting(0), Some(detail(1, 503).into())),
        (waiting(1), Some(detail(1, 503).into())),
        (waiting(1), Some(timeout.into())),
        (world.transition(&all[2], DeliveryState::Delivered), Some(brief.into())),
        (waiting(3), Some(detail(1, 500).into())),
    ];
    world.store.record(RecordBatch { transitions, ..Default::default() }.into()).await.unwrap();
    let status = |status| DeliveryFilter { status: Some(status), ..DeliveryFilter::default() };
    let failure = |failure| DeliveryFilter { failure: Some(failure), ..DeliveryFilter::default() };
    for (filter, expected) in [
        (status(503), vec![all[0].id]),
        (status(200), vec![all[2].id]),
        (status(500), vec![all[3].id]),
        (status(404), vec![]),
        (failure(Failure::Timeout), vec![all[1].id]),
        (failure(Failure::Dns), vec![]),
        (DeliveryFilter { status: Some(503), ..failure(Failure::Timeout) }, vec![]),
    ] {
        assert_eq!(found_by(&world, filter.clone()).await, expected, "{filter:?}");
    }
}

pub(super) async fn an_event_counts_its_deliveries_by_state(world: World) {
    let endpoints = [world.endpoint().await, world.endpoint().await, world.endpoint().await];
    let (event, lonely) = (world.event(Some("k")), world.event(None));
    let (id, other) = (event.id.clone(), lonely.id.clone());
    let accepted = world.accept(vec![event]).await;
    world.move_to(&accepted[0], DeliveryState::Delivered).await;
    world.move_to(&accepted[1], dead(DeadReason::Permanent, true)).await;
    let orders = vec![(id.clone(), endpoints[0])];
    let tenant = world.tenant.clone();
    let again = RedeliverBatch { tenant, orders, audit: None, idempotency: None };
    world.store.redeliver(again).await.unwrap();
    for endpoint in endpoints {
        world.commit(Write::RemoveEndpoint(endpoint)).await;
    }
    world.accept(vec![lonely]).await;
    let asked = vec![id.clone(), other.clone(), "unknown".parse().unwrap()];
    let mut found = world.store.event_details(&world.tenant, asked.clone()).await.unwrap();
    found.sort_by_key(|(found, _)| *found != id);
    let states = StateCounts { pending: 2, delivered: 1, held: 1, ..StateCounts::default() };
    let details = EventDetails { states, accepted_by: None };
    assert_eq!(found, [(id, details), (other, EventDetails::default())]);
    let stranger = world.add_tenant("other", TenantSettings::default()).await;
    assert_eq!(world.store.event_details(&stranger, asked.clone()).await, Ok(vec![]));
    let many = vec![asked[0].clone(); LIST_LIMIT_MAX as usize + 1];
    let refused = world.store.event_details(&world.tenant, many).await;
    assert!(matches!(&refused, Err(StoreError::Invalid { .. })), "{refused:?}");
}

pub(super) async fn the_settings_of_many_endpoints_come_together(world: World) {
    let at = |url: &str| EndpointSettings::all_events(url);
    let first = world.endpoint_with(at("https://one.example")).await;
    let second = world.endpoint_with(at("https://two.example")).await;
    world.commit(Write::RemoveEndpoint(second)).await;
    let asked = vec![first, EndpointId::from_u128(404), second];
    let mut found = world.store.settings_of(asked).await.unwrap();
    found.sort_by_key(|(id, _)| *id != first);
    let urls: Vec<_> = found.iter().map(|(id, settings)| (*id, settings.url.as_str())).collect();
    assert_eq!(urls, [(first, "https://one.example"), (second, "https://two.example")]);
    let many = vec![first; LIST_LIMIT_MAX as usize + 1];
    let refused = world.store.settings_of(many).await;
    assert!(matches!(&refused, Err(StoreError::Invalid { .. })), "{refused:?}");
}

pub(super) async fn an_event_tells_who_brought_it(world: World) {
    world.endpoint().await;
    let key = AcceptedBy::Key(ApiKeyId::from_u128(7));
    let source = AcceptedBy::Source("orders".parse().unwrap());
    let mut expected = Vec::new();
    // One by one and many at once: a backend may write small groups otherwise than large ones.
    for (by, count) in [
        (Some(key), 1),
        (Some(source.clone()), 1),
        (Some(AcceptedBy::Server), 1),
        (None, 1),
        (Some(source), 40),
        (Some(AcceptedBy::Server), 40),
    ] {
        let events: Vec<_> = (0..count).map(|_| world.event(Some("k"))).collect();
        expected.extend(events.iter().map(|event| (event.id.clone(), by.clone())));
        let batch = AcceptBatch { accepted_by: by, ..world.batch(events) };
        world.store.accept(batch.into()).await.unwrap();
    }
    let asked = expected.iter().map(|(id, _)| id.clone()).collect();
    let found = world.store.event_details(&world.tenant, asked).await.unwrap();
    let mut found: Vec<_> =
        found.into_iter().map(|(id, details)| (id, details.accepted_by)).collect();
    found.sort_by_key(|(id, _)| id.to_string());
    expected.sort_by_key(|(id, _)| id.to_string());
    assert_eq!(found, expected);
}

pub(super) async fn the_audit_trail_is_found_by_its_targets(world: World) {
    let tenant = world.tenant.clone();
    let mut all = Vec::new();
    for target in ["a", "b", "a", "c", "a"] {
        let entry = AuditEntry { tenant: Some(tenant.clone()), ..world.audit_entry(target) };
        world.commit(Change { audit: Some(entry.clone()), ..Change::default() }).await;
        all.push(entry);
        world.later(1);
    }
    let other = world.add_tenant("other", TenantSettings::default()).await;
    let since = async |tenant: &TenantId, targets: &[&str], since, limit| {
        let targets = targets.iter().map(|target| (*target).to_owned()).collect();
        world.store.audit_about(tenant, targets, since, limit).await.unwrap()
    };
    let about = async |tenant: &TenantId, targets: &[&str], limit| {
        since(tenant, targets, START, limit).await
    };
    let some = |indexes: &[usize]| indexes.iter().map(|n| all[*n].clone()).collect::<Vec<_>>();
    assert_eq!(about(&tenant, &["a", "c", "x", "a"], 9).await, some(&[0, 2, 3, 4]));
    assert_eq!(about(&tenant, &["b", "a"], 2).await, some(&[0, 1, 2]), "two of each");
    assert_eq!(about(&tenant, &["\0"], 9).await, []);
    assert_eq!(about(&other, &["a", "b"], 9).await, []);
    assert_eq!(since(&tenant, &["a"], all[2].at, 9).await, some(&[2, 4]));
}
