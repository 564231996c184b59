//! API keys, audit and idempotency in PostgreSQL.

use railpost_engine::Timestamp;
use railpost_wire::{ApiKeyId, TenantId};

use super::link::Values;
use super::node::Node;
use super::rows::{all, one};
use railpost_store::backend::codes::millis;
use railpost_store::backend::listing::ListKind;
use railpost_store::backend::rows::{self, Columns};
use railpost_store::{
    ApiKey, AuditEntry, AuditQuery, Digest, IdempotencyKey, IdempotencyLookup, Listing,
    PageRequest, Result,
};

pub(super) async fn api_key(node: &Node, id: ApiKeyId) -> Result<Option<ApiKey>> {
    let sql = "SELECT record FROM api_keys WHERE id = $1";
    let rows = node.reader().query(sql, &[&id.to_bytes().as_slice()]).await?;
    one(&rows, |columns| columns.json("an API key"))
}

pub(super) async fn api_key_by_hash(node: &Node, hash: &Digest) -> Result<Option<ApiKey>> {
    let sql = "SELECT record FROM api_keys WHERE hash = $1";
    let rows = node.reader().query(sql, &[&hash.as_slice()]).await?;
    one(&rows, |columns| columns.json("an API key"))
}

pub(super) async fn api_keys(
    node: &Node,
    tenant: Option<&TenantId>,
    page: &PageRequest,
) -> Result<Listing<ApiKey>> {
    let (limit, after) = (page.limit()?, page.position::<[u8; 16]>(ListKind::ApiKeys)?);
    let sql = "SELECT k.id, k.record FROM api_keys AS k LEFT JOIN tenants AS t ON t.num = k.tenant \
               WHERE k.id > $1 AND ($2::text IS NULL OR t.id = $2) ORDER BY k.id LIMIT $3";
    let (after, tenant) = (after.unwrap_or_default(), tenant.map(TenantId::as_str));
    let values: Values<'_> = &[&after.as_slice(), &tenant, &(limit as i64 + 1)];
    let found = all(&node.reader().query(sql, values).await?, |columns| {
        Ok((columns.array::<16>("an id")?, columns.json("an API key")?))
    });
    Ok(Listing::cut(found?, limit, ListKind::ApiKeys))
}

pub(super) async fn audit(node: &Node, query: &AuditQuery) -> Result<Listing<AuditEntry>> {
    let limit = query.page.limit()?;
    let after = query.page.position::<[u8; 16]>(ListKind::Audit)?.unwrap_or([u8::MAX; 16]);
    let sql = "SELECT id, record FROM audit WHERE id < $1 AND ($2::text IS NULL OR tenant = $2) \
               AND ($3::text IS NULL OR target = $3) \
               AND at >= $4 AND at < $5 ORDER BY id DESC LIMIT $6";
    let tenant = query.tenant.as_ref().map(TenantId::as_str);
    let (from, before) = query.at.millis();
    let most = limit as i64 + 1;
    let values: Values<'_> = &[&after.as_slice(), &tenant, &query.target, &from, &before, &most];
    let found = all(&node.reader().query(sql, values).await?, |columns| {
        Ok((columns.array::<16>("an id")?, columns.json("an audit entry")?))
    });
    Ok(Listing::cut(found?, limit, ListKind::Audit))
}

pub(super) async fn audit_about(
    node: &Node,
    tenant: &TenantId,
    mut targets: Vec<String>,
    since: Timestamp,
    limit: u32,
) -> Result<Vec<AuditEntry>> {
    // No entry is about a target that a text of the database cannot hold.
    targets.retain(|target| !target.contains('\0'));
    targets.sort_unstable();
    targets.dedup();
    let sql = "SELECT a.record FROM unnest($2::text[]) AS w (target) CROSS JOIN LATERAL ( \
                 SELECT id, record FROM audit WHERE tenant = $1 AND target = w.target \
                 AND at >= $3 ORDER BY id LIMIT $4) AS a ORDER BY a.id";
    let values: Values<'_> = &[&tenant.as_str(), &targets, &millis(since), &i64::from(limit)];
    all(&node.reader().query(sql, values).await?, |columns| columns.json("an audit entry"))
}

pub(super) async fn lookup_idempotency(
    node: &Node,
    key: &IdempotencyKey,
    fingerprint: &Digest,
) -> Result<IdempotencyLookup> {
    let sql = "SELECT fingerprint, status, body FROM idempotency \
               WHERE owner = $1 AND route = $2 AND key = $3 AND expires_at > $4";
    let now = millis(node.setup.source.now());
    let rows = node.reader().query(sql, &[&key.owner, &key.route, &key.key, &now]).await?;
    let found = one(&rows, |columns| rows::idempotency(columns, fingerprint))?;
    Ok(found.unwrap_or(IdempotencyLookup::Absent))
}
