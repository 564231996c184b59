//! Tenants, endpoints, secrets, event types, and changes to them.

use std::collections::BTreeMap;

use railpost_engine::{EndpointStatus, RateLimit, Rotation, Span};
use railpost_wire::{EndpointId, Secret, SecretId, SigningKey};

use super::world::World;
use railpost_store::limits::{SECRETS_MAX, URL_LEN_MAX};
use railpost_store::{
    Change, ClientIdentity, EndpointPrivate, EndpointSettings, EventTypeRecord, NewEndpoint,
    NewSecret, PageRequest, SecretValue, StoreError, TenantSettings, TlsVersion, Validation, Write,
};

fn shared(byte: u8) -> SecretValue {
    SecretValue::Shared(Secret::from_bytes(&[byte; 32]).unwrap())
}

fn revealed(value: &SecretValue) -> String {
    match value {
        SecretValue::Shared(secret) => secret.reveal().to_string(),
        SecretValue::Signing(key) => key.reveal().to_string(),
    }
}

async fn add_secret(world: &World, endpoint: EndpointId, value: SecretValue) -> SecretId {
    let id = SecretId::from_u128(world.unique());
    world.commit(Write::CreateSecret(NewSecret { id, endpoint, value, expires_at: None })).await;
    id
}

pub(super) async fn a_tenant_reads_back_and_changes(world: World) {
    let per = Span::from_secs(1);
    let settings = TenantSettings {
        name: "Acme é".to_owned(),
        rate_limit: Some(RateLimit { count: 5, per, burst: 9 }),
        backlog_max: Some(1_000),
    };
    let at = world.later(7);
    world.commit(Write::UpdateTenant(world.tenant.clone(), settings.clone())).await;
    let tenant = world.store.tenant(&world.tenant).await.unwrap().unwrap();
    assert_eq!(tenant.settings, settings);
    assert_eq!((tenant.created_at, tenant.updated_at), (super::world::START, at));
    assert_eq!(world.store.tenant(&"nobody".parse().unwrap()).await, Ok(None));
}

pub(super) async fn a_tenant_cannot_appear_twice(world: World) {
    let create = Write::CreateTenant(world.tenant.clone(), TenantSettings::default());
    let refused = world.store.commit(create.into()).await;
    assert!(
        matches!(&refused, Err(StoreError::Conflict { field, .. }) if field == "id"),
        "{refused:?}"
    );
}

pub(super) async fn tenants_list_by_id_in_pages(world: World) {
    for id in ["zed", "bob", "mia"] {
        world.add_tenant(id, TenantSettings::default()).await;
    }
    let first = world.store.tenants(PageRequest::first(2)).await.unwrap();
    let rest = PageRequest::after(2, first.next.clone().unwrap());
    let rest = world.store.tenants(rest).await.unwrap();
    let all: Vec<_> = first.items.iter().chain(&rest.items).map(|t| t.id.to_string()).collect();
    assert_eq!((all, rest.next), (["acme", "bob", "mia", "zed"].map(String::from).to_vec(), None));
}

