//! Searching among many events: the oldest thing of each kind is found as the latest is.

use bytes::Bytes;
use railpost_engine::Timestamp;
use railpost_store::limits::{BATCH_EVENTS_MAX, FIND_ROWS_SCANNED};
use railpost_store::{
    AcceptBatch, EndpointPrivate, EndpointSettings, Event, FindQuery, FoundItem, NewEndpoint,
    Receipt, Store, TenantSettings, Write,
};
use railpost_wire::cloudevents::Origin;
use railpost_wire::{DeliveryId, EndpointId, TenantId};
use std::sync::Arc;

fn event(number: usize) -> Event {
    let origin = Origin { id: format!("CE/{number}"), source: "/x".into(), ..Origin::default() };
    Event {
        id: format!("message-{number:07}").parse().unwrap(),
        event_type: "order.paid".parse().unwrap(),
        key: Some(format!("customer {number:07}").parse().unwrap()),
        payload: Bytes::from_static(&[b'1'; 500]),
        content_type: "application/json".parse().unwrap(),
        schema_version: None,
        time: Timestamp::from_millis(1),
        traceparent: None,
        cloudevent: Some(Box::new(origin)),
    }
}

/// Fills an empty store with so many events of one tenant; the first delivery.
async fn fill(store: &dyn Store, tenant: &TenantId, count: usize) -> DeliveryId {
    let create = Write::CreateTenant(tenant.clone(), TenantSettings::default());
    store.commit(create.into()).await.unwrap();
    let mut settings = EndpointSettings::all_events("https://hooks.example/in");
    settings.description = "the warehouse".to_owned();
    let (id, private) = (EndpointId::from_u128(1), EndpointPrivate::default());
    let endpoint = NewEndpoint { id, tenant: tenant.clone(), settings, private };
    store.commit(Write::CreateEndpoint(endpoint).into()).await.unwrap();
    let mut first = None;
    for from in (0..count).step_by(BATCH_EVENTS_MAX) {
        let events = (from..count.min(from + BATCH_EVENTS_MAX)).map(event).collect();
        let tenant = tenant.clone();
        let batch = AcceptBatch { tenant, events, accepted_by: None, idempotency: None };
        let receipts = store.accept(Arc::new(batch)).await.unwrap();
        if let Receipt::Accepted { deliveries, .. } = &receipts[0] {
            first.get_or_insert(deliveries[0].accepted.id);
        }
    }
    first.unwrap()
}

/// Finds each kind of thing among so many events. Prints how long each search takes.
///
/// # Panics
///
/// If something is not found.
pub async fn each_kind_is_found_among(store: &dyn Store, count: usize) {
    let tenant: TenantId = "acme".parse().unwrap();
    let delivery = fill(store, &tenant, count).await.to_string();
    // The oldest event that a search by key looks at.
    let oldest = count.saturating_sub(FIND_ROWS_SCANNED);
    let number = |number: usize| format!("{number:07}");
    for (words, kinds) in [
        (format!("message-{}", number(0)), "event"),
        (format!("message-{}", &number(count - 1)[..6]), "event"),
        (format!("customer {}", number(0)), "lane"),
        (format!("customer {}", number(oldest)), "event lane"),
        (format!("CE/{oldest}"), "event"),
        (delivery, "delivery"),
        (EndpointId::from_u128(1).to_string(), "endpoint"),
        ("HOOKS.example".to_owned(), "endpoint"),
        ("warehouse".to_owned(), "endpoint"),
        ("acme".to_owned(), "tenant"),
        ("nothing like that".to_owned(), ""),
    ] {
        for tenant in [Some(tenant.clone()), None] {
            let query = FindQuery { tenant, words: words.clone() };
            let found = store.find(query.clone()).await.unwrap();
            let mut found: Vec<&str> = found.iter().map(|found| kind(&found.item)).collect();
            found.dedup();
            assert_eq!(found.join(" "), kinds, "{query:?}");
        }
    }
}

fn kind(item: &FoundItem) -> &'static str {
    match item {
        FoundItem::Event { .. } => "event",
        FoundItem::Delivery { .. } => "delivery",
        FoundItem::Endpoint { .. } => "endpoint",
        FoundItem::Lane { .. } => "lane",
        FoundItem::Replay { .. } => "replay",
        FoundItem::Tenant => "tenant",
    }
}
