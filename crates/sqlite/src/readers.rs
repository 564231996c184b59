//! Connections for reading: each reader has its own and sees all that was committed before it began.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::{Connection, OpenFlags};
use tokio::sync::Semaphore;

use super::errors::Translate;
use super::statements;
use crate::limits::{SQLITE_READER_CACHE_KIB, SQLITE_READERS};
use railpost_store::{Result, StoreError};

/// A few read-only connections that take turns.
#[derive(Clone, Debug)]
pub(super) struct Readers {
    path: PathBuf,
    idle: Arc<Mutex<Vec<Connection>>>,
    turns: Arc<Semaphore>,
}

impl Readers {
    pub(super) fn new(path: &Path) -> Self {
        let turns = Arc::new(Semaphore::new(SQLITE_READERS));
        Self { path: path.to_owned(), idle: Arc::default(), turns }
    }

    /// Runs `work` on a connection, off the runtime's threads, on one snapshot of the store.
    pub(super) async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let on_snapshot = |db: &Connection| {
            let snapshot = db.unchecked_transaction().at("the start of a read")?;
            work(&snapshot)
        };
        self.read_without_transaction(on_snapshot).await
    }

    /// The same, for work that is one statement with a snapshot of its own.
    pub(super) async fn read_without_transaction<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let turn = self.turns.clone().acquire_owned().await;
        let turn = turn.expect("nobody closes the turns");
        let readers = self.clone();
        let task = tokio::task::spawn_blocking(move || {
            let result = readers.read_now(work);
            drop(turn);
            result
        });
        task.await.map_err(|error| StoreError::Unavailable(format!("a reader broke: {error}")))?
    }

    /// The same on a connection of its own, for work that takes long: no reader waits for it.
    pub(super) async fn read_on_new_connection<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let path = self.path.clone();
        let task = tokio::task::spawn_blocking(move || work(&open(&path)?));
        task.await.map_err(|error| StoreError::Unavailable(format!("a reader broke: {error}")))?
    }

    fn read_now<T>(&self, work: impl FnOnce(&Connection) -> Result<T>) -> Result<T> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let db = idle.map_or_else(|| open(&self.path), Ok)?;
        let result = work(&db);
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(db);
        result
    }
}

fn open(path: &Path) -> Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = Connection::open_with_flags(path, flags).at("opening the file for reading")?;
    statements::configure(&db).at("opening the file for reading")?;
    db.pragma_update(None, "cache_size", -SQLITE_READER_CACHE_KIB)
        .at("opening the file for reading")?;
    Ok(db)
}
