//! A disk that fails to keep the log: the store must not go on as if nothing had happened.
//!
//! After a failed sync the system may drop what was not written and call the next sync a success. So the one
//! failure ends it, and the next process sees what is on the disk.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod support;

use std::path::Path;
use std::process::Command;

use railpost_engine::{DeliveryState, Progress, Timestamp, Transition};
use railpost_sqlite::SqliteStore;
use railpost_store::{Archive, Ledger, RecordBatch, StoreError, Upkeep};
use support::sqlite::{accept, file, id, new_store, setup, tenant, try_accept};
use tempfile::TempDir;

/// Where the child keeps its store. Syncs of the log fail once for each time that the file `fail` appears.
const FOLDER: &str = "RAILPOST_TEST_SYNC";

/// Stands before the system's own syncs.
const SHIM: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int fails(int fd) {
    const char *folder = getenv("RAILPOST_TEST_SYNC");
    char link[64], name[4096], trigger[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t len = readlink(link, name, sizeof name - 1);
    if (!folder || len < 4 || memcmp(name + len - 4, "-wal", 4) != 0) return 0;
    snprintf(trigger, sizeof trigger, "%s/fail", folder);
    return unlink(trigger) == 0;
}

int fdatasync(int fd) {
    if (fails(fd)) { errno = EIO; return -1; }
    return ((int (*)(int))dlsym(RTLD_NEXT, "fdatasync"))(fd);
}

int fsync(int fd) {
    if (fails(fd)) { errno = EIO; return -1; }
    return ((int (*)(int))dlsym(RTLD_NEXT, "fsync"))(fd);
}
"#;

/// Runs the test of this name in a process whose syncs can fail, with its store in the folder.
fn run_with_failing_syncs(test: &str, dir: &Path) {
    let (source, library) = (dir.join("shim.c"), dir.join("shim.so"));
    std::fs::write(&source, SHIM).unwrap();
    let compiled = Command::new("cc")
        .args(["-shared", "-fPIC", "-o"])
        .args([&library, &source])
        .arg("-ldl")
        .status();
    assert!(compiled.unwrap().success(), "the tests need a C compiler, as SQLite does");
    let done = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env("LD_PRELOAD", &library)
        .env(FOLDER, dir)
        .status();
    assert!(done.unwrap().success(), "{test}");
}

/// The folder, in the process that the shim stands before.
fn folder() -> Option<std::path::PathBuf> {
    std::env::var_os(FOLDER).map(Into::into)
}

fn fail_next_sync(folder: &Path) {
    std::fs::write(folder.join("fail"), "").unwrap();
}

fn is_stopped<T>(answer: &Result<T, StoreError>) -> bool {
    let told = |problem: &String| problem.contains("could not be synced");
    matches!(answer, Err(error @ StoreError::Stopped(problem))
        if told(problem) && error.to_string().contains("restart") && !error.is_temporary())
}

/// The process that the next test starts. On its own it does nothing.
#[tokio::test]
async fn a_process_whose_log_is_not_synced_once() {
    let Some(folder) = folder() else { return };
    let store = new_store(&folder.join("store.db")).await;
    for number in 1..=5 {
        assert_eq!(accept(&store, number).await, number);
    }
    assert!(store.event(&tenant(), &id(5)).await.unwrap().is_some());
    fail_next_sync(&folder);
    let (one, other) = tokio::join!(try_accept(&store, 6), try_accept(&store, 7));
    assert!(!folder.join("fail").exists(), "a sync of the log has failed");
    assert!(is_stopped(&one) && is_stopped(&other), "{one:?} {other:?}");
    // Syncs work again. The store does not.
    assert!(is_stopped(&try_accept(&store, 8).await));
    assert!(is_stopped(&store.check().await));
    let unknown = Transition {
        delivery: railpost_wire::DeliveryId::from_u128(1),
        endpoint: support::sqlite::ENDPOINT,
        place: None,
        state: DeliveryState::Delivered,
        progress: Progress::default(),
        attempt: None,
        at: Timestamp::from_millis(1),
    };
    assert!(is_stopped(&store.record(RecordBatch::of([unknown]).into()).await));
    assert!(store.event(&tenant(), &id(5)).await.unwrap().is_some(), "it can still be read");
    let log = std::fs::metadata(folder.join("store.db-wal")).unwrap().len();
    drop(store);
    let left = std::fs::metadata(folder.join("store.db-wal")).unwrap().len();
    assert_eq!(left, log, "the log stays for the next process to read");
}

#[tokio::test]
async fn a_log_that_was_not_synced_stops_the_store_until_the_next_process() {
    let dir = TempDir::new().unwrap();
    run_with_failing_syncs("a_process_whose_log_is_not_synced_once", dir.path());
    let store = SqliteStore::open(&file(&dir), setup(1)).unwrap();
    for number in 1..=5 {
        assert!(store.event(&tenant(), &id(number)).await.unwrap().is_some(), "{number}");
    }
    assert!(store.event(&tenant(), &id(8)).await.unwrap().is_none());
    assert!(accept(&store, 9).await > 5);
    assert!(store.check().await.is_ok());
}
