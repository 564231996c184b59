//! Checkpoints the write-ahead log, with a thread of its own.
//!
//! When the log is full, it is copied into the file and begun again, and the writer and all who wait for
//! it stand still meanwhile. So this thread copies most of it shortly before. What is left for the
//! writer is little. Once is enough: each copy is synced, and competes with the writer's own syncs.

use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Instant;

use rusqlite::Connection;
use rusqlite::hooks::Wal;

use super::errors::Translate;
use super::stop::{StopReason, is_sync_failure};
use crate::limits::{
    SQLITE_CHECKPOINT_LEFT_SHARE, SQLITE_LOG_AGE_MIN, SQLITE_LOG_LEN_FULL, SQLITE_LOG_LEN_ORDINARY,
};
use railpost_store::{Result, StoreError};

/// A handle to the checkpointer's thread. Dropping it ends the thread.
#[derive(Debug)]
pub(super) struct WalCheckpointer {
    signals: SyncSender<Signal>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
enum Signal {
    Copy,
    End,
}

impl WalCheckpointer {
    /// Checkpoints the log of the writer's connection.
    pub(super) fn start(
        path: &Path,
        db: &mut Connection,
        limits: LogLimits,
        stop: StopReason,
    ) -> Result<Self> {
        let (signals, inbox) = sync_channel(1);
        let own = Connection::open_with_flags(path, super::session::FLAGS);
        let own = own.at("opening the file to checkpoint its log")?;
        let reason = stop.clone();
        let thread = std::thread::Builder::new()
            .name("railpost-wal".to_owned())
            .spawn(move || serve(&own, &inbox, &reason))
            .map_err(|error| {
                StoreError::Unavailable(format!("no thread to checkpoint the log with: {error}"))
            })?;
        watch(db, Due::new(limits, Instant::now()), signals.clone(), stop)?;
        Ok(Self { signals, thread: Some(thread) })
    }
}

impl Drop for WalCheckpointer {
    fn drop(&mut self) {
        let _ = self.signals.send(Signal::End);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn serve(db: &Connection, inbox: &Receiver<Signal>, stop: &StopReason) {
    while let Ok(Signal::Copy) = inbox.recv() {
        if stop.is_set() {
            return;
        }
        // What could not be copied now is copied by the next, or by the writer.
        let done = db.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()));
        stop_if_not_synced(done, stop);
    }
}

fn stop_if_not_synced(done: rusqlite::Result<()>, stop: &StopReason) {
    if let Err(error) = done
        && is_sync_failure(&error)
    {
        stop.set(&error);
    }
}

fn watch(
    db: &mut Connection,
    mut due: Due,
    signals: SyncSender<Signal>,
    stop: StopReason,
) -> Result<()> {
    let hook = move |wal: &mut Wal, pages: i32| {
        match due.step(u32::try_from(pages).unwrap_or(0), Instant::now()) {
            Step::Nothing => {}
            // If a copy is waiting to begin, it will be of this too.
            Step::CopyAhead => drop(signals.try_send(Signal::Copy)),
            // The commit is done whatever comes of this, and the next one tries again.
            Step::Finish => stop_if_not_synced(wal.checkpoint(), &stop),
        }
        Ok(())
    };
    db.wal_hook(Some(hook)).at("watching the log")
}

/// What is to be done about the log after a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Nothing,
    CopyAhead,
    Finish,
}

/// How long the log may become, in pages.
#[derive(Clone, Copy, Debug)]
pub(super) struct LogLimits {
    /// At full load. Pages that change with every group are then copied once for many changes.
    pub(super) full: u32,
    /// At ordinary load: a log that is short is written over again and again, and its file does not grow.
    pub(super) ordinary: u32,
}

impl LogLimits {
    /// Of a file with pages of so many bytes.
    pub(super) fn of_pages(page_len: u32) -> Self {
        Self { full: SQLITE_LOG_LEN_FULL / page_len, ordinary: SQLITE_LOG_LEN_ORDINARY / page_len }
    }
}

/// When something is due about the log.
#[derive(Debug)]
struct Due {
    limits: LogLimits,
    last: u32,
    /// When the log began again.
    began: Instant,
    /// How long the log was when its copy ahead began, if it did.
    copied: Option<u32>,
}

