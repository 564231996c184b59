//! Adding deliveries of events that were accepted before.

use railpost_engine::Accepted;
use railpost_wire::{DeliveryId, EndpointId, EventId, Key};

use super::errors::Translate;
use super::intake::{lane_key, new_place};
use super::node::{HeldTransaction, Node};
use super::registry::{remember, write_audit};
use super::rows::{all, one};
use super::tenant_cache::TenantEntry;
use railpost_store::backend::codes::millis;
use railpost_store::backend::fanout::Subscriber;
use railpost_store::backend::rows::Columns;
use railpost_store::{RedeliverBatch, Result, StoreError};

pub(super) async fn redeliver(node: &Node, batch: &RedeliverBatch) -> Result<Vec<Accepted>> {
    let mut entry = tenant_entry(node, batch).await?;
    if let Err(StoreError::NotFound(_)) = orders(&entry, batch) {
        // What is remembered may be older than the endpoint.
        node.tenants.forget(&[entry.num]);
        entry = tenant_entry(node, batch).await?;
    }
    let orders = orders(&entry, batch)?;
    node.tenants.check_backlog(node.reader(), &entry, orders.len() as u64).await?;
    let done = node
        .changes
        .run(async |transaction| write(node, transaction, &entry, batch, &orders).await)
        .await;
    match &done {
        Ok(accepted) => node.tenants.opened(entry.num, accepted.len() as u64),
        Err(_) => node.tenants.forget(&[entry.num]),
    }
    done
}

async fn tenant_entry(node: &Node, batch: &RedeliverBatch) -> Result<TenantEntry> {
    let tenants = std::iter::once(&batch.tenant);
    node.tenants.entries(node.reader(), tenants).await?.remove(0)
}

/// Which event goes where.
fn orders<'a>(
    entry: &'a TenantEntry,
    batch: &'a RedeliverBatch,
) -> Result<Vec<(&'a EventId, &'a Subscriber)>> {
    let find = |endpoint: &EndpointId| {
        let found = entry.subscribers.iter().find(|subscriber| subscriber.id == *endpoint);
        found.ok_or_else(|| StoreError::not_found("endpoint", endpoint))
    };
    batch.orders.iter().map(|(event, endpoint)| Ok((event, find(endpoint)?))).collect()
}

async fn write(
    node: &Node,
    transaction: &HeldTransaction<'_>,
    entry: &TenantEntry,
    batch: &RedeliverBatch,
    orders: &[(&EventId, &Subscriber)],
) -> Result<Vec<Accepted>> {
    let now = node.setup.source.now();
    transaction.enter(now).await?;
    let sql = "SELECT FROM tenants WHERE num = $1 AND changes = $2 AND NOT erasing";
    if transaction.query(sql, &[&entry.num, &entry.changes]).await.translated()?.is_empty() {
        let problem = "the endpoints changed meanwhile: try again";
        return Err(StoreError::Unavailable(problem.to_owned()));
    }
    if let Some(record) = &batch.idempotency {
        remember(transaction, record, now).await?;
    }
    if let Some(entry) = &batch.audit {
        write_audit(transaction, entry).await?;
    }
    let (mut nums, mut keys) = (Vec::new(), Vec::new());
    for (event, to) in orders {
        let (num, key) = find_event(transaction, entry.num, event).await?;
        nums.push(num);
        keys.push(lane_key(to, key.as_ref()).map(<[u8]>::to_vec));
    }
    let ids: Vec<DeliveryId> = {
        let mut ids = node.ids.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        orders.iter().map(|_| ids.take(&*node.setup.source, now, 1)).collect()
    };
    let id_bytes: Vec<Vec<u8>> = ids.iter().map(|id| id.to_bytes().to_vec()).collect();
    let endpoints: Vec<i64> = orders.iter().map(|(_, to)| to.num).collect();
    let sql = "SELECT ord, lane, seq, line_before, era \
               FROM railpost_deliver($1, $2, $3, $4, true, $5)";
    let rows = transaction
        .query(sql, &[&id_bytes, &nums, &endpoints, &keys, &millis(now)])
        .await
        .translated()?;
    let mut places = vec![None; orders.len()];
    for (ord, place) in all(&rows, |columns| {
        Ok((columns.number::<usize>("a place in an array")?, new_place(columns)?))
    })? {
        places[ord - 1] = place.map(|new| new.place);
    }
    let accepted = ids.into_iter().zip(orders).zip(places);
    let accepted = accepted.map(|((id, (_, to)), place)| {
        let endpoint = to.id;
        Accepted { id, endpoint, place, replay: true }
    });
    Ok(accepted.collect())
}

/// An event's number and key. Its row is held until the delivery is committed: it is not pruned under
/// it.
async fn find_event(
    transaction: &HeldTransaction<'_>,
    tenant: i64,
    id: &EventId,
) -> Result<(i64, Option<Key>)> {
    let sql = "SELECT num, key FROM events WHERE tenant = $1 AND id = $2 FOR KEY SHARE";
    let rows = transaction.query(sql, &[&tenant, &id.to_string()]).await.translated()?;
    let found = one(&rows, |columns| Ok((columns.number("an event's number")?, columns.key()?)))?;
    found.ok_or_else(|| StoreError::not_found("event", id))
}
