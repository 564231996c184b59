//! The read side: lists, filters, cursors, counts.

use railpost_engine::{
    AttemptResult, DeadReason, DeliveryStage, DeliveryState, Failure, LaneId, Timestamp,
};
use railpost_wire::{DeliveryId, EndpointId, EventId};

use super::world::{START, World, detail, ids};
use railpost_store::limits::LIST_LIMIT_MAX;
use railpost_store::{
    AcceptBatch, AttemptDetail, Counts, Cursor, DeliveryFilter, DeliveryQuery, EndpointPrivate,
    EndpointSettings, Event, EventQuery, HeldLaneQuery, NewEndpoint, PageRequest, Period,
    RecordBatch, StoreError, TenantSettings, Write,
};

fn dead(holds: bool) -> DeliveryState {
    DeliveryState::Dead { reason: DeadReason::Permanent, holds }
}

/// All that a query finds, by pages of two.
async fn all_events(world: &World, mut query: EventQuery) -> Vec<EventId> {
    let mut found = Vec::new();
    query.page = PageRequest::first(2);
    loop {
        let page = world.store.events(query.clone()).await.unwrap();
        assert!(page.items.len() <= 2);
        found.extend(page.items.into_iter().map(|head| head.id));
        let Some(next) = page.next else { return found };
        query.page = PageRequest::after(2, next);
    }
}

async fn all_deliveries(world: &World, mut query: DeliveryQuery) -> Vec<DeliveryId> {
    let mut found = Vec::new();
    query.page = PageRequest::first(2);
    loop {
        let page = world.store.deliveries(query.clone()).await.unwrap();
        assert!(page.items.len() <= 2);
        found.extend(page.items.into_iter().map(|view| view.delivery.id));
        let Some(next) = page.next else { return found };
        query.page = PageRequest::after(2, next);
    }
}

fn events_of(world: &World) -> EventQuery {
    EventQuery::of(world.tenant.clone(), PageRequest::first(2))
}

fn deliveries_of(world: &World) -> DeliveryQuery {
    DeliveryQuery::of(world.tenant.clone(), PageRequest::first(2))
}

pub(super) async fn events_list_the_latest_first(world: World) {
    let mut expected = Vec::new();
    for id in ["zz", "aa", "mm", "bb", "cc"] {
        let event = Event { id: id.parse().unwrap(), ..world.event(None) };
        expected.insert(0, event.id.clone());
        world.accept(vec![event]).await;
        world.later(1);
    }
    assert_eq!(all_events(&world, events_of(&world)).await, expected);
}

pub(super) async fn a_listed_event_shows_all_but_its_payload(world: World) {
    let event = world.event(Some("k"));
    world.accept(vec![event.clone()]).await;
    let page = world.store.events(events_of(&world)).await.unwrap();
    let head = &page.items[0];
    assert_eq!((&head.id, &head.event_type, &head.key), (&event.id, &event.event_type, &event.key));
    assert_eq!((head.payload_len, head.schema_version), (event.payload.len(), Some(3)));
    assert_eq!((head.time, head.accepted_at), (event.time, START));
    assert_eq!(page.next, None);
}

pub(super) async fn events_list_by_type_key_and_time(world: World) {
    let mut all = Vec::new();
    for (event_type, key) in
        [("a.b", Some("x")), ("a.c", Some("x")), ("a.b", None), ("a.b", Some("y"))]
    {
        let event_type = event_type.parse().unwrap();
        let event = Event { event_type, ..world.event(key) };
        all.push(event.id.clone());
        world.accept(vec![event]).await;
        world.later(10);
    }
    let at = |millis| Some(Timestamp::from_millis(START.as_millis() + millis));
    let of_type = EventQuery { event_type: Some("a.b".parse().unwrap()), ..events_of(&world) };
    let of_key = EventQuery { key: Some("x".parse().unwrap()), ..events_of(&world) };
    let both = EventQuery { key: Some("x".parse().unwrap()), ..of_type.clone() };
    let within = Period { from: at(10), before: at(30) };
    let in_time = EventQuery { accepted: within, ..events_of(&world) };
    for (query, expected) in
        [(of_type, vec![3, 2, 0]), (of_key, vec![1, 0]), (both, vec![0]), (in_time, vec![2, 1])]
    {
        let expected: Vec<_> =
            expected.into_iter().map(|index: usize| all[index].clone()).collect();
        assert_eq!(all_events(&world, query).await, expected);
    }
}

