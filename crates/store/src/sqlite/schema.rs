//! The tables of a SQLite store, and how an older file becomes a current one.
//!
//! Migrations go forward only, run at start, and each commits with its number. A file with a higher
//! number than is known here is refused.
//!
//! What every table has in common: instants are milliseconds since 1970; ids that were generated are
//! their 16 bytes, which sort by time; `num` is a number that never leaves the file.

use rusqlite::Connection;

use super::errors::{At, refuse_not_ours};
use crate::{Result, Setup, StoreError};

/// One script per version: the first makes version 1 out of an empty file.
const MIGRATIONS: [&str; 4] = [
    include_str!("schema/1.sql"),
    include_str!("schema/2.sql"),
    include_str!("schema/3.sql"),
    include_str!("schema/4.sql"),
];

/// The newest schema known here.
pub(super) const SCHEMA: u32 = MIGRATIONS.len() as u32;

/// Marks a file as a Railpost store: "rail" in ASCII. Stable.
const APPLICATION_ID: i64 = 0x7261_696c;

/// Refuses a file that is not ours to write, before anything is written. Answers its version.
pub(super) fn check(db: &Connection, setup: &Setup) -> Result<u32> {
    let found = version(db)?;
    if found > SCHEMA {
        return Err(StoreError::NewerSchema { found, known: SCHEMA });
    }
    if found > 0 {
        let check: Vec<u8> = db
            .query_row("SELECT key_check FROM store", [], |row| row.get(0))
            .at("the key check")?;
        setup.master_key.verify(&check)?;
    }
    Ok(found)
}

/// Brings a checked file up to date.
pub(super) fn migrate(db: &mut Connection, setup: &Setup, found: u32) -> Result<()> {
    (found..SCHEMA).try_for_each(|next| migrate_one(db, setup, next))
}

/// The schema of the file: 0 for an empty one.
fn version(db: &Connection) -> Result<u32> {
    let pragma = |name| db.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    let version = pragma("user_version").at("the schema's version")?;
    let application = pragma("application_id").at("the application's id")?;
    let tables: i64 = db
        .query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))
        .at("the schema")?;
    if tables > 0 && application != APPLICATION_ID {
        return Err(refuse_not_ours());
    }
    Ok(u32::try_from(version).unwrap_or(u32::MAX))
}

fn migrate_one(db: &mut Connection, setup: &Setup, from: u32) -> Result<()> {
    let doing = || format!("the migration to schema {}", from + 1);
    let change = db.transaction().at(&doing())?;
    change.execute_batch(MIGRATIONS[from as usize]).at(&doing())?;
    if from == 0 {
        let check = setup.master_key.check_value(&*setup.source);
        change.execute("INSERT INTO store (id, key_check) VALUES (1, ?1)", [check]).at(&doing())?;
        change.pragma_update(None, "application_id", APPLICATION_ID).at(&doing())?;
    }
    change.pragma_update(None, "user_version", from + 1).at(&doing())?;
    change.commit().at(&doing())
}
