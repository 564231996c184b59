//! Figures over time in PostgreSQL.

use std::collections::BTreeMap;

use railpost_engine::Timestamp;
use railpost_wire::TenantId;

use super::errors::Translate;
use super::link::Values;
use super::node::{HeldTransaction, Node};
use super::rows::all;
use railpost_store::backend::codes::{
    SCOPE_ENDPOINT, SCOPE_TENANT, millis, resolution_code, scope_code,
};
use railpost_store::backend::figures::{Bucket, READ_MAX, read_buckets};
use railpost_store::backend::rows::Columns;
use railpost_store::limits::FIGURES_PRUNE_MAX;
use railpost_store::{Figures, FiguresScope, Period, Resolution, Result};

/// The key of a row: resolution, at, scope, num.
type Key = (i64, i64, i64, i64);

pub(super) async fn add_figures(node: &Node, sums: &BTreeMap<Bucket, Figures>) -> Result<()> {
    if sums.is_empty() {
        return Ok(());
    }
    // Losing them costs a dent in a chart, so nobody waits for the disk.
    node.upkeep.run(async |transaction: &HeldTransaction<'_>| add_in(transaction, sums).await).await
}

/// Adds to figures as a part of a transaction.
pub(super) async fn add_in(
    transaction: &HeldTransaction<'_>,
    sums: &BTreeMap<Bucket, Figures>,
) -> Result<()> {
    transaction.share_registry().await?;
    let nums = nums(transaction, sums.keys().map(|bucket| &bucket.scope)).await?;
    // By key: in the order in which every node locks them.
    let keyed = sums.iter().filter_map(|(bucket, figures)| {
        let (resolution, at) = (resolution_code(bucket.resolution), millis(bucket.at));
        let num = *nums.get(&bucket.scope)?;
        Some(((resolution, at, scope_code(&bucket.scope), num), figures))
    });
    add(transaction, &keyed.collect()).await
}

/// What the scopes are called in rows, without those that were deleted.
async fn nums<'a>(
    transaction: &HeldTransaction<'_>,
    scopes: impl Iterator<Item = &'a FiguresScope>,
) -> Result<BTreeMap<FiguresScope, i64>> {
    let mut nums = BTreeMap::new();
    let (mut tenants, mut endpoints) = (Vec::new(), Vec::new());
    for scope in scopes {
        match scope {
            FiguresScope::All => drop(nums.insert(FiguresScope::All, 0)),
            FiguresScope::Tenant(id) => tenants.push(id.as_str()),
            FiguresScope::Endpoint(id) => endpoints.push(id.to_bytes().to_vec()),
        }
    }
    let sql = "SELECT t.id, t.num FROM tenants AS t WHERE t.id = ANY ($1) AND NOT t.erasing";
    nums.extend(all(&transaction.query(sql, &[&tenants]).await.translated()?, |columns| {
        let tenant: TenantId = columns.parsed("a tenant's id")?;
        Ok((FiguresScope::Tenant(tenant), columns.number("a tenant's number")?))
    })?);
    let sql = "SELECT p.id, p.num FROM endpoints AS p \
               JOIN tenants AS t ON t.num = p.tenant AND NOT t.erasing WHERE p.id = ANY ($1)";
    nums.extend(all(&transaction.query(sql, &[&endpoints]).await.translated()?, |columns| {
        let id = railpost_wire::EndpointId::from_bytes(columns.array("an endpoint's id")?);
        Ok((FiguresScope::Endpoint(id), columns.number("an endpoint's number")?))
    })?);
    Ok(nums)
}