pub(super) async fn an_endpoint_reads_back_in_every_detail(world: World) {
    let settings = EndpointSettings {
        description: "for \"everyone\" é".to_owned(),
        filters: vec!["order.*".parse().unwrap(), "user.created".parse().unwrap()],
        envelope: railpost_wire::Envelope::Event,
        thin_above: Some(65_536),
        template: Some(r#"{"text": "{{summary}}"}"#.to_owned()),
        managed_by: Some("notices.oncall".to_owned()),
        tls_min: TlsVersion::V13,
        timeout: Some(Span::from_secs(5)),
        ..EndpointSettings::all_events("https://example.com/a?b=c")
    };
    let private = EndpointPrivate {
        headers: BTreeMap::from([("authorization".to_owned(), "Bearer t0ken".to_owned())]),
        client_identity: Some(ClientIdentity {
            certificate_pem: "cert".to_owned(),
            key_pem: "key".to_owned(),
        }),
        routing_key: Some("0123456789abcdef0123456789abcdef".to_owned()),
    };
    let id = EndpointId::from_u128(41);
    let new = NewEndpoint {
        id,
        tenant: world.tenant.clone(),
        settings: settings.clone(),
        private: private.clone(),
    };
    world.commit(Write::CreateEndpoint(new)).await;
    let stored = world.store.endpoint(id).await.unwrap().unwrap();
    assert_eq!((stored.id, &stored.tenant), (id, &world.tenant));
    assert_eq!((&stored.settings, &stored.private), (&settings, &Ok(private)));
    assert_eq!((stored.status, stored.failing_since), (EndpointStatus::Active, None));
    assert_eq!((stored.revision, stored.removed_at), (1, None));
    assert!(!format!("{stored:?}").contains("t0ken"));
    assert_eq!(world.store.endpoint(EndpointId::from_u128(42)).await, Ok(None));
}

pub(super) async fn a_change_from_an_old_revision_is_refused(world: World) {
    let id = world.endpoint().await;
    let update = |url: &str, revision| Write::UpdateEndpoint {
        id,
        settings: EndpointSettings::all_events(url),
        private: EndpointPrivate::default(),
        revision,
    };
    world.commit(update("https://example.com/2", Some(1))).await;
    let refused = world.store.commit(update("https://example.com/3", Some(1)).into()).await;
    assert!(
        matches!(&refused, Err(StoreError::Conflict { field, .. }) if field == "revision"),
        "{refused:?}"
    );
    let stored = world.store.endpoint(id).await.unwrap().unwrap();
    assert_eq!((stored.settings.url.as_str(), stored.revision), ("https://example.com/2", 2));
}

pub(super) async fn endpoints_list_in_pages_without_those_removed(world: World) {
    let mut ids = Vec::new();
    for _ in 0..4 {
        ids.push(world.endpoint().await);
    }
    world.commit(Write::RemoveEndpoint(ids.remove(1))).await;
    let other = world.add_tenant("other", TenantSettings::default()).await;
    let first = world.store.endpoints(Some(&world.tenant), PageRequest::first(2)).await.unwrap();
    let rest = PageRequest::after(2, first.next.clone().unwrap());
    let rest = world.store.endpoints(None, rest).await.unwrap();
    let all: Vec<_> = first.items.iter().chain(&rest.items).map(|e| e.id).collect();
    assert_eq!((all, rest.next), (ids, None));
    let none = world.store.endpoints(Some(&other), PageRequest::first(2)).await.unwrap();
    assert_eq!(none.items, []);
}

pub(super) async fn switching_an_endpoint_on_forgets_its_failures(world: World) {
    let endpoint = world.endpoint().await;
    let failing = railpost_engine::EndpointRecord {
        endpoint,
        status: EndpointStatus::Failing,
        was: EndpointStatus::Active,
        failing_since: Some(super::world::START),
        at: super::world::START,
    };
    let batch = railpost_store::RecordBatch { endpoints: vec![failing], ..Default::default() };
    world.store.record(batch.into()).await.unwrap();
    world.commit(Write::SetEndpointStatus(endpoint, EndpointStatus::Active)).await;
    let stored = world.store.endpoint(endpoint).await.unwrap().unwrap();
    assert_eq!((stored.status, stored.failing_since), (EndpointStatus::Active, None));
    assert_eq!(stored.status_since, Some(stored.updated_at));
}

pub(super) async fn a_secret_that_comes_later_than_its_endpoint_is_a_rotation(world: World) {
    let endpoint = world.endpoint().await;
    let rotation = async || {
        let secrets = world.store.secrets(endpoint).await.unwrap();
        let stored = world.store.endpoint(endpoint).await.unwrap().unwrap();
        stored.for_engine(&secrets).rotation
    };
    let id = add_secret(&world, endpoint, shared(1)).await;
    assert_eq!(rotation().await, None, "it came with its endpoint");
    let began_at = world.later(5);
    add_secret(&world, endpoint, shared(2)).await;
    assert_eq!(rotation().await, Some(Rotation { began_at, ends_at: began_at }));
    let ends_at = began_at + Span::from_hours(24);
    world.commit(Write::ExpireSecret { endpoint, id, at: ends_at }).await;
    assert_eq!(rotation().await, Some(Rotation { began_at, ends_at }), "the old one still signs");
}

pub(super) async fn a_removed_endpoint_has_no_secrets_left(world: World) {
    let endpoint = world.endpoint().await;
    add_secret(&world, endpoint, shared(7)).await;
    let at = world.later(3);
    world.commit(Write::RemoveEndpoint(endpoint)).await;
    let stored = world.store.endpoint(endpoint).await.unwrap().unwrap();
    assert_eq!((stored.removed_at, stored.private), (Some(at), Ok(EndpointPrivate::default())));
    assert!(world.store.secrets(endpoint).await.unwrap().is_empty());
    let again = world.store.commit(Write::RemoveEndpoint(endpoint).into()).await;
    assert!(matches!(again, Err(StoreError::NotFound(_))), "{again:?}");
}

pub(super) async fn secrets_of_both_kinds_read_back(world: World) {
    let endpoint = world.endpoint().await;
    let other = world.endpoint().await;
    let signing = SecretValue::Signing(SigningKey::generate(&[5; 32]));
    let first = add_secret(&world, endpoint, shared(7)).await;
    let second = add_secret(&world, endpoint, signing.clone()).await;
    add_secret(&world, other, shared(8)).await;
    let at = world.later(60_000);
    world.commit(Write::ExpireSecret { endpoint, id: first, at }).await;
    let found = world.store.secrets(endpoint).await.unwrap();
    let found: Vec<_> = found
        .iter()
        .map(|secret| (secret.id, revealed(&secret.value), secret.expires_at))
        .collect();
    let expected = [(first, revealed(&shared(7)), Some(at)), (second, revealed(&signing), None)];
    assert_eq!(found, expected);
    world.commit(Write::RemoveSecret { endpoint, id: first }).await;
    assert_eq!(world.store.secrets(endpoint).await.unwrap().len(), 1);
}

pub(super) async fn a_secret_is_changed_only_through_its_own_endpoint(world: World) {
    let (owner, other) = (world.endpoint().await, world.endpoint().await);
    let id = add_secret(&world, owner, shared(7)).await;
    let at = world.later(3);
    for write in [
        Write::ExpireSecret { endpoint: other, id, at },
        Write::RemoveSecret { endpoint: other, id },
    ] {
        let refused = world.store.commit(write.into()).await;
        assert!(matches!(refused, Err(StoreError::NotFound(_))), "{refused:?}");
    }
    let secrets = world.store.secrets(owner).await.unwrap();
    let found: Vec<_> = secrets.iter().map(|secret| (secret.id, secret.expires_at)).collect();
    assert_eq!(found, [(id, None)]);
}

pub(super) async fn an_endpoint_has_a_bounded_number_of_secrets(world: World) {
    let endpoint = world.endpoint().await;
    for _ in 0..SECRETS_MAX {
        add_secret(&world, endpoint, shared(7)).await;
    }
    let id = SecretId::from_u128(9_999);
    let new = NewSecret { id, endpoint, value: shared(7), expires_at: None };
    let refused = world.store.commit(Write::CreateSecret(new).into()).await;
    assert!(
        matches!(&refused, Err(StoreError::Invalid { field, .. }) if field.starts_with("secrets")),
        "{refused:?}"
    );
}

pub(super) async fn event_types_read_back_and_list_by_name(world: World) {
    let record = |name: &str, description: &str| EventTypeRecord {
        tenant: world.tenant.clone(),
        name: name.parse().unwrap(),
        description: description.to_owned(),
        schemas: BTreeMap::from([(1, serde_json::json!({"type": "object"}))]),
        validation: Validation::Reject,
    };
    for name in ["user.created", "order.paid", "order.sent"] {
        world.commit(Write::PutEventType(record(name, "first"))).await;
    }
    let changed = record("order.paid", "second");
    world.commit(Write::PutEventType(changed.clone())).await;
    let name = "order.paid".parse().unwrap();
    assert_eq!(world.store.event_type(&world.tenant, &name).await, Ok(Some(changed)));
    world.commit(Write::RemoveEventType(world.tenant.clone(), "order.sent".parse().unwrap())).await;
    let first = world.store.event_types(&world.tenant, PageRequest::first(1)).await.unwrap();
    let rest = PageRequest::after(5, first.next.clone().unwrap());
    let rest = world.store.event_types(&world.tenant, rest).await.unwrap();
    let all: Vec<_> = first.items.iter().chain(&rest.items).map(|t| t.name.as_str()).collect();
    assert_eq!(all, ["order.paid", "user.created"]);
}

pub(super) async fn a_change_is_made_whole_or_not_at_all(world: World) {
    let tenant: railpost_wire::TenantId = "brand-new".parse().unwrap();
    let unknown = SecretId::from_u128(404);
    let change = Change {
        writes: vec![
            Write::CreateTenant(tenant.clone(), TenantSettings::default()),
            Write::RemoveSecret { endpoint: railpost_wire::EndpointId::from_u128(1), id: unknown },
        ],
        ..Change::default()
    };
    let refused = world.store.commit(change).await;
    assert_eq!(refused, Err(StoreError::NotFound(format!("secret `{unknown}`"))));
    assert_eq!(world.store.tenant(&tenant).await, Ok(None));
}

pub(super) async fn writes_of_one_change_see_each_other(world: World) {
    let endpoint = EndpointId::from_u128(world.unique());
    let new = NewEndpoint {
        id: endpoint,
        tenant: world.tenant.clone(),
        settings: EndpointSettings::all_events("https://example.com"),
        private: EndpointPrivate::default(),
    };
    let id = SecretId::from_u128(world.unique());
    let secret = NewSecret { id, endpoint, value: shared(7), expires_at: None };
    let writes = vec![Write::CreateEndpoint(new), Write::CreateSecret(secret)];
    world.commit(Change { writes, ..Change::default() }).await;
    assert_eq!(world.store.secrets(endpoint).await.unwrap().len(), 1);
}

pub(super) async fn what_does_not_exist_cannot_be_changed(world: World) {
    let endpoint = EndpointId::from_u128(404);
    let tenant: railpost_wire::TenantId = "nobody".parse().unwrap();
    let settings = EndpointSettings::all_events("https://example.com");
    let private = EndpointPrivate::default();
    for write in [
        Write::UpdateTenant(tenant.clone(), TenantSettings::default()),
        Write::CreateEndpoint(NewEndpoint {
            id: endpoint,
            tenant: tenant.clone(),
            settings: settings.clone(),
            private: private.clone(),
        }),
        Write::UpdateEndpoint { id: endpoint, settings, private, revision: None },
        Write::SetEndpointStatus(endpoint, EndpointStatus::Paused),
        Write::RemoveEndpoint(endpoint),
        Write::ExpireSecret { endpoint, id: SecretId::from_u128(1), at: super::world::START },
        Write::RemoveEventType(world.tenant.clone(), "no.such".parse().unwrap()),
        Write::RevokeApiKey(railpost_wire::ApiKeyId::from_u128(1), super::world::START),
    ] {
        let shown = format!("{write:?}");
        let refused = world.store.commit(write.into()).await;
        assert!(matches!(refused, Err(StoreError::NotFound(_))), "{shown}: {refused:?}");
    }
}

pub(super) async fn bad_settings_name_the_field_and_the_bound(world: World) {
    let endpoint = |settings: EndpointSettings, headers: &[(&str, &str)]| {
        let headers = headers.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
        Write::CreateEndpoint(NewEndpoint {
            id: EndpointId::from_u128(1_000),
            tenant: world.tenant.clone(),
            settings,
            private: EndpointPrivate { headers, ..EndpointPrivate::default() },
        })
    };
    let good = EndpointSettings::all_events("https://example.com");
    let long = "x".repeat(URL_LEN_MAX + 1);
    let named = TenantSettings { name: "a\0b".to_owned(), ..TenantSettings::default() };
    let greedy = TenantSettings { backlog_max: Some(u64::MAX), ..TenantSettings::default() };
    for (named, write) in [
        ("url (bytes)", endpoint(EndpointSettings::all_events(&long), &[])),
        ("url", endpoint(EndpointSettings::all_events("https://exämple.com"), &[])),
        ("filters", endpoint(EndpointSettings { filters: vec![], ..good.clone() }, &[])),
        ("headers (value)", endpoint(good.clone(), &[("a", "b\r\nc: d")])),
        ("name", Write::UpdateTenant(world.tenant.clone(), named)),
        ("backlog_max", Write::UpdateTenant(world.tenant.clone(), greedy)),
    ] {
        let refused = world.store.commit(write.into()).await;
        assert!(
            matches!(&refused, Err(StoreError::Invalid { field, .. }) if field == named),
            "{named}: {refused:?}"
        );
    }
}
