//! API keys, audit and idempotency in SQLite.

use railpost_engine::Timestamp;
use railpost_wire::{ApiKeyId, TenantId};
use rusqlite::Connection;

use super::rows::{Scan, all, listing, one};
use railpost_store::backend::codes::millis;
use railpost_store::backend::listing::ListKind;
use railpost_store::backend::rows::{self, Columns};
use railpost_store::limits::LIST_SCAN_MAX;
use railpost_store::{
    ApiKey, AuditEntry, AuditQuery, Digest, IdempotencyKey, IdempotencyLookup, Listing,
    PageRequest, Result,
};

pub(super) fn api_key(db: &Connection, id: ApiKeyId) -> Result<Option<ApiKey>> {
    let sql = "SELECT record FROM api_keys WHERE id = ?1";
    one(db, sql, [id.to_bytes()], |columns| columns.json("an API key"))
}

pub(super) fn api_key_by_hash(db: &Connection, hash: &Digest) -> Result<Option<ApiKey>> {
    let sql = "SELECT record FROM api_keys WHERE hash = ?1";
    one(db, sql, [hash], |columns| columns.json("an API key"))
}

/// The API keys that are no tenant's: there are few.
pub(super) fn api_keys_without_tenant(db: &Connection) -> Result<Vec<ApiKey>> {
    let sql = "SELECT record FROM api_keys WHERE tenant IS NULL";
    all(db, sql, [], |columns| columns.json("an API key"))
}

pub(super) fn api_keys(
    db: &Connection,
    tenant: Option<&TenantId>,
    page: &PageRequest,
) -> Result<Listing<ApiKey>> {
    let (limit, after) = (page.limit()?, page.position::<[u8; 16]>(ListKind::ApiKeys)?);
    let sql = "SELECT id, record FROM api_keys WHERE id > ?1 ORDER BY id";
    let wants = |key: &ApiKey| tenant.is_none_or(|tenant| key.tenant.as_ref() == Some(tenant));
    let scan = Scan { kind: ListKind::ApiKeys, limit, most: LIST_SCAN_MAX as usize, wants: &wants };
    listing(db, sql, [after.unwrap_or_default()], &scan, |columns| {
        Ok((columns.array::<16>("an id")?, columns.json("an API key")?))
    })
}

pub(super) fn audit(db: &Connection, query: &AuditQuery) -> Result<Listing<AuditEntry>> {
    let limit = query.page.limit()?;
    let after = query.page.position::<[u8; 16]>(ListKind::Audit)?.unwrap_or([u8::MAX; 16]);
    let whose = if query.tenant.is_some() { "tenant = ?2" } else { "?2 IS NULL" };
    let sql = format!("SELECT id, record FROM audit WHERE {whose} AND id < ?1 ORDER BY id DESC");
    let scan = Scan {
        kind: ListKind::Audit,
        limit,
        most: LIST_SCAN_MAX as usize,
        wants: &|entry| query.wants(entry),
    };
    let values = (after, query.tenant.as_ref().map(TenantId::as_str));
    listing(db, &sql, values, &scan, |columns| {
        Ok((columns.array::<16>("an id")?, columns.json("an audit entry")?))
    })
}

/// One target after the other, in one look-up: the file is near.
pub(super) fn audit_about(
    db: &Connection,
    tenant: &TenantId,
    mut targets: Vec<String>,
    since: Timestamp,
    limit: u32,
) -> Result<Vec<AuditEntry>> {
    targets.sort_unstable();
    targets.dedup();
    let sql = "SELECT record FROM audit INDEXED BY audit_by_target \
               WHERE tenant = ?1 AND target = ?2 AND at >= ?3 ORDER BY id LIMIT ?4";
    let mut found: Vec<AuditEntry> = Vec::new();
    for target in targets {
        let values = (tenant.as_str(), target, millis(since), limit);
        found.extend(all(db, sql, values, |columns| columns.json("an audit entry"))?);
    }
    found.sort_unstable_by_key(|entry| entry.id);
    Ok(found)
}

pub(super) fn lookup_idempotency(
    db: &Connection,
    key: &IdempotencyKey,
    fingerprint: &Digest,
    now: Timestamp,
) -> Result<IdempotencyLookup> {
    let sql = "SELECT fingerprint, status, body FROM idempotency \
               WHERE owner = ?1 AND route = ?2 AND key = ?3 AND expires_at > ?4";
    let values = (&key.owner, &key.route, &key.key, millis(now));
    let found = one(db, sql, values, |columns| rows::idempotency(columns, fingerprint))?;
    Ok(found.unwrap_or(IdempotencyLookup::Absent))
}