/// Makes the rows that are missing, locks all of them, and adds. Another node that adds to the same
/// ones waits for its turn.
async fn add(transaction: &HeldTransaction<'_>, sums: &BTreeMap<Key, &Figures>) -> Result<()> {
    let resolutions: Vec<i64> = sums.keys().map(|key| key.0).collect();
    let ats: Vec<i64> = sums.keys().map(|key| key.1).collect();
    let scopes: Vec<i64> = sums.keys().map(|key| key.2).collect();
    let nums: Vec<i64> = sums.keys().map(|key| key.3).collect();
    let keys: Values<'_> = &[&resolutions, &ats, &scopes, &nums];
    let sql = "INSERT INTO figures (resolution, at, scope, num, figures) \
               SELECT w.*, '' FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[]) \
               AS w ORDER BY 1, 2, 3, 4 ON CONFLICT DO NOTHING";
    transaction.execute(sql, keys).await.translated()?;
    let sql = "SELECT f.resolution, f.at, f.scope, f.num, f.figures FROM figures AS f \
               JOIN unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[]) \
               AS w (resolution, at, scope, num) USING (resolution, at, scope, num) \
               ORDER BY 1, 2, 3, 4 FOR UPDATE OF f";
    let stored: BTreeMap<Key, Vec<u8>> =
        all(&transaction.query(sql, keys).await.translated()?, |columns| {
            let mut part = || columns.number("a part of a key");
            let key = (part()?, part()?, part()?, part()?);
            Ok((key, columns.bytes()?))
        })?
        .into_iter()
        .collect();
    let sums = sums.iter().map(|(key, figures)| {
        let stored = stored.get(key).filter(|stored| !stored.is_empty());
        figures.merged_with_stored(stored.map(Vec::as_slice))
    });
    let sums = sums.collect::<Result<Vec<_>>>()?;
    let sql = "UPDATE figures AS f SET figures = w.figures FROM unnest( \
               $1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bytea[]) \
               AS w (resolution, at, scope, num, figures) WHERE f.resolution = w.resolution \
               AND f.at = w.at AND f.scope = w.scope AND f.num = w.num";
    transaction.execute(sql, &[&resolutions, &ats, &scopes, &nums, &sums]).await.translated()?;
    Ok(())
}

pub(super) async fn figures(
    node: &Node,
    scope: &FiguresScope,
    resolution: Resolution,
    period: Period,
) -> Result<Vec<(Timestamp, Figures)>> {
    let sql = "SELECT f.at, f.figures FROM figures AS f WHERE f.scope = $1 AND f.num = CASE $1 \
                 WHEN 0 THEN 0 \
                 WHEN 1 THEN (SELECT num FROM tenants WHERE id = $2 AND NOT erasing) \
                 ELSE (SELECT p.num FROM endpoints AS p JOIN tenants AS t ON t.num = p.tenant \
                       WHERE p.id = $3 AND NOT t.erasing) END \
               AND f.resolution = $4 AND f.at >= $5 AND f.at < $6 ORDER BY f.at LIMIT $7";
    let (tenant, endpoint) = match scope {
        FiguresScope::All => (None, None),
        FiguresScope::Tenant(id) => (Some(id.as_str()), None),
        FiguresScope::Endpoint(id) => (None, Some(id.to_bytes().to_vec())),
    };
    let (from, before) = period.millis();
    let (scope, resolution) = (scope_code(scope), resolution_code(resolution));
    let most = READ_MAX as i64;
    let values: Values<'_> = &[&scope, &tenant, &endpoint, &resolution, &from, &before, &most];
    let rows = node.reader().query(sql, values).await?;
    read_buckets(all(&rows, |columns| Ok((columns.instant()?, columns.bytes()?)))?)
}

/// Deletes what is past its time and says how many rows that were.
pub(super) async fn prune_figures(
    transaction: &HeldTransaction<'_>,
    now: Timestamp,
) -> Result<u64> {
    let mut gone = 0;
    for resolution in [Resolution::Minute, Resolution::Hour] {
        let sql = "WITH gone AS (DELETE FROM figures WHERE (resolution, at, scope, num) IN ( \
                     SELECT resolution, at, scope, num FROM figures \
                     WHERE resolution = $1 AND at < $2 ORDER BY at LIMIT $3) RETURNING 1) \
                   SELECT count(*) FROM gone";
        let (number, from) = (resolution_code(resolution), millis(resolution.kept_from(now)));
        let values: Values<'_> = &[&number, &from, &i64::from(FIGURES_PRUNE_MAX)];
        let rows = transaction.query(sql, values).await.translated()?;
        gone += super::rows::one(&rows, |columns| columns.number::<u64>("a count"))?.unwrap_or(0);
    }
    Ok(gone)
}

/// Deletes up to `limit` rows of a tenant and its endpoints.
pub(super) async fn erase_figures(
    transaction: &HeldTransaction<'_>,
    tenant: i64,
    limit: i64,
) -> Result<i64> {
    let sql = "DELETE FROM figures WHERE (resolution, at, scope, num) IN ( \
               SELECT f.resolution, f.at, f.scope, f.num FROM figures AS f \
               WHERE f.scope = $2 AND f.num = $1 UNION ALL \
               SELECT f.resolution, f.at, f.scope, f.num FROM endpoints AS p \
               JOIN figures AS f ON f.scope = $3 AND f.num = p.num WHERE p.tenant = $1 LIMIT $4)";
    let values: Values<'_> = &[&tenant, &SCOPE_TENANT, &SCOPE_ENDPOINT, &limit];
    Ok(transaction.execute(sql, values).await.translated()? as i64)
}
