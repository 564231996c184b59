//! Retention, erasure and health of a PostgreSQL store.

use railpost_wire::TenantId;
use tokio_postgres::Transaction;

use super::figures::{erase_figures, prune_figures};
use super::link::Values;
use super::node::Node;
use super::registry::announce;
use super::rows::one;
use super::schema::SCHEMA;
use crate::limits::UPKEEP_STEP_MAX;
use crate::listing::ListKind;
use crate::numbers::millis;
use crate::rows::Columns;
use crate::{Cursor, Health, PruneStep, Pruned, Result};

/// Looks at events in order, locks those that nobody else has, and deletes what nothing needs. A
/// redelivery holds its event's row, so that it is not deleted under it.
const PRUNE: &str = "
    WITH seen AS MATERIALIZED (
        SELECT num, accepted_at, first, last FROM events WHERE num > $1 ORDER BY num LIMIT $2
    ), old AS MATERIALIZED (
        SELECT e.num, e.accepted_at, e.first, e.last FROM events AS e
        WHERE e.num IN (SELECT num FROM seen) AND e.accepted_at < $3 FOR UPDATE SKIP LOCKED
    ), theirs AS MATERIALIZED (
        SELECT o.num, d.id, p.removed_at IS NULL
            AND (d.standing <= 3 OR d.standing = 4 AND o.accepted_at >= $4) AS needed
        FROM old AS o CROSS JOIN LATERAL (
            SELECT d.id, d.standing, d.endpoint FROM deliveries AS d
                WHERE d.id BETWEEN o.first AND o.last
            UNION ALL
            SELECT d.id, d.standing, d.endpoint FROM deliveries AS d
                WHERE d.event = o.num AND d.again
        ) AS d JOIN endpoints AS p ON p.num = d.endpoint
    ), gone AS MATERIALIZED (
        SELECT num FROM old EXCEPT SELECT num FROM theirs WHERE needed
    ), attempts_gone AS (
        DELETE FROM attempts AS a USING theirs AS t JOIN gone AS g ON g.num = t.num
        WHERE a.delivery = t.id
    ), deliveries_gone AS (
        DELETE FROM deliveries AS d USING theirs AS t JOIN gone AS g ON g.num = t.num
        WHERE d.id = t.id RETURNING 1
    ), events_gone AS (
        DELETE FROM events AS e USING gone AS g WHERE e.num = g.num RETURNING 1
    )
    SELECT (SELECT count(*) FROM events_gone), (SELECT count(*) FROM deliveries_gone),
        (SELECT count(*) FROM seen), (SELECT max(num) FROM seen),
        EXISTS (SELECT FROM seen WHERE accepted_at >= $3)";

pub(super) async fn prune(node: &Node, step: &PruneStep) -> Result<Pruned> {
    let (after, limit) = (step.position()?, i64::from(step.limit));
    let (closed_before, dead_before) = (millis(step.closed_before), millis(step.dead_before));
    let others = prune_others(node, closed_before).await?;
    let values: Values<'_> = &[&after, &limit, &closed_before, &dead_before];
    let rows = node.records.query(PRUNE, values).await?;
    let pruned = one(&rows, |columns| {
        let (events, deliveries) = (columns.number("a count")?, columns.number("a count")?);
        let (seen, last): (i64, _) = (columns.number("a count")?, columns.int()?);
        let more = seen == limit && !columns.flag()?;
        let next = last.filter(|_| more).map(|last| Cursor::at(ListKind::Events, &last));
        Ok(Pruned { events, deliveries, others, next })
    })?;
    Ok(pruned.unwrap_or_default())
}

async fn prune_others(node: &Node, closed_before: i64) -> Result<u64> {
    let sql = "
        WITH audit_gone AS (
            DELETE FROM audit WHERE id IN (
                SELECT id FROM audit WHERE at < $1 ORDER BY at LIMIT $3) RETURNING 1
        ), answers_gone AS (
            DELETE FROM idempotency WHERE (owner, route, key) IN (
                SELECT owner, route, key FROM idempotency WHERE expires_at <= $2
                ORDER BY expires_at LIMIT $3) RETURNING 1
        ), replays_gone AS (
            DELETE FROM replays WHERE id IN (
                SELECT id FROM replays WHERE finished_at < $1 ORDER BY finished_at LIMIT $3)
            RETURNING 1
        )
        SELECT (SELECT count(*) FROM audit_gone) + (SELECT count(*) FROM answers_gone)
            + (SELECT count(*) FROM replays_gone)";
    let now = millis(node.setup.source.now());
    let most = i64::from(UPKEEP_STEP_MAX);
    let rows = node.records.query(sql, &[&closed_before, &now, &most]).await?;
    let others: u64 = one(&rows, |columns| columns.number("a count"))?.unwrap_or_default();
    Ok(others + prune_figures(node).await?)
}

