//! A backup in the place of a store.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod support;

use std::path::{Path, PathBuf};

use railpost_sqlite::SqliteStore;
use railpost_store::{Archive, NewDelivery, StoreError, Upkeep};
use railpost_wire::LineId;
use rusqlite::Connection;
use support::sqlite::{accept, file, id, new_store, setup, tenant, try_accept};
use tempfile::TempDir;

/// A store whose backup has event 1, and that has events 2 and 3 besides.
async fn with_backup(dir: &TempDir) -> (PathBuf, NewDelivery, NewDelivery) {
    let store = new_store(&file(dir)).await;
    let kept = try_accept(&store, 1).await.unwrap();
    let backup = dir.path().join("backup");
    store.backup(&backup).await.unwrap();
    let lost = try_accept(&store, 2).await.unwrap();
    accept(&store, 3).await;
    (backup, kept, lost)
}

fn open(dir: &TempDir) -> SqliteStore {
    SqliteStore::open(&file(dir), setup(1)).unwrap()
}

/// The files of stores that were there before.
fn put_aside(dir: &TempDir) -> Vec<PathBuf> {
    let names = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path());
    let aside = |path: &PathBuf| path.to_str().unwrap().contains(".before-restore-");
    names.filter(aside).filter(|path| !path.to_str().unwrap().ends_with(".lock")).collect()
}

async fn has(store: &SqliteStore, number: u64) -> bool {
    store.event(&tenant(), &id(number)).await.unwrap().is_some()
}

fn line(delivery: NewDelivery) -> (LineId, u64) {
    let place = delivery.line.unwrap();
    (place.line, place.seq.get())
}

#[tokio::test]
async fn what_was_given_out_after_the_backup_is_not_given_out_again_in_its_line() {
    let dir = TempDir::new().unwrap();
    let (backup, kept, lost) = with_backup(&dir).await;
    SqliteStore::restore(&file(&dir), &backup, &setup(1)).unwrap();
    let store = open(&dir);
    assert!(has(&store, 1).await && !has(&store, 2).await);
    let view = store.delivery(kept.accepted.id).await.unwrap().unwrap();
    let first = view.line.unwrap();
    assert_ne!(Some(&first), kept.line.as_ref(), "what was open goes out in a new line");
    assert_eq!((first.seq.get(), first.number(0)), (1, 0), "it follows nothing");
    let next = try_accept(&store, 4).await.unwrap();
    assert_eq!(next.accepted.place, lost.accepted.place, "the lane's own numbers go on");
    let (next, lost) = (line(next), line(lost));
    assert_ne!(next.0, lost.0);
    assert_eq!(next, (first.line, 2));
    drop(store);
    SqliteStore::restore(&file(&dir), &backup, &setup(1)).unwrap();
    let again = line(try_accept(&open(&dir), 5).await.unwrap());
    assert_ne!(again.0, next.0, "each time it is restored it is another line");
}

#[tokio::test]
async fn the_store_that_was_there_is_kept_beside_it() {
    let dir = TempDir::new().unwrap();
    let (backup, ..) = with_backup(&dir).await;
    SqliteStore::restore(&file(&dir), &backup, &setup(1)).unwrap();
    let aside = put_aside(&dir);
    let [old] = &aside[..] else { panic!("{aside:?}") };
    let old = SqliteStore::open(old, setup(1)).unwrap();
    assert!(has(&old, 1).await && has(&old, 3).await);
}

#[tokio::test]
async fn a_backup_is_restored_where_no_store_was() {
    let dir = TempDir::new().unwrap();
    let (backup, ..) = with_backup(&dir).await;
    let path = dir.path().join("new.db");
    SqliteStore::restore(&path, &backup, &setup(1)).unwrap();
    assert!(has(&SqliteStore::open(&path, setup(1)).unwrap(), 1).await);
    assert_eq!(put_aside(&dir), [] as [PathBuf; 0]);
}

/// Restoring is refused, and the store is as it was.
async fn refused(dir: &TempDir, backup: &Path, key: u8) -> StoreError {
    let before = std::fs::read(file(dir)).unwrap();
    let error = SqliteStore::restore(&file(dir), backup, &setup(key)).unwrap_err();
    assert!(std::fs::read(file(dir)).unwrap() == before, "{error}");
    assert_eq!(put_aside(dir), [] as [PathBuf; 0]);
    assert!(has(&open(dir), 3).await);
    error
}

#[tokio::test]
async fn what_is_no_whole_store_of_this_key_is_refused_before_anything_is_touched() {
    let dir = TempDir::new().unwrap();
    let (backup, ..) = with_backup(&dir).await;
    let other = |name: &str| dir.path().join(name);

    assert_eq!(refused(&dir, &backup, 2).await, StoreError::WrongMasterKey);

    let missing = refused(&dir, &other("missing"), 1).await;
    assert!(missing.to_string().contains("missing"), "{missing}");

    std::fs::write(other("empty"), "").unwrap();
    std::fs::write(other("text"), "precious notes, not a database ".repeat(500)).unwrap();
    let theirs = Connection::open(other("theirs")).unwrap();
    theirs.execute_batch("CREATE TABLE theirs (precious TEXT)").unwrap();
    theirs.close().unwrap();
    for name in ["empty", "text", "theirs"] {
        let error = refused(&dir, &other(name), 1).await;
        assert!(matches!(error, StoreError::Corrupt(_)), "{name}: {error}");
    }

    std::fs::write(other("newer"), without_checksum(&backup)).unwrap();
    let newer = Connection::open(other("newer")).unwrap();
    newer.pragma_update(None, "user_version", 99).unwrap();
    newer.close().unwrap();
    let error = refused(&dir, &other("newer"), 1).await;
    assert!(matches!(error, StoreError::NewerSchema { found: 99, .. }), "{error}");

    let mut bytes = std::fs::read(&backup).unwrap();
    let from = bytes.len() / 2;
    bytes[from..].fill(0xee);
    std::fs::write(other("damaged"), bytes).unwrap();
    let error = refused(&dir, &other("damaged"), 1).await;
    assert!(matches!(error, StoreError::Corrupt(_)), "{error}");
}

