//! What the writer works with: its connection, what its group is to add, and its cache.

use std::path::Path;

use railpost_engine::Timestamp;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, Error, ErrorCode, OpenFlags};

use super::accept_log::{self, AcceptLog, Unapplied};
use super::cache::WriterCache;
use super::checkpointer::{LogLimits, WalCheckpointer};
use super::errors::Translate;
use super::inserts::Inserts;
use super::stop::{StopReason, is_io_failure, is_sync_failure};
use super::{schema, statements};
use crate::limits::{LOOKUP_GROUPS, SQLITE_PAGE_LEN, SQLITE_WRITER_CACHE_KIB};
use railpost_store::{Result, Setup, StoreError};

/// The file, open for writing.
#[derive(Debug)]
pub(super) struct OpenFile {
    // In this order they go: the writer's connection closes the file last, which tidies it.
    _checkpointer: WalCheckpointer,
    db: Connection,
    setup: Setup,
    stop: StopReason,
    unapplied: Unapplied,
}

/// The write connection, what the group is to add, and the writer's cache.
#[derive(Debug)]
pub(super) struct WriteSession<'f> {
    pub(super) db: &'f Connection,
    pub(super) setup: &'f Setup,
    /// A look-up of events or deliveries that this group may have accepted adds these first.
    pub(super) inserts: Inserts<'f>,
    pub(super) cache: WriterCache,
    pub(super) log: AcceptLog,
    /// Whether commits are synced.
    synced: bool,
    /// For how many groups events are looked up before they are inserted. In others an insert that fails
    /// tells that an event was accepted before, which is rare.
    lookup_groups: u32,
    /// An insert of this group failed for that reason.
    pub(super) collided: bool,
    pub(super) stop: StopReason,
}

/// A path is a path, even if it looks like a URI; one thread has the connection.
pub(super) const FLAGS: OpenFlags = OpenFlags::SQLITE_OPEN_READ_WRITE
    .union(OpenFlags::SQLITE_OPEN_CREATE)
    .union(OpenFlags::SQLITE_OPEN_NO_MUTEX);

/// A connection to the file, which is checked and brought up to date.
pub(super) fn connect(path: &Path, setup: &Setup) -> Result<Connection> {
    let mut db = Connection::open_with_flags(path, FLAGS).at("opening the file")?;
    if db.is_readonly("main").at("opening the file")? {
        return Err(StoreError::ReadOnly(format!("{} may only be read", path.display())));
    }
    let found = schema::check(&db, setup)?;
    statements::configure(&db).at("opening the file")?;
    // Counts for a new file only.
    db.pragma_update(None, "page_size", SQLITE_PAGE_LEN).at("opening the file")?;
    db.pragma_update(None, "journal_mode", "WAL").at("opening the file")?;
    db.pragma_update(None, "synchronous", "FULL").at("opening the file")?;
    db.pragma_update(None, "cache_size", -SQLITE_WRITER_CACHE_KIB).at("opening the file")?;
    schema::migrate(&mut db, setup, found)?;
    schema::apply_keys(&db, setup)?;
    accept_log::apply_left(&mut db)?;
    Ok(db)
}

impl OpenFile {
    /// Opens the file for writing and brings it up to date.
    pub(super) fn open(path: &Path, setup: Setup, stop: StopReason) -> Result<Self> {
        let mut db = connect(path, &setup)?;
        let page_len = db.pragma_query_value(None, "page_size", |row| row.get(0));
        let limits = LogLimits::of_pages(page_len.at("the size of a page")?);
        let checkpointer = WalCheckpointer::start(path, &mut db, limits, stop.clone())?;
        let unapplied = Unapplied::default();
        Ok(Self { _checkpointer: checkpointer, db, setup, stop, unapplied })
    }

    /// Whether something that was accepted is in the accept log alone.
    pub(super) fn unapplied(&self) -> Unapplied {
        self.unapplied.clone()
    }

    pub(super) fn session(&self) -> Result<WriteSession<'_>> {
        Ok(WriteSession {
            db: &self.db,
            setup: &self.setup,
            inserts: Inserts::new(&self.db).at("preparing to write")?,
            cache: WriterCache::default(),
            log: AcceptLog::new(&self.db, self.unapplied.clone())?,
            synced: true,
            lookup_groups: 0,
            collided: false,
            stop: self.stop.clone(),
        })
    }
}

