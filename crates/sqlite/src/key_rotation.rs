//! A rotation of the master key in SQLite. The writer's thread is the only one that seals, so that nothing is sealed
//! under the old key once a rotation has begun.

use async_trait::async_trait;
use railpost_engine::Timestamp;
use railpost_wire::{EndpointId, SecretId};

use super::rows::all;
use super::session::WriteSession;
use super::{SqliteStore, durable};
use railpost_store::backend::check::{self, created};
use railpost_store::backend::encryption;
use railpost_store::backend::rows::Columns;
use railpost_store::{AuditEntry, KeyRotation, MasterKey, Reencrypted, Result, SealedRows};

#[async_trait]
impl KeyRotation for SqliteStore {
    async fn begin_key_rotation(&self, new: &MasterKey) -> Result<()> {
        let new = new.clone();
        self.writer.write(durable(1, 0), move |session| session.begin_key_rotation(&new)).await
    }

    async fn reencrypt(&self, from: SealedRows, limit: u32) -> Result<Reencrypted> {
        check::reencrypt(limit)?;
        let spec = durable(limit as usize, 0);
        self.writer.write(spec, move |session| session.reencrypt(&from, limit as usize)).await
    }

    async fn end_key_rotation(&self, links_until: Timestamp, ended: &AuditEntry) -> Result<()> {
        check::audit(ended)?;
        let (key, source) = (&self.setup.master_key, &*self.setup.source);
        let Some(old_links) = key.seal_old_links(source, links_until) else { return Ok(()) };
        let (ended, kept) = (ended.clone(), old_links.clone());
        let end = move |session: &mut WriteSession<'_>| session.end_key_rotation(&kept, &ended);
        self.writer.write(durable(1, 0), end).await?;
        key.forget_old();
        key.set_old_links(Some(&old_links));
        Ok(())
    }
}

impl WriteSession<'_> {
    /// If the group fails to commit, values are sealed under a key that the file does not know of. The caller keeps
    /// both keys, and begins again.
    fn begin_key_rotation(&mut self, new: &MasterKey) -> Result<()> {
        self.setup.master_key.begin_rotation(new)?;
        if self.setup.master_key.is_rotating() {
            let check = self.setup.master_key.check_value(&*self.setup.source);
            self.execute("UPDATE store SET new_key_check = ?1", [check])?;
        }
        Ok(())
    }

    fn reencrypt(&mut self, from: &SealedRows, limit: usize) -> Result<Reencrypted> {
        match from {
            SealedRows::Secrets(after) => self.reencrypt_secrets(*after, limit),
            SealedRows::Endpoints(after) => self.reencrypt_endpoints(*after, limit),
            SealedRows::Answers(owner, route, key) => {
                self.reencrypt_answers((owner, route, key), limit)
            }
        }
    }

    fn reencrypt_secrets(&self, after: [u8; 16], limit: usize) -> Result<Reencrypted> {
        let sql = "SELECT id, sealed FROM secrets WHERE id > ?1 ORDER BY id LIMIT ?2";
        let rows: Vec<([u8; 16], Vec<u8>)> = all(self.db, sql, (after, limit), |columns| {
            Ok((columns.array("a secret's id")?, columns.bytes()?))
        })?;
        let mut changed = 0;
        for (id, sealed) in &rows {
            let resealed = encryption::reseal_secret(self.setup, SecretId::from_bytes(*id), sealed);
            let Some(resealed) = resealed else { continue };
            changed +=
                self.execute("UPDATE secrets SET sealed = ?2 WHERE id = ?1", (id, resealed))?;
        }
        let last = rows.last().map(|(id, _)| *id);
        Ok(Reencrypted { changed, next: SealedRows::after_secrets(last, rows.len() == limit) })
    }

    fn reencrypt_endpoints(&self, after: [u8; 16], limit: usize) -> Result<Reencrypted> {
        let sql = "SELECT id, private FROM endpoints WHERE id > ?1 ORDER BY id LIMIT ?2";
        let rows: Vec<([u8; 16], Vec<u8>)> = all(self.db, sql, (after, limit), |columns| {
            Ok((columns.array("an endpoint's id")?, columns.bytes()?))
        })?;
        let mut changed = 0;
        for (id, sealed) in &rows {
            let resealed =
                encryption::reseal_endpoint(self.setup, EndpointId::from_bytes(*id), sealed);
            let Some(resealed) = resealed else { continue };
            let sql = "UPDATE endpoints SET private = ?2 WHERE id = ?1";
            changed += self.execute(sql, (id, resealed))?;
        }
        let last = rows.last().map(|(id, _)| *id);
        Ok(Reencrypted { changed, next: SealedRows::after_endpoints(last, rows.len() == limit) })
    }

    /// Sealed answers begin with a zero, and are small: they answer changes, not batches of events.
    fn reencrypt_answers(
        &self,
        (owner, route, key): (&str, &str, &str),
        limit: usize,
    ) -> Result<Reencrypted> {
        let sql = "SELECT owner, route, key, body FROM idempotency \
                   WHERE (owner, route, key) > (?1, ?2, ?3) AND substr(body, 1, 1) = x'00' \
                   ORDER BY owner, route, key LIMIT ?4";
        let rows = all(self.db, sql, (owner, route, key, limit), |columns| {
            let name = (columns.word()?, columns.word()?, columns.word()?);
            Ok((name, columns.bytes()?))
        })?;
        let mut changed = 0;
        for ((owner, route, key), stored) in &rows {
            let Some(sealed) = encryption::reseal_answer(self.setup, stored) else { continue };
            let sql =
                "UPDATE idempotency SET body = ?4 WHERE owner = ?1 AND route = ?2 AND key = ?3";
            changed += self.execute(sql, (owner, route, key, sealed))?;
        }
        let is_full = rows.len() == limit;
        let last = rows.into_iter().last().map(|(name, _)| name);
        Ok(Reencrypted { changed, next: SealedRows::after_answers(last, is_full) })
    }

    fn end_key_rotation(&mut self, old_links: &[u8], ended: &AuditEntry) -> Result<()> {
        let check = self.setup.master_key.check_value(&*self.setup.source);
        let sql = "UPDATE store SET key_check = ?1, new_key_check = NULL, old_link_key = ?2 \
                   WHERE new_key_check IS NOT NULL";
        // The answer to an earlier call may have been lost.
        if self.execute(sql, (check, old_links))? == 0 {
            return Ok(());
        }
        created(self.write_audit(ended)?, "audit entry", ended.id)
    }
}
