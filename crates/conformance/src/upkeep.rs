//! Retention, erasure, backup, health.

use railpost_engine::{DeadReason, DeliveryState, Load, LoadedPage, Timestamp};
use railpost_wire::{ApiKeyId, Secret, SecretId};

use super::world::{START, World, detail, seq};
use railpost_store::limits::UPKEEP_STEP_MAX;
use railpost_store::{
    ApiKey, AuditEntry, AuditQuery, Change, DeliveryQuery, DeliveryView, EndpointPrivate,
    EndpointSettings, ErasingTenant, EventQuery, EventTypeRecord, IdempotencyKey,
    IdempotencyLookup, IdempotencyRecord, NewEndpoint, NewSecret, PageRequest, Period, PruneStep,
    Pruned, RecordBatch, Scope, SecretValue, StoreError, StoredResponse, TenantSettings, Write,
};

/// Prunes to the end in steps of two events.
async fn prune(world: &World, closed_before: Timestamp, dead_before: Timestamp) -> Pruned {
    let mut all = Pruned::default();
    loop {
        let after = all.next.take();
        let rest = PruneStep::of_all_before(START, 2);
        let step = PruneStep { closed_before, dead_before, after, ..rest };
        let pruned = world.store.prune(step).await.unwrap();
        assert!(pruned.events <= 2, "a step is small");
        all.events += pruned.events;
        all.deliveries += pruned.deliveries;
        all.others += pruned.others;
        all.next = pruned.next;
        if all.next.is_none() {
            return all;
        }
    }
}

pub(super) async fn pruning_deletes_what_is_old_and_closed(world: World) {
    world.endpoint().await;
    world.endpoint().await;
    let mut old = Vec::new();
    for _ in 0..5 {
        let event = world.event(Some("k"));
        old.push((event.id.clone(), world.accept(vec![event]).await));
    }
    for (_, deliveries) in &old {
        for accepted in deliveries {
            let delivered = world.transition(accepted, DeliveryState::Delivered);
            let transitions = vec![(delivered, Some(detail(1, 200).into()))];
            world
                .store
                .record(RecordBatch { transitions, ..Default::default() }.into())
                .await
                .unwrap();
        }
    }
    let cut = world.later(1_000);
    let young = world.event(Some("k"));
    let accepted = world.accept(vec![young.clone()]).await;
    for accepted in &accepted {
        world.move_to(accepted, DeliveryState::Delivered).await;
    }
    let pruned = prune(&world, cut, cut).await;
    assert_eq!((pruned.events, pruned.deliveries), (5, 10));
    for (id, deliveries) in &old {
        assert_eq!(world.store.event(&world.tenant, id).await, Ok(None));
        assert_eq!(world.store.delivery(deliveries[0].id).await, Ok(None));
        assert_eq!(world.store.parcels(vec![deliveries[0].id]).await, Ok(vec![]));
        let attempts = world.store.attempts(deliveries[0].id, PageRequest::first(5)).await.unwrap();
        assert_eq!(attempts.items, []);
    }
    assert!(world.store.event(&world.tenant, &young.id).await.unwrap().is_some());
}

pub(super) async fn pruning_leaves_open_deliveries_and_lane_seqs_alone(world: World) {
    world.endpoint().await;
    let until = world.later(0);
    let held = DeliveryState::Dead { reason: DeadReason::Permanent, holds: true };
    let mut kept = Vec::new();
    for state in [DeliveryState::InFlight, DeliveryState::Waiting { until }, held] {
        let accepted = world.publish_one(Some("k")).await;
        world.move_to(&accepted, state).await;
        kept.push(accepted);
    }
    let closed = world.publish_one(Some("k")).await;
    world.move_to(&closed, DeliveryState::Delivered).await;
    let cut = world.later(1_000);
    assert_eq!(prune(&world, cut, cut).await.events, 1);
    assert_eq!(world.lane(&kept[0], 1, 9).await.deliveries.len(), 3);
    assert_eq!(world.lane(&kept[0], 1, 9).await.last.unwrap().get(), 4);
    assert_eq!(seq(&world.publish_one(Some("k")).await), 5);
}

