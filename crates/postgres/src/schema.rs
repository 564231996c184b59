//! The tables and functions of a PostgreSQL store, and how an older schema becomes a current one.
//!
//! Everything lies in the first schema of the connection's `search_path`. Migrations go forward only,
//! run at start under a lock, and commit as a whole. A schema newer than is known here is refused.

use tokio_postgres::{Client, Transaction};

use super::errors::Translate;
use railpost_store::{KeyChecks, Result, Setup, StoreError};

/// One script per version: the first makes version 1 out of nothing.
const MIGRATIONS: [&str; 10] = [
    include_str!("schema/1.sql"),
    include_str!("schema/2.sql"),
    include_str!("schema/3.sql"),
    include_str!("schema/4.sql"),
    include_str!("schema/5.sql"),
    include_str!("schema/6.sql"),
    include_str!("schema/7.sql"),
    include_str!("schema/8.sql"),
    include_str!("schema/9.sql"),
    include_str!("schema/10.sql"),
];

/// The newest schema known here.
pub(super) const SCHEMA: u32 = MIGRATIONS.len() as u32;

/// The first schema in which the master key can be rotated.
const KEY_ROTATION_SINCE: u32 = 10;

/// Brings the schema up to date, or refuses it.
pub(super) async fn prepare(client: &mut Client, setup: &Setup) -> Result<()> {
    let change = client.transaction().await.translated()?;
    lock(&change).await?;
    let found = version(&change).await?;
    if found > SCHEMA {
        return Err(StoreError::NewerSchema { found, known: SCHEMA });
    }
    if found > 0 {
        verify_keys(&change, setup, found).await?;
    }
    if found < SCHEMA {
        upgrade(&change, found).await?;
    }
    if found == 0 {
        let check = setup.master_key.check_value(&*setup.source);
        let sql = "INSERT INTO store (id, version, key_check) VALUES (1, $1, $2)";
        change.execute(sql, &[&(SCHEMA as i32), &check]).await.translated()?;
    }
    apply_keys(&change, setup).await?;
    change.commit().await.translated()
}

/// Refuses a store of another master key. Answers whether it has yet to begin a rotation.
pub(super) async fn verify_keys(
    change: &Transaction<'_>,
    setup: &Setup,
    version: u32,
) -> Result<bool> {
    let next = if version < KEY_ROTATION_SINCE { "NULL::bytea" } else { "new_key_check" };
    let sql = format!("SELECT key_check, {next} FROM store");
    let row = change.query_one(&sql, &[]).await.translated()?;
    setup.master_key.verify(&KeyChecks { current: row.get(0), next: row.get(1) })
}

/// Begins the rotation of the master key if the store is opened with two keys and has not begun yet. From here on
/// links of before the last rotation are known.
async fn apply_keys(change: &Transaction<'_>, setup: &Setup) -> Result<()> {
    if verify_keys(change, setup, SCHEMA).await? {
        let check = setup.master_key.check_value(&*setup.source);
        change.execute("UPDATE store SET new_key_check = $1", &[&check]).await.translated()?;
    }
    let row = change.query_one("SELECT old_link_key FROM store", &[]).await.translated()?;
    setup.master_key.set_old_links(row.get(0));
    Ok(())
}

/// Makes the newest version out of an earlier one.
pub(super) async fn upgrade(change: &Transaction<'_>, from: u32) -> Result<()> {
    migrate(change, from, SCHEMA).await?;
    change.execute("UPDATE store SET version = $1", &[&(SCHEMA as i32)]).await.translated()?;
    Ok(())
}

/// Makes the tables of a version out of nothing.
pub(super) async fn create(change: &Transaction<'_>, version: u32) -> Result<()> {
    migrate(change, 0, version).await
}

async fn migrate(change: &Transaction<'_>, from: u32, to: u32) -> Result<()> {
    for script in &MIGRATIONS[from as usize..to as usize] {
        change.batch_execute(script).await.translated()?;
    }
    Ok(())
}

/// Nodes that start together take turns.
pub(super) async fn lock(change: &Transaction<'_>) -> Result<()> {
    let sql = "SELECT pg_advisory_xact_lock(hashtext('railpost ' || current_schema()))";
    change.execute(sql, &[]).await.translated()?;
    Ok(())
}

/// Whether there is a store.
pub(super) async fn exists(change: &Transaction<'_>) -> Result<bool> {
    let sql = "SELECT to_regclass(quote_ident(current_schema()) || '.store') IS NOT NULL";
    Ok(change.query_one(sql, &[]).await.translated()?.get(0))
}

/// The version of what is there: 0 if nothing is.
pub(super) async fn version(change: &Transaction<'_>) -> Result<u32> {
    if !exists(change).await? {
        return Ok(0);
    }
    let version: i32 =
        change.query_one("SELECT version FROM store", &[]).await.translated()?.get(0);
    Ok(u32::try_from(version).unwrap_or(u32::MAX))
}
