//! Accepting: fan-out, seqs, duplicates, limits.

use bytes::Bytes;
use railpost_engine::{
    DeliveryStage, DeliveryState, EndpointStatus, LaneChoice, Ordering, PolicyFields,
};
use railpost_wire::EventId;
use railpost_wire::cloudevents::{Origin, Value};

use super::world::{World, deliveries, ids, seq};
use railpost_store::limits::{BATCH_EVENTS_MAX, PAYLOAD_LEN_MAX};
use railpost_store::{
    AcceptBatch, EndpointSettings, Event, Receipt, RedeliverBatch, StoreError, TenantSettings,
    Write,
};

pub(super) async fn an_accepted_event_reads_back_as_it_was_published(world: World) {
    let traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".to_owned();
    let mut event = Event { traceparent: Some(traceparent), ..world.event(Some("order 1")) };
    event.payload = Bytes::from_static(b"\x00\xff not text");
    event.cloudevent = Some(Box::new(origin(2)));
    world.accept(vec![event.clone()]).await;
    let stored = world.store.event(&world.tenant, &event.id).await.unwrap().unwrap();
    assert_eq!(stored.event, event);
    assert_eq!((stored.tenant, stored.accepted_at), (world.tenant.clone(), super::world::START));
}

/// A CloudEvent with every attribute that a store keeps, and so many extensions of each type.
fn origin(count: usize) -> Origin {
    let values =
        |n| [Value::Boolean(n == 0), Value::Integer(i32::MIN), Value::String("é\"".into())];
    let named = |n| {
        ["b", "i", "s"]
            .into_iter()
            .zip(values(n))
            .map(move |(name, value)| (format!("{name}{n}"), value))
    };
    Origin {
        id: "1 \"é\"".to_owned(),
        source: "/shop".to_owned(),
        subject: Some("order 1".to_owned()),
        dataschema: Some("https://example.com/schema".to_owned()),
        extensions: (0..count).flat_map(named).collect(),
        no_data: true,
    }
}

pub(super) async fn the_attributes_of_a_cloudevent_reach_the_attempt(world: World) {
    world.endpoint().await;
    let event = |origin| Event { cloudevent: Some(Box::new(origin)), ..world.event(None) };
    let sent = event(origin(3));
    let accepted = world.accept(vec![sent.clone()]).await;
    let parcels = world.store.parcels(ids(&accepted)).await.unwrap();
    assert_eq!(parcels[0].1.as_ref().unwrap().event.cloudevent, sent.cloudevent);
    let text = |len: usize| "x".repeat(len);
    for (field, beyond) in [
        ("id (bytes)", Origin { id: text(257), ..origin(0) }),
        ("source (bytes)", Origin { source: text(2049), ..origin(0) }),
        ("subject (bytes)", Origin { subject: Some(text(2049)), ..origin(0) }),
        ("dataschema (bytes)", Origin { dataschema: Some(text(2049)), ..origin(0) }),
        ("extensions (entries)", origin(11)),
        (
            "extensions (bytes)",
            Origin {
                extensions: [("name".to_owned(), Value::String(text(4093).into()))].into(),
                ..origin(0)
            },
        ),
    ] {
        let refused = world.store.accept(world.batch(vec![event(beyond)]).into()).await;
        let named = format!("events[0].cloudevent.{field}");
        assert!(
            matches!(&refused, Err(StoreError::Invalid { field, .. }) if *field == named),
            "{named}: {refused:?}"
        );
    }
}

pub(super) async fn each_event_goes_to_the_endpoints_that_want_its_type(world: World) {
    let filtered = |filter: &str| {
        let settings = EndpointSettings::all_events("https://example.com");
        EndpointSettings { filters: vec![filter.parse().unwrap()], ..settings }
    };
    let all = world.endpoint().await;
    let orders = world.endpoint_with(filtered("order.*")).await;
    let _users = world.endpoint_with(filtered("user.*")).await;
    let exact = world.endpoint_with(filtered("order.paid")).await;
    let mut to: Vec<_> = world.publish(None).await.iter().map(|d| d.endpoint).collect();
    to.sort();
    assert_eq!(to, [all, orders, exact]);
}

