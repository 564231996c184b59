//! Adding deliveries of events that were accepted before.

use railpost_engine::{Accepted, LaneId, Place};
use railpost_wire::{DeliveryId, EndpointId, EventId, Key};
use tokio_postgres::Transaction;

use super::directory::TenantEntry;
use super::intake::lane_key;
use super::node::Node;
use super::registry::remember;
use super::rows::{all, one};
use crate::fanout::Subscriber;
use crate::numbers::millis;
use crate::rows::Columns;
use crate::{RedeliverBatch, Result, StoreError};

pub(super) async fn redeliver(node: &Node, batch: &RedeliverBatch) -> Result<Vec<Accepted>> {
    let tenants = std::iter::once(&batch.tenant);
    let entry = node.directory.entries(node.reader(), tenants).await?.remove(0)?;
    let orders = orders(&entry, batch)?;
    node.directory.check_backlog(node.reader(), &entry, orders.len() as u64).await?;
    let done = node
        .transact(async |transaction| write(node, transaction, &entry, batch, &orders).await)
        .await;
    match &done {
        Ok(accepted) => node.directory.opened(entry.num, accepted.len() as u64),
        Err(_) => node.directory.forget(),
    }
    done
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
    transaction: &Transaction<'_>,
    entry: &TenantEntry,
    batch: &RedeliverBatch,
    orders: &[(&EventId, &Subscriber)],
) -> Result<Vec<Accepted>> {
    let now = node.setup.source.now();
    let sql = "SELECT registry FROM store WHERE registry = $1 FOR SHARE";
    if transaction.query(sql, &[&entry.registry]).await?.is_empty() {
        let problem = "the endpoints changed meanwhile: try again";
        return Err(StoreError::Unavailable(problem.to_owned()));
    }
    if let Some(record) = &batch.idempotency {
        remember(transaction, record, now).await?;
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
    let sql = "SELECT ord, lane, seq FROM railpost_deliver($1, $2, $3, $4, true, $5)";
    let rows = transaction.query(sql, &[&id_bytes, &nums, &endpoints, &keys, &millis(now)]).await?;
    let mut places = vec![None; orders.len()];
    for (ord, place) in all(&rows, |columns| {
        let ord: usize = columns.number("a place in an array")?;
        let lane = LaneId(columns.number("a lane")?);
        Ok((ord, Place { lane, seq: columns.need_seq()? }))
    })? {
        places[ord - 1] = Some(place);
    }
    let accepted = ids.into_iter().zip(orders).zip(places);
    let accepted = accepted.map(|((id, (_, to)), place)| Accepted { id, endpoint: to.id, place });
    Ok(accepted.collect())
}

/// An event's number and key. Its row is held until the delivery is committed: it is not pruned under
/// it.
async fn find_event(
    transaction: &Transaction<'_>,
    tenant: i64,
    id: &EventId,
) -> Result<(i64, Option<Key>)> {
    let sql = "SELECT num, key FROM events WHERE tenant = $1 AND id = $2 FOR KEY SHARE";
    let rows = transaction.query(sql, &[&tenant, &id.to_string()]).await?;
    let found = one(&rows, |columns| Ok((columns.number("an event's number")?, columns.key()?)))?;
    found.ok_or_else(|| StoreError::not_found("event", id))
}
