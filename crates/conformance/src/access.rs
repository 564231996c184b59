//! API keys, audit and idempotency.

use bytes::Bytes;
use railpost_engine::Timestamp;
use railpost_wire::ApiKeyId;

use super::world::World;
use railpost_store::{
    AcceptBatch, AcceptRecord, ApiKey, AuditQuery, Change, EventOutcome, IdempotencyKey,
    IdempotencyLookup, IdempotencyRecord, PageRequest, Period, Receipt, Scope, Source, StoreError,
    StoredResponse, TenantSettings, Write,
};

fn api_key(world: &World, hash: u8) -> ApiKey {
    ApiKey {
        id: ApiKeyId::from_u128(world.unique()),
        tenant: Some(world.tenant.clone()),
        name: "ci".to_owned(),
        scope: Scope::PublishOnly,
        hash: [hash; 32],
        created_at: super::world::START,
        expires_at: Some(super::world::START),
        revoked_at: None,
        last_used_at: None,
    }
}

fn key(name: &str) -> IdempotencyKey {
    IdempotencyKey { owner: "key_1".into(), route: "POST /v1/events".into(), key: name.into() }
}

fn record(world: &World, name: &str, fingerprint: u8) -> IdempotencyRecord {
    IdempotencyRecord {
        key: key(name),
        fingerprint: [fingerprint; 32],
        response: StoredResponse { status: 202, body: Bytes::from_static(b"{\"ok\":1}") },
        tenant: Some(world.tenant.clone()),
        expires_at: world.source.now() + railpost_engine::Span::from_hours(48),
    }
}

fn batch(world: &World, record: IdempotencyRecord) -> AcceptBatch {
    AcceptBatch {
        idempotency: Some(Box::new(record.into())),
        ..world.batch(vec![world.event(Some("k"))])
    }
}

pub(super) async fn an_api_key_is_found_by_its_hash(world: World) {
    let key = api_key(&world, 7);
    world.commit(Write::CreateApiKey(key.clone())).await;
    assert_eq!(world.store.api_key(key.id).await, Ok(Some(key.clone())));
    assert_eq!(world.store.api_key_by_hash(&[7; 32]).await, Ok(Some(key)));
    assert_eq!(world.store.api_key_by_hash(&[8; 32]).await, Ok(None));
}

pub(super) async fn a_revoked_api_key_stays_revoked(world: World) {
    let key = api_key(&world, 7);
    world.commit(Write::CreateApiKey(key.clone())).await;
    let (first, second) = (world.later(5), world.later(5));
    world.commit(Write::RevokeApiKey(key.id, first)).await;
    world.commit(Write::RevokeApiKey(key.id, second)).await;
    world.commit(Write::TouchApiKey(key.id, second)).await;
    world.commit(Write::TouchApiKey(key.id, first)).await;
    let stored = world.store.api_key(key.id).await.unwrap().unwrap();
    assert_eq!((stored.revoked_at, stored.last_used_at), (Some(first), Some(second)));
}

fn admin_key(world: &World, hash: u8, expires_at: Option<Timestamp>) -> ApiKey {
    ApiKey { tenant: None, scope: Scope::Admin, expires_at, ..api_key(world, hash) }
}

pub(super) async fn the_last_admin_key_without_an_end_stays(world: World) {
    let end = world.later(0) + railpost_engine::Span::from_hours(1);
    let (first, second) = (admin_key(&world, 1, None), admin_key(&world, 2, None));
    let (ending, tenants) = (admin_key(&world, 3, Some(end)), api_key(&world, 4));
    for key in [&first, &second, &ending, &tenants] {
        world.commit(Write::CreateApiKey(key.clone())).await;
    }
    let now = world.later(5);
    let revoke = |key: &ApiKey| world.store.commit(Write::RevokeApiKey(key.id, now).into());
    assert_eq!(revoke(&first).await, Ok(()));
    assert_eq!(revoke(&second).await, Err(StoreError::LastAdminKey));
    // A key that is revoked, or of another scope, is not the last admin key.
    for key in [&first, &tenants, &ending] {
        assert_eq!(revoke(key).await, Ok(()), "{}", key.id);
    }
    // A new one and the end of the old one in one change.
    let third = admin_key(&world, 5, None);
    let writes = vec![Write::CreateApiKey(third.clone()), Write::RevokeApiKey(second.id, now)];
    world.commit(Change { writes, ..Change::default() }).await;
    assert_eq!(revoke(&third).await, Err(StoreError::LastAdminKey));
    assert_eq!(world.store.api_key(third.id).await, Ok(Some(third)));
}