pub(super) async fn a_test_event_goes_where_it_is_told_and_nowhere_else(world: World) {
    let endpoint = world.endpoint().await;
    for (event_type, goes_to) in
        [("railpost.test", 0), ("railpost.test.order", 0), ("railposts.test", 1)]
    {
        let event = Event { event_type: event_type.parse().unwrap(), ..world.event(None) };
        let id = event.id.clone();
        assert_eq!(world.accept(vec![event]).await.len(), goes_to, "{event_type}");
        let tenant = world.tenant.clone();
        let batch =
            RedeliverBatch { tenant, orders: vec![(id, endpoint)], audit: None, idempotency: None };
        assert_eq!(world.store.redeliver(batch).await.unwrap().len(), 1, "{event_type}");
    }
}

pub(super) async fn a_notice_goes_to_endpoints_that_name_notices_and_to_no_other(world: World) {
    let filtered = |filter: &str| {
        let settings = EndpointSettings::all_events("https://example.com");
        EndpointSettings { filters: vec![filter.parse().unwrap()], ..settings }
    };
    let _all = world.endpoint().await;
    let notices = world.endpoint_with(filtered("railpost.*")).await;
    let breakers = world.endpoint_with(filtered("railpost.breaker.opened")).await;
    let _secrets = world.endpoint_with(filtered("railpost.secret.*")).await;
    for (event_type, goes_to) in [
        ("railpost.breaker.opened", vec![notices, breakers]),
        ("railpost.lane.held", vec![notices]),
    ] {
        let event = Event { event_type: event_type.parse().unwrap(), ..world.event(None) };
        let mut to: Vec<_> = world.accept(vec![event]).await.iter().map(|d| d.endpoint).collect();
        to.sort();
        assert_eq!(to, goes_to, "{event_type}");
    }
}

pub(super) async fn an_event_that_nobody_wants_is_kept(world: World) {
    let event = world.event(None);
    assert_eq!(world.accept(vec![event.clone()]).await, []);
    assert!(world.store.event(&world.tenant, &event.id).await.unwrap().is_some());
}

pub(super) async fn another_tenants_endpoints_get_nothing(world: World) {
    world.endpoint().await;
    let other = world.add_tenant("other", TenantSettings::default()).await;
    let batch = AcceptBatch {
        tenant: other,
        events: vec![world.event(None)],
        accepted_by: None,
        idempotency: None,
    };
    assert_eq!(deliveries(world.store.accept(batch.into()).await.unwrap()), []);
}

pub(super) async fn a_switched_off_endpoint_keeps_its_backlog(world: World) {
    let endpoint = world.endpoint().await;
    world.commit(Write::SetEndpointStatus(endpoint, EndpointStatus::Paused)).await;
    assert_eq!(world.publish(None).await.len(), 1);
}

pub(super) async fn a_removed_endpoint_gets_nothing(world: World) {
    let endpoint = world.endpoint().await;
    world.publish(None).await;
    world.commit(Write::RemoveEndpoint(endpoint)).await;
    assert_eq!(world.publish(None).await, []);
}

pub(super) async fn a_changed_filter_counts_from_the_next_accept_on(world: World) {
    let endpoint = world.endpoint().await;
    assert_eq!(world.publish(None).await.len(), 1);
    let stored = world.store.endpoint(endpoint).await.unwrap().unwrap();
    let settings = EndpointSettings { filters: vec!["user.*".parse().unwrap()], ..stored.settings };
    let private = stored.private.unwrap();
    world.commit(Write::UpdateEndpoint { id: endpoint, settings, private, revision: None }).await;
    assert_eq!(world.publish(None).await, []);
}