pub(super) async fn an_event_is_kept_until_its_last_delivery_is_closed(world: World) {
    world.endpoint().await;
    world.endpoint().await;
    let deliveries = world.publish(None).await;
    world.move_to(&deliveries[0], DeliveryState::Delivered).await;
    let cut = world.later(1_000);
    assert_eq!(prune(&world, cut, cut).await.events, 0);
    world.move_to(&deliveries[1], DeliveryState::Delivered).await;
    assert_eq!(prune(&world, cut, cut).await.events, 1);
}

pub(super) async fn dead_letters_are_kept_for_as_long_as_asked(world: World) {
    world.endpoint().await;
    let accepted = world.publish_one(Some("k")).await;
    let dead = DeliveryState::Dead { reason: DeadReason::Permanent, holds: false };
    world.move_to(&accepted, dead).await;
    let cut = world.later(1_000);
    assert_eq!(prune(&world, cut, START).await.events, 0);
    assert_eq!(prune(&world, cut, cut).await.events, 1);
}

pub(super) async fn open_deliveries_of_a_removed_endpoint_are_pruned(world: World) {
    let endpoint = world.endpoint().await;
    world.publish(Some("k")).await;
    world.commit(Write::RemoveEndpoint(endpoint)).await;
    let cut = world.later(1_000);
    assert_eq!(prune(&world, cut, cut).await.deliveries, 1);
}

pub(super) async fn redeliveries_are_pruned_with_their_event(world: World) {
    let endpoint = world.endpoint().await;
    let event = world.event(None);
    let first = world.accept(vec![event.clone()]).await[0];
    world.move_to(&first, DeliveryState::Delivered).await;
    world.later(1_000);
    let orders = vec![(event.id.clone(), endpoint)];
    let batch = railpost_store::RedeliverBatch {
        tenant: world.tenant.clone(),
        orders,
        audit: None,
        idempotency: None,
    };
    let again = world.store.redeliver(batch).await.unwrap()[0];
    let cut = world.later(1_000);
    assert_eq!(prune(&world, cut, cut).await.events, 0);
    world.move_to(&again, DeliveryState::Delivered).await;
    assert_eq!(prune(&world, cut, cut).await.deliveries, 2);
    assert_eq!(world.store.delivery(again.id).await, Ok(None));
}

pub(super) async fn pruning_forgets_old_audit_and_expired_idempotency(world: World) {
    let (entry, record) = traces(&world);
    let change = Change { writes: vec![], audit: Some(entry), idempotency: Some(Box::new(record)) };
    world.commit(change).await;
    let cut = world.later(1_000);
    assert_eq!(prune(&world, START, START).await.others, 0);
    assert_eq!(prune(&world, cut, cut).await.others, 1);
    world.later(60_000);
    assert_eq!(prune(&world, cut, cut).await.others, 1);
}

pub(super) async fn a_step_out_of_bounds_is_named(world: World) {
    for limit in [0, UPKEEP_STEP_MAX + 1] {
        let step = PruneStep::of_all_before(START, limit);
        let refused = world.store.prune(step).await;
        assert!(
            matches!(&refused, Err(StoreError::Invalid { field, .. }) if field == "limit"),
            "{refused:?}"
        );
    }
}

fn traces(world: &World) -> (AuditEntry, IdempotencyRecord) {
    let entry = AuditEntry {
        id: railpost_wire::AuditId::from_u128(world.unique()),
        at: START,
        tenant: Some(world.tenant.clone()),
        actor: "a".into(),
        address: None,
        action: "b".into(),
        target: "c".into(),
        detail: serde_json::Value::Null,
    };
    let key = IdempotencyKey { owner: "o".into(), route: "r".into(), key: "k".into() };
    let record = IdempotencyRecord {
        key,
        fingerprint: [1; 32],
        response: StoredResponse { status: 200, body: bytes::Bytes::new() },
        tenant: Some(world.tenant.clone()),
        expires_at: Timestamp::from_millis(START.as_millis() + 10_000),
    };
    (entry, record)
}

