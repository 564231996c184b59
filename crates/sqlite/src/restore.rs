//! Putting a backup in the place of a store.
//!
//! The backup is copied beside the store, checked, brought up to date and given a new era there. Then the copy is
//! renamed to `….restored`, which decides it: from there on [`finish`] puts it in place, in this process
//! or at the next start. Until then nothing of the old store has changed.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use rusqlite::Connection;

use super::errors::{Translate, refuse_not_ours};
use super::session::{FLAGS, connect};
use super::{checksum, schema, upkeep};
use railpost_store::backend::lines;
use railpost_store::{Result, Setup, StoreError};

/// What the names of a store's files end in: the file itself, its log and the log's index.
const SUFFIXES: [&str; 3] = ["", "-wal", "-shm"];

/// The caller has the store's lock. Answers where the old store was put.
pub(super) fn restore(path: &Path, backup: &Path, setup: &Setup) -> Result<Option<PathBuf>> {
    // One that was decided and not finished comes first.
    finish(path)?;
    let copy = with_suffix(path, ".restoring");
    let prepared = prepare(&copy, backup, setup);
    if prepared.is_err() {
        remove(&copy);
    }
    prepared?;
    let decided = fs::rename(&copy, restored(path)).and_then(|()| sync_folder(path));
    decided.map_err(|error| refuse("put the copy in place of", path, &error))?;
    finish(path)
}

/// A copy of the backup that is ready to be used.
fn prepare(copy: &Path, backup: &Path, setup: &Setup) -> Result<()> {
    remove(copy);
    copy_with_log(backup, copy).map_err(|error| refuse("copy the backup", backup, &error))?;
    checksum::verify_and_remove(copy)?;
    check(copy, setup)?;
    let mut db = connect(copy, setup)?;
    begin_era(&mut db, setup)?;
    // Closing a file copies its log into it.
    db.close().map_err(|(_, error)| error).at("closing the copy")?;
    let log = with_suffix(copy, "-wal");
    if log.exists() {
        let problem = format!("the log of the copy could not be copied into it: {}", log.display());
        return Err(StoreError::Unavailable(problem));
    }
    let synced = File::open(copy).and_then(|file| file.sync_all());
    synced.map_err(|error| refuse("sync the copy", copy, &error))
}

/// Begins an era, and moves all lanes with open deliveries into it.
fn begin_era(db: &mut Connection, setup: &Setup) -> Result<()> {
    let doing = "the era of the copy";
    let change = db.transaction().at(doing)?;
    schema::begin_era(&change, setup)?;
    let leave_lines = "INSERT INTO old_lines (lane, through, era, line_before) \
                       SELECT l.id, l.last_seq, l.era, l.line_before FROM lanes AS l \
                       WHERE l.last_seq > l.line_before AND EXISTS (SELECT 1 FROM deliveries AS d \
                       INDEXED BY deliveries_open WHERE d.endpoint = l.endpoint \
                       AND d.lane = l.id AND d.standing <= 3)";
    for sql in [leave_lines, lines::MOVE_OPEN_LANES, lines::FOLLOW_OPEN] {
        change.execute_batch(sql).at(doing)?;
    }
    change.commit().at(doing)
}

/// Refuses a copy of anything but a whole store of this master key.
fn check(copy: &Path, setup: &Setup) -> Result<()> {
    let db = Connection::open_with_flags(copy, FLAGS).at("opening the backup")?;
    if schema::check(&db, setup)? == 0 {
        return Err(refuse_not_ours());
    }
    upkeep::verify(&db)
}

/// With its log, if it has one: a copy of a store's files may.
fn copy_with_log(backup: &Path, copy: &Path) -> io::Result<()> {
    fs::copy(backup, copy)?;
    let log = with_suffix(backup, "-wal");
    if log.exists() {
        fs::copy(log, with_suffix(copy, "-wal"))?;
    }
    Ok(())
}

/// Puts a restored store in place, if there is one that is not. However often it is interrupted, the files of
/// the old store end under one name, which it answers.
pub(super) fn finish(path: &Path) -> Result<Option<PathBuf>> {
    let restored = restored(path);
    if !restored.exists() {
        return Ok(None);
    }
    finish_with(path, &restored).map_err(|error| refuse("put the copy in place of", path, &error))
}

fn finish_with(path: &Path, restored: &Path) -> io::Result<Option<PathBuf>> {
    let decided_at = fs::metadata(restored)?.modified()?;
    let decided_at = decided_at.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    let aside = with_suffix(path, &format!(".before-restore-{decided_at}"));
    for suffix in SUFFIXES {
        match fs::rename(with_suffix(path, suffix), with_suffix(&aside, suffix)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    // The old log must be gone before the new file is there: SQLite would take it for the new file's.
    sync_folder(path)?;
    fs::rename(restored, path)?;
    sync_folder(path)?;
    Ok(aside.exists().then_some(aside))
}

fn restored(path: &Path) -> PathBuf {
    with_suffix(path, ".restored")
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name: OsString = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// What cannot be removed is overwritten, or named by the call that needs its name.
fn remove(copy: &Path) {
    for suffix in SUFFIXES {
        let _ = fs::remove_file(with_suffix(copy, suffix));
    }
}

fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

fn refuse(doing: &str, path: &Path, error: &io::Error) -> StoreError {
    StoreError::Unavailable(format!("cannot {doing} {}: {error}", path.display()))
}
