//! The tables of a SQLite store, and how an older file becomes a current one.
//!
//! Migrations go forward only, run at start, and each commits with its number. A file with a higher
//! number than is known here is refused.
//!
//! What every table has in common: instants are milliseconds since 1970; ids that were generated are
//! their 16 bytes, which sort by time; `num` is a number that never leaves the file.

use rusqlite::{Connection, Row};

use super::errors::{Translate, refuse_not_ours};
use super::rows::all;
use railpost_store::backend::codes::millis;
use railpost_store::backend::packed_figures;
use railpost_store::backend::rows::Columns;
use railpost_store::{KeyChecks, Result, Setup, StoreError};

/// One script per version: the first makes version 1 out of an empty file.
const MIGRATIONS: [&str; 12] = [
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
    include_str!("schema/11.sql"),
    include_str!("schema/12.sql"),
];

/// The newest schema known here.
pub(super) const SCHEMA: u32 = MIGRATIONS.len() as u32;

/// The first schema in which the master key can be rotated.
const KEY_ROTATION_SINCE: u32 = 12;

/// Marks a file as a Railpost store: "rail" in ASCII. Stable.
const APPLICATION_ID: i64 = 0x7261_696c;

/// Refuses a file that is not ours to write, before anything is written. Answers its version.
pub(super) fn check(db: &Connection, setup: &Setup) -> Result<u32> {
    let found = version(db)?;
    if found > SCHEMA {
        return Err(StoreError::NewerSchema { found, known: SCHEMA });
    }
    if found > 0 {
        setup.master_key.verify(&key_checks(db, found)?)?;
    }
    Ok(found)
}

fn key_checks(db: &Connection, version: u32) -> Result<KeyChecks> {
    let next = if version < KEY_ROTATION_SINCE { "NULL" } else { "new_key_check" };
    let read = |row: &Row<'_>| Ok(KeyChecks { current: row.get(0)?, next: row.get(1)? });
    db.query_row(&format!("SELECT key_check, {next} FROM store"), [], read).at("the key check")
}

/// Begins the rotation of the master key if the file is opened with two keys and has not begun yet. From here on
/// links of before the last rotation are known.
pub(super) fn apply_keys(db: &Connection, setup: &Setup) -> Result<()> {
    let doing = "the master key";
    if setup.master_key.verify(&key_checks(db, SCHEMA)?)? {
        let check = setup.master_key.check_value(&*setup.source);
        db.execute("UPDATE store SET new_key_check = ?1", [check]).at(doing)?;
    }
    let sql = "SELECT old_link_key FROM store";
    let old_links: Option<Vec<u8>> = db.query_row(sql, [], |row| row.get(0)).at(doing)?;
    setup.master_key.set_old_links(old_links.as_deref());
    Ok(())
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
    if from == 4 {
        move_given_seqs(&change)?;
    }
    change.execute_batch(MIGRATIONS[from as usize]).at(&doing())?;
    if from == 0 {
        let check = setup.master_key.check_value(&*setup.source);
        change.execute("INSERT INTO store (id, key_check) VALUES (1, ?1)", [check]).at(&doing())?;
        change.pragma_update(None, "application_id", APPLICATION_ID).at(&doing())?;
    }
    if from == 4 {
        begin_era(&change, setup)?;
        let sql = "UPDATE lanes SET used_at = ?1";
        change.execute(sql, [millis(setup.source.now())]).at(&doing())?;
    }
    change.pragma_update(None, "user_version", from + 1).at(&doing())?;
    change.commit().at(&doing())
}

/// Schemas 3 and 4 kept the seqs that each group gave out as one packed row.
fn move_given_seqs(db: &Connection) -> Result<()> {
    let given = all(db, "SELECT places FROM given ORDER BY num", [], |columns| columns.bytes())?;
    let mut update =
        db.prepare("UPDATE lanes SET last_seq = max(last_seq, ?2) WHERE id = ?1").translated()?;
    for places in &given {
        for (lane, last) in packed_figures::decode_places(places)? {
            update.execute((lane.0, last.get())).translated()?;
        }
    }
    Ok(())
}

/// Adds an era, which is the current one from here on.
pub(super) fn begin_era(db: &Connection, setup: &Setup) -> Result<()> {
    let mut id = [0; 8];
    setup.source.fill_random(&mut id);
    let sql = "INSERT INTO eras (num, id, began_at) \
               SELECT coalesce(max(num), 0) + 1, ?1, ?2 FROM eras";
    db.execute(sql, (i64::from_be_bytes(id), millis(setup.source.now()))).at("a new era")?;
    Ok(())
}