pub(super) async fn a_tenant_that_is_being_erased_is_unknown_and_keeps_its_id(world: World) {
    let endpoint = world.endpoint().await;
    let accepted = world.publish_one(Some("k")).await;
    let key = ApiKey {
        id: ApiKeyId::from_u128(world.unique()),
        tenant: Some(world.tenant.clone()),
        name: String::new(),
        scope: Scope::Tenant,
        hash: [3; 32],
        created_at: START,
        expires_at: None,
        revoked_at: None,
        last_used_at: None,
    };
    world.commit(Write::CreateApiKey(key)).await;
    let since = world.later(1_000);
    let mark = Write::EraseTenant(world.tenant.clone());
    world.commit(mark.clone()).await;

    let (store, tenant) = (&world.store, &world.tenant);
    let erasing = ErasingTenant { id: tenant.clone(), created_at: START, since, erased: 0 };
    assert_eq!(store.erasing_tenant(tenant).await, Ok(Some(erasing.clone())));
    assert_eq!(store.erasing_tenants().await, Ok(vec![erasing]));
    assert_eq!(store.tenant(tenant).await, Ok(None));
    assert_eq!(store.tenants(PageRequest::first(9)).await.unwrap().items, []);
    assert_eq!(store.api_key_by_hash(&[3; 32]).await, Ok(None));
    assert_eq!(store.endpoint(endpoint).await, Ok(None));
    assert_eq!(store.delivery(accepted.id).await, Ok(None));
    let refused = store.accept(world.batch(vec![world.event(None)]).into()).await;
    assert!(matches!(refused, Err(StoreError::NotFound(_))), "{refused:?}");
    let again = store.commit(mark.into()).await;
    assert!(matches!(again, Err(StoreError::NotFound(_))), "{again:?}");
    let taken = Write::CreateTenant(tenant.clone(), TenantSettings::default());
    let refused = store.commit(taken.clone().into()).await;
    let told = |problem: &str| problem.contains("is being erased");
    assert!(
        matches!(&refused, Err(StoreError::Conflict { field, problem }) if field == "id" && told(problem)),
        "{refused:?}"
    );
    while !world.erase_step(tenant).await {}
    assert_eq!(store.erasing_tenant(tenant).await, Ok(None));
    assert_eq!(store.erasing_tenants().await, Ok(vec![]));
    world.commit(taken).await;
}

pub(super) async fn erasing_goes_on_in_small_steps_where_it_was_interrupted(world: World) {
    world.endpoint().await;
    let events = (0..UPKEEP_STEP_MAX).map(|_| world.event(None)).collect();
    world.accept(events).await;
    world.publish(Some("k")).await;
    world.commit(Write::EraseTenant(world.tenant.clone())).await;
    assert!(!world.erase_step(&world.tenant).await, "a step is small");
    let erased = |found: Option<ErasingTenant>| found.map(|tenant| tenant.erased);
    let stored = world.store.erasing_tenant(&world.tenant).await.unwrap();
    assert_eq!(erased(stored), Some(u64::from(UPKEEP_STEP_MAX)));

    let path = world.new_path();
    world.store.backup(&path).await.unwrap();
    let restored = world.restore(&path, 1).await.unwrap();
    let left = restored.erasing_tenants().await.unwrap();
    assert_eq!(left.iter().map(|tenant| &tenant.id).collect::<Vec<_>>(), [&world.tenant]);
    let ended = world.erased_entry(&world.tenant);
    while !restored.erase_tenant(&world.tenant, &ended).await.unwrap() {}
    assert_eq!(restored.erasing_tenants().await, Ok(vec![]));
    let page = PageRequest::first(9);
    let audit = AuditQuery { tenant: None, target: None, at: Period::default(), page };
    assert_eq!(restored.audit(audit).await.unwrap().items, [ended], "the end is told of once");
}

pub(super) async fn only_a_marked_tenant_is_erased(world: World) {
    let accepted = {
        world.endpoint().await;
        world.publish_one(Some("k")).await
    };
    let ended = world.erased_entry(&world.tenant);
    let refused = world.store.erase_tenant(&world.tenant, &ended).await;
    assert!(matches!(refused, Err(StoreError::Conflict { .. })), "{refused:?}");
    assert!(world.store.delivery(accepted.id).await.unwrap().is_some());
    let nobody = "nobody".parse().unwrap();
    assert_eq!(world.store.erase_tenant(&nobody, &ended).await, Ok(true));
    let unknown = world.store.commit(Write::EraseTenant(nobody).into()).await;
    assert!(matches!(unknown, Err(StoreError::NotFound(_))), "{unknown:?}");
}