pub(super) async fn lists_show_nothing_of_another_tenant(world: World) {
    world.endpoint().await;
    world.publish(None).await;
    let tenant = world.add_tenant("other", TenantSettings::default()).await;
    let event = world.event(None);
    let id = event.id.clone();
    let batch = AcceptBatch {
        tenant: tenant.clone(),
        events: vec![event],
        accepted_by: None,
        idempotency: None,
    };
    world.store.accept(batch.into()).await.unwrap();
    let query = EventQuery::of(tenant.clone(), PageRequest::first(9));
    assert_eq!(all_events(&world, query).await, std::slice::from_ref(&id));
    let query = DeliveryQuery::of(tenant, PageRequest::first(9));
    assert_eq!(all_deliveries(&world, query).await, []);
    assert_eq!(world.store.event(&world.tenant, &id).await, Ok(None));
}

pub(super) async fn deliveries_list_the_latest_first(world: World) {
    world.endpoint().await;
    world.endpoint().await;
    let mut all = Vec::new();
    for key in [Some("a"), None, Some("b")] {
        all.extend(ids(&world.publish(key).await));
        world.later(1);
    }
    all.sort();
    all.reverse();
    assert_eq!(all_deliveries(&world, deliveries_of(&world)).await, all);
}

pub(super) async fn deliveries_list_by_endpoint_stage_key_type_and_time(world: World) {
    let endpoint = world.endpoint().await;
    let mut all = Vec::new();
    for (event_type, key) in
        [("a.b", Some("x")), ("a.c", Some("x")), ("a.b", None), ("a.b", Some("y"))]
    {
        let event_type = event_type.parse().unwrap();
        all.extend(world.accept(vec![Event { event_type, ..world.event(key) }]).await);
        world.later(10);
    }
    let other = world.endpoint().await;
    let elsewhere = world.publish(None).await;
    world.move_to(&all[0], dead(true)).await;
    world.move_to(&all[1], DeliveryState::Delivered).await;
    world.move_to(&all[2], dead(false)).await;
    let at = |millis| Some(Timestamp::from_millis(START.as_millis() + millis));
    let matching = |filter| DeliveryQuery { filter, ..deliveries_of(&world) };
    let of = |endpoint| DeliveryFilter { endpoint: Some(endpoint), ..DeliveryFilter::default() };
    let staged = |stage| DeliveryFilter { stage: Some(stage), ..of(endpoint) };
    let early = Period { from: at(10), before: at(40) };
    let expected_elsewhere = elsewhere.iter().find(|d| d.endpoint == other).unwrap().id;
    assert_eq!(all_deliveries(&world, matching(of(other))).await, [expected_elsewhere]);
    for (filter, expected) in [
        (staged(DeliveryStage::Dead), vec![2, 0]),
        (staged(DeliveryStage::Delivered), vec![1]),
        (DeliveryFilter { created: early, ..of(endpoint) }, vec![3, 2, 1]),
        (DeliveryFilter { created: early, ..staged(DeliveryStage::Pending) }, vec![3]),
        (DeliveryFilter { key: Some("x".parse().unwrap()), ..of(endpoint) }, vec![1, 0]),
        (DeliveryFilter { event_type: Some("a.c".parse().unwrap()), ..of(endpoint) }, vec![1]),
        (DeliveryFilter { endpoint: None, ..staged(DeliveryStage::Dead) }, vec![2, 0]),
    ] {
        let expected: Vec<_> = expected.into_iter().map(|index: usize| all[index].id).collect();
        assert_eq!(all_deliveries(&world, matching(filter.clone())).await, expected, "{filter:?}");
    }
}

