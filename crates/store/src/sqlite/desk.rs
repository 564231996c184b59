//! What the writer has before it: its connection and its notes.

use std::path::Path;

use railpost_engine::Timestamp;
use rusqlite::{Connection, Error, ErrorCode, OpenFlags};

use super::errors::At;
use super::inserts::Inserts;
use super::keeper::Keeper;
use super::notes::Notes;
use super::unsettled::Unsettled;
use super::{lanes, schema, statements};
use crate::limits::{
    SQLITE_CHECKPOINT_PAGES, SQLITE_PAGE_LEN, SQLITE_WRITER_CACHE_KIB, WARY_GROUPS,
};
use crate::{Result, Setup, StoreError};

/// The file, open for writing.
#[derive(Debug)]
pub(super) struct OpenFile {
    // In this order they go: the writer's connection closes the file last, which tidies it.
    _keeper: Keeper,
    db: Connection,
    setup: Setup,
}

/// The write connection, what the group is to add, and the writer's notes.
#[derive(Debug)]
pub(super) struct Desk<'f> {
    pub(super) db: &'f Connection,
    pub(super) setup: &'f Setup,
    /// Whoever looks for events or deliveries that this group may have accepted adds these first.
    pub(super) inserts: Inserts<'f>,
    pub(super) notes: Notes,
    flushed: bool,
    /// For how many groups events are looked for before they are inserted. Others find out that an event
    /// was accepted before by its insert failing, which most inserts do not.
    wary_groups: u32,
    /// An insert of this group failed for that reason.
    pub(super) collided: bool,
}

/// A path is a path, even if it looks like a URI; one thread has the connection.
pub(super) const FLAGS: OpenFlags = OpenFlags::SQLITE_OPEN_READ_WRITE
    .union(OpenFlags::SQLITE_OPEN_CREATE)
    .union(OpenFlags::SQLITE_OPEN_NO_MUTEX);

impl OpenFile {
    /// Opens the file for writing and brings it up to date.
    pub(super) fn open(path: &Path, setup: Setup) -> Result<Self> {
        let mut db = Connection::open_with_flags(path, FLAGS).at("opening the file")?;
        if db.is_readonly("main").at("opening the file")? {
            return Err(StoreError::ReadOnly(format!("{} may only be read", path.display())));
        }
        let found = schema::check(&db, &setup)?;
        statements::keep(&db).at("opening the file")?;
        // Counts for a new file only.
        db.pragma_update(None, "page_size", SQLITE_PAGE_LEN).at("opening the file")?;
        db.pragma_update(None, "journal_mode", "WAL").at("opening the file")?;
        db.pragma_update(None, "synchronous", "FULL").at("opening the file")?;
        db.pragma_update(None, "cache_size", -SQLITE_WRITER_CACHE_KIB).at("opening the file")?;
        schema::migrate(&mut db, &setup, found)?;
        lanes::settle_all(&mut db)?;
        let keeper = Keeper::start(path, &mut db, SQLITE_CHECKPOINT_PAGES)?;
        Ok(Self { _keeper: keeper, db, setup })
    }

    /// A desk to write at. What it leaves unsettled is shown there.
    pub(super) fn desk(&self, unsettled: Unsettled) -> Result<Desk<'_>> {
        Ok(Desk {
            db: &self.db,
            setup: &self.setup,
            inserts: Inserts::new(&self.db).at("preparing to write")?,
            notes: Notes::new(unsettled),
            flushed: true,
            wary_groups: 0,
            collided: false,
        })
    }
}

impl Desk<'_> {
    /// Starts a group.
    pub(super) fn begin(&mut self, durable: bool) -> Result<()> {
        self.wary_groups = self.wary_groups.saturating_sub(1);
        self.collided = false;
        if self.flushed != durable {
            let mode = if durable { "FULL" } else { "NORMAL" };
            self.db.pragma_update(None, "synchronous", mode).at("the start of a group")?;
            self.flushed = durable;
        }
        self.db.prepare_cached("BEGIN IMMEDIATE")?.execute([]).at("the start of a group")?;
        Ok(())
    }

    /// Adds what the group has accepted so far.
    pub(super) fn add_accepted(&mut self) -> Result<()> {
        let added = self.inserts.run();
        let code = added.as_ref().err().and_then(Error::sqlite_error_code);
        self.collided |= code == Some(ErrorCode::ConstraintViolation);
        Ok(added?)
    }

    /// Commits a group.
    pub(super) fn end(&mut self) -> Result<()> {
        self.add_accepted()?;
        self.notes.lanes.write(self.db)?;
        self.db.prepare_cached("COMMIT")?.execute([]).at("the commit of a group")?;
        self.notes.lanes.committed();
        Ok(())
    }

    /// Undoes a group, and forgets what it may have changed.
    pub(super) fn give_up(&mut self) {
        self.inserts.forget();
        if !self.db.is_autocommit() {
            // If this fails as well, the next group fails to begin and says why.
            let _ = self.db.execute_batch("ROLLBACK");
        }
        self.notes.forget();
    }

    /// Whether the group that was given up found an event that was accepted before. If so it will be
    /// looked for: the group may be tried again.
    pub(super) fn grows_wary(&mut self) -> bool {
        if self.collided {
            self.wary_groups = WARY_GROUPS;
        }
        self.collided
    }

    pub(super) fn is_wary(&self) -> bool {
        self.wary_groups > 0
    }

    pub(super) fn now(&self) -> Timestamp {
        self.setup.source.now()
    }
}

/// Writes something that changes nothing, to see whether writing works.
pub(super) fn touch(desk: &mut Desk<'_>) -> Result<()> {
    let sql = "UPDATE store SET key_check = key_check";
    desk.db.execute(sql, []).at("the health check")?;
    Ok(())
}

#[cfg(test)]
pub(super) mod testing {
    //! A file and its desk, for tests of what is done there.

    use std::sync::Arc;

    use super::*;
    use crate::{MasterKey, SystemSource};

    pub(crate) fn open(path: &Path) -> OpenFile {
        let setup = Setup { source: Arc::new(SystemSource), master_key: MasterKey::new(&[1; 32]) };
        OpenFile::open(path, setup).unwrap()
    }

    pub(crate) fn in_a_group<T>(desk: &mut Desk<'_>, work: impl FnOnce(&mut Desk<'_>) -> T) -> T {
        desk.begin(true).unwrap();
        let done = work(desk);
        desk.end().unwrap();
        done
    }
}