impl WriteSession<'_> {
    /// Starts a group of accepts that is to be logged.
    pub(super) fn begin_logged(&mut self) -> Result<()> {
        self.begin(true)?;
        self.log.begin(true);
        Ok(())
    }

    /// Starts a group that is written to the tables.
    pub(super) fn begin(&mut self, durable: bool) -> Result<()> {
        self.lookup_groups = self.lookup_groups.saturating_sub(1);
        self.collided = false;
        self.log.begin(false);
        if self.synced != durable {
            let mode = if durable { "FULL" } else { "NORMAL" };
            self.db.pragma_update(None, "synchronous", mode).at("the start of a group")?;
            self.synced = durable;
        }
        self.db
            .prepare_cached("BEGIN IMMEDIATE")
            .translated()?
            .execute([])
            .at("the start of a group")?;
        Ok(())
    }

    /// Adds what the group has accepted so far.
    pub(super) fn add_accepted(&mut self) -> Result<()> {
        assert!(!self.log.is_open, "a group that is logged adds nothing to the tables");
        self.cache.lanes.complete(self.inserts.new_lanes());
        let added = self.inserts.run();
        let code = added.as_ref().err().and_then(Error::sqlite_error_code);
        self.collided |= code == Some(ErrorCode::ConstraintViolation);
        added.translated()
    }

    /// Adds what the group has accepted so far, and writes the last seqs of its lanes.
    pub(super) fn flush(&mut self) -> Result<()> {
        self.add_accepted()?;
        self.cache.lanes.write(self.db)
    }

    /// Commits a group.
    pub(super) fn end(&mut self) -> Result<()> {
        if self.log.is_open {
            self.log.write(self.db, &self.inserts, &self.cache.lanes)?;
            self.inserts.forget();
        } else {
            self.flush()?;
        }
        self.commit_transaction()?;
        self.log.committed();
        self.cache.committed();
        Ok(())
    }

    /// Moves what was logged to its tables. It is durable already, so this is not synced.
    pub(super) fn apply_log(&mut self) -> Result<()> {
        if self.log.is_empty() {
            return Ok(());
        }
        self.begin(false)?;
        let done = accept_log::apply(self.db, &mut self.inserts);
        let done = done.and_then(|()| self.commit_transaction());
        match done {
            Ok(()) => self.log.applied(),
            Err(_) => self.roll_back(),
        }
        done
    }

    fn commit_transaction(&mut self) -> Result<()> {
        let done = self.db.prepare_cached("COMMIT").translated()?.execute([]);
        if let Err(error) = &done
            && (is_sync_failure(error) || self.synced && is_io_failure(error))
        {
            self.stop_for_good(error);
        }
        done.at("the commit of a group")?;
        Ok(())
    }

    /// From here on nothing is written, not even by closing the file: what is in the log may not be what is on
    /// the disk.
    fn stop_for_good(&self, error: &Error) {
        self.stop.set(error);
        // Without it, closing the file copies the log, as a crash would not.
        let _ = self.db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true);
    }

    /// Undoes a group, in the file and in the cache.
    pub(super) fn give_up(&mut self) {
        self.roll_back();
        self.log.undo();
        self.cache.undo();
    }

    /// Undoes a group in the file.
    fn roll_back(&mut self) {
        self.inserts.forget();
        if !self.db.is_autocommit() {
            // If this fails as well, the next group fails to begin and says why.
            let _ = self.db.execute_batch("ROLLBACK");
        }
    }

    /// Whether the group that was given up found an event that was accepted before. If so, the next groups
    /// look events up first, and this one may be tried again.
    pub(super) fn looks_up_next(&mut self) -> bool {
        if self.collided {
            self.lookup_groups = LOOKUP_GROUPS;
        }
        self.collided
    }

    /// Whether events are looked up before they are inserted.
    pub(super) fn looks_up(&self) -> bool {
        self.lookup_groups > 0
    }

    pub(super) fn now(&self) -> Timestamp {
        self.setup.source.now()
    }
}

/// Writes something that changes nothing, to see whether writing works.
pub(super) fn check_writable(session: &mut WriteSession<'_>) -> Result<()> {
    let sql = "UPDATE store SET key_check = key_check";
    session.db.execute(sql, []).at("the health check")?;
    Ok(())
}

#[cfg(test)]
pub(super) mod testing {
    //! A file and its session, for tests of what is written.

    use std::sync::Arc;

    use super::*;
    use railpost_store::{MasterKey, SystemSource};

    pub(crate) fn setup() -> Setup {
        Setup { source: Arc::new(SystemSource), master_key: MasterKey::new(&[1; 32]) }
    }

    pub(crate) fn open(path: &Path) -> OpenFile {
        OpenFile::open(path, setup(), StopReason::default()).unwrap()
    }

    pub(crate) fn in_a_group<T>(
        session: &mut WriteSession<'_>,
        work: impl FnOnce(&mut WriteSession<'_>) -> T,
    ) -> T {
        session.begin(true).unwrap();
        let done = work(session);
        session.end().unwrap();
        done
    }
}