#[tokio::test]
async fn a_backup_in_which_one_bit_changed_or_whose_end_is_missing_is_refused() {
    let dir = TempDir::new().unwrap();
    let (backup, ..) = with_backup(&dir).await;
    let whole = std::fs::read(&backup).unwrap();
    let damaged = dir.path().join("damaged");
    // SQLite's own check does not find a change in a text.
    let url = b"https://example.com";
    let in_text = whole.windows(url.len()).position(|bytes| bytes == url).unwrap();
    for at in [0, 100, in_text, whole.len() - 48, whole.len() - 1] {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        std::fs::write(&damaged, bytes).unwrap();
        let error = refused(&dir, &damaged, 1).await;
        assert!(matches!(error, StoreError::Corrupt(_)), "byte {at}: {error}");
    }
    for cut in [1, 47, 49, 48 + 4096, whole.len() - 4096, whole.len()] {
        std::fs::write(&damaged, &whole[..whole.len() - cut]).unwrap();
        let error = refused(&dir, &damaged, 1).await;
        assert!(matches!(error, StoreError::Corrupt(_)), "{cut} bytes less: {error}");
    }
}

#[tokio::test]
async fn a_copy_of_a_store_has_no_checksum_and_is_restored() {
    let dir = TempDir::new().unwrap();
    let (backup, ..) = with_backup(&dir).await;
    let copy = dir.path().join("copy");
    std::fs::write(&copy, without_checksum(&backup)).unwrap();
    SqliteStore::restore(&file(&dir), &copy, &setup(1)).unwrap();
    assert!(has(&open(&dir), 1).await);
}

/// The pages of a backup.
fn without_checksum(backup: &Path) -> Vec<u8> {
    let mut bytes = std::fs::read(backup).unwrap();
    bytes.truncate(bytes.len() - bytes.len() % 4096);
    bytes
}

#[tokio::test]
async fn a_store_that_another_process_has_is_not_replaced() {
    let dir = TempDir::new().unwrap();
    let (backup, ..) = with_backup(&dir).await;
    let store = open(&dir);
    let refused = SqliteStore::restore(&file(&dir), &backup, &setup(1)).unwrap_err();
    assert!(matches!(refused, StoreError::Locked(_)), "{refused}");
    assert!(has(&store, 3).await);
}

/// The store with its log, as a killed process leaves it, beside the backup.
async fn killed(dir: &TempDir) -> PathBuf {
    let living = TempDir::new().unwrap();
    let store = new_store(&file(&living)).await;
    accept(&store, 1).await;
    let backup = dir.path().join("backup");
    store.backup(&backup).await.unwrap();
    accept(&store, 3).await;
    for name in ["store.db", "store.db-wal"] {
        std::fs::copy(living.path().join(name), dir.path().join(name)).unwrap();
    }
    backup
}

/// A restore that is decided: a copy is ready, and what becomes of it is up to the next start.
fn decide(dir: &TempDir, backup: &Path) {
    let elsewhere = TempDir::new().unwrap();
    SqliteStore::restore(&file(&elsewhere), backup, &setup(1)).unwrap();
    std::fs::copy(file(&elsewhere), dir.path().join("store.db.restored")).unwrap();
}

#[tokio::test]
async fn a_crash_while_the_copy_is_made_leaves_the_old_store() {
    let dir = TempDir::new().unwrap();
    let backup = killed(&dir).await;
    std::fs::write(dir.path().join("store.db.restoring"), "half a copy").unwrap();
    std::fs::write(dir.path().join("store.db.restoring-wal"), "half a log").unwrap();
    assert!(has(&open(&dir), 3).await);
    SqliteStore::restore(&file(&dir), &backup, &setup(1)).unwrap();
    assert!(!has(&open(&dir), 3).await);
}

#[tokio::test]
async fn a_crash_after_the_copy_is_ready_leaves_the_new_store() {
    // How many of the old store's files were moved: none, the file, the file and its log.
    for moved in 0..=2 {
        let dir = TempDir::new().unwrap();
        let backup = killed(&dir).await;
        decide(&dir, &backup);
        let at = std::fs::metadata(dir.path().join("store.db.restored")).unwrap().modified();
        let at = at.unwrap().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis();
        for suffix in ["", "-wal"].into_iter().take(moved) {
            let name = dir.path().join(format!("store.db{suffix}"));
            let aside = dir.path().join(format!("store.db.before-restore-{at}{suffix}"));
            std::fs::rename(name, aside).unwrap();
        }
        let store = open(&dir);
        assert!(has(&store, 1).await && !has(&store, 3).await, "{moved} moved");
        drop(store);
        assert!(has(&open(&dir), 1).await, "it is put in place once");
        let old = dir.path().join(format!("store.db.before-restore-{at}"));
        let old = SqliteStore::open(&old, setup(1)).unwrap();
        assert!(has(&old, 3).await, "{moved} moved: the old store is whole");
    }
}
