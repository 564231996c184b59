//! Erasing the tenant of a store to the end.

use railpost_engine::Timestamp;
use railpost_store::{AuditEntry, Store};
use railpost_wire::AuditId;

use super::store::tenant;

/// The entry that tells of the end.
pub(crate) fn erased() -> AuditEntry {
    AuditEntry {
        id: AuditId::from_u128(1),
        at: Timestamp::default(),
        tenant: None,
        actor: "system".to_owned(),
        address: None,
        action: "tenant.erased".to_owned(),
        target: tenant().to_string(),
        detail: serde_json::Value::Null,
    }
}

/// Goes on with what a version without jobs has left: all that it wrote down is that it had begun.
pub(crate) async fn erase_what_is_left(store: &dyn Store) {
    let left = store.erasing_tenants().await.unwrap();
    let since = Timestamp::from_millis(7);
    assert_eq!(
        left.iter().map(|one| (&one.id, one.since)).collect::<Vec<_>>(),
        [(&tenant(), since)]
    );
    while !store.erase_tenant(&tenant(), &erased()).await.unwrap() {}
    assert_eq!(store.erasing_tenants().await, Ok(vec![]));
    assert_eq!(store.events(events()).await.unwrap().items, []);
}

fn events() -> railpost_store::EventQuery {
    railpost_store::EventQuery::of(tenant(), railpost_store::PageRequest::first(9))
}
