//! API keys, audit and idempotency in memory.

use std::collections::HashMap;

use async_trait::async_trait;
use railpost_engine::Timestamp;
use railpost_wire::{ApiKeyId, TenantId};

use super::MemoryStore;
use crate::backend::check;
use crate::listing::ListKind;
use crate::{
    Access, ApiKey, AuditEntry, AuditQuery, Digest, IdempotencyKey, IdempotencyLookup, Listing,
    PageRequest, Result,
};

#[async_trait]
impl Access for MemoryStore {
    async fn api_key(&self, id: ApiKeyId) -> Result<Option<ApiKey>> {
        Ok(self.state().registry.api_keys.get(&id).cloned())
    }

    async fn api_key_by_hash(&self, hash: &Digest) -> Result<Option<ApiKey>> {
        let state = self.state();
        Ok(state.registry.api_keys.values().find(|key| key.hash == *hash).cloned())
    }

    async fn api_keys(
        &self,
        tenant: Option<&TenantId>,
        page: PageRequest,
    ) -> Result<Listing<ApiKey>> {
        let (limit, after) = (page.limit()?, page.position::<[u8; 16]>(ListKind::ApiKeys)?);
        let state = self.state();
        let rows = state.registry.api_keys.values().filter(|key| {
            tenant.is_none_or(|tenant| key.tenant.as_ref() == Some(tenant))
                && after.is_none_or(|after| key.id.to_bytes() > after)
        });
        let rows = rows.take(limit + 1).map(|key| (key.id.to_bytes(), key.clone()));
        Ok(Listing::cut(rows.collect(), limit, ListKind::ApiKeys))
    }

    async fn audit(&self, query: AuditQuery) -> Result<Listing<AuditEntry>> {
        let limit = query.page.limit()?;
        let after = query.page.position::<[u8; 16]>(ListKind::Audit)?;
        let state = self.state();
        let rows = state.registry.audit.values().rev().filter(|entry| {
            query.wants(entry) && after.is_none_or(|after| entry.id.to_bytes() < after)
        });
        let rows = rows.take(limit + 1).map(|entry| (entry.id.to_bytes(), entry.clone()));
        Ok(Listing::cut(rows.collect(), limit, ListKind::Audit))
    }

    async fn audit_about(
        &self,
        tenant: &TenantId,
        targets: Vec<String>,
        since: Timestamp,
        limit: u32,
    ) -> Result<Vec<AuditEntry>> {
        check::page_of("targets", &targets)?;
        let state = self.state();
        let all = state.registry.audit.values();
        let mut left = HashMap::<String, u32>::new();
        left.extend(targets.into_iter().map(|target| (target, limit)));
        let theirs = all.filter(|entry| entry.tenant.as_ref() == Some(tenant) && entry.at >= since);
        let found = theirs.filter(|entry| match left.get_mut(&entry.target) {
            Some(0) | None => false,
            Some(left) => {
                *left -= 1;
                true
            }
        });
        Ok(found.cloned().collect())
    }

    async fn lookup_idempotency(
        &self,
        key: &IdempotencyKey,
        fingerprint: &Digest,
    ) -> Result<IdempotencyLookup> {
        let now = self.setup.source.now();
        let state = self.state();
        let record = state.registry.idempotency.get(key).filter(|record| record.expires_at > now);
        Ok(match record {
            None => IdempotencyLookup::Absent,
            Some(record) if record.fingerprint == *fingerprint => {
                IdempotencyLookup::Match(record.response.clone())
            }
            Some(_) => IdempotencyLookup::Mismatch,
        })
    }
}