pub(super) async fn an_erased_tenant_leaves_nothing(world: World) {
    let endpoint = world.endpoint().await;
    let event = world.event(Some("k"));
    let accepted = world.accept(vec![event.clone()]).await[0];
    let transitions = vec![(
        world.transition(&accepted, DeliveryState::Waiting { until: START }),
        Some(detail(1, 500).into()),
    )];
    world.store.record(RecordBatch { transitions, ..Default::default() }.into()).await.unwrap();
    let value = SecretValue::Shared(Secret::from_bytes(&[7; 32]).unwrap());
    let id = SecretId::from_u128(world.unique());
    let (entry, record) = traces(&world);
    let idempotency = record.key.clone();
    let name: railpost_wire::EventType = "order.paid".parse().unwrap();
    let (tenant, description) = (world.tenant.clone(), String::new());
    let event_type = EventTypeRecord {
        tenant,
        name: name.clone(),
        description,
        schemas: [].into(),
        validation: Default::default(),
    };
    let writes = vec![
        Write::CreateSecret(NewSecret { id, endpoint, value, expires_at: None }),
        Write::PutEventType(event_type),
    ];
    world.commit(Change { writes, audit: Some(entry), idempotency: Some(Box::new(record)) }).await;

    world.erase(&world.tenant).await;

    let (store, tenant) = (&world.store, &world.tenant);
    assert_eq!(store.tenant(tenant).await, Ok(None));
    assert_eq!(store.endpoint(endpoint).await, Ok(None));
    assert!(store.secrets(endpoint).await.unwrap().is_empty());
    assert_eq!(store.event_type(tenant, &name).await, Ok(None));
    assert_eq!(store.event(tenant, &event.id).await, Ok(None));
    assert_eq!(store.delivery(accepted.id).await, Ok(None));
    assert_eq!(store.parcels(vec![accepted.id]).await, Ok(vec![]));
    let page = PageRequest::first(9);
    assert_eq!(store.attempts(accepted.id, page.clone()).await.unwrap().items, []);
    assert_eq!(
        store.lookup_idempotency(&idempotency, &[1; 32]).await,
        Ok(IdempotencyLookup::Absent)
    );
    let audit =
        AuditQuery { tenant: None, target: None, at: Period::default(), page: page.clone() };
    let told: Vec<_> = store.audit(audit).await.unwrap().items;
    assert_eq!(
        told.iter().map(|entry| entry.action.as_str()).collect::<Vec<_>>(),
        ["tenant.erased"]
    );
    let load = Load::Lanes { endpoint, after: None, limit: 9, window: 9 };
    assert_eq!(store.load(load).await, Ok(LoadedPage::Lanes { lanes: vec![], next: None }));
    let refused = store.accept(world.batch(vec![world.event(None)]).into()).await;
    assert!(matches!(refused, Err(StoreError::NotFound(_))), "{refused:?}");
    world.add_tenant("acme", TenantSettings::default()).await;
    assert_eq!(store.events(EventQuery::of(tenant.clone(), page.clone())).await.unwrap().items, []);
    assert_eq!(store.deliveries(DeliveryQuery::of(tenant.clone(), page)).await.unwrap().items, []);
}

pub(super) async fn erasing_one_tenant_leaves_the_others_alone(world: World) {
    world.endpoint().await;
    let mine = world.publish_one(Some("k")).await;
    let other = world.add_tenant("other", TenantSettings::default()).await;
    let new = NewEndpoint {
        id: railpost_wire::EndpointId::from_u128(world.unique()),
        tenant: other.clone(),
        settings: EndpointSettings::all_events("https://example.com"),
        private: EndpointPrivate::default(),
    };
    world.commit(Write::CreateEndpoint(new)).await;
    let events = (0..3).map(|_| world.event(Some("k"))).collect();
    let batch = railpost_store::AcceptBatch {
        tenant: other.clone(),
        events,
        accepted_by: None,
        idempotency: None,
    };
    world.store.accept(batch.into()).await.unwrap();
    world.erase(&other).await;
    assert_eq!(world.lane(&mine, 1, 5).await.deliveries.len(), 1);
    assert_eq!(seq(&world.publish_one(Some("k")).await), 2);
}