pub(super) async fn an_api_key_can_be_renamed(world: World) {
    let key = api_key(&world, 7);
    world.commit(Write::CreateApiKey(key.clone())).await;
    world.commit(Write::RenameApiKey(key.id, "deployment".to_owned())).await;
    let renamed = ApiKey { name: "deployment".to_owned(), ..key };
    assert_eq!(world.store.api_key_by_hash(&[7; 32]).await, Ok(Some(renamed)));
    let nobody = Write::RenameApiKey(ApiKeyId::from_u128(world.unique()), "a".to_owned());
    assert!(matches!(world.store.commit(nobody.into()).await, Err(StoreError::NotFound(_))));
}

pub(super) async fn no_two_api_keys_have_the_same_hash(world: World) {
    world.commit(Write::CreateApiKey(api_key(&world, 7))).await;
    let refused = world.store.commit(Write::CreateApiKey(api_key(&world, 7)).into()).await;
    assert!(matches!(refused, Err(StoreError::Conflict { .. })), "{refused:?}");
}

pub(super) async fn api_keys_list_in_pages(world: World) {
    let keys: Vec<_> = (1..=3).map(|hash| api_key(&world, hash)).collect();
    for key in &keys {
        world.commit(Write::CreateApiKey(key.clone())).await;
    }
    let admin = ApiKey { tenant: None, scope: Scope::Admin, ..api_key(&world, 9) };
    world.commit(Write::CreateApiKey(admin.clone())).await;
    let first = world.store.api_keys(Some(&world.tenant), PageRequest::first(2)).await.unwrap();
    let rest = PageRequest::after(2, first.next.clone().unwrap());
    let rest = world.store.api_keys(Some(&world.tenant), rest).await.unwrap();
    assert_eq!([first.items, rest.items].concat(), keys);
    let all = world.store.api_keys(None, PageRequest::first(9)).await.unwrap();
    assert_eq!(all.items.last(), Some(&admin));
    assert_eq!((all.items.len(), all.next), (4, None));
}

pub(super) async fn an_audit_entry_commits_with_its_change(world: World) {
    let (first, second) = (world.audit_entry("a"), world.audit_entry("b"));
    let lost = world.audit_entry("a");
    for entry in [&first, &second] {
        let write = Write::UpdateTenant(world.tenant.clone(), TenantSettings::default());
        let change = Change { audit: Some(entry.clone()), ..Change::from(write) };
        world.commit(change).await;
    }
    let bad = Write::UpdateTenant("nobody".parse().unwrap(), TenantSettings::default());
    let change = Change { audit: Some(lost), ..Change::from(bad) };
    assert!(world.store.commit(change).await.is_err());

    let query = |target: Option<&str>, at| AuditQuery {
        tenant: Some(world.tenant.clone()),
        target: target.map(str::to_owned),
        at,
        page: PageRequest::first(10),
    };
    let all = world.store.audit(query(None, Period::default())).await.unwrap();
    assert_eq!(all.items, [second.clone(), first.clone()]);
    let about = world.store.audit(query(Some("a"), Period::default())).await.unwrap();
    assert_eq!(about.items, std::slice::from_ref(&first));
    let early = Period { from: None, before: Some(second.at) };
    assert_eq!(world.store.audit(query(None, early)).await.unwrap().items, [first]);
}

pub(super) async fn an_answered_request_is_recalled(world: World) {
    world.endpoint().await;
    assert_eq!(
        world.store.lookup_idempotency(&key("a"), &[1; 32]).await,
        Ok(IdempotencyLookup::Absent)
    );
    let record = record(&world, "a", 1);
    world.store.accept(batch(&world, record.clone()).into()).await.unwrap();
    assert_eq!(
        world.store.lookup_idempotency(&key("a"), &[1; 32]).await,
        Ok(IdempotencyLookup::Match(record.response))
    );
    assert_eq!(
        world.store.lookup_idempotency(&key("a"), &[2; 32]).await,
        Ok(IdempotencyLookup::Mismatch)
    );
    for other in [
        IdempotencyKey { owner: "key_2".into(), ..key("a") },
        IdempotencyKey { route: "POST /v1/tenants".into(), ..key("a") },
        key("b"),
    ] {
        assert_eq!(
            world.store.lookup_idempotency(&other, &[1; 32]).await,
            Ok(IdempotencyLookup::Absent)
        );
    }
}