impl Due {
    fn new(limits: LogLimits, now: Instant) -> Self {
        Self { limits, last: 0, began: now, copied: None }
    }

    fn step(&mut self, pages: u32, now: Instant) -> Step {
        if pages < self.last {
            (self.began, self.copied) = (now, None);
        }
        self.last = pages;
        match self.copied {
            None if self.is_copied_ahead(pages, now) => {
                self.copied = Some(pages);
                Step::CopyAhead
            }
            Some(copied) if pages >= copied + copied / (SQLITE_CHECKPOINT_LEFT_SHARE - 1) => {
                Step::Finish
            }
            _ => Step::Nothing,
        }
    }

    fn is_copied_ahead(&self, pages: u32, now: Instant) -> bool {
        let LogLimits { full, ordinary } = self.limits;
        let ahead = |full: u32| full - full / SQLITE_CHECKPOINT_LEFT_SHARE;
        let is_old = now.duration_since(self.began) >= SQLITE_LOG_AGE_MIN;
        pages >= ahead(full) || is_old && pages >= ahead(ordinary)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::TempDir;

    #[test]
    fn the_log_is_copied_once_shortly_before_it_is_full_and_finished_when_it_is() {
        let now = Instant::now();
        let mut due = Due::new(LogLimits { full: 16_384, ordinary: 1 }, now);
        let mut steps = Vec::new();
        for pages in (1..=16_400).step_by(3).chain((1..=14_400).step_by(3)) {
            match due.step(pages, now) {
                Step::Nothing => {}
                step => steps.push((pages, step)),
            }
        }
        let ahead = (14_338, Step::CopyAhead);
        let finish = (16_387..=16_399).step_by(3).map(|pages| (pages, Step::Finish));
        let expected: Vec<_> = [ahead].into_iter().chain(finish).chain([ahead]).collect();
        assert_eq!(steps, expected);
    }

    #[test]
    fn a_log_that_grows_slowly_is_copied_while_it_is_short() {
        let began = Instant::now();
        let mut due = Due::new(LogLimits { full: 16_384, ordinary: 800 }, began);
        let old = began + SQLITE_LOG_AGE_MIN;
        for (pages, now, expected) in [
            (750, began, Step::Nothing),
            (699, began, Step::Nothing),
            (699, old, Step::Nothing),
            (720, old, Step::CopyAhead),
            (800, old, Step::Nothing),
            (822, old, Step::Finish),
            (830, old, Step::Finish),
            (10, old, Step::Nothing),
            (900, old, Step::Nothing),
            (901, old + SQLITE_LOG_AGE_MIN, Step::CopyAhead),
        ] {
            assert_eq!(due.step(pages, now), expected, "{pages}");
        }
    }

    /// A file whose log is full at so many pages and checkpointed, with a table of numbers.
    fn checkpointed(full: u32) -> (TempDir, Connection, WalCheckpointer) {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("store.db");
        let mut db = Connection::open(&path).unwrap();
        db.pragma_update(None, "journal_mode", "WAL").unwrap();
        let limits = LogLimits { full, ordinary: full };
        let checkpointer =
            WalCheckpointer::start(&path, &mut db, limits, StopReason::default()).unwrap();
        db.execute_batch("CREATE TABLE numbers (number INTEGER)").unwrap();
        (dir, db, checkpointer)
    }

    fn log_len(dir: &TempDir) -> u64 {
        std::fs::metadata(dir.path().join("store.db-wal")).unwrap().len()
    }

    fn numbers(db: &Connection) -> u32 {
        db.query_row("SELECT count(*) FROM numbers", [], |row| row.get(0)).unwrap()
    }

    #[test]
    fn a_log_that_is_written_to_all_the_time_begins_again_and_loses_nothing() {
        const FULL: u32 = 200;
        let (dir, db, checkpointer) = checkpointed(FULL);
        for number in 0..20 * FULL {
            db.execute("INSERT INTO numbers VALUES (?1)", [number]).unwrap();
        }
        assert_eq!(numbers(&db), 20 * FULL);
        let log = log_len(&dir);
        let full_bytes = u64::from(FULL) * (4096 + 24);
        assert!(log < 5 * full_bytes, "the log has {log} bytes and is full with {full_bytes}");
        drop(checkpointer);
        drop(db);
        assert!(!dir.path().join("store.db-wal").exists(), "the last to close the file tidies it");
    }
}