pub(super) async fn a_backup_holds_all_of_it_and_goes_on_from_there(world: World) {
    let endpoint = world.endpoint().await;
    let value = SecretValue::Shared(Secret::from_bytes(&[7; 32]).unwrap());
    let id = SecretId::from_u128(world.unique());
    world.commit(Write::CreateSecret(NewSecret { id, endpoint, value, expires_at: None })).await;
    let event = world.event(Some("k"));
    let first = world.accept(vec![event.clone()]).await[0];
    let transitions = vec![(
        world.transition(&first, DeliveryState::Waiting { until: START }),
        Some(detail(1, 500).into()),
    )];
    world.store.record(RecordBatch { transitions, ..Default::default() }.into()).await.unwrap();
    let path = world.new_path();
    world.store.backup(&path).await.unwrap();
    world.publish(Some("k")).await;

    let restored = world.restore(&path, 1).await.unwrap();
    let stored = restored.event(&world.tenant, &event.id).await.unwrap().unwrap();
    assert_eq!(stored.event, event);
    let view = restored.delivery(first.id).await.unwrap().unwrap();
    let before = world.store.delivery(first.id).await.unwrap().unwrap();
    assert_ne!(view.line, before.line, "what is open is in a new line");
    assert_eq!(DeliveryView { line: before.line.clone(), ..view }, before);
    let attempts = restored.attempts(first.id, PageRequest::first(5)).await.unwrap();
    assert_eq!(attempts.items[0].detail, detail(1, 500));
    assert_eq!(restored.secrets(endpoint).await.unwrap().len(), 1);
    let receipts = restored.accept(world.batch(vec![world.event(Some("k"))]).into()).await.unwrap();
    assert_eq!(seq(&super::world::deliveries(receipts)[0]), 2);
}

pub(super) async fn a_backup_refuses_the_wrong_master_key(world: World) {
    let path = world.new_path();
    world.store.backup(&path).await.unwrap();
    assert_eq!(world.restore(&path, 2).await.err(), Some(StoreError::WrongMasterKey));
    assert!(world.restore(&path, 1).await.is_ok());
}

pub(super) async fn a_backup_never_overwrites_a_file(world: World) {
    let path = world.new_path();
    std::fs::write(&path, b"precious").unwrap();
    assert!(world.store.backup(&path).await.is_err());
    assert_eq!(std::fs::read(&path).unwrap(), b"precious");
}

pub(super) async fn no_secret_can_be_read_in_a_backup(world: World) {
    let id = railpost_wire::EndpointId::from_u128(world.unique());
    let headers = [("authorization".to_owned(), "Bearer hush-hush-token".to_owned())].into();
    let private = EndpointPrivate { headers, ..EndpointPrivate::default() };
    let settings = EndpointSettings::all_events("https://example.com/findable");
    let new = NewEndpoint { id, tenant: world.tenant.clone(), settings, private };
    let secret = Secret::from_bytes(b"this secret is thirty-two bytes!").unwrap();
    let text = secret.reveal().to_string();
    let value = SecretValue::Shared(secret);
    let secret_id = SecretId::from_u128(world.unique());
    let new_secret = NewSecret { id: secret_id, endpoint: id, value, expires_at: None };
    let writes = vec![Write::CreateEndpoint(new), Write::CreateSecret(new_secret)];
    world.commit(Change { writes, ..Change::default() }).await;
    let path = world.new_path();
    world.store.backup(&path).await.unwrap();
    let bytes = std::fs::read(&path).unwrap();
    let holds = |needle: &[u8]| bytes.windows(needle.len()).any(|window| window == needle);
    assert!(holds(b"example.com/findable"), "the search finds what is not secret");
    for needle in ["hush-hush-token", "thirty-two bytes", &text[6..]] {
        assert!(!holds(needle.as_bytes()), "{needle}");
    }
}

pub(super) async fn a_healthy_store_says_so(world: World) {
    let health = world.store.check().await.unwrap();
    assert!(["memory", "sqlite", "postgres"].contains(&health.backend));
    assert!(health.schema >= 1);
}
