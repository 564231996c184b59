//! A rotation of the master key in PostgreSQL. Whatever seals takes its turn on the connection for changes, so that
//! nothing is sealed under the old key once a rotation has begun.

use async_trait::async_trait;
use railpost_engine::Timestamp;
use railpost_wire::{EndpointId, SecretId};

use super::PostgresStore;
use super::errors::Translate;
use super::link::Values;
use super::node::HeldTransaction;
use super::registry::write_audit;
use super::rows::all;
use railpost_store::backend::check::{self, created};
use railpost_store::backend::encryption;
use railpost_store::backend::rows::Columns;
use railpost_store::{AuditEntry, KeyRotation, MasterKey, Reencrypted, Result, SealedRows, Setup};

#[async_trait]
impl KeyRotation for PostgresStore {
    /// If the transaction fails to commit, values are sealed under a key that the store does not know of. The caller
    /// keeps both keys, and begins again.
    async fn begin_key_rotation(&self, new: &MasterKey) -> Result<()> {
        let Setup { source, master_key } = &self.node.setup;
        let begin = async |held: &HeldTransaction<'_>| {
            master_key.begin_rotation(new)?;
            if master_key.is_rotating() {
                let check = master_key.check_value(&**source);
                held.execute("UPDATE store SET new_key_check = $1", &[&check])
                    .await
                    .translated()?;
            }
            Ok(())
        };
        self.node.changes.run(begin).await
    }

    async fn reencrypt(&self, from: SealedRows, limit: u32) -> Result<Reencrypted> {
        check::reencrypt(limit)?;
        let (setup, limit) = (&self.node.setup, limit as usize);
        let step = async |held: &HeldTransaction<'_>| {
            let pass = Pass { held, setup, limit };
            match &from {
                SealedRows::Secrets(after) => pass.secrets(*after).await,
                SealedRows::Endpoints(after) => pass.endpoints(*after).await,
                SealedRows::Answers(owner, route, key) => pass.answers(owner, route, key).await,
            }
        };
        self.node.changes.run(step).await
    }

    async fn end_key_rotation(&self, links_until: Timestamp, ended: &AuditEntry) -> Result<()> {
        check::audit(ended)?;
        let Setup { source, master_key } = &self.node.setup;
        let Some(old_links) = master_key.seal_old_links(&**source, links_until) else {
            return Ok(());
        };
        let end = async |held: &HeldTransaction<'_>| {
            let check = master_key.check_value(&**source);
            let sql = "UPDATE store SET key_check = $1, new_key_check = NULL, old_link_key = $2 \
                       WHERE new_key_check IS NOT NULL";
            // The answer to an earlier call may have been lost.
            if held.execute(sql, &[&check, &old_links]).await.translated()? == 0 {
                return Ok(());
            }
            created(write_audit(held, ended).await?, "audit entry", ended.id)
        };
        self.node.changes.run(end).await?;
        master_key.forget_old();
        master_key.set_old_links(Some(&old_links));
        Ok(())
    }
}

/// One step of a pass over everything that is sealed.
struct Pass<'a> {
    held: &'a HeldTransaction<'a>,
    setup: &'a Setup,
    limit: usize,
}

impl Pass<'_> {
    async fn secrets(&self, after: [u8; 16]) -> Result<Reencrypted> {
        let sql = "SELECT id, sealed FROM secrets WHERE id > $1 ORDER BY id LIMIT $2 FOR UPDATE";
        let rows = self.sealed_after(sql, after).await?;
        let mut changed = 0;
        for (id, sealed) in &rows {
            let resealed = encryption::reseal_secret(self.setup, SecretId::from_bytes(*id), sealed);
            let Some(resealed) = resealed else { continue };
            let sql = "UPDATE secrets SET sealed = $2 WHERE id = $1";
            changed += self.execute(sql, &[&id.as_slice(), &resealed]).await?;
        }
        let last = rows.last().map(|(id, _)| *id);
        Ok(Reencrypted { changed, next: SealedRows::after_secrets(last, rows.len() == self.limit) })
    }

    async fn endpoints(&self, after: [u8; 16]) -> Result<Reencrypted> {
        let sql = "SELECT id, private FROM endpoints WHERE id > $1 ORDER BY id LIMIT $2 FOR UPDATE";
        let rows = self.sealed_after(sql, after).await?;
        let mut changed = 0;
        for (id, sealed) in &rows {
            let resealed =
                encryption::reseal_endpoint(self.setup, EndpointId::from_bytes(*id), sealed);
            let Some(resealed) = resealed else { continue };
            let sql = "UPDATE endpoints SET private = $2 WHERE id = $1";
            changed += self.execute(sql, &[&id.as_slice(), &resealed]).await?;
        }
        let last = rows.last().map(|(id, _)| *id);
        let next = SealedRows::after_endpoints(last, rows.len() == self.limit);
        Ok(Reencrypted { changed, next })
    }

    /// Sealed answers begin with a zero, and are small: they answer changes, not batches of events.
    async fn answers(&self, owner: &str, route: &str, key: &str) -> Result<Reencrypted> {
        let sql = "SELECT owner, route, key, body FROM idempotency \
                   WHERE (owner, route, key) > ($1, $2, $3) AND substr(body, 1, 1) = '\\x00' \
                   ORDER BY owner, route, key LIMIT $4 FOR UPDATE";
        let values: Values<'_> = &[&owner, &route, &key, &(self.limit as i64)];
        let rows = all(&self.held.query(sql, values).await.translated()?, |columns| {
            let name = (columns.word()?, columns.word()?, columns.word()?);
            Ok((name, columns.bytes()?))
        })?;
        let mut changed = 0;
        for ((owner, route, key), stored) in &rows {
            let Some(sealed) = encryption::reseal_answer(self.setup, stored) else { continue };
            let sql =
                "UPDATE idempotency SET body = $4 WHERE owner = $1 AND route = $2 AND key = $3";
            changed += self.execute(sql, &[owner, route, key, &sealed]).await?;
        }
        let is_full = rows.len() == self.limit;
        let last = rows.into_iter().last().map(|(name, _)| name);
        Ok(Reencrypted { changed, next: SealedRows::after_answers(last, is_full) })
    }

    async fn sealed_after(&self, sql: &str, after: [u8; 16]) -> Result<Vec<([u8; 16], Vec<u8>)>> {
        let values: Values<'_> = &[&after.as_slice(), &(self.limit as i64)];
        all(&self.held.query(sql, values).await.translated()?, |columns| {
            Ok((columns.array("an id")?, columns.bytes()?))
        })
    }

    async fn execute(&self, sql: &str, values: Values<'_>) -> Result<u64> {
        self.held.execute(sql, values).await.translated()
    }
}