pub(super) async fn a_delivery_shows_its_event_and_its_times(world: World) {
    let endpoint = world.endpoint().await;
    let event = world.event(Some("k"));
    let accepted = world.accept(vec![event.clone()]).await[0];
    let changed_at = world.later(500);
    world.move_to(&accepted, DeliveryState::Delivered).await;
    let view = world.store.delivery(accepted.id).await.unwrap().unwrap();
    assert_eq!((view.delivery.endpoint, view.delivery.place), (endpoint, accepted.place));
    assert_eq!((&view.tenant, &view.event), (&world.tenant, &event.id));
    assert_eq!((&view.event_type, &view.key), (&event.event_type, &event.key));
    assert_eq!((view.created_at, view.changed_at), (START, changed_at));
    assert_eq!(view.line.as_ref().unwrap().seq.get(), 1);
    assert_eq!(world.store.delivery(DeliveryId::from_u128(1)).await, Ok(None));
}

pub(super) async fn the_deliveries_of_an_event_come_together(world: World) {
    for _ in 0..3 {
        world.endpoint().await;
    }
    let event = world.event(None);
    world.publish(None).await;
    let accepted = world.accept(vec![event.clone()]).await;
    world.publish(None).await;
    let found = world.store.deliveries_of(&world.tenant, &event.id).await.unwrap();
    assert_eq!(found.iter().map(|view| view.delivery.id).collect::<Vec<_>>(), ids(&accepted));
    let unknown = "unknown".parse().unwrap();
    assert_eq!(world.store.deliveries_of(&world.tenant, &unknown).await, Ok(vec![]));
}

pub(super) async fn a_cursor_stays_where_it_is_while_rows_come_and_go(world: World) {
    world.endpoint().await;
    let mut all = Vec::new();
    for _ in 0..4 {
        all.push(world.publish_one(None).await);
        world.later(1);
    }
    let first = world.store.deliveries(deliveries_of(&world)).await.unwrap();
    let events = world.store.events(events_of(&world)).await.unwrap();
    world.publish(None).await;
    world.move_to(&all[1], DeliveryState::Delivered).await;
    let page = PageRequest::after(2, first.next.unwrap());
    let rest =
        world.store.deliveries(DeliveryQuery { page, ..deliveries_of(&world) }).await.unwrap();
    let found: Vec<_> = rest.items.iter().map(|view| view.delivery.id).collect();
    assert_eq!((found, rest.next), (vec![all[1].id, all[0].id], None));
    let page = PageRequest::after(2, events.next.unwrap().to_string().parse().unwrap());
    let rest = world.store.events(EventQuery { page, ..events_of(&world) }).await.unwrap();
    assert_eq!((rest.items.len(), rest.next), (2, None));
}

pub(super) async fn a_cursor_of_another_list_is_refused(world: World) {
    for _ in 0..3 {
        world.publish(None).await;
    }
    let cursor = world.store.events(events_of(&world)).await.unwrap().next.unwrap();
    let page = PageRequest::after(2, cursor);
    let refused = world.store.deliveries(DeliveryQuery { page, ..deliveries_of(&world) }).await;
    assert!(
        matches!(&refused, Err(StoreError::Invalid { field, .. }) if field == "cursor"),
        "{refused:?}"
    );
    assert!("~~".parse::<Cursor>().is_err());
}

pub(super) async fn a_limit_out_of_bounds_is_named(world: World) {
    for limit in [0, LIST_LIMIT_MAX + 1] {
        let page = PageRequest::first(limit);
        let refused = world.store.events(EventQuery { page, ..events_of(&world) }).await;
        assert!(
            matches!(&refused, Err(StoreError::Invalid { field, .. }) if field == "limit"),
            "{refused:?}"
        );
    }
}