pub(super) async fn seqs_of_one_key_count_from_one_without_gaps(world: World) {
    world.endpoint().await;
    let batch = ["a", "b", "a"].map(|key| world.event(Some(key)));
    let first = world.accept(batch.into()).await;
    assert_eq!(first.iter().map(seq).collect::<Vec<_>>(), [1, 1, 2]);
    assert_eq!(first[0].place.unwrap().lane, first[2].place.unwrap().lane);
    assert_ne!(first[0].place.unwrap().lane, first[1].place.unwrap().lane);
    assert_eq!(seq(&world.publish_one(Some("a")).await), 3);
    assert_eq!(seq(&world.publish_one(Some("b")).await), 2);
}

pub(super) async fn each_endpoint_has_lanes_of_its_own(world: World) {
    world.endpoint().await;
    world.publish(Some("a")).await;
    world.endpoint().await;
    let both = world.publish(Some("a")).await;
    let mut seqs: Vec<_> = both.iter().map(seq).collect();
    seqs.sort_unstable();
    assert_eq!(seqs, [1, 2]);
    assert_ne!(both[0].place.unwrap().lane, both[1].place.unwrap().lane);
}

pub(super) async fn keys_that_differ_in_any_byte_have_lanes_of_their_own(world: World) {
    world.endpoint().await;
    let keys = ["é", "e\u{301}", "A", "a", "a ", "a\0", "\0", "🜁", "ｋ", "%", "'; --"];
    let long = "ü".repeat(128);
    for key in keys.into_iter().chain([long.as_str()]) {
        let accepted = world.publish_one(Some(key)).await;
        assert_eq!(seq(&accepted), 1, "{key:?}");
        let view = world.store.delivery(accepted.id).await.unwrap().unwrap();
        assert_eq!(view.key.unwrap().as_str(), key);
    }
}

pub(super) async fn ordering_decides_who_has_a_place_in_line(world: World) {
    for (ordering, key) in [
        (Ordering::PerKey, Some("k")),
        (Ordering::PerKey, None),
        (Ordering::None, Some("k")),
        (Ordering::Global, Some("k")),
        (Ordering::Global, None),
    ] {
        let fields = PolicyFields { ordering, ..PolicyFields::default() };
        let endpoint = world.endpoint_with_policy(fields).await;
        let accepted = world.publish(key).await;
        let mine = accepted.iter().find(|accepted| accepted.endpoint == endpoint).unwrap();
        let placed = ordering.lane_for(key) != LaneChoice::NoLane;
        assert_eq!(mine.place.is_some(), placed, "{ordering:?} {key:?}");
    }
}

pub(super) async fn a_global_endpoint_has_one_lane_for_everything(world: World) {
    let fields = PolicyFields { ordering: Ordering::Global, ..PolicyFields::default() };
    world.endpoint_with_policy(fields).await;
    let keys = [Some("a"), None, Some("b")];
    let accepted = world.accept(keys.map(|key| world.event(key)).into()).await;
    assert_eq!(accepted.iter().map(seq).collect::<Vec<_>>(), [1, 2, 3]);
    assert!(accepted.iter().all(|d| d.place.unwrap().lane == accepted[0].place.unwrap().lane));
}

pub(super) async fn seqs_stay_contiguous_under_concurrent_accepts(world: World) {
    world.endpoint().await;
    let world = std::sync::Arc::new(world);
    let tasks: Vec<_> = (0..8)
        .map(|_| {
            let world = world.clone();
            tokio::spawn(async move {
                let mut mine = Vec::new();
                for _ in 0..10 {
                    let batch = ["x", "y", "x"].map(|key| world.event(Some(key)));
                    mine.extend(world.accept(batch.into()).await);
                }
                mine
            })
        })
        .collect();
    let mut places = Vec::new();
    for task in tasks {
        let mine = task.await.unwrap();
        assert!(mine.chunks(3).all(|batch| seq(&batch[0]) < seq(&batch[2])), "in the order given");
        places.extend(mine.iter().map(|d| (d.place.unwrap().lane, seq(d))));
    }
    places.sort_unstable();
    let (x, y) = places.split_at(places.partition_point(|place| place.0 == places[0].0));
    for lane in [x, y] {
        let seqs: Vec<_> = lane.iter().map(|(_, seq)| *seq).collect();
        assert_eq!(seqs, (1..=lane.len() as u64).collect::<Vec<_>>());
    }
    assert_eq!(x.len() + y.len(), 240);
}

