//! Retention, erasure and health of a PostgreSQL store.

use std::sync::atomic::Ordering;

use futures_util::TryStreamExt;
use railpost_engine::Timestamp;
use railpost_wire::TenantId;

use super::alerts::prune_alerts;
use super::backup::TABLES;
use super::errors::{Translate, translate};
use super::figures::{erase_figures, prune_figures};
use super::link::{Purpose, Values};
use super::node::{HeldTransaction, Node};
use super::registry::write_audit;
use super::rows::{RowReader, one};
use super::schema::SCHEMA;
use super::sources::erase_parked;
use railpost_store::backend::check;
use railpost_store::backend::codes::millis;
use railpost_store::backend::listing::ListKind;
use railpost_store::backend::rows::Columns;
use railpost_store::limits::UPKEEP_STEP_MAX;
use railpost_store::{AuditEntry, Cursor, Health, PruneStep, Pruned, Result, StoreError};

/// Looks at events in order, locks those that nobody else has, and deletes what nothing needs. A
/// redelivery holds its event's row, so that it is not deleted under it. The first young one ends it,
/// unless it is of the future: then a clock was wrong, and older ones may follow.
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
        EXISTS (SELECT FROM seen WHERE accepted_at >= $3 AND accepted_at <= $5)";

pub(super) async fn prune(node: &Node, step: &PruneStep) -> Result<Pruned> {
    let (after, limit) = (step.position()?, i64::from(step.limit));
    let (closed_before, dead_before) = (millis(step.closed_before), millis(step.dead_before));
    let now = node.setup.source.now();
    let others = node.upkeep.run(async |held| prune_others(held, step, now).await).await?;
    let lanes = node.upkeep.run(async |held| prune_lanes(node, held, step).await).await?;
    let pruning = async |held: &HeldTransaction<'_>| {
        let values: Values<'_> = &[&after, &limit, &closed_before, &dead_before, &millis(now)];
        held.query(PRUNE, values).await.translated()
    };
    let rows = node.upkeep.run(pruning).await?;
    let pruned = one(&rows, |columns| {
        let (events, deliveries) = (columns.number("a count")?, columns.number("a count")?);
        let (seen, last): (i64, _) = (columns.number("a count")?, columns.int()?);
        let more = seen == limit && !columns.flag()?;
        let next = last.filter(|_| more).map(|last| Cursor::at(ListKind::Events, &last));
        Ok(Pruned { events, deliveries, lanes, others, next })
    })?;
    Ok(pruned.unwrap_or_default())
}

/// Looks at the next few lanes, from the first one on when all were looked at.
async fn prune_lanes(node: &Node, held: &HeldTransaction<'_>, step: &PruneStep) -> Result<u64> {
    let after = node.lanes_pruned_to.load(Ordering::Relaxed);
    let sql = "SELECT gone, looked_at FROM railpost_prune_lanes($1, $2, $3)";
    let values: Values<'_> = &[&after, &i64::from(step.limit), &millis(step.lanes_before)];
    let row = held.query_one(sql, values).await.translated()?;
    let columns = &mut RowReader::new(&row);
    let (gone, looked_at) = (columns.number("a count")?, columns.int()?);
    node.lanes_pruned_to.store(looked_at.unwrap_or(0), Ordering::Relaxed);
    Ok(gone)
}

async fn prune_others(held: &HeldTransaction<'_>, step: &PruneStep, now: Timestamp) -> Result<u64> {
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
    let most = i64::from(UPKEEP_STEP_MAX);
    let rows =
        held.query(sql, &[&millis(step.closed_before), &millis(now), &most]).await.translated()?;
    let others: u64 = one(&rows, |columns| columns.number("a count"))?.unwrap_or_default();
    let alerts = prune_alerts(held, step.alerts_before).await?;
    Ok(others + alerts + prune_figures(held, now).await?)
}

/// One step; true when nothing is left.
pub(super) async fn erase_tenant(
    node: &Node,
    tenant: &TenantId,
    ended: &AuditEntry,
) -> Result<bool> {
    node.changes.run(async |transaction| erase_step(transaction, tenant, ended).await).await
}