pub(super) async fn a_stored_answer_tells_what_became_of_each_event(world: World) {
    world.endpoint().await;
    let (known, fresh) = (world.event(None), world.event(Some("k")));
    let accepted_at = world.source.now();
    world.accept(vec![known.clone()]).await;
    let answered_at = world.later(5);
    let accept = AcceptRecord {
        record: record(&world, "a", 1),
        body_len_max: 1024,
        body: std::sync::Arc::new(|outcomes| format!("{outcomes:?}").into()),
    };
    let idempotency = Some(Box::new(accept));
    let batch = AcceptBatch { idempotency, ..world.batch(vec![known, fresh]) };
    let receipts = world.store.accept(batch.into()).await.unwrap();
    let told: Vec<_> = receipts.iter().map(EventOutcome::from).collect();
    let expected = [
        EventOutcome { accepted_at, deliveries: None },
        EventOutcome { accepted_at: answered_at, deliveries: Some(1) },
    ];
    assert_eq!(told, expected);
    let response = StoredResponse { status: 202, body: format!("{told:?}").into() };
    assert_eq!(
        world.store.lookup_idempotency(&key("a"), &[1; 32]).await,
        Ok(IdempotencyLookup::Match(response))
    );
}

pub(super) async fn of_two_requests_with_one_key_only_one_does_the_work(world: World) {
    world.endpoint().await;
    let world = std::sync::Arc::new(world);
    let tasks: Vec<_> = (0..8)
        .map(|_| {
            let world = world.clone();
            let record = record(&world, "a", 1);
            tokio::spawn(async move { world.store.accept(batch(&world, record).into()).await })
        })
        .collect();
    let (mut done, mut repeated) = (0, 0);
    for task in tasks {
        match task.await.unwrap() {
            Ok(receipts) => {
                assert!(matches!(receipts[..], [Receipt::Accepted { .. }]));
                done += 1;
            }
            Err(error) => {
                assert_eq!(error, StoreError::Repeated);
                repeated += 1;
            }
        }
    }
    assert_eq!((done, repeated), (1, 7));
    assert_eq!(super::world::seq(&world.publish_one(Some("k")).await), 2);
}

pub(super) async fn a_refused_request_leaves_its_key_unused(world: World) {
    let change = Change {
        idempotency: Some(Box::new(record(&world, "a", 1))),
        ..Change::from(Write::CreateTenant(world.tenant.clone(), TenantSettings::default()))
    };
    assert!(world.store.commit(change).await.is_err());
    assert_eq!(
        world.store.lookup_idempotency(&key("a"), &[1; 32]).await,
        Ok(IdempotencyLookup::Absent)
    );
}

pub(super) async fn a_repeated_change_is_not_made_again(world: World) {
    let create = |id: &str| Change {
        idempotency: Some(Box::new(record(&world, "a", 1))),
        ..Change::from(Write::CreateTenant(id.parse().unwrap(), TenantSettings::default()))
    };
    world.commit(create("one")).await;
    assert_eq!(world.store.commit(create("two")).await, Err(StoreError::Repeated));
    assert_eq!(world.store.tenant(&"two".parse().unwrap()).await, Ok(None));
}

pub(super) async fn an_expired_key_may_be_used_again(world: World) {
    world.store.accept(batch(&world, record(&world, "a", 1)).into()).await.unwrap();
    world.later(48 * 60 * 60 * 1000);
    assert_eq!(
        world.store.lookup_idempotency(&key("a"), &[1; 32]).await,
        Ok(IdempotencyLookup::Absent)
    );
    world.store.accept(batch(&world, record(&world, "a", 2)).into()).await.unwrap();
    assert_eq!(
        world.store.lookup_idempotency(&key("a"), &[1; 32]).await,
        Ok(IdempotencyLookup::Mismatch)
    );
}