pub(super) async fn attempts_list_in_pages(world: World) {
    world.endpoint().await;
    let accepted = world.publish_one(None).await;
    let until = world.later(1);
    let waiting = world.transition(&accepted, DeliveryState::Waiting { until });
    let transitions = (1..=5).map(|number| (waiting, Some(detail(number, 500).into()))).collect();
    world.store.record(RecordBatch { transitions, ..Default::default() }.into()).await.unwrap();
    let first = world.store.attempts(accepted.id, PageRequest::first(3)).await.unwrap();
    let page = PageRequest::after(3, first.next.clone().unwrap());
    let rest = world.store.attempts(accepted.id, page).await.unwrap();
    let numbers: Vec<_> = first.items.iter().chain(&rest.items).map(|a| a.detail.number).collect();
    assert_eq!((numbers, rest.next), (vec![1, 2, 3, 4, 5], None));
}

pub(super) async fn the_last_attempts_of_many_deliveries_come_together(world: World) {
    world.endpoint().await;
    let all = world.accept((0..4).map(|_| world.event(None)).collect()).await;
    let until = world.later(1);
    let waiting = |n: usize| world.transition(&all[n], DeliveryState::Waiting { until });
    let failed = AttemptDetail {
        result: AttemptResult::Failed(Failure::Timeout),
        message: Some("nothing came".to_owned()),
        ..detail(3, 500)
    };
    let transitions = vec![
        (waiting(0), Some(detail(1, 500).into())),
        (waiting(0), Some(detail(2, 503).into())),
        (waiting(0), Some(failed.clone().into())),
        (waiting(1), Some(detail(1, 429).into())),
        (world.transition(&all[2], DeliveryState::Delivered), Some(detail(1, 200).into())),
    ];
    world.store.record(RecordBatch { transitions, ..Default::default() }.into()).await.unwrap();
    let mut asked = ids(&all);
    asked.push(DeliveryId::from_u128(404));
    let mut found = world.store.last_attempts(asked).await.unwrap();
    found.sort_by_key(|(id, _)| *id);
    let expected = [(0, failed), (1, detail(1, 429)), (2, detail(1, 200))];
    assert_eq!(found.len(), expected.len(), "those without an attempt are left out: {found:?}");
    for ((id, last), (n, detail)) in found.into_iter().zip(expected) {
        assert_eq!((id, last.number, last.result), (all[n].id, detail.number, detail.result));
        assert_eq!(last.message, detail.message);
        assert_eq!(last.response_headers, detail.response_headers);
    }
    let many = vec![all[0].id; LIST_LIMIT_MAX as usize + 1];
    let refused = world.store.last_attempts(many).await;
    assert!(matches!(&refused, Err(StoreError::Invalid { .. })), "{refused:?}");
}

pub(super) async fn a_held_lane_is_found_by_its_id_and_tenant(world: World) {
    let endpoint = world.endpoint().await;
    let other = world.add_tenant("other", TenantSettings::default()).await;
    let (first, free) = (world.publish_one(Some("a")).await, world.publish_one(Some("b")).await);
    world.publish_one(Some("a")).await;
    world.later(1_000);
    world.move_to(&first, dead(true)).await;
    let (held, open) = (first.place.unwrap().lane, free.place.unwrap().lane);
    let query =
        HeldLaneQuery { tenant: world.tenant.clone(), endpoint: None, page: PageRequest::first(9) };
    let listed = world.store.held_lanes(query).await.unwrap().items;
    let found = world.store.held_lane(&world.tenant, held).await.unwrap();
    assert_eq!(listed, found.into_iter().collect::<Vec<_>>());
    assert_eq!((listed[0].held_by, listed[0].endpoint), (first.id, endpoint));
    for (tenant, lane) in [
        (&world.tenant, open),
        (&world.tenant, LaneId(u64::MAX)),
        (&world.tenant, LaneId(4_040)),
        (&other, held),
    ] {
        assert_eq!(world.store.held_lane(tenant, lane).await, Ok(None), "{tenant} {lane:?}");
    }
    world.move_to(&first, dead(false)).await;
    assert_eq!(world.store.held_lane(&world.tenant, held).await, Ok(None), "it moved on");
    world.move_to(&free, dead(true)).await;
    world.commit(Write::RemoveEndpoint(endpoint)).await;
    assert_eq!(world.store.held_lane(&world.tenant, open).await, Ok(None), "of a removed endpoint");
}