async fn erase_step(
    transaction: &HeldTransaction<'_>,
    tenant: &TenantId,
    ended: &AuditEntry,
) -> Result<bool> {
    let sql = "SELECT num, erasing FROM tenants WHERE id = $1 FOR UPDATE";
    let rows = transaction.query(sql, &[&tenant.as_str()]).await.translated()?;
    let found =
        one(&rows, |columns| Ok((columns.number::<i64>("a tenant's number")?, columns.flag()?)))?;
    let Some((num, erasing)) = found else { return Ok(true) };
    check::is_erasing(erasing, tenant)?;
    let most = i64::from(UPKEEP_STEP_MAX);
    let erased = erase_some(transaction, tenant, num, most).await?;
    if erased == most {
        let sql = "UPDATE tenants SET erased = erased + $2 WHERE num = $1";
        transaction.execute(sql, &[&num, &erased]).await.translated()?;
        return Ok(false);
    }
    transaction.execute("DELETE FROM tenants WHERE num = $1", &[&num]).await.translated()?;
    write_audit(transaction, ended).await?;
    Ok(true)
}

/// Deletes up to `limit` of what a tenant has, endpoints last: the rest is found by them.
async fn erase_some(
    transaction: &HeldTransaction<'_>,
    tenant: &TenantId,
    num: i64,
    limit: i64,
) -> Result<i64> {
    let events: i64 =
        transaction.query_one(ERASE_EVENTS, &[&num, &limit]).await.translated()?.get(0);
    let mut left = limit - events;
    left -= erase_lanes(transaction, num, left).await?;
    left -= erase_figures(transaction, num, left).await?;
    left -= erase_parked(transaction, tenant, left).await?;
    for sql in [
        "DELETE FROM event_types WHERE tenant = $1 AND name IN \
         (SELECT name FROM event_types WHERE tenant = $1 LIMIT $2)",
        "DELETE FROM replays WHERE id IN (SELECT id FROM replays WHERE tenant = $1 LIMIT $2)",
    ] {
        left -= transaction.execute(sql, &[&num, &left]).await.translated()? as i64;
    }
    for sql in [
        "DELETE FROM audit WHERE id IN (SELECT id FROM audit WHERE tenant = $1 LIMIT $2)",
        "DELETE FROM idempotency WHERE (owner, route, key) IN \
         (SELECT owner, route, key FROM idempotency WHERE tenant = $1 LIMIT $2)",
        "DELETE FROM alerts WHERE id IN (SELECT id FROM alerts WHERE tenant = $1 LIMIT $2)",
        "DELETE FROM silences WHERE id IN (SELECT id FROM silences WHERE tenant = $1 LIMIT $2)",
    ] {
        left -= transaction.execute(sql, &[&tenant.as_str(), &left]).await.translated()? as i64;
    }
    let sql = "DELETE FROM endpoints WHERE num IN \
               (SELECT num FROM endpoints WHERE tenant = $1 LIMIT $2)";
    left -= transaction.execute(sql, &[&num, &left]).await.translated()? as i64;
    Ok(limit - left)
}

async fn erase_lanes(transaction: &HeldTransaction<'_>, tenant: i64, limit: i64) -> Result<i64> {
    let sql = "WITH gone AS (DELETE FROM lanes WHERE id IN (SELECT l.id FROM endpoints AS p \
                 JOIN lanes AS l ON l.endpoint = p.num WHERE p.tenant = $1 LIMIT $2) RETURNING id) \
               SELECT coalesce(array_agg(id), '{}') FROM gone";
    let lanes: Vec<i64> = transaction.query_one(sql, &[&tenant, &limit]).await.translated()?.get(0);
    transaction.execute("SELECT railpost_forget_lanes($1)", &[&lanes]).await.translated()?;
    Ok(lanes.len() as i64)
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

/// One step of closing what removed endpoints have open. An endpoint with nothing left is not looked at
/// again: nothing is added to one that was removed.
pub(super) async fn close_removed(node: &Node, limit: u32) -> Result<u64> {
    let now = millis(node.setup.source.now());
    let closing = async |held: &HeldTransaction<'_>| {
        let mut left = i64::from(limit);
        while left > 0 {
            let sql = "SELECT num FROM endpoints WHERE to_close ORDER BY num LIMIT 1 FOR UPDATE";
            let rows = held.query(sql, &[]).await.translated()?;
            let next = one(&rows, |columns| columns.number::<i64>("an endpoint's number"))?;
            let Some(endpoint) = next else { break };
            let closed =
                held.execute(CLOSE_REMOVED, &[&endpoint, &left, &now]).await.translated()? as i64;
            if closed < left {
                let sql = "UPDATE endpoints SET to_close = false WHERE num = $1";
                held.execute(sql, &[&endpoint]).await.translated()?;
            }
            left -= closed;
        }
        Ok(u64::from(limit) - left as u64)
    };
    node.upkeep.run(closing).await
}

