//! Looks after the write-ahead log, with a thread of its own.
//!
//! When the log is full, it is copied into the file and begun anew, and the writer and all who wait for
//! it stand still meanwhile. So the keeper copies most of it shortly before. What is left for the
//! writer is little. Once is enough: each copy is synced, and competes with the writer's own syncs.
//!
//! Before that, as soon as a store is in use, the keeper makes [`Room`] for a whole log.

use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread::JoinHandle;

use rusqlite::Connection;
use rusqlite::hooks::Wal;

use super::errors::At;
use super::room::Room;
use crate::limits::{
    SQLITE_CHECKPOINT_LEFT_SHARE, SQLITE_ROOM_FROM_SHARE, SQLITE_ROOM_SPARE_SHARE,
};
use crate::{Result, StoreError};

/// A handle to the keeper's thread. Dropping it ends the thread.
#[derive(Debug)]
pub(super) struct Keeper {
    signals: SyncSender<Signal>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
enum Signal {
    MakeRoom,
    Copy,
    End,
}

impl Keeper {
    /// Looks after the log of the writer's connection, which is full at so many pages.
    pub(super) fn start(path: &Path, db: &mut Connection, full: u32) -> Result<Self> {
        // Each signal but the last is sent once until it is heard.
        let (signals, inbox) = sync_channel(2);
        let own = Connection::open_with_flags(path, super::desk::FLAGS);
        let own = own.at("opening the file to look after its log")?;
        let thread = std::thread::Builder::new()
            .name("railpost-keeper".to_owned())
            .spawn(move || keep(&own, full, &inbox))
            .map_err(|error| {
                StoreError::Unavailable(format!("no thread to look after the log with: {error}"))
            })?;
        watch(db, Due::new(full), signals.clone())?;
        Ok(Self { signals, thread: Some(thread) })
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        let _ = self.signals.send(Signal::End);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn keep(db: &Connection, full: u32, inbox: &Receiver<Signal>) {
    let mut room: Option<Room> = None;
    loop {
        let signal = match room {
            Some(_) => inbox.try_recv(),
            None => inbox.recv().map_err(|_| TryRecvError::Disconnected),
        };
        match signal {
            Ok(Signal::MakeRoom) => room = room_for_log(db, full),
            Err(TryRecvError::Empty) => room = room.and_then(with_more),
            Ok(Signal::Copy) => copy(db),
            Ok(Signal::End) | Err(TryRecvError::Disconnected) => return,
        }
    }
}

/// A log without room grows with what is written to it. That is slower, and nothing else.
fn room_for_log(db: &Connection, full: u32) -> Option<Room> {
    let page_len = db.pragma_query_value(None, "page_size", |row| row.get(0)).ok()?;
    Room::new(Path::new(db.path()?), full + full / SQLITE_ROOM_SPARE_SHARE, page_len).ok()
}

fn with_more(mut room: Room) -> Option<Room> {
    matches!(room.make_some(), Ok(true)).then_some(room)
}

fn copy(db: &Connection) {
    // What could not be copied now is copied by the next, or by the writer.
    let _ = db.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()));
}

fn watch(db: &mut Connection, mut due: Due, signals: SyncSender<Signal>) -> Result<()> {
    let hook = move |wal: &mut Wal, pages: i32| {
        let pages = u32::try_from(pages).unwrap_or(0);
        if due.room(pages) {
            let _ = signals.try_send(Signal::MakeRoom);
        }
        match due.step(pages) {
            Step::Nothing => {}
            // If a copy is waiting to begin, it will be of this too.
            Step::CopyAhead => drop(signals.try_send(Signal::Copy)),
            // The commit is done whatever comes of this, and the next one tries again.
            Step::Finish => drop(wal.checkpoint()),
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

/// When something is due about the log.
#[derive(Debug)]
struct Due {
    full: u32,
    last: u32,
    roomy: bool,
}

impl Due {
    fn new(full: u32) -> Self {
        Self { full, last: 0, roomy: false }
    }

    /// Whether to make room: once, when the log shows that the store is in use.
    fn room(&mut self, pages: u32) -> bool {
        let due = !self.roomy && pages >= self.full / SQLITE_ROOM_FROM_SHARE;
        self.roomy |= due;
        due
    }

    fn step(&mut self, pages: u32) -> Step {
        let last = std::mem::replace(&mut self.last, pages);
        let ahead = self.full - self.full / SQLITE_CHECKPOINT_LEFT_SHARE;
        match pages {
            _ if pages >= self.full => Step::Finish,
            _ if last < ahead && pages >= ahead => Step::CopyAhead,
            _ => Step::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::TempDir;

    #[test]
    fn the_log_is_copied_once_shortly_before_it_is_full_and_finished_when_it_is() {
        let mut due = Due::new(16_384);
        let mut steps = Vec::new();
        for pages in (1..=16_400).step_by(3).chain((1..=14_400).step_by(3)) {
            match due.step(pages) {
                Step::Nothing => {}
                step => steps.push((pages, step)),
            }
        }
        let ahead = (14_338, Step::CopyAhead);
        let finish = (16_384..=16_399).step_by(3).map(|pages| (pages, Step::Finish));
        let expected: Vec<_> = [ahead].into_iter().chain(finish).chain([ahead]).collect();
        assert_eq!(steps, expected);
    }

    #[test]
    fn room_is_made_once_when_the_store_is_in_use() {
        let mut due = Due::new(16_384);
        let pages = [1, 511, 512, 600, 16_384, 3, 9_000];
        assert_eq!(
            pages.map(|pages| due.room(pages)),
            [false, false, true, false, false, false, false]
        );
    }

    /// A file whose log is full at so many pages and looked after, with a table of numbers.
    fn kept(full: u32) -> (TempDir, Connection, Keeper) {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("store.db");
        let mut db = Connection::open(&path).unwrap();
        db.pragma_update(None, "journal_mode", "WAL").unwrap();
        let keeper = Keeper::start(&path, &mut db, full).unwrap();
        db.execute_batch("CREATE TABLE numbers (number INTEGER)").unwrap();
        (dir, db, keeper)
    }

    fn log_len(dir: &TempDir) -> u64 {
        std::fs::metadata(dir.path().join("store.db-wal")).unwrap().len()
    }

    /// As a crash leaves it: the file and its log, without whoever had them open.
    fn after_a_crash(dir: &TempDir) -> (TempDir, Connection) {
        let left = TempDir::new().unwrap();
        for name in ["store.db", "store.db-wal"] {
            std::fs::copy(dir.path().join(name), left.path().join(name)).unwrap();
        }
        let db = Connection::open(left.path().join("store.db")).unwrap();
        (left, db)
    }

    fn numbers(db: &Connection) -> u32 {
        db.query_row("SELECT count(*) FROM numbers", [], |row| row.get(0)).unwrap()
    }

    #[test]
    fn room_is_made_while_the_log_is_written_to_and_a_crash_loses_nothing() {
        const FULL: u32 = 4_000;
        let (dir, db, _keeper) = kept(FULL);
        let wanted = u64::from(FULL + FULL / SQLITE_ROOM_SPARE_SHARE) * (4096 + 24);
        let mut written = 0;
        // Until it is all there, which the writer alone would need many more rows for.
        while log_len(&dir) < wanted {
            db.execute("INSERT INTO numbers VALUES (?1)", [written]).unwrap();
            written += 1;
            assert!(written < FULL - 100, "no room was made");
            if written % 50 == 0 {
                assert_eq!(numbers(&after_a_crash(&dir).1), written);
            }
        }
        assert_eq!(numbers(&db), written);
        assert_eq!(numbers(&after_a_crash(&dir).1), written);
    }

    #[test]
    fn a_log_that_is_written_to_all_the_time_begins_anew_and_loses_nothing() {
        const FULL: u32 = 200;
        let (dir, db, keeper) = kept(FULL);
        for number in 0..20 * FULL {
            db.execute("INSERT INTO numbers VALUES (?1)", [number]).unwrap();
        }
        assert_eq!(numbers(&db), 20 * FULL);
        let log = log_len(&dir);
        let full_bytes = u64::from(FULL) * (4096 + 24);
        assert!(log < 5 * full_bytes, "the log has {log} bytes and is full with {full_bytes}");
        drop(keeper);
        drop(db);
        assert!(!dir.path().join("store.db-wal").exists(), "the last to close the file tidies it");
    }
}