pub(super) async fn delivery_ids_ascend_in_the_order_of_acceptance(world: World) {
    world.endpoint().await;
    let mut all = Vec::new();
    for _ in 0..5 {
        let batch = (0..4).map(|_| world.event(None)).collect();
        all.extend(ids(&world.accept(batch).await));
        world.later(1);
    }
    assert!(all.is_sorted());
}

pub(super) async fn an_event_accepted_twice_is_delivered_once(world: World) {
    world.endpoint().await;
    let event = Event { id: "my-own:id".parse().unwrap(), ..world.event(Some("k")) };
    assert_eq!(world.accept(vec![event.clone()]).await.len(), 1);
    let again = Event { time: world.later(5_000), ..event };
    let receipts = world.store.accept(world.batch(vec![again]).into()).await.unwrap();
    assert_eq!(receipts, [Receipt::Duplicate { accepted_at: super::world::START }]);
    assert_eq!(seq(&world.publish_one(Some("k")).await), 2);
}

pub(super) async fn an_event_that_many_publish_at_once_is_accepted_once(world: World) {
    world.endpoint().await;
    let world = std::sync::Arc::new(world);
    let mut seqs = Vec::new();
    for round in 0..10 {
        let shared =
            Event { id: format!("shared-{round}").parse().unwrap(), ..world.event(Some("k")) };
        let tasks: Vec<_> = (0..8)
            .map(|_| {
                let (world, shared) = (world.clone(), shared.clone());
                tokio::spawn(async move {
                    let events = vec![world.event(Some("k")), shared];
                    world.store.accept(world.batch(events).into()).await.unwrap()
                })
            })
            .collect();
        let mut accepted = 0;
        for task in tasks {
            let receipts = task.await.unwrap();
            accepted += usize::from(matches!(receipts[1], Receipt::Accepted { .. }));
            seqs.extend(deliveries(receipts).iter().map(seq));
        }
        assert_eq!(accepted, 1, "round {round}");
    }
    seqs.sort_unstable();
    assert_eq!(seqs, (1..=90).collect::<Vec<_>>());
}

pub(super) async fn an_event_is_known_again_after_many_others(world: World) {
    world.endpoint().await;
    let event = world.event(Some("k"));
    let mut expected = 1;
    assert_eq!(seq(&world.accept(vec![event.clone()]).await[0]), expected);
    for _ in 0..3 {
        assert_eq!(world.accept(vec![event.clone()]).await, []);
        for _ in 0..100 {
            expected += 1;
            assert_eq!(seq(&world.publish_one(Some("k")).await), expected);
        }
    }
}

pub(super) async fn a_reused_event_id_names_what_differs(world: World) {
    let event = Event { id: "chosen".parse().unwrap(), ..world.event(Some("k")) };
    world.accept(vec![event.clone()]).await;
    for (field, other) in [
        ("type", Event { event_type: "order.refunded".parse().unwrap(), ..event.clone() }),
        ("key", Event { key: None, ..event.clone() }),
        ("payload", Event { payload: Bytes::from_static(b"{}"), ..event.clone() }),
        ("content_type", Event { content_type: "text/plain".parse().unwrap(), ..event.clone() }),
        ("schema_version", Event { schema_version: None, ..event.clone() }),
    ] {
        let refused = world.store.accept(world.batch(vec![world.event(None), other]).into()).await;
        let named = format!("events[1].{field}");
        assert!(
            matches!(&refused, Err(StoreError::Conflict { field, .. }) if *field == named),
            "{refused:?}"
        );
    }
}

