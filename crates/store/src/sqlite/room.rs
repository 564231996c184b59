//! Room in the write-ahead log, made ahead of the writer.
//!
//! Where a file has bytes already, a commit syncs what it wrote. Past the file's end it waits for the file
//! system's own journal as well, and every commit is past the end until the log is full for the first time. So
//! what is missing is filled with zeros. They are appended, which the system does in one step: whatever the
//! writer writes meanwhile, no zero is put over it. To SQLite they are no frame, so a log that a crash
//! leaves ends where it would have ended without them.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use crate::limits::SQLITE_ROOM_STEP_LEN;

/// Bytes of the log's own head, and of the head of each page in it. SQLite's format.
const LOG_HEAD_LEN: u64 = 32;
const FRAME_HEAD_LEN: u64 = 24;

/// A log that is being filled up.
#[derive(Debug)]
pub(super) struct Room {
    log: File,
    /// How long it should be.
    wanted: u64,
    /// What is appended at once: no more than a page, because the system counts what was written in one
    /// piece as written anew when any part of it is.
    zeros: Vec<u8>,
}

impl Room {
    /// In the log of this database, for so many pages.
    pub(super) fn new(database: &Path, pages: u32, page_len: usize) -> io::Result<Self> {
        let mut name = database.as_os_str().to_owned();
        name.push("-wal");
        let log = File::options().append(true).open(name)?;
        let wanted = LOG_HEAD_LEN + u64::from(pages) * (page_len as u64 + FRAME_HEAD_LEN);
        Ok(Self { log, wanted, zeros: vec![0; page_len] })
    }

    /// Makes some, and says whether more is wanted. A step is synced before the next: the writer's own
    /// syncs wait for what is not.
    pub(super) fn make_some(&mut self) -> io::Result<bool> {
        let until = self.wanted.min(self.log.metadata()?.len() + SQLITE_ROOM_STEP_LEN);
        while self.log.metadata()?.len() < until {
            self.log.write_all(&self.zeros)?;
        }
        self.log.sync_data()?;
        Ok(until < self.wanted)
    }
}