/// One step; true when nothing is left.
pub(super) async fn erase_tenant(node: &Node, tenant: &TenantId) -> Result<bool> {
    let done = node.transact(async |transaction| erase_step(transaction, tenant).await).await;
    node.directory.forget();
    done
}

async fn erase_step(transaction: &Transaction<'_>, tenant: &TenantId) -> Result<bool> {
    let sql = "SELECT num, erasing FROM tenants WHERE id = $1 FOR UPDATE";
    let rows = transaction.query(sql, &[&tenant.as_str()]).await?;
    let found =
        one(&rows, |columns| Ok((columns.number::<i64>("a tenant's number")?, columns.flag()?)))?;
    let Some((num, erasing)) = found else { return Ok(true) };
    if !erasing {
        announce(transaction).await?;
        erase_registry(transaction, tenant, num).await?;
    }
    let most = i64::from(UPKEEP_STEP_MAX);
    let events: i64 = transaction.query_one(ERASE_EVENTS, &[&num, &most]).await?.get(0);
    let sql = "DELETE FROM lanes WHERE id IN (SELECT l.id FROM endpoints AS p \
               JOIN lanes AS l ON l.endpoint = p.num WHERE p.tenant = $1 LIMIT $2)";
    let left = most - events;
    let left = left - transaction.execute(sql, &[&num, &left]).await? as i64;
    let left = left - erase_figures(transaction, num, left).await?;
    if left == 0 {
        return Ok(false);
    }
    transaction.execute("DELETE FROM endpoints WHERE tenant = $1", &[&num]).await?;
    transaction.execute("DELETE FROM tenants WHERE num = $1", &[&num]).await?;
    Ok(true)
}

const ERASE_EVENTS: &str = "
    WITH old AS MATERIALIZED (
        SELECT num, first, last FROM events WHERE tenant = $1 ORDER BY num LIMIT $2
    ), theirs AS MATERIALIZED (
        SELECT d.id FROM old AS o JOIN deliveries AS d ON d.id BETWEEN o.first AND o.last
        UNION ALL
        SELECT d.id FROM old AS o JOIN deliveries AS d ON d.event = o.num AND d.again
    ), attempts_gone AS (
        DELETE FROM attempts AS a USING theirs AS t WHERE a.delivery = t.id
    ), deliveries_gone AS (
        DELETE FROM deliveries AS d USING theirs AS t WHERE d.id = t.id
    ), events_gone AS (
        DELETE FROM events AS e USING old AS o WHERE e.num = o.num RETURNING 1
    )
    SELECT count(*) FROM events_gone";

/// Hides the tenant, and deletes all that its events do not need to be found.
async fn erase_registry(transaction: &Transaction<'_>, tenant: &TenantId, num: i64) -> Result<()> {
    for sql in [
        "UPDATE tenants SET erasing = true, settings = '{}' WHERE num = $1",
        "DELETE FROM secrets WHERE endpoint IN (SELECT num FROM endpoints WHERE tenant = $1)",
        "DELETE FROM event_types WHERE tenant = $1",
        "DELETE FROM api_keys WHERE tenant = $1",
        "DELETE FROM replays WHERE tenant = $1",
        "UPDATE endpoints SET removed_at = coalesce(removed_at, 0), private = '' WHERE tenant = $1",
    ] {
        transaction.execute(sql, &[&num]).await?;
    }
    for sql in ["DELETE FROM audit WHERE tenant = $1", "DELETE FROM idempotency WHERE tenant = $1"]
    {
        transaction.execute(sql, &[&tenant.as_str()]).await?;
    }
    Ok(())
}

pub(super) async fn check(node: &Node) -> Result<Health> {
    node.accepts.query("UPDATE store SET key_check = key_check", &[]).await?;
    let sql = "SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class AS c \
               WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind = 'r'";
    let rows = node.reader().query(sql, &[]).await?;
    let size_bytes = one(&rows, |columns| columns.number("a size"))?.unwrap_or_default();
    Ok(Health { backend: "postgres", schema: SCHEMA, size_bytes })
}