/// Each part has an index of its own. Discarded, because the endpoint was removed: numbers.rs has the
/// numbers.
const CLOSE_REMOVED: &str = "
    WITH needless AS MATERIALIZED (
        SELECT id FROM deliveries
            WHERE endpoint = $1 AND standing <= 3 AND lane IS NOT NULL
        UNION ALL
        SELECT id FROM deliveries WHERE endpoint = $1 AND standing <= 3 AND lane IS NULL
        UNION ALL
        SELECT id FROM deliveries WHERE endpoint = $1 AND standing IN (3, 4) AND standing = 4
        LIMIT $2
    )
    UPDATE deliveries AS d SET standing = 6, reason = 2, due = NULL, changed_at = $3
        FROM needless AS n WHERE d.id = n.id AND d.standing <= 4";

pub(super) async fn begin_era(node: &Node) -> Result<()> {
    let now = node.setup.source.now();
    node.changes.run(async |held| held.begin_era(now).await).await
}

/// Reads every row of every table through, so that the server looks at each page's checksum (if it keeps
/// them) and at every value that lies elsewhere. Where the extension `amcheck` is installed and this role
/// may use it, each index is compared with its table too.
pub(super) async fn verify(node: &Node) -> Result<()> {
    let (client, _) = node.address.connect(Purpose::LongWork).await?;
    for (table, _) in TABLES {
        let sql = format!("COPY {table} TO STDOUT (FORMAT binary)");
        let reading = async {
            let mut rows = std::pin::pin!(client.copy_out(&sql).await?);
            while rows.try_next().await?.is_some() {}
            Ok(())
        };
        reading.await.map_err(|error| damage(table, &error))?;
    }
    let sql = "SELECT c.relname::text, format('%I.bt_index_check(%s, true)', n.nspname, c.oid) \
               FROM pg_extension AS x JOIN pg_namespace AS n ON n.oid = x.extnamespace, \
               pg_class AS c JOIN pg_am AS m ON m.oid = c.relam AND m.amname = 'btree' \
               WHERE x.extname = 'amcheck' AND c.relkind = 'i' \
               AND c.relnamespace = current_schema()::regnamespace AND has_function_privilege( \
                 to_regprocedure(format('%I.bt_index_check(regclass, boolean)', n.nspname)), \
                 'execute')";
    for row in client.query(sql, &[]).await.translated()? {
        let (index, check): (String, String) = (row.get(0), row.get(1));
        let checked = client.batch_execute(&format!("SELECT {check}")).await;
        checked.map_err(|error| damage(&index, &error))?;
    }
    Ok(())
}

/// What the server says of a table or index that it cannot read through.
fn damage(relation: &str, error: &tokio_postgres::Error) -> StoreError {
    let damaged = error.code().is_some_and(|code| {
        let code = code.code();
        // Internal errors and damaged data, and what the disk does not give back.
        code.starts_with("XX") || code == "58030"
    });
    match error.as_db_error().filter(|_| damaged) {
        Some(db) => StoreError::Corrupt(format!("{relation}: {}", db.message())),
        None => translate(error),
    }
}

pub(super) async fn check(node: &Node) -> Result<Health> {
    let writing = async |held: &HeldTransaction<'_>| {
        held.execute("UPDATE store SET key_check = key_check", &[]).await.translated()?;
        Ok(())
    };
    node.changes.run(writing).await?;
    let sql = "SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class AS c \
               WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind = 'r'";
    let rows = node.reader().query(sql, &[]).await?;
    let size_bytes = one(&rows, |columns| columns.number("a size"))?.unwrap_or_default();
    Ok(Health { backend: "postgres", schema: SCHEMA, size_bytes })
}