pub(super) async fn a_page_says_how_many_rows_it_looked_at(world: World) {
    world.endpoint().await;
    for key in ["a", "b", "a", "b", "a"] {
        world.publish_one(Some(key)).await;
    }
    let filter = DeliveryFilter { key: Some("b".parse().unwrap()), ..DeliveryFilter::default() };
    let query =
        DeliveryQuery { filter, ..DeliveryQuery::of(world.tenant.clone(), PageRequest::first(9)) };
    let page = world.store.deliveries(query).await.unwrap();
    assert_eq!((page.items.len(), page.looked_at), (2, 5));
}

pub(super) async fn held_lanes_list_the_longest_held_first(world: World) {
    let endpoint = world.endpoint().await;
    let mut heads = Vec::new();
    for key in ["a", "b", "c", "d"] {
        heads.push(world.publish_one(Some(key)).await);
        world.publish_one(Some(key)).await;
    }
    for accepted in &heads[..3] {
        world.later(1_000);
        world.move_to(accepted, dead(true)).await;
    }
    world.move_to(&heads[1], dead(false)).await;
    let query = |page| HeldLaneQuery { tenant: world.tenant.clone(), endpoint: None, page };
    let first = world.store.held_lanes(query(PageRequest::first(1))).await.unwrap();
    let page = PageRequest::after(1, first.next.clone().unwrap());
    let rest = world.store.held_lanes(query(page)).await.unwrap();
    let held: Vec<_> = first.items.iter().chain(&rest.items).collect();
    assert_eq!(
        held.iter().map(|lane| lane.held_by).collect::<Vec<_>>(),
        [heads[0].id, heads[2].id]
    );
    assert_eq!((held[0].endpoint, held[0].lane), (endpoint, heads[0].place.unwrap().lane));
    assert_eq!(held[0].key.as_ref().unwrap().as_str(), "a");
    assert_eq!((held[0].held_at.get(), held[0].last.get()), (1, 2));
    assert_eq!(held[0].since, Timestamp::from_millis(START.as_millis() + 1_000));
    let view = world.store.delivery(heads[0].id).await.unwrap().unwrap();
    assert_eq!((held[0].reason, &held[0].line), (DeadReason::Permanent, &view.line));
    let other =
        HeldLaneQuery { endpoint: Some(EndpointId::from_u128(9)), ..query(PageRequest::first(5)) };
    assert_eq!(world.store.held_lanes(other).await.unwrap().items, []);
}

pub(super) async fn counts_follow_every_transition(world: World) {
    let endpoint = world.endpoint().await;
    let all = world.accept((0..7).map(|_| world.event(Some("k"))).collect()).await;
    let until = world.later(1);
    for (accepted, state) in all.iter().zip([
        DeliveryState::InFlight,
        DeliveryState::Waiting { until },
        dead(true),
        dead(false),
        DeliveryState::Delivered,
        DeliveryState::DISCARDED,
    ]) {
        world.move_to(accepted, state).await;
    }
    let counts = world.store.counts(endpoint).await.unwrap();
    let oldest_open_at = Some(START);
    let expected = Counts {
        pending: 1,
        in_flight: 1,
        waiting: 1,
        held: 1,
        dead: 1,
        oldest_open_at,
        oldest_dead_at: Some(START),
    };
    assert_eq!((counts, counts.open()), (expected, 4));
    world.move_to(&all[3], DeliveryState::Pending).await;
    let expected = Counts { pending: 2, dead: 0, ..expected };
    assert_eq!(world.store.counts(endpoint).await, Ok(expected));
}

