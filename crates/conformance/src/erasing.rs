//! Erasing a tenant to the end, for the tests of backends that have stores of earlier versions.

use railpost_engine::Timestamp;
use railpost_store::{AuditEntry, Store};
use railpost_wire::{AuditId, TenantId};

/// The entry that tells of the end.
pub fn erased(tenant: &TenantId) -> AuditEntry {
    AuditEntry {
        id: AuditId::from_u128(1),
        at: Timestamp::default(),
        tenant: None,
        actor: "system".to_owned(),
        address: None,
        action: "tenant.erased".to_owned(),
        target: tenant.to_string(),
        detail: serde_json::Value::Null,
    }
}

/// Goes on with what a version without jobs has left: all that it wrote down is that it had begun.
pub async fn erase_what_is_left(store: &dyn Store, tenant: &TenantId) {
    let left = store.erasing_tenants().await.unwrap();
    let since = Timestamp::from_millis(7);
    assert_eq!(left.iter().map(|one| (&one.id, one.since)).collect::<Vec<_>>(), [(tenant, since)]);
    while !store.erase_tenant(tenant, &erased(tenant)).await.unwrap() {}
    assert_eq!(store.erasing_tenants().await, Ok(vec![]));
    assert_eq!(store.events(events(tenant)).await.unwrap().items, []);
}

fn events(tenant: &TenantId) -> railpost_store::EventQuery {
    railpost_store::EventQuery::of(tenant.clone(), railpost_store::PageRequest::first(9))
}