pub(super) async fn two_tenants_may_choose_the_same_event_id(world: World) {
    let event = Event { id: "chosen".parse().unwrap(), ..world.event(None) };
    world.accept(vec![event.clone()]).await;
    let tenant = world.add_tenant("other", TenantSettings::default()).await;
    let other = Event { payload: Bytes::from_static(b"{}"), ..event };
    let batch = AcceptBatch { tenant, events: vec![other], accepted_by: None, idempotency: None };
    let receipts = world.store.accept(batch.into()).await.unwrap();
    assert!(matches!(receipts[..], [Receipt::Accepted { .. }]));
}

pub(super) async fn a_refused_batch_leaves_nothing_behind(world: World) {
    world.endpoint().await;
    let taken = Event { id: "taken".parse().unwrap(), ..world.event(None) };
    world.accept(vec![taken.clone()]).await;
    let fresh = world.event(Some("k"));
    let clash = Event { payload: Bytes::new(), ..taken };
    assert!(world.store.accept(world.batch(vec![fresh.clone(), clash]).into()).await.is_err());
    assert_eq!(world.store.event(&world.tenant, &fresh.id).await, Ok(None));
    assert_eq!(seq(&world.publish_one(Some("k")).await), 1);
}

pub(super) async fn an_id_that_stands_twice_in_a_batch_is_refused(world: World) {
    let event = world.event(None);
    let refused = world.store.accept(world.batch(vec![event.clone(), event]).into()).await;
    assert!(
        matches!(&refused, Err(StoreError::Invalid { field, .. }) if field == "events[1].id"),
        "{refused:?}"
    );
}

pub(super) async fn a_full_backlog_refuses_until_something_is_delivered(world: World) {
    world.endpoint().await;
    let settings = TenantSettings { backlog_max: Some(2), ..TenantSettings::default() };
    world.commit(Write::UpdateTenant(world.tenant.clone(), settings)).await;
    let first = world.publish_one(Some("a")).await;
    let known = world.event(Some("a"));
    world.accept(vec![known.clone()]).await;
    let refused = world.store.accept(world.batch(vec![world.event(None)]).into()).await;
    assert_eq!(refused, Err(StoreError::BacklogFull { open: 2, max: 2 }));
    assert_eq!(world.accept(vec![known]).await, [], "it is in there already");
    world.move_to(&first, DeliveryState::Delivered).await;
    assert_eq!(seq(&world.publish_one(Some("a")).await), 3);
}

pub(super) async fn an_unknown_tenant_is_named(world: World) {
    let tenant = "nobody".parse().unwrap();
    let batch = AcceptBatch {
        tenant,
        events: vec![world.event(None)],
        accepted_by: None,
        idempotency: None,
    };
    let refused = world.store.accept(batch.into()).await;
    assert_eq!(refused, Err(StoreError::NotFound("tenant `nobody`".to_owned())));
}

pub(super) async fn an_empty_batch_is_accepted_as_nothing(world: World) {
    assert_eq!(world.store.accept(world.batch(vec![]).into()).await, Ok(vec![]));
}

pub(super) async fn a_payload_at_the_bound_is_kept_and_one_beyond_is_named(world: World) {
    world.endpoint().await;
    let sized = |len| Event { payload: vec![b'x'; len].into(), ..world.event(None) };
    let largest = sized(PAYLOAD_LEN_MAX);
    let accepted = world.accept(vec![largest.clone()]).await;
    let parcels = world.store.parcels(ids(&accepted)).await.unwrap();
    assert_eq!(parcels[0].1.as_ref().unwrap().event.payload, largest.payload);
    let refused = world.store.accept(world.batch(vec![sized(PAYLOAD_LEN_MAX + 1)]).into()).await;
    let named = "events[0].payload (bytes)";
    assert!(
        matches!(&refused, Err(StoreError::Invalid { field, .. }) if field == named),
        "{refused:?}"
    );
}