pub(super) async fn the_oldest_open_delivery_tells_the_age_of_the_backlog(world: World) {
    let endpoint = world.endpoint().await;
    let oldest = async || world.store.counts(endpoint).await.unwrap().oldest_open_at;
    assert_eq!(oldest().await, None);
    let mut open = Vec::new();
    for key in [Some("b"), None, Some("a"), Some("b"), None] {
        let at = world.later(1_000);
        open.push((world.publish_one(key).await, at));
    }
    world.move_to(&open[2].0, dead(true)).await;
    for (accepted, at) in &open {
        assert_eq!(oldest().await, Some(*at));
        world.move_to(accepted, DeliveryState::DISCARDED).await;
    }
    assert_eq!(oldest().await, None);
    // One that is replayed is as old as it was.
    let at = world.later(1_000);
    let replayed = world.publish_one(Some("c")).await;
    world.move_to(&replayed, dead(false)).await;
    assert_eq!(oldest().await, None, "a dead letter that holds no lane is not open");
    let oldest_dead = async || world.store.counts(endpoint).await.unwrap().oldest_dead_at;
    assert_eq!(oldest_dead().await, Some(at));
    world.later(1_000);
    world.publish_one(Some("c")).await;
    world.move_to(&replayed, DeliveryState::Pending).await;
    assert_eq!(oldest().await, Some(at));
    assert_eq!(oldest_dead().await, None, "it is open again");
}

pub(super) async fn totals_add_up_the_endpoints_of_one_tenant_or_of_all(world: World) {
    let (first, removed) = (world.endpoint().await, world.endpoint().await);
    let all = world.publish(Some("k")).await;
    world.move_to(&all[0], dead(false)).await;
    let at = world.later(1_000);
    world.publish(None).await;
    world.commit(Write::RemoveEndpoint(removed)).await;
    let other = world.add_tenant("other", TenantSettings::default()).await;
    let new = NewEndpoint {
        id: EndpointId::from_u128(world.unique()),
        tenant: other.clone(),
        settings: EndpointSettings::all_events("https://example.com"),
        private: EndpointPrivate::default(),
    };
    world.commit(Write::CreateEndpoint(new)).await;
    let later = world.later(1_000);
    let events = vec![world.event(Some("k")), world.event(None)];
    let batch = AcceptBatch { tenant: other.clone(), events, accepted_by: None, idempotency: None };
    world.store.accept(batch.into()).await.unwrap();

    let mine = Counts {
        pending: 1,
        dead: 1,
        oldest_open_at: Some(at),
        oldest_dead_at: Some(START),
        ..Counts::default()
    };
    let theirs = Counts { pending: 2, oldest_open_at: Some(later), ..Counts::default() };
    assert_eq!(world.store.counts(first).await, Ok(mine));
    assert_eq!(world.store.totals(Some(&world.tenant)).await, Ok(mine));
    assert_eq!(world.store.totals(Some(&other)).await, Ok(theirs));
    assert_eq!(world.store.totals(None).await, Ok(Counts { pending: 3, ..mine }));
    let nobody = "nobody".parse().unwrap();
    assert_eq!(world.store.totals(Some(&nobody)).await, Ok(Counts::default()));
    world.erase(&world.tenant).await;
    assert_eq!(world.store.totals(None).await, Ok(theirs));
}

pub(super) async fn a_removed_endpoint_counts_for_nothing(world: World) {
    let endpoint = world.endpoint().await;
    let accepted = world.publish_one(None).await;
    world.commit(Write::RemoveEndpoint(endpoint)).await;
    assert_eq!(world.store.counts(endpoint).await, Ok(Counts::default()));
    assert_eq!(all_deliveries(&world, deliveries_of(&world)).await, [accepted.id], "still listed");
    assert!(world.store.delivery(accepted.id).await.unwrap().is_some());
    let settings = TenantSettings { backlog_max: Some(1), ..TenantSettings::default() };
    world.commit(Write::UpdateTenant(world.tenant.clone(), settings)).await;
    world.endpoint().await;
    assert_eq!(world.publish(None).await.len(), 1);
}
