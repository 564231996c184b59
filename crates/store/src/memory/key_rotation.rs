//! A rotation of the master key in memory.

use std::ops::Bound::{Excluded, Unbounded};

use async_trait::async_trait;
use railpost_engine::Timestamp;
use railpost_wire::{EndpointId, SecretId};

use super::MemoryStore;
use super::state::RegistryRows;
use crate::backend::{check, encryption};
use crate::{
    AuditEntry, IdempotencyKey, KeyRotation, MasterKey, Reencrypted, Result, SealedRows, Setup,
};

#[async_trait]
impl KeyRotation for MemoryStore {
    async fn begin_key_rotation(&self, new: &MasterKey) -> Result<()> {
        let _no_change_is_under_way = self.state();
        self.setup.master_key.begin_rotation(new)
    }

    async fn reencrypt(&self, from: SealedRows, limit: u32) -> Result<Reencrypted> {
        check::reencrypt(limit)?;
        let (mut state, limit) = (self.state(), limit as usize);
        let (rows, setup) = (&mut state.registry, &self.setup);
        Ok(match from {
            SealedRows::Secrets(after) => reencrypt_secrets(rows, setup, after, limit),
            SealedRows::Endpoints(after) => reencrypt_endpoints(rows, setup, after, limit),
            SealedRows::Answers(owner, route, key) => {
                reencrypt_answers(rows, setup, IdempotencyKey { owner, route, key }, limit)
            }
        })
    }

    async fn end_key_rotation(&self, links_until: Timestamp, ended: &AuditEntry) -> Result<()> {
        check::audit(ended)?;
        let mut state = self.state();
        let (key, source) = (&self.setup.master_key, &*self.setup.source);
        let Some(old_links) = key.seal_old_links(source, links_until) else { return Ok(()) };
        state.registry.audit.insert(ended.id, ended.clone());
        key.forget_old();
        key.set_old_links(Some(&old_links));
        Ok(())
    }
}

fn reencrypt_secrets(
    rows: &mut RegistryRows,
    setup: &Setup,
    after: [u8; 16],
    limit: usize,
) -> Reencrypted {
    let after = SecretId::from_bytes(after);
    let (mut changed, mut seen, mut last) = (0, 0, None);
    for (id, row) in rows.secrets.range_mut((Excluded(after), Unbounded)).take(limit) {
        (seen, last) = (seen + 1, Some(id.to_bytes()));
        if let Some(sealed) = encryption::reseal_secret(setup, *id, &row.sealed) {
            (row.sealed, changed) = (sealed, changed + 1);
        }
    }
    Reencrypted { changed, next: SealedRows::after_secrets(last, seen == limit) }
}

fn reencrypt_endpoints(
    rows: &mut RegistryRows,
    setup: &Setup,
    after: [u8; 16],
    limit: usize,
) -> Reencrypted {
    let after = EndpointId::from_bytes(after);
    let (mut changed, mut seen, mut last) = (0, 0, None);
    for (id, row) in rows.endpoints.range_mut((Excluded(after), Unbounded)).take(limit) {
        (seen, last) = (seen + 1, Some(id.to_bytes()));
        if let Some(sealed) = encryption::reseal_endpoint(setup, *id, &row.private) {
            (row.private, changed) = (sealed, changed + 1);
        }
    }
    Reencrypted { changed, next: SealedRows::after_endpoints(last, seen == limit) }
}

fn reencrypt_answers(
    rows: &mut RegistryRows,
    setup: &Setup,
    after: IdempotencyKey,
    limit: usize,
) -> Reencrypted {
    let (mut changed, mut seen, mut last) = (0, 0, None);
    for (key, row) in rows.idempotency.range_mut((Excluded(after), Unbounded)).take(limit) {
        let IdempotencyKey { owner, route, key } = key.clone();
        (seen, last) = (seen + 1, Some((owner, route, key)));
        if let Some(sealed) = encryption::reseal_answer(setup, &row.response.body) {
            (row.response.body, changed) = (sealed.into(), changed + 1);
        }
    }
    Reencrypted { changed, next: SealedRows::after_answers(last, seen == limit) }
}