pub(super) async fn a_batch_at_the_bound_is_accepted_and_one_beyond_is_named(world: World) {
    let many = |count| (0..count).map(|_| world.event(Some("k"))).collect::<Vec<_>>();
    world.endpoint().await;
    assert_eq!(world.accept(many(BATCH_EVENTS_MAX)).await.len(), BATCH_EVENTS_MAX);
    let refused = world.store.accept(world.batch(many(BATCH_EVENTS_MAX + 1)).into()).await;
    assert!(
        matches!(&refused, Err(StoreError::Invalid { field, .. }) if field == "events (entries)"),
        "{refused:?}"
    );
}

pub(super) async fn an_event_can_be_delivered_again_at_the_end_of_its_lane(world: World) {
    let endpoint = world.endpoint().await;
    let event = world.event(Some("k"));
    let first = world.accept(vec![event.clone()]).await[0];
    world.publish(Some("k")).await;
    world.move_to(&first, DeliveryState::Delivered).await;
    world.later(60_000);
    let again = redeliver(&world, vec![(event.id.clone(), endpoint)]).await.unwrap();
    assert_eq!((again.len(), seq(&again[0])), (1, 3));
    let views = world.store.deliveries_of(&world.tenant, &event.id).await.unwrap();
    let found: Vec<_> =
        views.iter().map(|view| (view.delivery.id, view.delivery.state.stage())).collect();
    assert_eq!(
        found,
        [(first.id, DeliveryStage::Delivered), (again[0].id, DeliveryStage::Pending)]
    );
    let parcels = world.store.parcels(ids(&again)).await.unwrap();
    assert_eq!(parcels[0].1.as_ref().unwrap().event, event);
}

pub(super) async fn an_event_can_be_delivered_to_an_endpoint_that_never_had_it(world: World) {
    let event = world.event(None);
    world.accept(vec![event.clone()]).await;
    let endpoint = world.endpoint().await;
    let accepted = redeliver(&world, vec![(event.id.clone(), endpoint)]).await.unwrap();
    assert_eq!(accepted[0].endpoint, endpoint);
    let (open, _) = world.unkeyed(endpoint, world.later(0)).await;
    assert_eq!(open, ids(&accepted));
}

pub(super) async fn a_redelivery_of_what_is_unknown_is_refused_whole(world: World) {
    let endpoint = world.endpoint().await;
    let event = world.event(None);
    world.accept(vec![event.clone()]).await;
    let unknown: EventId = "unknown".parse().unwrap();
    let orders = vec![(event.id.clone(), endpoint), (unknown, endpoint)];
    let refused = redeliver(&world, orders).await;
    assert_eq!(refused, Err(StoreError::NotFound("event `unknown`".to_owned())));
    let views = world.store.deliveries_of(&world.tenant, &event.id).await.unwrap();
    assert_eq!(views.len(), 1);
}

async fn redeliver(
    world: &World,
    orders: Vec<(EventId, railpost_wire::EndpointId)>,
) -> railpost_store::Result<Vec<railpost_engine::Accepted>> {
    let tenant = world.tenant.clone();
    world.store.redeliver(RedeliverBatch { tenant, orders, audit: None, idempotency: None }).await
}

pub(super) async fn a_redelivery_commits_with_its_audit_entry(world: World) {
    let endpoint = world.endpoint().await;
    let event = world.event(None);
    world.accept(vec![event.clone()]).await;
    let batch = |id: EventId, audit: railpost_store::AuditEntry| RedeliverBatch {
        tenant: world.tenant.clone(),
        orders: vec![(id, endpoint)],
        audit: Some(audit),
        idempotency: None,
    };
    let (kept, lost) = (world.audit_entry("a"), world.audit_entry("b"));
    assert!(world.store.redeliver(batch("unknown".parse().unwrap(), lost)).await.is_err());
    assert_eq!(world.audit_trail().await, []);
    world.store.redeliver(batch(event.id, kept.clone())).await.unwrap();
    assert_eq!(world.audit_trail().await, [kept]);
}
